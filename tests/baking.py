"""Bake projects from a clean copy of the template."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from cookiecutter.main import cookiecutter

TEMPLATE = Path(__file__).parents[1]
PROJECT = "{{cookiecutter.project_slug}}/"
Answers = dict[str, str]


def template_files() -> list[str]:
    """Every file that git would commit, so no caches and no builds."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=TEMPLATE, check=True, capture_output=True).stdout.decode()
    return sorted(name for name in listed.split("\0") if (TEMPLATE / name).is_file())


def copy_template(target: Path) -> Path:
    """Copy the template's files to a new folder."""
    for name in template_files():
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(TEMPLATE / name, target / name)
    return target


def questions() -> dict[str, Any]:
    """Each question with its default or its list of choices."""
    answers = json.loads((TEMPLATE / "cookiecutter.json").read_text(encoding="utf-8"))
    return {name: value for name, value in answers.items() if not name.startswith("_")}


def choices() -> dict[str, list[str]]:
    """Each question that is answered from a list, with the list."""
    return {name: value for name, value in questions().items() if isinstance(value, list)}


def check_keys(answers: Answers) -> None:
    """Refuse an answer to no question, which cookiecutter drops without a word."""
    if unknown := answers.keys() - questions().keys():
        raise ValueError(f"no question is called {sorted(unknown)}; they are {sorted(questions())}.")


def bake(template: Path, output: Path, answers: Answers | None = None, *, overwrite: bool = False) -> Path:
    """Bake into a folder below output, in this process, and return the project's folder."""
    check_keys(answers or {})
    output.mkdir(parents=True, exist_ok=True)
    project = cookiecutter(
        str(template),
        no_input=True,
        default_config=True,
        extra_context=answers or {},
        output_dir=str(output),
        overwrite_if_exists=overwrite,
    )
    return Path(project)


def run(*command: str | Path, cwd: Path, env: dict[str, str] | None = None) -> str:
    """Run a command that must succeed, and return its output; a program of this Python goes by its name."""
    program = Path(sys.executable).with_name(str(command[0]))
    line = [str(program if program.is_file() else command[0]), *map(str, command[1:])]
    done = subprocess.run(
        line, cwd=cwd, env=os.environ | (env or {}), stdin=subprocess.DEVNULL, capture_output=True, text=True
    )
    assert done.returncode == 0, f"{' '.join(line)} exited {done.returncode}:\n{done.stdout}\n{done.stderr}"
    return done.stdout


def files_of(project: Path) -> set[str]:
    """Paths of all files below the folder, relative to it; git's own are left out."""
    paths = (path.relative_to(project) for path in project.rglob("*") if path.is_file())
    return {path.as_posix() for path in paths if ".git" not in path.parts}
