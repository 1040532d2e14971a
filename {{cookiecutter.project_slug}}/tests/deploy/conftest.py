"""Bundles of the project's network with random weights, and the consumers' own modules."""

import importlib
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from shutil import copytree
from types import ModuleType

import pytest
import torch

from {{cookiecutter.package_name}}.checkpoints import load_classifier, read_checkpoint
from {{cookiecutter.package_name}}.classifier import ImageClassifier
from {{cookiecutter.package_name}}.export.bundle import describe, seal
from {{cookiecutter.package_name}}.export.golden import draw_golden, score_golden
from {{cookiecutter.package_name}}.export.graph import Graph, Options
from {{cookiecutter.package_name}}.export.onnx import write

DEPLOY = Path(__file__).parents[2] / "deploy"


@pytest.fixture(scope="session")
def exported(
    checkpoint: Path, tmp_path_factory: pytest.TempPathFactory
) -> Callable[[int], tuple[ImageClassifier, Path]]:
    """By the number of channels: the project's network with random weights, and a folder with its ONNX file."""

    @cache
    def export(channels: int) -> tuple[ImageClassifier, Path]:
        options, folder = read_checkpoint(checkpoint)["hyper_parameters"], tmp_path_factory.mktemp("model")
        decoding = options["spec"]["decoding"] | {"channels": channels, "max_aspect_ratio": 200.0, "background": 99}
        options["spec"] |= {"decoding": decoding, "mean": [0.5] * channels, "std": [0.2] * channels}
        torch.manual_seed(0)
        classifier = ImageClassifier(**options)
        write(Graph(classifier), folder, Options())
        return classifier, folder

    return export


@pytest.fixture
def make_bundle(exported, tmp_path: Path) -> Callable[..., tuple[Path, Path]]:
    """A checkpoint with that resize rule and its bundle, unverified."""

    def make(channels: int = 3, resize: str = "squash") -> tuple[Path, Path]:
        (classifier, folder), checkpoint = exported(channels), tmp_path / "model.ckpt"
        spec = replace(classifier.spec, decoding=replace(classifier.spec.decoding, resize=resize))
        options = dict(classifier.hparams) | {"spec": spec.as_dict()}
        torch.save({"state_dict": classifier.state_dict(), "hyper_parameters": options}, checkpoint)
        graph, bundle = Graph(load_classifier(checkpoint)), copytree(folder, tmp_path / "bundle")
        draw_golden(bundle, spec.decoding)
        score_golden(bundle, graph.scores, tolerance=1e-4)
        (bundle / "labels.txt").write_text("\n".join([*spec.classes, ""]), "utf-8", newline="\n")
        seal(bundle, describe(graph, Options(), checkpoint) | {"checks": {"test_split": None}})
        return checkpoint, bundle

    return make


@pytest.fixture
def consumer(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], ModuleType]:
    """Imports `python/bundle.py` or `server/server.py` as programs there do."""
    monkeypatch.syspath_prepend(DEPLOY / "python")
    monkeypatch.syspath_prepend(DEPLOY / "server")
    return importlib.import_module
