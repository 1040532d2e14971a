"""Which images make up which batch, how many workers decode them, and how a stopped epoch goes on."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from torch import Tensor
from torch.utils.data import DataLoader, Dataset, DistributedSampler, default_collate

MAX_WORKERS = 16


def available_cpus(cgroup: Path = Path("/sys/fs/cgroup")) -> int:
    """CPUs that this process may use, by its affinity and its container's quota (cgroup v2 or v1)."""
    cpus = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    files = [cgroup / "cpu.max", cgroup / "cpu/cpu.cfs_quota_us", cgroup / "cpu/cpu.cfs_period_us"]
    quota, period = [*" ".join(file.read_text() for file in files if file.is_file()).split(), "max", "1"][:2]
    return cpus if quota in ("max", "-1") else max(1, min(cpus, int(quota) // int(period)))


def auto_workers(num_processes: int) -> int:
    """Workers of each of the processes that share this machine; with one CPU each, they decode themselves."""
    share = available_cpus() // num_processes
    return min(share, MAX_WORKERS) if share > 1 else 0


class TrainingOrder(DistributedSampler[int]):
    """A rank's share of a permutation by (seed, epoch), evenly cut, less a last batch of one: batch norm needs two.

    Lightning replaces no DistributedSampler. `position` gives the batch that is due: 0, or after a resume another.
    """

    def __init__(
        self,
        dataset: Dataset[Any],
        num_replicas: int,
        rank: int,
        *,
        batch_size: int,
        seed: int,
        position: Callable[[], int],
    ) -> None:
        # The parent adds the epoch to the seed: far apart, so that no seed repeats another's epochs.
        super().__init__(dataset, num_replicas, rank, seed=seed * 1_000_003, drop_last=True)
        self.batch_size = batch_size
        self.position = position

    def __len__(self) -> int:
        return self.num_samples - (self.num_samples % self.batch_size == 1)

    def __iter__(self) -> Iterator[int]:
        return iter(list(super().__iter__())[self.position() * self.batch_size : len(self)])


class EvaluationOrder(DistributedSampler[int]):
    """Every `num_replicas`-th image from `rank` on: nothing twice, nothing lost; uneven, or filled up with -1."""

    def __init__(self, dataset: Dataset[Any], num_replicas: int, rank: int, *, even: bool = False) -> None:
        super().__init__(dataset, num_replicas, rank, shuffle=False)
        images = len(dataset)  # type: ignore[arg-type]
        self.indices = [*range(rank, images, num_replicas)]
        if even and len(self.indices) * num_replicas < images:
            self.indices.append(-1)

    def __len__(self) -> int:
        return len(self.indices)

    def __iter__(self) -> Iterator[int]:
        return iter(self.indices)


class TrainingLoader(DataLoader[Any]):
    """A loader that Lightning takes as resumable, by the two methods; the sampler's `position` is what is resumed."""

    def __iter__(self) -> Iterator[Any]:  # type: ignore[override]
        # The first `next` starts the epoch: Lightning 2.6 calls `iter` before it has restored epoch and position.
        yield from super().__iter__()

    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        pass


def collate(batch: tuple[Tensor, Tensor] | list[tuple[Tensor, Tensor]]) -> tuple[Tensor, Tensor]:
    """Stack images and labels, unless the dataset has fetched the whole batch."""
    images, labels = batch if isinstance(batch, tuple) else default_collate(batch)
    return images, labels
