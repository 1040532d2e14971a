"""A bad answer is refused in one sentence that offers a good one, and nothing is written."""

import json
import re
import runpy
import tomllib
from importlib.metadata import packages_distributions
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
from baking import bake
from conftest import Bake
from hypothesis import given
from hypothesis import strategies as st
from packaging.requirements import Requirement
from test_hostile_answers import REFUSALS

TAKEN = ["test", "class", "match", "torch", "json", "onnx", "lightning", "src", "con", "a" * 41]
BAD = {
    "project_slug": [
        *TAKEN,
        "scikit-learn",
        " ",
        "Digits",
        "3d",
        "a b",
        "a--b",
        "-a",
        "a-",
        "a.b",
        "--help",
        "图像",
        "a\n",
    ],
    "package_name": [
        *TAKEN,
        "sklearn",
        "",
        "PIL",
        "2d",
        "a b",
        "a-b",
        "a.b",
        "a/b",
        "../a",
        "_a",
        "a_",
        "a__b",
        "ï",
        "a\n",
    ],
    "author_email": [
        "",
        "you",
        "you@",
        "@b.com",
        "you@b",
        "a b@b.com",
        'a"b@b.com',
        "you@b..com",
        "ü@b.com",
        "you@b.com\n",
    ],
    "project_name": ["", " ", "a\nb", "a\tb", "a\x00b", "a\x1bb", "a\x85b", "a\u2028b", "\udcff"],
    "description": ["", "two\nlines"],
    "author_name": ["", "two\nlines"],
}
CASES = [(field, value) for field, values in BAD.items() for value in values]
PATHS = ["", ".", "..", "../x", "a/b", "/abs", "a\\b", "a/", "../torch", "/", "./a"]
SUGGESTION = re.compile(r'for example, "(.*)" would do')
ANY_TEXT = st.text(st.characters(exclude_categories=()), max_size=60)


@pytest.mark.parametrize(("field", "value"), CASES)
def test_a_bad_answer_is_refused_with_a_good_one(
    field: str, value: str, template: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(REFUSALS):
        bake(template, tmp_path, {"project_slug": "fine", field: value})
    assert list(tmp_path.iterdir()) == []
    sentence = capfd.readouterr().err.partition("\n")[0]
    assert sentence.startswith(f"{field} {value!r} ")
    good = SUGGESTION.findall(sentence)[0]
    assert bake(template, tmp_path, {"project_slug": "fine", field: good}).is_dir()


@pytest.mark.parametrize("value", PATHS)
def test_a_path_is_refused_before_any_folder_is_made(value: str, template: Path, tmp_path: Path) -> None:
    output = tmp_path / "output"
    output.mkdir()
    with pytest.raises(REFUSALS, match="project_slug must be one plain name") as refused:
        bake(template, output, {"project_slug": value})
    assert list(tmp_path.rglob("*")) == [output]
    good = SUGGESTION.findall(str(refused.value))[0]
    assert bake(template, output, {"project_slug": good}).parent == output


@pytest.mark.parametrize("choice", ["loger", "Digits"])
def test_a_value_that_is_no_choice_is_refused(choice: str, template: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="provided for choice variable dataset"):
        bake(template, tmp_path, {"dataset": choice})
    assert list(tmp_path.iterdir()) == []


@pytest.fixture(scope="module")
def hook(template: Path, baked: Bake, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Functions of the pre hook, as it runs for good answers."""
    answers = {"project_slug": "fine", "package_name": "fine", "author_email": "you@example.com", "_left_out": {}}
    answers |= {"project_name": "Fine", "description": "Fine.", "author_name": "You"}
    source = (template / "hooks" / "pre_gen_project.py").read_text(encoding="utf-8")
    script = tmp_path_factory.mktemp("hook") / "pre_gen_project.py"
    script.write_text(source.replace("{{ cookiecutter | tojson }}", json.dumps(answers)), encoding="utf-8")
    return runpy.run_path(str(script))


@pytest.mark.parametrize("field", ["project_slug", "package_name"])
@given(wanted=ANY_TEXT)
def test_the_suggested_name_is_always_valid(field: str, wanted: str, hook: dict[str, Any]) -> None:
    assert hook["name_fault"](field, hook["valid_name"](field, wanted)) == ""


@pytest.mark.parametrize("field", ["project_slug", "package_name"])
def test_the_suggested_name_avoids_names_that_are_taken(field: str, hook: dict[str, Any]) -> None:
    for name in hook["TAKEN"].split():
        assert hook["name_fault"](field, hook["valid_name"](field, name)) == ""


@given(wanted=ANY_TEXT)
def test_the_suggested_text_is_always_valid(wanted: str, hook: dict[str, Any]) -> None:
    assert hook["text_fault"](hook["valid_text"]("description", wanted)) == ""


@given(wanted=ANY_TEXT)
def test_a_name_that_is_accepted_is_a_plain_identifier(wanted: str, hook: dict[str, Any]) -> None:
    assert hook["name_fault"]("package_name", wanted) or (wanted.isidentifier() and wanted.isascii())


def requirements(project: Path) -> set[str]:
    """Names of what the project and its extras need, spelled as modules are."""
    settings = tomllib.loads((project / "pyproject.toml").read_text(encoding="utf-8"))
    extras = settings["project"]["optional-dependencies"].values()
    lines = [*settings["project"]["dependencies"], *settings["dependency-groups"]["dev"], *chain(*extras)]
    return {module_spelling(Requirement(line).name) for line in lines}


def module_spelling(name: str) -> str:
    return re.sub("[-.]+", "_", name.lower())


def test_no_dependency_or_module_of_one_can_be_the_package(hook: dict[str, Any], baked: Bake) -> None:
    distributions = requirements(baked())
    owners = {module: set(map(module_spelling, names)) for module, names in packages_distributions().items()}
    modules = {module.lower() for module, names in owners.items() if names & distributions}
    assert {"torch", "sklearn", "pil"} <= distributions | modules
    accepted = {name for name in distributions | modules if not hook["name_fault"]("package_name", name)}
    assert accepted == set()
