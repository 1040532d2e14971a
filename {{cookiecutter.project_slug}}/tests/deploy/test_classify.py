"""deploy/python/classify.py, which knows the bundle alone, gives the classes and scores of `predict`."""

import csv
import hashlib
import json
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from {{cookiecutter.package_name}}.checkpoints import load_classifier, read_checkpoint
from {{cookiecutter.package_name}}.classifier import ImageClassifier
from {{cookiecutter.package_name}}.cli import main
from {{cookiecutter.package_name}}.export.bundle import describe, seal
from {{cookiecutter.package_name}}.export.golden import draw_golden, score_golden
from {{cookiecutter.package_name}}.export.graph import Graph, Options
from {{cookiecutter.package_name}}.export.onnx import write

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


@pytest.fixture(scope="module", params=[1, 3], ids="{} channels".format)
def model(request, checkpoint: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[ImageClassifier, Path]:
    """The project's network with random weights, and a folder with its ONNX file."""
    options, folder = read_checkpoint(checkpoint)["hyper_parameters"], tmp_path_factory.mktemp("model")
    decoding = options["spec"]["decoding"] | {"channels": request.param, "max_aspect_ratio": 200.0, "background": 99}
    options["spec"] |= {"decoding": decoding, "mean": [0.5] * request.param, "std": [0.2] * request.param}
    classifier = ImageClassifier(**options)
    write(Graph(classifier), folder, Options())
    return classifier, folder


def assemble(model: tuple[ImageClassifier, Path], resize: str, tmp_path: Path) -> tuple[Path, Path]:
    """A checkpoint with that resize rule and its bundle, unverified."""
    (classifier, folder), checkpoint = model, tmp_path / "model.ckpt"
    spec = replace(classifier.spec, decoding=replace(classifier.spec.decoding, resize=resize))
    options = dict(classifier.hparams) | {"spec": spec.as_dict()}
    torch.save({"state_dict": classifier.state_dict(), "hyper_parameters": options}, checkpoint)
    graph, bundle = Graph(load_classifier(checkpoint)), shutil.copytree(folder, tmp_path / "bundle")
    draw_golden(bundle, spec.decoding)
    score_golden(bundle, graph.scores)
    seal(bundle, describe(graph, Options(), checkpoint) | {"checks": {"test_split": None}})
    return checkpoint, bundle


@pytest.mark.parametrize("resize", ["squash", "crop", "pad"])
def test_same_classes_and_scores_as_predict(resize, model, awkward: Path, tmp_path: Path) -> None:
    checkpoint, bundle = assemble(model, resize, tmp_path)
    command = ["predict", str(awkward), "--ckpt_path", str(checkpoint), "--output", str(tmp_path / "predictions.csv")]
    assert main([*command, "--num_workers", "0"]) == 0
    expected = list(csv.DictReader((tmp_path / "predictions.csv").open(encoding="utf-8")))
    found = list(csv.DictReader(classify(bundle, awkward).stdout.splitlines()))
    assert len(found) == len(list(awkward.glob("[!.]*")))
    assert [(row["path"], row["label"]) for row in found] == [(row["path"], row["label"]) for row in expected]
    for row, other in zip(found, expected, strict=True):
        assert float(row["score"]) == pytest.approx(float(other["score"]), abs=1e-4)


def test_an_altered_bundle_is_refused_in_one_line(model, awkward: Path, tmp_path: Path) -> None:
    _, bundle = assemble(model, "squash", tmp_path)
    index, card = bundle / "golden" / "golden.json", bundle / "model.json"
    golden, described = json.loads(index.read_text("utf-8")), json.loads(card.read_text("utf-8"))
    golden["images"][0]["probabilities"][0] += 0.001
    index.write_text(json.dumps(golden), "utf-8")
    by_hash = classify(bundle, awkward)
    described["files"]["golden/golden.json"] = hashlib.sha256(index.read_bytes()).hexdigest()
    card.write_text(json.dumps(described), "utf-8")
    by_scores = classify(bundle, awkward)
    for refused, reason in ((by_hash, "not the file that was exported"), (by_scores, "gets other scores")):
        assert refused.returncode == 1 and refused.stdout == ""
        assert reason in refused.stderr and len(refused.stderr.splitlines()) == 1
