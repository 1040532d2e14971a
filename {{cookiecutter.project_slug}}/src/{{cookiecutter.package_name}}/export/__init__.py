"""FORMATS: every file of this folder that has `write` and `load`, imported on demand."""

import importlib
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from types import ModuleType

FORMATS = sorted(file.stem for file in Path(__file__).parent.glob("*.py") if "\ndef load(" in file.read_text("utf-8"))


def open_format(name: str) -> ModuleType:
    """The format's file.

    It has `write(graph, folder, options, judge)`, `load(folder, threads)`, which returns what turns images into scores,
    `PACKAGES`, the distributions that both need, and `PRECISIONS`, bits of weights with what else they need. Optional
    are `OPT_IN = True`, where `all` leaves it out, `obstacle()`, why it can't be written on this machine, `remark()`,
    what a consumer must know, and `unmeasurable(folder)`, why its times can't be measured here.
    """
    if name not in FORMATS:
        raise ValueError(f"format must be one of {', '.join(FORMATS)}, got {name!r}.")
    return importlib.import_module(f".{name}", __name__)


def obstacle(name: str, bits: int) -> str | None:
    """Why this machine can't write that format in that precision."""
    kind = open_format(name)
    if bits not in kind.PRECISIONS:
        return f"it is written in {', '.join(map(str, kind.PRECISIONS))} bits"
    for package in (*kind.PACKAGES, *kind.PRECISIONS[bits]):
        try:
            version(package)
        except PackageNotFoundError:
            return f"it needs {package}: python -m pip install '.[{name}]'"
    reason: str | None = getattr(kind, "obstacle", lambda: None)()
    return reason
