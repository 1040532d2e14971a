"""FORMATS: every file of this folder that has `write` and `load`, imported on demand."""

import importlib
from pathlib import Path
from types import ModuleType

FORMATS = sorted(file.stem for file in Path(__file__).parent.glob("*.py") if "\ndef load(" in file.read_text("utf-8"))


def open_format(name: str) -> ModuleType:
    """`write(graph, folder, options)`, `load(folder)`, which returns a `Loaded`, and the `PACKAGES` that they need."""
    if name not in FORMATS:
        raise ValueError(f"format must be one of {', '.join(FORMATS)}, got {name!r}.")
    return importlib.import_module(f".{name}", __name__)
