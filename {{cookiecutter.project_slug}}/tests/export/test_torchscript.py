"""What the TorchScript file holds, and what tracing alone would get wrong in silence."""

import json
import warnings
import zipfile
from pathlib import Path

import pytest
import torch

from {{cookiecutter.package_name}}.export.graph import Graph, Options
from {{cookiecutter.package_name}}.export.torchscript import FILE, load, write
from {{cookiecutter.package_name}}.export.verification import VerificationError


def test_the_file_holds_classes_and_task_but_no_path_and_nothing_warns(make_classifier, tmp_path: Path):
    graph = Graph(make_classifier())
    with warnings.catch_warnings(action="error"):
        write(graph, tmp_path, Options("torchscript"))
        load(tmp_path)
    found = {"classes": "", "task": "", "preprocessing": ""}
    with warnings.catch_warnings(action="ignore"):
        torch.jit.load(tmp_path / FILE, _extra_files=found)
    assert json.loads(found["classes"]) == graph.spec.classes and found["task"] == b"multiclass"
    assert json.loads(found["preprocessing"]) == graph.preprocessing()
    with zipfile.ZipFile(tmp_path / FILE) as archive:
        assert not any(str(Path.cwd()).encode() in archive.read(name) for name in archive.namelist())
        assert not any(name.endswith("debug_pkl") for name in archive.namelist())


def test_a_branch_is_refused(branching, tmp_path: Path):
    with pytest.raises(VerificationError, match="data-dependent"):
        write(branching, tmp_path, Options("torchscript"))
    assert list(tmp_path.iterdir()) == []
