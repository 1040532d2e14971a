"""What TensorRT would not take is refused, and the command that builds an engine fits the file."""

import pytest
import torch
from onnx import TensorProto, helper

from {{cookiecutter.package_name}}.export.graph import Graph, Options
from {{cookiecutter.package_name}}.export.tensorrt import FILE, SCRIPT, _faults, has_engine, write

FAULTS = {
    "not symmetric": ("QuantizeLinear", TensorProto.INT8, 3, "zero point"),
    "unsigned": ("DequantizeLinear", TensorProto.UINT8, 0, "zero point"),
    "in integers": ("ConvInteger", TensorProto.INT8, 0, "is a ConvInteger"),
    "in float64": ("Add", TensorProto.DOUBLE, 0, "type DOUBLE"),
}


@pytest.mark.parametrize("kind, dtype, value, message", FAULTS.values(), ids=FAULTS)
def test_a_fault_is_found(kind: str, dtype: int, value: int, message: str):
    zero = helper.make_tensor("zero", dtype, [], [value])
    node = helper.make_node(kind, ["x", "scale", "zero"], ["y"], name="here")
    graph = helper.make_graph([node], "g", [], [], [zero])
    assert message in "; ".join(_faults(helper.make_model(graph)))


def test_pixels_must_be_cast_first():
    node = helper.make_node("Conv", ["images", "weight"], ["y"])
    model = helper.make_model(helper.make_graph([node], "g", [], []))
    assert list(_faults(model)) == ["the uint8 input goes into a Conv"]


def test_the_command_has_the_shapes_of_the_file(make_classifier, tmp_path):
    graph = Graph(make_classifier())
    write(graph, tmp_path, Options("tensorrt"))
    line = (tmp_path / SCRIPT).read_text("utf-8")
    shape = "x".join(map(str, graph.shapes(8)["images"]))
    assert f"--onnx={FILE}" in line and f"--optShapes=images:{shape}" in line and "--stronglyTyped" in line
    write(graph, tmp_path, Options("tensorrt", batch=3))
    assert "Shapes" not in (tmp_path / SCRIPT).read_text("utf-8")  # trtexec refuses them for a fixed batch


@pytest.mark.gpu
@pytest.mark.skipif(not has_engine(), reason="tensorrt or a CUDA device is missing")
@pytest.mark.parametrize("bits", [32, 16])
def test_the_engine_gives_the_scores_of_the_model(bits: int, make_classifier, tmp_path):
    from {{cookiecutter.package_name}}.export.tensorrt import ENGINE, load

    graph = Graph(make_classifier())
    write(graph, tmp_path, Options("tensorrt", quantize=bits))
    images = torch.randint(0, 256, graph.shapes(7)["images"], dtype=torch.uint8)
    found, expected = load(tmp_path)(images.numpy()), graph.scores(images)
    assert (tmp_path / ENGINE).is_file()
    assert abs(found["probabilities"] - expected["probabilities"]).max() < {32: 1e-3, 16: 2e-2}[bits]
