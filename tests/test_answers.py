"""Each value of each answer gives its exact files, and the same Python."""

import json
import tomllib
from fnmatch import filter as filter_names
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import pytest
from baking import PROJECT, TEMPLATE, bake, choices, files_of, questions, template_files
from conftest import Bake

VALUES = [{question: value} for question, values in choices().items() for value in values]
TOGETHER = [
    {
        "ci": "none",
        "consumers": "python",
        "docker": "no",
        "formats": "onnx",
        "slurm": "no",
        "license": "Proprietary",
        "logger": "csv",
        "torch_build": "cpu",
    },
    {"ci": "gitlab", "docker": "yes", "slurm": "yes", "dataset": "csv", "logger": "wandb", "torch_build": "cu130"},
    {"project_name": "Long & short", "package_name": "ab", "dataset": "folder", "license": "Apache-2.0"},
]
CASES = [pytest.param(answers, id=",".join(answers.values())) for answers in VALUES + TOGETHER]
OPTIONAL = {
    ".github/workflows/ci.yml": {"ci": "github"},
    ".gitlab-ci.yml": {"ci": "gitlab"},
    "Dockerfile": {"docker": "yes"},
    ".dockerignore": {"docker": "yes"},
    "scripts/train.sbatch": {"slurm": "yes"},
    "deploy/server/Dockerfile": {"docker": "yes"},
    "deploy/[!p]*": {"consumers": "all"},
    "tests/deploy/test_server.py": {"consumers": "all"},
    "*/export/*": {"formats": "all"},
}
ALWAYS = (
    "__init__",
    "bundle",
    "command",
    "conftest",
    "formats",
    "golden",
    "graph",
    "int8",
    "judge",
    "onnx",
    "program",
    "verification",
)
DEFAULTS = {question: values[0] for question, values in choices().items()}


def requirements(name: str) -> dict[str, str]:
    """Answers without which a project has no such file."""
    if "/export/" in name and Path(name).stem.removeprefix("test_") in ALWAYS:
        return {}
    return {
        question: answer
        for pattern, given in OPTIONAL.items()
        if fnmatch(name, pattern)
        for question, answer in given.items()
    }


def expected_files(answers: dict[str, str]) -> set[str]:
    given = DEFAULTS | answers
    names = [name.removeprefix(PROJECT) for name in template_files() if name.startswith(PROJECT)]
    kept = [name for name in names if requirements(name).items() <= given.items()]
    return {name.replace("{{cookiecutter.package_name}}", answers.get("package_name", "digits")) for name in kept}


def python_files(project: Path) -> dict[str, bytes]:
    return {name: (project / name).read_bytes() for name in files_of(project) if name.endswith(".py")}


def tool_settings(project: Path) -> dict[str, Any]:
    tools = tomllib.loads((project / "pyproject.toml").read_text(encoding="utf-8"))["tool"]
    return {name: settings for name, settings in tools.items() if name != "uv"}


@pytest.mark.parametrize("answers", CASES)
def test_an_answer_gives_exactly_its_files(answers: dict[str, str], baked: Bake) -> None:
    assert files_of(baked(**answers)) == expected_files(answers)


def test_every_optional_file_is_in_some_project(baked: Bake) -> None:
    found = set().union(*(files_of(baked(**answers)) for answers in VALUES))
    assert all(filter_names(found, pattern) for pattern in OPTIONAL)


@pytest.mark.parametrize("answers", VALUES, ids=[",".join(answers.values()) for answers in VALUES])
def test_python_and_its_settings_are_the_same_for_every_answer(answers: dict[str, str], baked: Bake) -> None:
    project, default = baked(**answers), baked()
    assert python_files(project).items() <= python_files(default).items()
    assert tool_settings(project) == tool_settings(default)


def test_sources_are_copied_as_they_stand(template: Path, baked: Bake) -> None:
    source = template / PROJECT / "src" / "{{cookiecutter.package_name}}"
    assert python_files(baked() / "src" / "digits") == python_files(source)


def test_an_unknown_answer_is_refused(template: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no question is called"):
        bake(template, tmp_path, {"loger": "csv"})


def test_each_choice_has_a_help_text() -> None:
    prompts = json.loads((TEMPLATE / "cookiecutter.json").read_text(encoding="utf-8"))["__prompts__"]
    assert prompts.keys() == questions().keys()
    for question, prompt in prompts.items():
        assert isinstance(prompt, str) or prompt.keys() - {"__prompt__"} == set(choices()[question])


def test_a_project_stays_small(baked: Bake) -> None:
    assert len(files_of(baked(slurm="yes"))) <= 162
