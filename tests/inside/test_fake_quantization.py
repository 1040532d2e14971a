"""Layers that round as int8 does, in training only, under the names that they had."""

import pytest
import torch
from smoke.fake_quantization import install, uninstall
from torch import nn


@pytest.fixture
def network() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Conv2d(8, 8, 3), nn.Flatten(), nn.Linear(8 * 12 * 12, 5))


@pytest.fixture
def ranges(network: nn.Sequential):
    found = install(network, head="4")
    for entry in found.values():
        entry.rounds = entry.observes = True
    return found


@pytest.fixture
def images() -> torch.Tensor:
    return torch.randn(4, 3, 16, 16)


def test_names_and_values_of_weights_stay_and_the_last_layer_is_left_alone(network: nn.Sequential) -> None:
    before = {name: value.clone() for name, value in network.state_dict().items()}
    assert list(install(network, head="4")) == ["0", "2"]
    after = network.state_dict()
    assert after.keys() == before.keys() and all(torch.equal(after[name], before[name]) for name in before)
    uninstall(network)
    assert [type(module) for module in network[::2]] == [nn.Conv2d, nn.Conv2d, nn.Linear]


def test_training_sees_no_more_levels_than_int8_has(network: nn.Sequential, ranges, images: torch.Tensor) -> None:
    rounded = ranges["0"](images)
    assert 100 < len(rounded.unique()) <= 256 and (rounded - images).abs().max() < 0.03
    weight = ranges["0"].round_weight(network[0].weight)
    assert all(len(channel.unique()) <= 255 for channel in weight)
    steps = network[0].weight.abs().amax((1, 2, 3)) / 127
    assert ((weight - network[0].weight).abs().amax((1, 2, 3)) <= steps / 2 + 1e-7).all()


def test_gradients_pass_where_nothing_was_clipped(network: nn.Sequential, ranges, images: torch.Tensor) -> None:
    ranges["0"](images)  # sets the range
    inputs = torch.cat((images, 9 * images)).requires_grad_()
    ranges["0"].observes = False
    ranges["0"](inputs).sum().backward()
    inside = (inputs > 0.9 * ranges["0"].low) & (inputs < 0.9 * ranges["0"].high)
    assert (inputs.grad[inside] == 1).all() and (inputs.grad[inputs > 1.1 * ranges["0"].high] == 0).all()


def test_evaluation_neither_rounds_nor_moves_the_ranges(network: nn.Sequential, ranges, images: torch.Tensor) -> None:
    network(images)
    before = [float(entry.high) for entry in ranges.values()]
    network.eval()(100 * images)
    assert [float(entry.high) for entry in ranges.values()] == before
    found = network(images)
    uninstall(network)
    assert torch.equal(found, network(images))


def test_a_network_of_one_layer_is_refused() -> None:
    with pytest.raises(ValueError, match="at least two layers"):
        install(nn.Sequential(nn.Flatten(), nn.Linear(4, 2)), head="1")
