"""CIFAR-10 as torchvision keeps it; downloaded on request only."""

from pathlib import Path

from torchvision.datasets import CIFAR10

from . import Samples, Source


def open_source(root: Path | None, download: bool = False) -> Source:
    """Train and test of CIFAR-10."""
    if root is None:
        raise ValueError("root is not set: it must be the folder that holds, or will hold, cifar-10-batches-py.")
    try:
        parts = {"train": CIFAR10(root, train=True, download=download), "test": CIFAR10(root, train=False)}
    except RuntimeError as error:
        raise ValueError(f"no CIFAR-10 in root {root}: download it with source_args {{download: true}}.") from error
    except OSError as error:
        raise ValueError(f"CIFAR-10 can't be downloaded to root {root}: {error}.") from error
    return Source(parts["train"].classes, {name: _samples(name, part) for name, part in parts.items()}, in_memory=True)


def _samples(split: str, part: CIFAR10) -> Samples:
    keys = [f"{split}/{index}" for index in range(len(part.data))]
    return Samples(keys, part.data, [(part.classes[target],) for target in part.targets])
