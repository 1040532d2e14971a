"""Data modules over a few images that no source has to provide."""

import numpy as np
import pytest

from {{cookiecutter.package_name}}.data import datamodule
from {{cookiecutter.package_name}}.data.decoding import Decoding
from {{cookiecutter.package_name}}.data.sources import Samples, Source


@pytest.fixture
def noise():
    """Builds samples of cats and dogs in turn: random images, all different."""

    def build(prefix, count=40):
        images = np.random.default_rng(0).integers(0, 256, (count, 8, 8, 3), dtype=np.uint8)
        labels = [(("cat", "dog")[number % 2],) for number in range(count)]
        return Samples([f"{prefix}/{number}" for number in range(count)], images, labels)

    return build


@pytest.fixture
def build(monkeypatch, noise):
    """Builds a data module, or with `spec` the one of a checkpoint, over what a source would offer."""

    def build(offered=None, *, spec=None, in_memory=True, classes=("cat", "dog"), **options):
        source = Source(list(classes), offered or {"train": noise("train")}, in_memory)
        monkeypatch.setattr(datamodule, "open_source", lambda *args: source)
        if spec:
            return datamodule.ImageDataModule.from_spec(spec, **options)
        return datamodule.ImageDataModule(**{"decoding": Decoding(image_size=(8, 8)), "num_workers": 0} | options)

    return build
