"""C++ and the browser know the bundle alone: they get the scores of `predict`, and refuse a bundle that is wrong."""

import csv
import functools
import hashlib
import io
import json
import shutil
import subprocess
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from baking import TEMPLATE, run
from browsing import CHROMIUM, visit
from onnx import helper, numpy_helper
from PIL import ExifTags, Image
from projects import Project, bake_project, draw_image, read_json, read_rows

SIZE = (24, 40)
FIT = ("--data.source", "folder", "--data.decoding.image_size", str(list(SIZE)), "--data.batch_size", "16")
TINTS = {"blue": (20, 0, 90), "green": (60, 95, 60), "red": (90, 30, 20)}
NODE_MODULES = TEMPLATE / "build" / "node" / "node_modules"
Answer = tuple[str, list[tuple[str, float]]]  # what it says, and for each file the label and the score
Consume = Callable[[Path, list[Path]], Answer]
# Chooses each file on the page, as a person would, and sends what the page shows to the test.
DRIVER = """<!doctype html><body><script type="module">
const frame = document.createElement("iframe");
frame.src = "index.html";
document.body.append(frame);
await new Promise((resolve) => (frame.onload = resolve));
const page = frame.contentDocument;
const until = (...states) => new Promise((resolve) => {
  const look = () => states.includes(page.body.dataset.state) && resolve(page.body.dataset.state);
  new MutationObserver(look).observe(page.body, { attributes: true });
  look();
});
const rows = [];
let state = await until("ready", "refused");
for (const name of state === "ready" ? await (await fetch("files.json")).json() : []) {
  const transfer = new DataTransfer();
  transfer.items.add(new File([await (await fetch("files/" + name)).blob()], name));
  page.querySelector("input").files = transfer.files;
  page.querySelector("input").dispatchEvent(new Event("change"));
  state = await until("done", "failed");
  const row = page.querySelector("li.chosen");
  if (state === "failed") break;
  rows.push([row.firstChild.textContent, Number(row.style.getPropertyValue("--score"))]);
}
const said = ["refused", "failed"].includes(state) ? page.querySelector("#status").textContent : "";
await fetch("report", { method: "POST", body: JSON.stringify([said, rows]) });
</script>"""


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Project:
    return bake_project(tmp_path_factory.mktemp("consumers"))


@pytest.fixture(scope="module")
def fitted(project: Project, tmp_path_factory: pytest.TempPathFactory) -> Callable[[int], Path]:
    """The checkpoint for so many channels, trained to tell colours (or how bright they are)."""
    root = tmp_path_factory.mktemp("data") / "colours"
    for label, (name, tint) in enumerate(TINTS.items()):
        (root / name).mkdir(parents=True)
        for number in range(24):
            levels = np.random.default_rng(100 * label + number).integers(0, 160, (24, 20, 3)) + np.array(tint)
            Image.fromarray(levels.astype(np.uint8)).save(root / name / f"{number}.png")

    @functools.cache
    def fit(channels: int) -> Path:
        options = ("--data.root", root, "--data.decoding.channels", str(channels), "--trainer.max_epochs", "4")
        return project.fit(*FIT, *options) / "checkpoints" / "last.ckpt"

    return fit


