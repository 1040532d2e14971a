"""A small classifier that belongs to no data, and its bundle."""

import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NamedTuple

import pytest
import torch
from torch import Tensor, nn

from {{cookiecutter.package_name}}.classifier import ImageClassifier
from {{cookiecutter.package_name}}.data.decoding import Decoding
from {{cookiecutter.package_name}}.data.spec import DataSpec
from {{cookiecutter.package_name}}.data.spec import Splits
from {{cookiecutter.package_name}}.export import FORMATS
from {{cookiecutter.package_name}}.export import open_format
from {{cookiecutter.package_name}}.export.bundle import write_bundle
from {{cookiecutter.package_name}}.export.graph import Graph
from {{cookiecutter.package_name}}.export.graph import Options
from {{cookiecutter.package_name}}.networks import NETWORKS

CLASSES = ["Zürich", "salt, pepper", "猫 🐈"]


class TinyNetwork(nn.Sequential):
    """Sensitive to colours and places, with logits of about 10 as after training."""

    def __init__(self, num_classes: int, channels: int, image_size: tuple[int, int]) -> None:
        super().__init__(
            nn.Conv2d(channels, 4, kernel_size=3, stride=4, padding=1),
            nn.BatchNorm2d(4),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(image_size[0] * image_size[1] // 4, num_classes),
        )
        nn.init.normal_(self[-1].weight)


class Exported(NamedTuple):
    folder: Path
    graph: Graph
    options: Options

    def run(self, images: Tensor) -> dict:
        """The exported model, loaded in this process."""
        load = open_format(self.options.format).load(self.folder)
        return self.options.in_batch(lambda full: load(full.numpy()), images)


@pytest.fixture
def make_classifier(monkeypatch: pytest.MonkeyPatch) -> Callable[..., ImageClassifier]:
    def make(network: type[nn.Module] = TinyNetwork, *, task: str = "multiclass", **decoding) -> ImageClassifier:
        monkeypatch.setitem(NETWORKS, "tiny", network)
        decoding = Decoding(**{"image_size": (16, 24), **decoding})
        mean, std = [[0.2, 0.5, 0.7][:decoding.channels], [0.3, 0.2, 0.1][: decoding.channels]]
        ...
