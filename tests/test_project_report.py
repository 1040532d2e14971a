"""The benchmark's report, opened in Chromium: complete, readable on a phone, in light and dark, without network."""

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from browsing import CHROMIUM, ONLY_HERE, SECONDS, visit
from numpy.typing import NDArray
from PIL import Image
from projects import Project, bake_project, read_json

WIDTHS = {"phone": 390, "desk": 1280}
THEMES = {"dark": "0", "light": "1"}
FIT = ("--trainer.max_epochs", "4")
FLOAT = {"aotinductor", "executorch", "onnx", "openvino", "tensorrt", "torch_export"}
VARIANTS = FLOAT | {f"{name}-int8" for name in FLOAT - {"aotinductor", "torch_export"}}
POLICY = re.compile(r"<meta http-equiv=.*>")  # would forbid what the page asks for, so that nobody would see it
# Looks into a frame, since a window of Chromium's can't be as narrow as a phone.
DRIVER = """<!doctype html><body><script type="module">
const frame = document.createElement("iframe");
frame.style = "border: 0; height: 9000px; width: %dpx";
frame.src = "report.html";
document.body.append(frame);
await new Promise((resolve) => (frame.onload = resolve));
const page = frame.contentDocument;
const style = frame.contentWindow.getComputedStyle;
const sizes = [...page.querySelectorAll("td, li, p, dd")].map((element) => parseFloat(style(element).fontSize));
const asked = frame.contentWindow.performance.getEntriesByType("resource").map((entry) => entry.name);
await fetch("report", { method: "POST", body: JSON.stringify({
  width: page.documentElement.clientWidth,
  overflow: page.documentElement.scrollWidth - page.documentElement.clientWidth,
  asked: asked.filter((name) => !name.startsWith("data:")),
  images: [...page.images].filter((image) => image.naturalWidth && image.alt).length,
  pictures: page.querySelectorAll("svg [id^=axes]").length,
  headless: [...page.querySelectorAll("tbody tr")].filter((row) => !row.querySelector("th[scope=row]")).length,
  smallest: Math.min(...sizes),
})});
</script>"""

pytestmark = pytest.mark.skipif(not CHROMIUM, reason="no chromium")


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of a model in every format and precision that can be written."""
    project: Project = bake_project(tmp_path_factory.mktemp("report"))
    run = project.fit(*FIT)
    said = project.run("export", "--format", "all", "--quantize", "32,8").stdout
    assert "torch_export in int8: skipped, it is written in 32, 16 bits\n" in said
    assert "torchscript in float32: skipped, it is written where it is asked for by name\n" in said
    project.run("benchmark", "--rounds", "3")
    return run / "checkpoints" / "benchmark"


def look(text: str, folder: Path, width: int) -> dict[str, Any]:
    """What is seen of a page once it is laid out."""
    site = folder / "site"
    site.mkdir()
    allowed, found = POLICY.subn("", text)
    assert found == 1
    (site / "report.html").write_text(allowed, "utf-8")
    (site / "driver.html").write_text(DRIVER % width, "utf-8")
    seen: dict[str, Any] = json.loads(visit(site, "driver.html", folder / "profile"))
    return seen


def photograph(page: Path, picture: Path, *, width: int, theme: str) -> NDArray[np.uint8]:
    """Grey levels of the page in a window of that width."""
    options = [f"--user-data-dir={picture.parent / 'profile'}", f"--window-size={width},2000"]
    options += [f"--blink-settings=preferredColorScheme={THEMES[theme]}", f"--screenshot={picture}"]
    command = [str(CHROMIUM), "--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", ONLY_HERE]
    subprocess.run([*command, *options, page.as_uri()], check=True, capture_output=True, timeout=SECONDS)
    return np.asarray(Image.open(picture).convert("L"))


def test_every_number_is_measured_or_says_why_not(report: Path) -> None:
    content = read_json(report / "benchmark.json")
    variants = {variant["name"]: variant for variant in content["variants"]}
    assert variants.keys() == VARIANTS
    for name, variant in variants.items():
        reasons = set(variant["missing"].values())
        assert reasons == (
            {"it has no engine, which takes tensorrt and a GPU to build"} if "tensorrt" in name else set()
        )
        assert all((value is None) == bool(reasons) for value in variant["batches"].values())
    assert content["reference"] == "onnx" and content["test_split"]["images"] == np.sum(
        content["test_split"]["confusion"]
    )


@pytest.mark.parametrize("width", WIDTHS.values(), ids=WIDTHS)
def test_the_page_is_whole_and_as_wide_as_the_window(width: int, report: Path, tmp_path: Path) -> None:
    seen = look((report / "report.html").read_text("utf-8"), tmp_path, width)
    assert (seen["width"], seen["overflow"]) == (width, 0)
    assert seen["asked"] == [] and seen["headless"] == 0
    assert seen["images"] == 4 and seen["pictures"] == 2
    assert seen["smallest"] >= 14


def test_it_would_be_seen_if_the_page_were_too_wide_or_asked_for_something(report: Path, tmp_path: Path) -> None:
    text = (report / "report.html").read_text("utf-8")
    added = '<img src="nowhere.png" alt="nothing"><p style="width: 600px">wide</p></main>'
    seen = look(text.replace("</main>", added), tmp_path, WIDTHS["phone"])
    assert seen["overflow"] > 0 and len(seen["asked"]) == 1 and seen["images"] == 4


@pytest.mark.parametrize("width", WIDTHS.values(), ids=WIDTHS)
def test_the_page_follows_the_theme(width: int, report: Path, tmp_path: Path) -> None:
    page = report / "report.html"
    light, dark = (photograph(page, tmp_path / f"{theme}.png", width=width, theme=theme) for theme in ("light", "dark"))
    assert light.shape == dark.shape == (2000, width)
    assert np.median(light) > 200 and np.median(dark) < 60
    assert len(np.unique(light)) > 50 and len(np.unique(dark)) > 50
