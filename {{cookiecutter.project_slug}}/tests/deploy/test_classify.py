"""deploy/python/classify.py, which knows the bundle alone, gives the classes and scores of `predict`."""

import csv
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from {{cookiecutter.package_name}}.cli import main

SCRIPT = Path(__file__).parents[2] / "deploy" / "python" / "classify.py"


def classify(*args: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, SCRIPT, *args], capture_output=True, encoding="utf-8", check=False)


@pytest.fixture(scope="module")
def awkward(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("awkward")
    colours = Image.fromarray(np.random.default_rng(0).integers(0, 256, (5, 4, 4), np.uint8)).resize((61, 43))
    rgb, grey, rotated = colours.convert("RGB"), np.asarray(colours.convert("L")), Image.Exif()
    rotated[0x0112] = 6
    colours.save(folder / "rgba.png")
    colours.convert("LA").save(folder / "la.png")
    rgb.quantize(8).save(folder / "palette.png", transparency=2)
    rgb.convert("CMYK").save(folder / "cmyk.jpg")
    rgb.convert("1").save(folder / "bits.png")
    rgb.save(folder / "rotated.jpg", exif=rotated)
    rgb.resize((2000, 20)).save(folder / "long.png")
    Image.fromarray(grey.astype(np.uint16) * 257 + 128).save(folder / "grey16.png")
    np.save(folder / "array.npy", np.asarray(rgb))
    (folder / ".hidden.png").write_bytes(b"no image")
    return folder


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("resize", ["squash", "crop", "pad"])
def test_same_classes_and_scores_as_predict(resize, channels, make_bundle, awkward: Path, tmp_path: Path) -> None:
    checkpoint, bundle = make_bundle(channels, resize)
    command = ["predict", str(awkward), "--ckpt_path", str(checkpoint), "--output", str(tmp_path / "predictions.csv")]
    assert main([*command, "--num_workers", "0"]) == 0
    expected = list(csv.DictReader((tmp_path / "predictions.csv").open(encoding="utf-8")))
    found = list(csv.DictReader(classify(bundle, awkward).stdout.splitlines()))
    assert len(found) == len(list(awkward.glob("[!.]*")))
    assert [(row["path"], row["label"]) for row in found] == [(row["path"], row["label"]) for row in expected]
    for row, other in zip(found, expected, strict=True):
        assert float(row["score"]) == pytest.approx(float(other["score"]), abs=1e-4)


def test_what_is_wrong_is_one_line(make_bundle, awkward: Path, tmp_path: Path) -> None:
    _, bundle = make_bundle()
    image, broken = awkward / "rgba.png", tmp_path / "broken.png"
    broken.write_bytes(image.read_bytes()[:-50])
    by_file = classify(bundle, image, broken)
    (bundle / "labels.txt").write_text("other\n", "utf-8")
    by_bundle = classify(bundle, image)
    for refused, reason in ((by_file, "broken.png can't be decoded"), (by_bundle, "labels.txt is not the file")):
        assert refused.returncode == 1 and reason in refused.stderr
        assert len(refused.stderr.splitlines()) == 1
    assert len(by_file.stdout.splitlines()) == 2 and by_bundle.stdout == ""
