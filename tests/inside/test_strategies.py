"""Which parts of a network are sharded by themselves, what a second pass or a look leaves alone, what is refused."""

import copy

import pytest
import torch
from lightning.pytorch.strategies import DDPStrategy, ModelParallelStrategy
from smoke.blocks import compute_twice, find_blocks, find_large
from smoke.measure import local_gradients
from smoke.networks import build_network
from smoke.strategies import check_strategy
from torch import distributed, nn
from torch.distributed.fsdp import fully_shard


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


def test_what_is_not_called_as_a_module_is_not_wrapped():
    layers = nn.ModuleList([nn.Linear(32, 32), nn.Sequential(nn.Linear(32, 32))])
    network = nn.ModuleDict({"attention": nn.MultiheadAttention(32, 1), "layers": layers})
    found = find_large(network, min_num_params=1000)
    assert set(found) == {network["attention"], layers[1][0]}


@pytest.fixture
def one_process(tmp_path):
    distributed.init_process_group("gloo", init_method=f"file://{tmp_path / 'store'}", rank=0, world_size=1)
    yield distributed.init_device_mesh("cpu", (1,))
    distributed.destroy_process_group()


def test_gradients_of_shares_are_those_of_the_whole(one_process):
    whole = build("SimpleCNN").train()
    sharded = copy.deepcopy(whole)
    for part in (*find_blocks(sharded), sharded):
        fully_shard(part, mesh=one_process)
    images = torch.randn(8, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    expected, found = (local_gradients(network(images).square().sum(), network) for network in (whole, sharded))
    assert all(gradient.any() for gradient in expected.values())
    torch.testing.assert_close(found, expected)
    assert all(parameter.grad is None for parameter in sharded.parameters())


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


@pytest.mark.parametrize("start_method", ["spawn", "fork"])
def test_a_strategy_whose_results_stay_in_other_processes_is_refused(start_method):
    with pytest.raises(ValueError, match=f"ddp_{start_method} is not supported"):
        check_strategy(DDPStrategy(start_method=start_method))
