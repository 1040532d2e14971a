"""Precision, metadata and int8 of OpenVINO's files, and that nothing is sent anywhere."""

import json
import os
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest
import torch

from {{cookiecutter.package_name}}.cli import main
from {{cookiecutter.package_name}}.export import obstacle
from {{cookiecutter.package_name}}.export.graph import Graph, Options
from {{cookiecutter.package_name}}.export.openvino import FILE, _openvino, load, write
from {{cookiecutter.package_name}}.export.verification import VerificationError

pytestmark = pytest.mark.skipif(obstacle("openvino", 8) is not None, reason=str(obstacle("openvino", 8)))


def layers(folder: Path) -> list[str]:
    return [layer.get("type") for layer in ElementTree.parse(folder / FILE).iter("layer")]


@pytest.mark.parametrize("bits, allowed", [(32, 1e-4), (16, 2e-2)])
def test_the_file_says_what_it_is_and_in_what_precision_it_computes(bits, allowed, make_classifier, tmp_path: Path):
    graph = Graph(make_classifier())
    write(graph, tmp_path, Options("openvino", quantize=bits))
    values = {entry.tag: entry.get("value") for entry in ElementTree.parse(tmp_path / FILE).find("rt_info/model_info")}
    assert json.loads(values["classes"]) == graph.spec.classes and values["task"] == "multiclass"
    assert values["INFERENCE_PRECISION_HINT"] == "f32"
    images = torch.randint(0, 256, graph.shapes(3)["images"], dtype=torch.uint8)
    difference = abs(load(tmp_path)(images.numpy())["probabilities"] - graph.scores(images)["probabilities"]).max()
    assert difference < allowed and (difference > 1e-6 or bits == 32)


def test_an_int8_bundle_is_quantized_and_keeps_what_was_tried(checkpoint: Path, tmp_path: Path):
    command = ["export", "--format", "openvino", "--quantize", "8", "--ckpt_path", str(checkpoint)]
    assert main([*command, "--output", str(tmp_path / "bundle"), "--num_workers", "0"]) == 0
    model = json.loads((tmp_path / "bundle" / "model.json").read_text("utf-8"))
    assert "FakeQuantize" in layers(tmp_path / "bundle")
    assert [entry["what"] for entry in model["checks"]["tried"]] == ["in float", "candidate 1", "as written"]


class Judge:
    """Gives accuracies that are known before, whatever it is shown."""

    def __init__(self, shape: list[int], *accuracies: float) -> None:
        self.tried, self.shape, self.accuracies = [], shape, iter(accuracies)

    def calibration(self):
        return iter(torch.randint(0, 256, (2, *self.shape), dtype=torch.uint8))

    def __call__(self, what, run):
        self.tried.append(what)
        return {"accuracy": {"exported": next(self.accuracies)}}


def test_layers_go_back_to_float_only_until_accuracy_holds(make_classifier, tmp_path: Path):
    graph, options = Graph(make_classifier()), Options("openvino", quantize=8)
    counts = []
    for accuracies in ([1, 1], [1, 0.5, 1]):
        write(graph, tmp_path, options, Judge(graph.shapes(8)["images"], *accuracies))
        counts.append(layers(tmp_path).count("FakeQuantize"))
    assert counts[0] > counts[1] > 0


def test_what_no_layer_in_int8_can_keep_is_refused(make_classifier, tmp_path: Path):
    graph, options = Graph(make_classifier()), Options("openvino", quantize=8)
    with pytest.raises(VerificationError, match="without a quantized layer"):
        write(graph, tmp_path, options, Judge(graph.shapes(8)["images"], 1, *[0.5] * 99))
    assert list(tmp_path.iterdir()) == []


def test_nothing_is_sent_over_the_network(tmp_path: Path):
    """The package that would do so isn't loaded, and leaves no identity in the home folder."""
    environment = {**os.environ, "HOME": str(tmp_path)}
    code = f"from {_openvino.__module__} import _openvino; _openvino().Core()"
    subprocess.run([sys.executable, "-c", code], check=True, env=environment)
    assert list(tmp_path.iterdir()) == []
