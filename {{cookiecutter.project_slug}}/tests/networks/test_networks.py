"""Every network class of ours takes the data's channels and size and returns one logit per class."""

import pytest
import torch
from torch import nn

from {{cookiecutter.package_name}}.networks import NETWORKS, build_network

CLASSES = sorted(name for name, builder in NETWORKS.items() if isinstance(builder, type))


@pytest.mark.parametrize("name", CLASSES)
@pytest.mark.parametrize(("channels", "size"), [(1, (28, 36)), (3, (32, 32)), (5, (64, 64))])
def test_network_takes_any_channels_and_size(name: str, channels: int, size: tuple[int, int]) -> None:
    network = build_network(name, num_classes=7, channels=channels, image_size=size)
    logits = network(torch.rand(2, channels, *size))
    assert logits.shape == (2, 7)
    logits.sum().backward()
    assert network.training and all(p.grad is not None for p in network.parameters())


def test_logits_of_a_wrong_shape_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(NETWORKS, "Wrong", lambda num_classes, channels, image_size: nn.Flatten())
    with pytest.raises(ValueError, match="must return logits"):
        build_network("Wrong", num_classes=3, channels=1, image_size=(4, 4))


def test_images_that_are_too_small_are_refused() -> None:
    with pytest.raises(ValueError, match="at least 4x4"):
        build_network("SimpleCNN", num_classes=3, channels=1, image_size=(3, 3))