@pytest.fixture(scope="module")
def bundle(project: Project, fitted: Callable[[int], Path]) -> Path:
    project.run("export", "--ckpt_path", fitted(3), "--output", "bundle")
    return project.folder / "bundle"


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Files of every kind that both programs read."""
    folder = tmp_path_factory.mktemp("images")
    pictures = [draw_image(index, index, size=(50 + 3 * index, 31)) for index in range(3)]
    rgba, grey = pictures[0].copy(), np.asarray(pictures[1].convert("L")).astype(np.uint16)
    rgba.putalpha(Image.linear_gradient("L").resize(rgba.size))
    rgba.save(folder / "rgba, with comma.png")
    Image.fromarray(grey * 251 + 100).save(folder / "grey16.png")
    pictures[0].quantize(16).save(folder / "palette.png", transparency=bytes(range(0, 256, 16)))
    pictures[0].convert("CMYK").save(folder / "cmyk.jpg", quality=95)
    draw_image(5, 1, size=(2000, 20)).save(folder / "wide.png")
    for orientation in range(1, 9):
        exif = Image.Exif()
        exif[ExifTags.Base.Orientation] = orientation
        pictures[2].save(folder / f"rotated{orientation}.jpg", exif=exif, quality=95)
    pictures[2].save(folder / "rotated.png", exif=exif)
    return sorted(folder.iterdir())


@pytest.fixture(scope="module")
def in_cpp(project: Project, tmp_path_factory: pytest.TempPathFactory) -> Consume:
    openvino = find_spec("openvino")
    if not (shutil.which("cmake") and shutil.which("c++") and openvino):
        pytest.skip("no cmake, no C++ compiler or no openvino")
    build, cmake = tmp_path_factory.mktemp("cpp"), Path(str(openvino.origin)).with_name("cmake")
    places = ("-S", project.folder / "deploy" / "cpp", "-B", build)
    run("cmake", *places, "-D", f"OpenVINO_DIR={cmake}", cwd=build)
    run("cmake", "--build", build, cwd=build)

    def consume(bundle: Path, files: list[Path]) -> Answer:
        done = subprocess.run([build / "classify", bundle, *files], capture_output=True, text=True)
        rows = list(csv.DictReader(io.StringIO(done.stdout)))
        assert (done.returncode == 0) == (done.stderr == "")
        assert [row["path"] for row in rows] == [str(file) for file in files[: len(rows)]]
        return done.stderr, [(row["label"], float(row["score"])) for row in rows]

    return consume


@pytest.fixture(scope="module")
def in_browser(project: Project, tmp_path_factory: pytest.TempPathFactory) -> Consume:
    if not CHROMIUM or not (NODE_MODULES / "onnxruntime-web").is_dir():
        pytest.skip("no chromium or no onnxruntime-web")

    def consume(bundle: Path, files: list[Path]) -> Answer:
        folder = tmp_path_factory.mktemp("browser")
        site = shutil.copytree(project.folder / "deploy" / "browser", folder / "site")
        (site / "node_modules").symlink_to(NODE_MODULES)
        (site / "bundle").symlink_to(bundle)
        (site / "files").mkdir()
        for file in files:
            shutil.copy(file, site / "files")
        (site / "files.json").write_text(json.dumps([file.name for file in files]), encoding="utf-8")
        (site / "driver.html").write_text(DRIVER, encoding="utf-8")
        said, rows = json.loads(visit(site, "driver.html", folder / "profile"))
        return said, [(label, score) for label, score in rows]

    return consume


@pytest.fixture(params=["cpp", "browser"])
def consume(request: pytest.FixtureRequest) -> Consume:
    chosen: Consume = request.getfixturevalue(f"in_{request.param}")
    return chosen


@pytest.fixture(scope="module")
def deployed(
    project: Project, fitted: Callable[[int], Path], images: list[Path], tmp_path_factory: pytest.TempPathFactory
) -> Callable[[str, int], Path]:
    """A folder with the bundle for a rule of resizing, which the weights need not know, and what `predict` says."""

    @functools.cache
    def deploy(rule: str, channels: int) -> Path:
        folder = tmp_path_factory.mktemp(rule)
        checkpoint, output = ("--ckpt_path", folder / "model.ckpt"), folder / "predictions.csv"
        content = torch.load(fitted(channels), weights_only=True)
        content["hyper_parameters"]["spec"]["decoding"]["resize"] = rule
        torch.save(content, folder / "model.ckpt")
        project.run("export", *checkpoint, "--output", folder / "bundle")
        project.run("predict", *images, *checkpoint, "--output", output)
        return folder

    return deploy


@pytest.mark.parametrize(("rule", "channels"), [("squash", 3), ("crop", 1), ("pad", 3)])
def test_it_gets_the_scores_of_predict(
    rule: str, channels: int, deployed: Callable[[str, int], Path], images: list[Path], consume: Consume
) -> None:
    folder = deployed(rule, channels)
    said, theirs = consume(folder / "bundle", images)
    ours = read_rows(folder / "predictions.csv")
    assert said == ""
    assert [label for label, _ in theirs] == [row["label"] for row in ours]
    assert len({row["score"] for row in ours}) > len(ours) / 2
    differences = [abs(float(row["score"]) - score) for row, (_, score) in zip(ours, theirs, strict=True)]
    assert max(differences) <= read_json(folder / "bundle" / "golden" / "golden.json")["file_tolerance"]


@pytest.mark.parametrize("name", ["cut.png", "cut.jpg", "one_bit.png", "array.npy", "long.png"])
def test_it_refuses_what_it_cannot_decode_by_its_name(
    name: str, bundle: Path, images: list[Path], tmp_path: Path, consume: Consume
) -> None:
    contents = {file.name: file.read_bytes() for file in images}
    wide, rotated = contents["wide.png"], contents["rotated6.jpg"]
    middle = len(wide) // 2
    damaged = {"cut.png": wide[:middle], "cut.jpg": rotated[: len(rotated) * 3 // 4]}
    damaged["one_bit.png"] = wide[:middle] + bytes([wide[middle] ^ 4]) + wide[middle + 1 :]
    np.save(tmp_path / "array.npy", np.zeros((20, 20), np.uint8))
    draw_image(0, 0, size=(2010, 10)).save(tmp_path / "long.png")  # beyond max_aspect_ratio
    if name in damaged:
        (tmp_path / name).write_bytes(damaged[name])
    said, rows = consume(bundle, [images[0], tmp_path / name])
    assert len(rows) == 1
    assert name in said and said.rstrip().count("\n") == 0


def sign(bundle: Path) -> None:
    """Note the hashes of the files as they are now, so that only what is in them can be wrong."""
    model = read_json(bundle / "model.json")
    model["files"] = {name: hashlib.sha256((bundle / name).read_bytes()).hexdigest() for name in model["files"]}
    (bundle / "model.json").write_text(json.dumps(model), encoding="utf-8")


def rewire(bundle: Path, how: str) -> None:
    """Change the pixels inside of the model, before anything is computed from them."""
    model = onnx.load(bundle / "model.onnx")
    index, cast = next((i, node) for i, node in enumerate(model.graph.node) if "images" in node.input)
    names = [f"changed{number}" for number in range(len(WIRINGS[how]))] + list(cast.output)
    cast.output[0] = names[0]
    for number, (operator, values, attributes) in enumerate(WIRINGS[how]):
        constants = [numpy_helper.from_array(np.array(value), f"constant{number}") for value in values]
        model.graph.initializer.extend(constants)
        inputs = [names[number], *(tensor.name for tensor in constants)]
        node = helper.make_node(operator, inputs, [names[number + 1]], **attributes)
        model.graph.node.insert(index + 1 + number, node)
    onnx.save(model, bundle / "model.onnx")


# Operators, each with its constant inputs and its attributes.
WIRINGS: dict[str, list[tuple[str, list[Any], dict[str, Any]]]] = {
    "BGR": [("Gather", [[2, 1, 0]], {"axis": 1})],
    "height and width swapped": [("Transpose", [], {"perm": [0, 1, 3, 2]}), ("Reshape", [[0, 3, *SIZE]], {})],
    "no scaling": [("Mul", [np.float32(255)], {})],
    "doubled scaling": [("Mul", [np.float32(1 / 255)], {})],
}


def change_pixels(bundle: Path, change: Callable[[np.ndarray], np.ndarray]) -> None:
    for file in (bundle / "golden").glob("*.npy"):
        pixels = np.load(file)
        np.save(file, np.ascontiguousarray(change(pixels)).reshape(pixels.shape))


def change_files(bundle: Path) -> None:
    for file in (bundle / "golden").glob("*.png"):
        red, *others = Image.open(file).split()
        if others:
            Image.merge("RGB", (others[1], others[0], red)).save(file)


FAULTS: dict[str, Callable[[Path], None]] = {
    **{f"model: {how}": functools.partial(rewire, how=how) for how in WIRINGS},
    "pixels: BGR": functools.partial(change_pixels, change=lambda pixels: pixels[::-1]),
    "pixels: height and width swapped": functools.partial(change_pixels, change=lambda pixels: pixels.swapaxes(1, 2)),
    "pixels: channels last": functools.partial(change_pixels, change=lambda pixels: np.moveaxis(pixels, 0, 2)),
    "files: BGR": change_files,
}


@pytest.mark.parametrize("fault", FAULTS)
def test_it_refuses_a_bundle_whose_golden_images_get_other_scores(
    fault: str, bundle: Path, images: list[Path], tmp_path: Path, consume: Consume
) -> None:
    wrong = shutil.copytree(bundle, tmp_path / "wrong")
    FAULTS[fault](wrong)
    sign(wrong)
    said, rows = consume(wrong, images)
    assert "gets other scores" in said
    assert rows == []


@pytest.mark.parametrize("how", WIRINGS)
def test_the_golden_images_show_each_fault(how: str, bundle: Path, tmp_path: Path) -> None:
    wrong = shutil.copytree(bundle, tmp_path / "wrong")
    rewire(wrong, how)
    golden = read_json(bundle / "golden" / "golden.json")
    session = onnxruntime.InferenceSession(wrong / "model.onnx", providers=["CPUExecutionProvider"])
    pixels = np.stack([np.load(bundle / "golden" / image["pixels"]) for image in golden["images"]])
    (scores,) = session.run(["probabilities"], {"images": pixels})
    changes = np.abs(scores - [image["probabilities"] for image in golden["images"]])
    assert changes.max() > golden["file_tolerance"]
