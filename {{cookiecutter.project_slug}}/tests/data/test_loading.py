import os

import pytest
import torch
from torch.utils.data import DistributedSampler

from {{cookiecutter.package_name}}.data import loading
from {{cookiecutter.package_name}}.data.loading import EvaluationOrder, TrainingOrder

QUOTA, PERIOD = "cpu/cpu.cfs_quota_us", "cpu/cpu.cfs_period_us"


def training_order(size, *, world=1, rank=0, epoch=0, seed=0):
    order = TrainingOrder(torch.empty(size), world, rank, batch_size=32, seed=seed, position=lambda: 0)
    order.set_epoch(epoch)
    return list(order)


@pytest.mark.parametrize(
    ("files", "cpus"),
    [
        ({"cpu.max": "150000 50000"}, 3),
        ({QUOTA: "300000", PERIOD: "100000"}, 3),
        ({"cpu.max": "50000 100000"}, 1),
        ({"cpu.max": "max 100000"}, 8),
        ({QUOTA: "-1", PERIOD: "100000"}, 8),
        ({}, 8),
    ],
)
def test_cpus_are_those_of_the_affinity_and_the_containers_quota(files, cpus, tmp_path, monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: range(8), raising=False)
    (tmp_path / "cpu").mkdir()
    for name, text in files.items():
        (tmp_path / name).write_text(text + "\n")
    assert loading.available_cpus(tmp_path) == cpus


@pytest.mark.parametrize(("processes", "workers"), [(1, 8), (3, 2), (8, 0), (16, 0)])
def test_processes_share_the_cpus(processes, workers, monkeypatch):
    monkeypatch.setattr(loading, "available_cpus", lambda: 8)
    assert loading.auto_workers(processes) == workers


def test_training_order_depends_on_seed_and_epoch_alone():
    orders = [training_order(100, seed=seed, epoch=epoch) for seed in range(3) for epoch in range(3)]
    assert len({tuple(order) for order in orders}) == 9
    torch.manual_seed(7)
    assert training_order(100, seed=2, epoch=2) == orders[-1]


def test_processes_train_on_equally_many_different_images():
    shares = [training_order(104, world=3, rank=rank) for rank in range(3)]
    assert [len(share) for share in shares] == [34] * 3
    assert len({index for share in shares for index in share}) == 102


@pytest.mark.parametrize(("size", "kept"), [(33, 32), (34, 34), (32, 32), (2, 2)])
def test_only_a_last_batch_of_one_is_dropped(size, kept):
    assert len(training_order(size)) == kept


@pytest.mark.parametrize("size", [7, 8, 9])
def test_evaluation_takes_every_image_once(size):
    orders = [EvaluationOrder(torch.empty(size), 2, rank) for rank in range(2)]
    assert sorted([*orders[0], *orders[1]]) == list(range(size))
    assert sum(len(order) for order in orders) == size


@pytest.mark.parametrize("order", [TrainingOrder, EvaluationOrder])
def test_lightning_leaves_the_orders_as_they_are(order):
    assert issubclass(order, DistributedSampler)


@pytest.mark.parametrize("size", [7, 8, 9])
def test_filled_up_shares_are_equally_long_and_hold_each_image_once(size):
    shares = [list(EvaluationOrder(torch.empty(size), 3, rank, even=True)) for rank in range(3)]
    assert [len(share) for share in shares] == [3] * 3
    assert sorted(index for share in shares for index in share if index >= 0) == list(range(size))
