"""Draws depend on seed, epoch, batch and rank, and on nothing else."""

from types import SimpleNamespace
from typing import Any

import pytest
from smoke.randomness import step_seed


def seed_of(*, seed: int = 0, epoch: int = 0, batch: int = 0, rank: int = 0) -> int:
    progress = SimpleNamespace(current=SimpleNamespace(ready=batch))
    loop = SimpleNamespace(epoch_loop=SimpleNamespace(batch_progress=progress))
    trainer: Any = SimpleNamespace(fit_loop=loop, current_epoch=epoch, global_rank=rank)
    return step_seed(trainer, seed)


@pytest.mark.parametrize("changed", ["seed", "epoch", "batch", "rank"])
def test_each_of_them_changes_the_draws_and_the_same_ones_repeat(changed: str) -> None:
    assert seed_of(**{changed: 1}) == seed_of(**{changed: 1}) != seed_of()
