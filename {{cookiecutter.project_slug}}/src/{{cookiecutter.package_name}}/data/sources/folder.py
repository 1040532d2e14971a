"""Folders of images: root/<class>/**, or root/{train,val,test}/<class>/**."""

from pathlib import Path

from lightning.pytorch.utilities import rank_zero_info

from ..decoding import IMAGE_SUFFIXES
from ..files import files_below, visible
from . import SPLITS, Samples, Source, existing, natural_order


def open_source(root: Path | None) -> Source:
    """Splits that are no folders are left to the caller."""
    root = existing(root, "a folder with one folder per class, or with train, val and test")
    names = {entry.name for entry in visible(root) if entry.is_dir()}
    if "train" in names and not names <= set(SPLITS):
        raise ValueError(f"root {root} has {sorted(names - set(SPLITS))} beside train; expected train, val and test.")
    separate = bool(names) and names <= set(SPLITS)
    splits = {name: _read(root, name) for name in names} if separate else {"train": _read(root)}
    classes = {label for (label,) in splits["train"].labels} if "train" in splits else set()
    return Source(natural_order(classes), splits)


def _read(root: Path, split: str = "") -> Samples:
    """Images of one split, with the class folder's name as the label."""
    images: list[Path] = []
    labels: list[tuple[str, ...]] = []
    folder, empty, ignored = root / split, [], 0
    for entry in visible(folder):
        files = list(files_below(entry)) if entry.is_dir() else []
        found = [file for file in files if file.suffix.lower() in IMAGE_SUFFIXES]
        ignored += len(files) - len(found) if entry.is_dir() else 1
        empty += [entry.name] if entry.is_dir() and not found else []
        images += found
        labels += [(entry.name,)] * len(found)
    if ignored:
        rank_zero_info(f"{folder}: {ignored} files are ignored, since they are no images in a class folder.")
    if not images or (empty and split in ("", "train")):
        raise ValueError(f"{folder} has no images" + f" in the class folders {empty}." * bool(empty))
    if empty:
        rank_zero_info(f"{folder}: the class folders {empty} are empty.")
    return Samples([image.relative_to(root).as_posix() for image in images], images, labels)
