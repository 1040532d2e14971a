"""What the ONNX file says of itself."""

import json
from pathlib import Path

import onnx
import pytest
from torch import Tensor, nn

from {{cookiecutter.package_name}}.export.graph import Graph, Options
from {{cookiecutter.package_name}}.export.onnx import FILE, write
from {{cookiecutter.package_name}}.export.verification import VerificationError


class Branch(nn.Module):
    """Depends on the values in a way that can't be exported."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, images: Tensor) -> Tensor:
        logits = self.network(images)
        return logits if logits.mean() > 0 else -logits


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


def test_what_can_not_be_exported_is_one_sentence_with_the_line(make_classifier, tmp_path: Path, capsys):
    classifier = make_classifier()
    classifier.network = Branch(classifier.network)
    with pytest.raises(VerificationError, match=r"data-dependent expression .*test_onnx\.py:\d+\)$"):
        write(Graph(classifier), tmp_path, Options())
    assert capsys.readouterr().out == ""
