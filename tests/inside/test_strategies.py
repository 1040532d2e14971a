"""Which parts of a network are sharded by themselves, what a second pass leaves alone, and what is refused."""

import copy

import pytest
import torch
from lightning.pytorch.strategies import ModelParallelStrategy
from smoke.networks import build_network
from smoke.strategies import check_strategy, compute_twice, find_blocks, find_large


def build(name):
    return build_network(name, num_classes=10, channels=3, image_size=(32, 32))


@pytest.mark.parametrize(("name", "number", "kind"), [("SimpleCNN", 2, "Sequential"), ("resnet18", 8, "BasicBlock")])
def test_blocks_are_found(name, number, kind):
    found = find_blocks(build(name))
    assert [type(block).__name__ for block in found] == [kind] * number


def test_parts_are_found_by_their_size():
    network = build("resnet18")
    found = find_large(network, min_num_params=2_000_000)
    sizes = [sum(parameter.numel() for parameter in part.parameters()) for part in found]
    assert min(sizes) >= 2_000_000 and network not in found
    assert not any(inner is not outer and inner in list(outer.modules()) for inner in found for outer in found)


def test_computing_blocks_twice_changes_neither_gradients_nor_statistics():
    once = build("SimpleCNN").train()
    twice = copy.deepcopy(once)
    compute_twice(find_blocks(twice))
    images = torch.randn(8, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    for network in (once, twice):
        network(images).square().sum().backward()
    for (name, expected), found in zip(once.named_parameters(), twice.parameters(), strict=True):
        torch.testing.assert_close(found.grad, expected.grad, rtol=0, atol=0, msg=name)
    for (name, expected), found in zip(once.named_buffers(), twice.buffers(), strict=True):
        torch.testing.assert_close(found, expected, rtol=0, atol=0, msg=name)


def test_a_strategy_that_would_wait_for_ever_is_refused():
    with pytest.raises(ValueError, match="ModelParallelStrategy is not supported"):
        check_strategy(ModelParallelStrategy())
