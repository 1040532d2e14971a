"""The project's metadata, dependencies and package are what they say."""

import tomllib
import zipfile
from email import message_from_string
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
from baking import bake, choices, files_of, run
from conftest import Bake
from packaging.requirements import Requirement

BUILDS = [build for build in choices()["torch_build"] if build != "default"]
LOGGERS = {"tensorboard": "tensorboard", "wandb": "wandb", "csv": None}


def metadata(project: Path) -> dict[str, Any]:
    return tomllib.loads((project / "pyproject.toml").read_text(encoding="utf-8"))


def dependencies(project: Path) -> dict[str, Requirement]:
    requirements = map(Requirement, metadata(project)["project"]["dependencies"])
    return {requirement.name: requirement for requirement in requirements}


@pytest.mark.parametrize("release", ["2.6.2", "2.6.3"])
def test_malicious_releases_of_lightning_are_impossible(release: str, baked: Bake) -> None:
    assert release not in dependencies(baked())["lightning"].specifier


def test_what_the_tests_run_with_is_what_a_project_asks_for(baked: Bake) -> None:
    for name, requirement in dependencies(baked()).items():
        assert version(name).partition("+")[0] in requirement.specifier, requirement


@pytest.mark.parametrize("logger", LOGGERS)
def test_only_the_chosen_logger_is_a_dependency(logger: str, baked: Bake) -> None:
    project = baked(logger=logger)
    assert {"tensorboard", "wandb"} & dependencies(project).keys() == {LOGGERS[logger]} - {None}
    assert {"tensorboard", "wandb", "tiff"} <= metadata(project)["project"]["optional-dependencies"].keys()


@pytest.mark.parametrize("build", BUILDS)
def test_torch_and_torchvision_come_from_one_index(build: str, baked: Bake) -> None:
    project = baked(torch_build=build)
    index = f"https://download.pytorch.org/whl/{build}"
    uv = metadata(project)["tool"]["uv"]
    assert uv["index"] == [{"name": "pytorch", "url": index, "explicit": True}]
    assert uv["sources"]["torch"] == uv["sources"]["torchvision"]
    for name in ("README.md", "Dockerfile"):
        lines = [line for line in (project / name).read_text(encoding="utf-8").splitlines() if index in line]
        assert lines and all("torch>=" in line and "torchvision>=" in line for line in lines)


def test_without_a_build_no_index_is_named(baked: Bake) -> None:
    project = baked(torch_build="default", ci="none")
    naming = [name for name in files_of(project) if "download.pytorch.org/whl/c" in (project / name).read_text("utf-8")]
    assert "uv" not in metadata(project)["tool"]
    assert naming in ([], ["README.md"])


@pytest.mark.parametrize("license", choices()["license"])
def test_the_licence_is_one_that_package_indexes_know(license: str, baked: Bake) -> None:
    project = metadata(baked(license=license))["project"]
    private = license == "Proprietary"
    assert project["license"] == ("LicenseRef-Proprietary" if private else license)
    assert ("Private :: Do Not Upload" in project.get("classifiers", [])) is private


def test_a_wheel_holds_every_source_file_and_the_typed_answers(template: Path, tmp_path: Path) -> None:
    author, description = 'Zoë "Z" \\ 图', "sees 😀 'and' \"more\" \\ C:\\new"
    answers = {"project_slug": "my-shapes", "author_name": author, "description": description}
    project = bake(template, tmp_path, answers)
    run("git", "init", "--quiet", cwd=project)  # the build leaves out what .gitignore names
    run("hatchling", "build", "--target", "wheel", cwd=project)
    with zipfile.ZipFile(next((project / "dist").glob("*.whl"))) as wheel:
        names = {name for name in wheel.namelist() if not name.startswith("my_shapes-")}
        text = {Path(name).name: wheel.read(name).decode("utf-8") for name in set(wheel.namelist()) - names}
    assert names == {name for name in files_of(project / "src") if "__pycache__" not in name}
    assert message_from_string(text["METADATA"])["Summary"] == description
    assert "my-shapes = my_shapes.cli:main" in text["entry_points.txt"]
