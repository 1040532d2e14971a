"""What the .pt2 holds, what it refuses, and what can't be one."""

import json
import zipfile
from pathlib import Path

import pytest
import torch

from {{cookiecutter.package_name}}.export.graph import Graph, Options
from {{cookiecutter.package_name}}.export.torch_export import FILE, load, write
from {{cookiecutter.package_name}}.export.verification import VerificationError


def test_the_file_holds_classes_and_task_but_neither_paths_nor_pixels(make_classifier, tmp_path: Path):
    graph = Graph(make_classifier())
    write(graph, tmp_path, Options("torch_export"))
    found = {"classes": "", "task": "", "preprocessing": ""}
    example, _ = torch.export.load(tmp_path / FILE, extra_files=found).example_inputs
    assert json.loads(found["classes"]) == graph.spec.classes and found["task"] == "multiclass"
    assert json.loads(found["preprocessing"]) == graph.preprocessing()
    assert not example[0].any()
    with zipfile.ZipFile(tmp_path / FILE) as archive:
        assert not any(b".py" in archive.read(name) for name in archive.namelist() if name.endswith(".json"))


def test_the_same_model_gives_the_same_file(make_classifier, tmp_path: Path):
    graph, files = Graph(make_classifier()), []
    for folder in (tmp_path / "first", tmp_path / "second"):
        folder.mkdir()
        write(graph, folder, Options("torch_export"))
        files.append((folder / FILE).read_bytes())
    assert files[0] == files[1]


def test_images_of_another_size_are_refused(make_classifier, tmp_path: Path):
    graph = Graph(make_classifier())
    write(graph, tmp_path, Options("torch_export"))
    with pytest.raises(AssertionError, match="Guard failed"):
        load(tmp_path)(torch.zeros(graph.shapes(2)["images"], dtype=torch.uint8)[..., 1:].numpy())


def test_float16_halves_the_weights_alone(make_classifier, tmp_path: Path):
    graph = Graph(make_classifier())
    write(graph, tmp_path, Options("torch_export", quantize=16))
    program = torch.export.load(tmp_path / FILE)
    kinds = {name.split(".")[0]: value.dtype for name, value in program.state_dict.items() if value.is_floating_point()}
    assert kinds == {"network": torch.float16, "normalize": torch.float32}
    images = torch.randint(0, 256, graph.shapes(3)["images"], dtype=torch.uint8)
    found, expected = load(tmp_path)(images.numpy()), graph.scores(images)
    assert found["logits"].dtype == "float32"
    assert 0 < abs(found["probabilities"] - expected["probabilities"]).max() < 0.02


def test_what_can_not_be_exported_is_one_sentence_with_the_line(branching, tmp_path: Path, capfd):
    with pytest.raises(VerificationError, match=r"data-dependent expression .*conftest\.py:\d+\)$"):
        write(branching, tmp_path, Options("torch_export"))
    assert capfd.readouterr() == ("", "")
