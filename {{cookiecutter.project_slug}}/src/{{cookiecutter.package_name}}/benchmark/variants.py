"""Which bundles are compared: all of them whole, and made of one checkpoint."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from ..export.bundle import MODEL, sha256

NEEDED: dict[str, Any] = {
    "checkpoint": {"name": str, "sha256": str},
    "classes": list,
    "files": {"labels.txt": str, "golden/golden.json": str},
    "format": str,
    "input": {"shape": list},
    "precision": str,
    "preprocessing": dict,
    "remark": str,
    "task": str,
    "versions": dict,
}
NO_MODEL = ("README.md", "labels.txt", "golden/")


@dataclass(frozen=True)
class Variant:
    """A bundle, and its name among those that it is compared with."""

    folder: Path
    name: str

    @cached_property
    def model(self) -> dict[str, Any]:
        try:
            content: dict[str, Any] = json.loads((self.folder / MODEL).read_text("utf-8"))
        except ValueError as error:
            raise ValueError(f"{self.folder / MODEL} is damaged: {error}") from error
        if wrong := [name for name in NEEDED if not _fits(content, {name: NEEDED[name]})]:
            raise ValueError(f"{self.folder / MODEL} is not that of a bundle: {', '.join(wrong)} missing or wrong.")
        return content

    @property
    def batch(self) -> int | None:
        """Number of images that each call takes; None for any."""
        size = self.model["input"]["shape"][0]
        return size if isinstance(size, int) else None

    @property
    def megabytes(self) -> float:
        """Size of the files that hold the model."""
        files = [self.folder / name for name in self.model["files"] if not name.startswith(NO_MODEL)]
        return sum(file.stat().st_size for file in files) / 1e6


def _fits(value: Any, kind: Any) -> bool:
    """Whether a JSON value is of that type or, if that is a dict, has such values under its keys."""
    if isinstance(kind, dict):
        return isinstance(value, dict) and all(_fits(value.get(key), needed) for key, needed in kind.items())
    return isinstance(value, kind)


def variants_of(checkpoint: Path) -> list[Variant]:
    """The bundles beside a checkpoint that name it."""
    found = _named([file.parent for file in sorted(checkpoint.parent.glob(f"*/{MODEL}"))])
    variants = [variant for variant in found if variant.model["checkpoint"]["name"] == checkpoint.name]
    if not variants:
        raise ValueError(f"there is no bundle beside {checkpoint}: export writes them.")
    return variants


def variants_in(paths: Sequence[Path]) -> list[Variant]:
    """The bundles that are named, or lie in a folder that is."""
    folders: list[Path] = []
    for path in paths:
        inside = [path] if (path / MODEL).is_file() else [file.parent for file in sorted(path.glob(f"*/{MODEL}"))]
        if not inside:
            raise ValueError(f"paths must be bundles (folders with {MODEL}) or folders of such, {path} is neither.")
        folders += inside
    return _named(list(dict.fromkeys(folders)))


def _named(folders: list[Path]) -> list[Variant]:
    """Without the checkpoint's name in front, where that leaves names that differ."""
    stems = [Path(Variant(folder, "").model["checkpoint"]["name"]).stem for folder in folders]
    short = [folder.resolve().name.removeprefix(f"{stem}-") for folder, stem in zip(folders, stems, strict=True)]
    names = short if len(set(short)) == len(short) else map(str, folders)
    return [Variant(folder, name) for folder, name in zip(folders, names, strict=True)]


def check_variants(variants: list[Variant]) -> None:
    """Raise an error if one is not what was exported, or comes from another checkpoint than the first."""
    first = variants[0]
    for variant in variants:
        if variant.model["checkpoint"]["sha256"] != first.model["checkpoint"]["sha256"]:
            raise ValueError(f"bundle {variant.folder} comes from another checkpoint than {first.folder}.")
        for name, digest in variant.model["files"].items():
            file = variant.folder / name
            if not file.is_file() or sha256(file) != digest:
                raise ValueError(f"bundle {variant.folder}: {name} is not the file that was exported.")
        if variant.model["classes"] != (variant.folder / "labels.txt").read_text("utf-8").split("\n")[:-1]:
            raise ValueError(f"bundle {variant.folder}: {MODEL} names other classes than labels.txt.")
        if not variant.megabytes:
            raise ValueError(f"bundle {variant.folder}: {MODEL} lists no file that holds the model.")
