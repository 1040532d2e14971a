"""What the ONNX file says of itself; in int8, what is in it, what that costs, and the limit that refuses it."""

import json
from importlib.metadata import PackageNotFoundError
from pathlib import Path

import onnx
import pytest
import torch
from onnxruntime.quantization import quantize_static

from {{cookiecutter.package_name}}.cli import main
from {{cookiecutter.package_name}}.export.graph import Graph, Options
from {{cookiecutter.package_name}}.export.int8 import to_int8
from {{cookiecutter.package_name}}.export.onnx import FILE, write
from {{cookiecutter.package_name}}.export.verification import VerificationError


def test_one_file_holds_classes_task_and_preprocessing_but_no_path(make_classifier, tmp_path: Path):
    graph = Graph(make_classifier())
    write(graph, tmp_path, Options(opset=18))
    model = onnx.load(tmp_path / FILE)
    metadata = {entry.key: entry.value for entry in model.metadata_props}
    assert json.loads(metadata["classes"]) == graph.spec.classes
    assert metadata["task"] == "multiclass"
    assert json.loads(metadata["preprocessing"]) == graph.preprocessing()
    assert [entry.version for entry in model.opset_import] == [18]
    assert [path.name for path in tmp_path.iterdir()] == [FILE]
    assert b".py" not in (tmp_path / FILE).read_bytes()


def test_an_opset_that_is_not_honoured_is_refused(make_classifier, tmp_path: Path):
    with pytest.raises(VerificationError, match=r"'opset': 18.*'opset': 11"):
        write(Graph(make_classifier()), tmp_path, Options(opset=11))


def test_what_can_not_be_exported_is_one_sentence_with_the_line(branching, tmp_path: Path, capsys):
    with pytest.raises(VerificationError, match=r"data-dependent expression .*conftest\.py:\d+\)$"):
        write(branching, tmp_path, Options())
    assert capsys.readouterr().out == ""


def test_a_limit_of_the_batch_is_refused_unless_the_batch_is_fixed(limited, tmp_path: Path):
    with pytest.raises(VerificationError, match="Constraints violated"):
        write(limited, tmp_path, Options())
    write(limited, tmp_path, Options(batch=4))


def export(checkpoint: Path, output: Path, *options: str) -> int:
    command = ["export", "--quantize", "8", "--ckpt_path", str(checkpoint), "--output", str(output)]
    return main([*command, "--num_workers", "0", *options])


def test_an_int8_bundle_is_quantized_and_tells_what_that_costs(checkpoint: Path, tmp_path: Path):
    assert export(checkpoint, tmp_path / "bundle") == 0
    model = json.loads((tmp_path / "bundle" / "model.json").read_text("utf-8"))
    assert model["precision"] == "int8"
    assert {"accuracy", "agreement"} <= model["checks"]["val_split"].keys() & model["checks"]["test_split"].keys()
    assert model["checks"]["test_split"]["largest_difference"]["logits"] > 0
    graph = onnx.load(tmp_path / "bundle" / FILE).graph
    kernels = [tensor for tensor in graph.initializer if len(tensor.dims) == 4]
    assert kernels and all(tensor.data_type == onnx.TensorProto.INT8 for tensor in kernels)
    assert graph.input[0].type.tensor_type.elem_type == onnx.TensorProto.UINT8


def test_what_is_too_bad_in_int8_is_refused_with_all_that_was_tried(
    checkpoint: Path, tmp_path: Path, monkeypatch, capsys
):
    def spoil(source: Path, target: Path, *args, **kwargs) -> None:
        quantize_static(source, target, *args, **kwargs)
        model = onnx.load(target)
        head = [t for t in model.graph.initializer if t.data_type == onnx.TensorProto.FLOAT and len(t.dims) > 1][-1]
        head.CopyFrom(onnx.numpy_helper.from_array(-onnx.numpy_helper.to_array(head), head.name))
        onnx.save(model, target)

    monkeypatch.setattr("{{cookiecutter.package_name}}.export.int8.quantize_static", spoil)
    assert export(checkpoint, tmp_path / "bundle", "--max_accuracy_drop", "0") == 1
    output, errors = capsys.readouterr()
    assert output.count(": refused") > 1 and "--max_accuracy_drop 0" in errors
    assert list(tmp_path.iterdir()) == []


def test_several_bundles_from_one_command_and_what_was_left_out(checkpoint: Path, tmp_path: Path, capsys):
    assert export(checkpoint, tmp_path / "bundles", "--quantize", "16,32") == 0
    names = ["best-onnx", "best-onnx-float16"]
    assert sorted(path.name for path in (tmp_path / "bundles").iterdir()) == names
    half, whole = ((tmp_path / "bundles" / name / FILE).stat().st_size for name in reversed(names))
    assert half < 0.6 * whole
    assert export(checkpoint, tmp_path / "bundles", "--quantize", "16,32") == 2
    assert "--force" in capsys.readouterr().err


MISTAKES = {
    "a format that is none": (("--format", "onnx,tflite"), "'onnx,tflite'"),
    "all and a format": (("--format", "onnx,all"), "format, if not all, must be of"),
    "bits that are none": (("--quantize", "8,4"), "'8,4'"),
    "a share that is none": (("--min_agreement", "2"), "min_agreement must be in"),
    "a tolerance that is none": (("--atol", "-1"), "atol must be finite and at least 0"),
    "a tolerance without end": (("--rtol", ".inf"), "rtol must be finite and at least 0"),
    "workers that are none": (("--quantize", "32", "--num_workers", "-1"), "num_workers must be auto or"),
}


@pytest.mark.parametrize("options, message", MISTAKES.values(), ids=MISTAKES)
def test_a_mistake_is_named_before_anything_is_written(options, message, checkpoint: Path, tmp_path: Path, capsys):
    assert export(checkpoint, tmp_path / "bundle", *options) == 2
    assert message in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_a_package_that_is_missing_is_named(checkpoint: Path, tmp_path: Path, monkeypatch, capsys):
    def version(name: str) -> str:
        raise PackageNotFoundError(name)

    monkeypatch.setattr("{{cookiecutter.package_name}}.export.version", version)
    assert export(checkpoint, tmp_path / "bundle") == 2
    assert "format onnx can't be written with quantize 8: it needs onnx" in capsys.readouterr().err


def test_without_training_images_there_is_no_int8(checkpoint: Path, tmp_path: Path, capsys):
    content = torch.load(checkpoint, weights_only=True)
    content["hyper_parameters"]["spec"] |= {"source": "gone"}
    torch.save(content, tmp_path / "moved.ckpt")
    assert export(tmp_path / "moved.ckpt", tmp_path / "bundle") == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "gone" in line and not (tmp_path / "bundle").exists()


def test_a_file_that_is_not_quantized_is_noticed(make_classifier, tmp_path: Path, monkeypatch):
    write(Graph(make_classifier()), tmp_path, Options())
    module = "{{cookiecutter.package_name}}.export.int8.quantize_static"
    monkeypatch.setattr(module, lambda source, target, *args, **kwargs: target.write_bytes(source.read_bytes()))
    with pytest.raises(VerificationError, match="without int8 weights"):
        to_int8(tmp_path / FILE, [])
