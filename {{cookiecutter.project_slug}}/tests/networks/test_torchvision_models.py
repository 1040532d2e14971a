"""torchvision's models get our head, channels and, for small images, stem."""

from unittest.mock import patch

import pytest
import torch
from torch import nn
from torchvision import models

from {{cookiecutter.package_name}}.networks import build_network


@pytest.mark.parametrize("name", ["resnet18", "mobilenet_v3_small", "shufflenet_v2_x0_5", "densenet121", "vit_b_32"])
@pytest.mark.parametrize("channels", [1, 3])
def test_model_takes_small_images_with_any_channels(name: str, channels: int) -> None:
    network = build_network(name, num_classes=7, channels=channels, image_size=(32, 32)).eval()
    assert network(torch.rand(2, channels, 32, 32)).shape == (2, 7)


def test_small_images_are_not_shrunk_by_the_stem() -> None:
    small = build_network("resnet18", num_classes=2, channels=3, image_size=(32, 32))
    large = build_network("resnet18", num_classes=2, channels=3, image_size=(224, 224))
    assert small.get_submodule("conv1").stride == (1, 1) and isinstance(small.get_submodule("maxpool"), nn.Identity)
    assert large.get_submodule("conv1").stride == (2, 2)


def test_pretrained_weights_bring_their_normalisation_and_keep_grey_sums() -> None:
    whole = models.resnet18()
    with patch.object(models, "get_model", return_value=whole):  # the weights themselves can't be downloaded in a test
        kernel = whole.conv1.weight.detach().clone()
        colour = build_network("resnet18", num_classes=2, channels=3, image_size=(96, 96), weights="DEFAULT")
        grey = build_network("resnet18", num_classes=2, channels=1, image_size=(96, 96), weights="DEFAULT")
    assert colour.normalization == ([0.485, 0.456, 0.406], [0.229, 0.224, 0.225])
    assert torch.allclose(grey.get_submodule("conv1").weight.sum(1), kernel.sum(1), atol=1e-5)
