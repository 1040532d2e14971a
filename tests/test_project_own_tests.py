"""A project's own tests pass as baked, with other answers, and after optional files were deleted."""

import shutil
import xml.etree.ElementTree as ElementTree
from itertools import chain
from pathlib import Path

import pytest
from baking import PROJECT, TEMPLATE
from projects import Project, bake_project

PACKAGE = TEMPLATE / PROJECT / "src" / "{{cookiecutter.package_name}}"
SOURCES = sorted(path.stem for path in (PACKAGE / "data" / "sources").glob("[a-z]*.py"))
CALLBACKS = sorted(path.stem for path in (PACKAGE / "callbacks").glob("[a-z]*.py"))
SINGLES = [*SOURCES, *CALLBACKS, "torchvision_models"]
EVERYTHING = [stem for stem in SINGLES if stem != "folder"]  # one source has to stay
AROUND = (".dockerignore", ".github", ".gitlab-ci.yml", ".pre-commit-config.yaml", "Dockerfile")
FORMATS = sorted(path.stem for path in (PACKAGE / "export").glob("*.py") if "\ndef load(" in path.read_text("utf-8"))
FEW = {"formats": "onnx", "consumers": "python"}
OTHER_ANSWERS = FEW | {
    "package_name": "a_package_whose_name_is_forty_characters",
    "dataset": "csv",
    "logger": "wandb",
    "slurm": "yes",
}


def single(stem: str) -> object:
    return pytest.param([stem], id=stem, marks=pytest.mark.slow)


def listed_tests(project: Project) -> set[str]:
    lines = project.python("pytest", "--collect-only", "-q", "-m", "not gpu").stdout.splitlines()
    ids = [line.partition(".py::") for line in lines if ".py::" in line]
    return {f"{file.replace('/', '.')}::{name}" for file, _, name in ids}


def passed_tests(project: Project) -> set[str]:
    """Run all tests that need no GPU, of which none may fail or be skipped."""
    project.python("pytest", "-x", "-q", "-m", "not gpu", "--junitxml", "report.xml")
    cases = list(ElementTree.parse(project.folder / "report.xml").iter("testcase"))
    assert [case.attrib for case in cases if case.find("skipped") is not None] == []
    return {f"{case.attrib['classname']}::{case.attrib['name']}" for case in cases}


def is_about(test: str, stem: str) -> bool:
    """Whether it is in the feature's own file, or is one of the cases of a test that walks all features."""
    file, _, name = test.partition("::")
    return file.endswith(f".test_{stem}") or name.partition("[")[2].startswith((f"{stem}]", f"{stem}-"))


def delete_feature(project: Project, stem: str) -> None:
    """Delete the files that carry its name, and what the default run asks of it."""
    places = (project.package_folder, f"{stem}.py"), (project.folder / "tests", f"test_{stem}.py")
    files = list(chain.from_iterable(folder.rglob(name) for folder, name in places))
    assert files
    for file in [*files, *project.folder.glob(f"configs/{stem}.yaml")]:
        file.unlink()
    default = project.folder / "configs" / "default.yaml"
    lines = default.read_text(encoding="utf-8").splitlines(keepends=True)
    default.write_text("".join(line for line in lines if not line.startswith(f"{stem}:")), encoding="utf-8")


@pytest.mark.parametrize("answers", [{}, OTHER_ANSWERS], ids=["default", "other"])
def test_all_own_tests_of_a_project_pass(answers: dict[str, str], tmp_path: Path) -> None:
    project = bake_project(tmp_path, answers)
    assert passed_tests(project) == listed_tests(project) != set()


def check_without(stems: list[str], answers: dict[str, str], folder: Path) -> None:
    project = bake_project(folder, answers)
    before = listed_tests(project)
    for stem in stems:
        delete_feature(project, stem)
    assert passed_tests(project) == {test for test in before if not any(is_about(test, stem) for stem in stems)}


@pytest.mark.parametrize("stems", [*map(single, SINGLES), pytest.param(EVERYTHING, id="everything")])
def test_without_optional_features_all_other_tests_pass(stems: list[str], tmp_path: Path) -> None:
    check_without(stems, FEW, tmp_path)


@pytest.mark.parametrize("stems", [single(stem) for stem in FORMATS if stem != "onnx"])  # which others are made of
def test_without_a_format_all_other_tests_pass(stems: list[str], tmp_path: Path) -> None:
    check_without(stems, {}, tmp_path)


@pytest.mark.slow
def test_without_files_for_docker_ci_and_commit_hooks_all_tests_pass(tmp_path: Path) -> None:
    project = bake_project(tmp_path, FEW)
    before = listed_tests(project)
    for name in AROUND:
        file = project.folder / name
        shutil.rmtree(file) if file.is_dir() else file.unlink(missing_ok=True)
    assert passed_tests(project) == before
