"""Classifiers with the project's own network, and the bundle of one in each format."""

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from {{cookiecutter.package_name}}.checkpoints import read_checkpoint
from {{cookiecutter.package_name}}.classifier import ImageClassifier
from {{cookiecutter.package_name}}.export import FORMATS, obstacle, open_format
from {{cookiecutter.package_name}}.export.bundle import write_bundle
from {{cookiecutter.package_name}}.export.graph import Graph, Options

CLASSES = ["Zürich", "salt, pepper", "猫 🐈"]


class Exported(NamedTuple):
    folder: Path
    graph: Graph
    options: Options

    def run(self, images: Tensor) -> dict[str, np.ndarray]:
        """The exported model, loaded in this process."""
        scores = open_format(self.options.format).load(self.folder)
        return self.options.in_batch(lambda full: scores(full.numpy()), images)


@pytest.fixture(scope="session")
def make_classifier(checkpoint: Path) -> Callable[..., ImageClassifier]:
    """The network that the project trains, with strong random weights, classes of its own and data that is nowhere."""

    def make(task: str = "multiclass", **decoding) -> ImageClassifier:
        options = read_checkpoint(checkpoint)["hyper_parameters"]
        spec = options["spec"]
        nowhere = {"source": "nowhere", "root": None, "task": task, "classes": CLASSES, "class_counts": [1, 2, 3]}
        spec = {**spec, **nowhere, "decoding": {**spec["decoding"], **decoding}}
        torch.manual_seed(0)
        classifier = ImageClassifier(**{**options, "spec": spec})
        with torch.no_grad():
            [parameter.mul_(2) for parameter in classifier.network.parameters() if parameter.ndim > 1]
        return classifier

    return make


class Branch(nn.Module):
    """Tracing would follow one branch and forget the other."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, images: Tensor) -> Tensor:
        logits = self.network(images)
        return logits if logits.mean() > 0 else -logits


class Limit(Branch):
    """It is right up to the largest batch that is tried."""

    def forward(self, images: Tensor) -> Tensor:
        logits = self.network(images)
        return logits if len(images) <= 100 else -logits


@pytest.fixture
def limited(make_classifier: Callable[..., ImageClassifier]) -> Graph:
    """It can't be exported with a dynamic batch."""
    classifier = make_classifier()
    classifier.network = Limit(classifier.network)
    return Graph(classifier)


@pytest.fixture
def branching(make_classifier: Callable[..., ImageClassifier]) -> Graph:
    """It can't be exported."""
    classifier = make_classifier()
    classifier.network = Branch(classifier.network)
    return Graph(classifier)


@pytest.fixture(scope="session", params=FORMATS)
def exported(
    request: pytest.FixtureRequest,
    make_classifier: Callable[..., ImageClassifier],
    checkpoint: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> Exported:
    if reason := obstacle(request.param, 32):
        pytest.skip(f"{request.param}: {reason}")
    folder, options = tmp_path_factory.mktemp("bundle"), Options(request.param)
    graph = Graph(make_classifier())
    write_bundle(folder, graph, options, checkpoint, None)
    return Exported(folder, graph, options)
