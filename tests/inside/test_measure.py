"""What is measured of a classifier is what it is."""

import time
from pathlib import Path

import pytest
import torch
from smoke.checkpoints import load_classifier
from smoke.data.datamodule import ImageDataModule
from smoke.evaluation import checking_trainer
from smoke.measure import costs, head_of, latencies, milliseconds, validation_accuracy
from torch import nn


def test_accuracy_is_that_of_validation_and_modes_stay(checkpoint: Path) -> None:
    classifier = load_classifier(checkpoint).train()
    data, trainer = ImageDataModule.from_spec(classifier.spec), checking_trainer("cpu", 1)
    (metrics,) = trainer.validate(classifier, data, verbose=False)
    next(classifier.network.children()).eval()
    modes = [module.training for module in classifier.modules()]
    weights = {name: value.clone() for name, value in classifier.state_dict().items()}
    assert validation_accuracy(trainer, classifier) == pytest.approx(metrics["val/accuracy"], abs=1e-6)
    assert [module.training for module in classifier.modules()] == modes
    assert all(torch.equal(value, weights[name]) for name, value in classifier.state_dict().items())


def test_costs_are_those_of_the_layers(checkpoint: Path) -> None:
    classifier = load_classifier(checkpoint)
    decoding = classifier.spec.decoding
    size = decoding.channels * decoding.image_size[0] * decoding.image_size[1]
    classifier.network = nn.Sequential(nn.Flatten(), nn.Linear(size, 7))
    found = costs(classifier)
    assert found == {"parameters": 7 * size + 7, "MACs": 7 * size, "megabytes": 4 * (7 * size + 7) / 1e6}
    assert latencies({"one": classifier, "same": classifier}).keys() == {"one", "same"}


class HeadFirst(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Conv2d(4, 3, 1)
        self.body = nn.Conv2d(3, 4, 1)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.head(self.body(images)).mean((2, 3))


def test_the_head_is_the_layer_that_runs_last(checkpoint: Path) -> None:
    classifier = load_classifier(checkpoint).train()
    classifier.network = HeadFirst()
    assert head_of(classifier) == "head"
    assert all(module.training for module in classifier.network.modules())


def test_a_slower_call_takes_longer() -> None:
    def wait(seconds: float) -> None:
        end = time.perf_counter() + seconds
        while time.perf_counter() < end:
            pass

    found = milliseconds({"short": lambda: wait(0.0001), "long": lambda: wait(0.02)}, rounds=5)
    assert found["long"] >= 20 > found["short"]
