"""Where images and labels come from: SOURCES, one file per source, found by its name."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from inspect import signature
from itertools import compress
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

SOURCES = sorted(path.stem for path in Path(__file__).parent.glob("[a-z]*.py"))
SPLITS = ("train", "val", "test")


@dataclass(frozen=True)
class Samples:
    """Images with their labels.

    `keys` identify each image wherever the data lies; `images` are what `Decoding.decode` takes; `labels` are the names
    of each image's classes: one for multiclass, any number for multilabel.
    """

    keys: list[str]
    images: Sequence[Path | NDArray[Any]]
    labels: Sequence[tuple[str, ...]]

    def where(self, kept: list[bool]) -> "Samples":
        """The samples that are marked as kept."""
        keys, images, labels = compress(self.keys, kept), compress(self.images, kept), compress(self.labels, kept)
        return Samples(list(keys), list(images), list(labels))


@dataclass(frozen=True)
class Source:
    """What a source offers.

    `classes` are in index order, from the training images alone. `splits` has "train", and "val" and "test" where the
    source separates them. With `in_memory`, images are decoded once and fetched by whole batches.
    """

    classes: list[str]
    splits: dict[str, Samples]
    in_memory: bool = False


def open_source(name: str, root: Path | None, source_args: dict[str, Any]) -> Source:
    """Call `open_source(root, **source_args)` of the file `<name>.py`."""
    if name not in SOURCES:
        raise ValueError(f"source must be one of {', '.join(SOURCES)}, got {name!r}.")
    opener = import_module(f".{name}", __package__).open_source
    choices = list(signature(opener).parameters)[1:]
    if unknown := sorted(source_args.keys() - set(choices)):
        raise ValueError(f"source_args of {name} must be among {choices}, got {unknown}.")
    source: Source = opener(root, **source_args)
    return source


def existing(root: Path | None, what: str) -> Path:
    """Return the root, checked."""
    if root is None:
        raise ValueError(f"root is not set: it must be {what}.")
    if not root.exists():
        raise FileNotFoundError(f"root {root} does not exist: it must be {what}.")
    return root


def natural_order(names: set[str]) -> list[str]:
    """Sort names with numbers by value: 1, 2, 10."""
    return sorted(names, key=lambda name: ([int(p) if p.isdecimal() else p for p in re.split(r"(\d+)", name)], name))
