"""What a project computes inside, in modules that teams seldom touch: proved here, so that its own tests stay few."""

import shutil
from pathlib import Path

import pytest
from projects import bake_project

INSIDE = Path(__file__).with_name("inside")
# A process each, for half a minute.
LONG = ("amp", "checkpointing", "compile", "memory", "profiling", "pruning", "quantization")
NAMES = [[f"test_{name}.py"] for name in LONG]
NAMES += [sorted({path.name for path in INSIDE.glob("test_*.py")} - {name for names in NAMES for name in names})]


@pytest.mark.parametrize("names", NAMES, ids=[*LONG, "others"])
def test_inside(names: list[str], tmp_path: Path) -> None:
    project = bake_project(tmp_path, {"slurm": "yes"})
    for name in names:
        shutil.copy(INSIDE / name, project.folder / "tests")
    done = project.python("pytest", "-q", "-m", "not gpu", *(f"tests/{name}" for name in names))
    assert " passed" in done.stdout and " skipped" not in done.stdout
