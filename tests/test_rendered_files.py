"""Every rendered file is whole: no template syntax left, valid in its own language, linted and typed."""

import ast
import json
import re
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from baking import PROJECT, TEMPLATE, files_of, run, template_files
from conftest import Bake
from test_answers import CASES

LEFT_OVER = re.compile(r"\{\{ ?cookiecutter|\{%|^\s*#%|cookiecutter\.\w", re.MULTILINE)
PARSERS: dict[str, Callable[[str], object]] = {
    ".json": json.loads,
    ".py": ast.parse,
    ".toml": tomllib.loads,
    ".yaml": yaml.safe_load,
    ".yml": yaml.safe_load,
}
# Without a parser here: prose, lists, what test_ci_files.py lints, and what the tests of consumers build or open.
UNPARSED = {"", ".cpp", ".hpp", ".html", ".js", ".md", ".sbatch", ".txt", ".typed"}
LONG = "a_project_whose_name_is_forty_characters"
NAMED = {
    "default": {},
    "short": {"project_slug": "ab", "package_name": "ab"},
    "long": {"project_slug": LONG, "package_name": LONG},
}


def texts(project: Path) -> dict[str, str]:
    return {name: (project / name).read_bytes().decode("utf-8") for name in files_of(project)}


@pytest.mark.parametrize("answers", CASES)
def test_no_template_syntax_is_left(answers: dict[str, str], baked: Bake) -> None:
    left = {name: LEFT_OVER.findall(text) for name, text in texts(baked(**answers)).items()}
    assert {name: found for name, found in left.items() if found} == {}


@pytest.mark.parametrize("answers", CASES)
def test_every_file_parses_in_its_own_language(answers: dict[str, str], baked: Bake) -> None:
    for name, text in texts(baked(**answers)).items():
        suffix = Path(name).suffix
        assert suffix in PARSERS or suffix in UNPARSED, f"{name}: which parser?"
        PARSERS.get(suffix, str)(text)


@pytest.mark.parametrize("answers", CASES)
def test_every_file_ends_with_one_line_break(answers: dict[str, str], baked: Bake) -> None:
    ragged = [name for name, text in texts(baked(**answers)).items() if text and not re.search(r"[^\n]\n\Z", text)]
    assert ragged == []


def is_python_with_renamed_imports(name: str) -> bool:
    return name.startswith((f"{PROJECT}tests/", f"{PROJECT}benchmarks/"))


@pytest.mark.parametrize("name", [name for name in template_files() if Path(name).suffix in PARSERS])
def test_a_file_is_valid_before_rendering(name: str, template: Path) -> None:
    text = (template / name).read_text(encoding="utf-8")
    if is_python_with_renamed_imports(name):
        text = text.replace("{{cookiecutter.package_name}}", "digits")
    PARSERS[Path(name).suffix](text)


@pytest.mark.parametrize("answers", NAMED.values(), ids=NAMED)
def test_ruff_has_nothing_to_say(answers: dict[str, str], baked: Bake) -> None:
    run("ruff", "check", "--no-cache", cwd=baked(**answers))
    run("ruff", "format", "--check", "--no-cache", cwd=baked(**answers))


@pytest.mark.parametrize("answers", NAMED.values(), ids=NAMED)
def test_types_are_right(answers: dict[str, str], baked: Bake) -> None:
    run("mypy", "--cache-dir", TEMPLATE / ".mypy_cache" / "projects", cwd=baked(**answers))


@pytest.mark.parametrize("answers", NAMED.values(), ids=NAMED)
def test_the_projects_own_tests_are_collected(answers: dict[str, str], baked: Bake) -> None:
    project = baked(**answers)
    listed = run("pytest", "--collect-only", "--quiet", "-p", "no:cacheprovider", cwd=project, env=sources(project))
    files = {line.partition("::")[0] for line in listed.splitlines() if "::" in line}
    assert files == {name for name in files_of(project) if re.fullmatch(r"tests/(.+/)?test_\w+\.py", name)}


def sources(project: Path) -> dict[str, str]:
    return {"PYTHONPATH": str(project / "src"), "PYTHONDONTWRITEBYTECODE": "1"}
