"""Bundles of one checkpoint: whole ones, and some with faults that the benchmark must tell."""

import hashlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from {{cookiecutter.package_name}}.cli import main


def change(folder: Path, name: str, **values: object) -> None:
    """Change a JSON file of a bundle, and put its hash right."""
    file, model = folder / name, folder / "model.json"
    file.write_text(json.dumps(json.loads(file.read_text("utf-8")) | values), "utf-8")
    if file != model:
        files = json.loads(model.read_text("utf-8"))["files"]
        change(folder, "model.json", files=files | {name: hashlib.sha256(file.read_bytes()).hexdigest()})


@pytest.fixture
def alter() -> Callable[..., None]:
    return change


@pytest.fixture(scope="session")
def bundles(checkpoint: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of `best-onnx` and `best-onnx-int8`, beside their checkpoint."""
    folder = tmp_path_factory.mktemp("bundles")
    shutil.copy(checkpoint, folder)
    command = ["export", "--quantize", "32,8", "--max_accuracy_drop", "1", "--min_agreement", "0", "--num_workers", "0"]
    assert main([*command, "--ckpt_path", str(checkpoint), "--output", str(folder)]) == 0
    return folder


@pytest.fixture
def bundle(bundles: Path, tmp_path: Path) -> Path:
    """A copy of the one in float32, without its checkpoint."""
    return shutil.copytree(bundles / "best-onnx", tmp_path / "best-onnx")


@pytest.fixture(scope="session")
def faulty(bundles: Path) -> Path:
    """Beside the whole ones: a fixed batch, an unknown format, and scores that nothing gives."""
    for name in ("fixed", "unknown", "altered"):
        shutil.copytree(bundles / "best-onnx", bundles / f"best-{name}")
    shape = json.loads((bundles / "best-fixed" / "model.json").read_text("utf-8"))["input"]["shape"]
    change(bundles / "best-fixed", "model.json", input={"shape": [2, *shape[1:]]})
    change(bundles / "best-unknown", "model.json", format="tflite")
    golden = json.loads((bundles / "best-altered" / "golden" / "golden.json").read_text("utf-8"))
    golden["images"][0]["logits"][0] += 1
    change(bundles / "best-altered", "golden/golden.json", **golden)
    return bundles
