"""Networks with fewer channels are rebuilt from stored shapes; any other difference is left to the loading."""

import pytest
import torch
from smoke.shapes import take_shapes
from torch import nn


class LayerNorm2d(nn.LayerNorm):
    """Channels last in between, as in torchvision."""

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return super().forward(images.movedim(1, -1)).movedim(-1, 1)


class Scale(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.rand(width, 1, 1))

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return images * self.scale


def network(width: int, num_classes: int = 3) -> nn.Sequential:
    """Every kind of layer that says its size elsewhere too, a depthwise and a grouped convolution."""
    return nn.Sequential(
        nn.Conv2d(3, width, 3),
        nn.BatchNorm2d(width),
        nn.Conv2d(width, width, 3, groups=width),
        nn.GroupNorm(2, width),
        nn.Conv2d(width, 2 * width, 1, groups=2),
        LayerNorm2d(2 * width),
        Scale(2 * width),
        nn.Flatten(),
        nn.Linear(2 * width * 4, num_classes),
    ).eval()


def test_rebuilt_network_is_the_smaller_one() -> None:
    small, rebuilt = network(4), network(8)
    rebuilt[0].weight.requires_grad_(False)
    take_shapes(rebuilt, small.state_dict())
    rebuilt.load_state_dict(small.state_dict())
    images = torch.rand(2, 3, 6, 6)
    assert torch.allclose(rebuilt(images), small(images), atol=1e-6)
    assert repr(rebuilt) == repr(small)
    assert not rebuilt[0].weight.requires_grad and rebuilt[4].weight.requires_grad


def test_values_stay_where_shapes_are_the_same() -> None:
    one = network(4)
    kept = {name: value.clone() for name, value in one.state_dict().items()}
    take_shapes(one, network(4).state_dict())
    assert all(torch.equal(value, kept[name]) for name, value in one.state_dict().items())


@pytest.mark.parametrize(
    ("stored", "message"),
    [
        (network(8).state_dict(), "size mismatch"),
        ({**network(4).state_dict(), "0.weight": torch.zeros(4, 3)}, "size mismatch for 0.weight"),
        ({name: value for name, value in network(4).state_dict().items() if name != "0.weight"}, "Missing key"),
        ({**network(4).state_dict(), "more": torch.zeros(1)}, "Unexpected key"),
    ],
)
def test_any_other_difference_is_an_error(stored: dict[str, torch.Tensor], message: str) -> None:
    one = network(4)
    take_shapes(one, stored)
    assert repr(one) == repr(network(4))
    with pytest.raises(RuntimeError, match=message):
        one.load_state_dict(stored)
