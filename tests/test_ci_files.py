"""CI files, Dockerfile, batch script and commit hooks pass the linters of their own kind."""

import json
from pathlib import Path

import pytest
import yaml
from baking import PROJECT, TEMPLATE, choices, run
from conftest import Bake

WORKFLOWS = ["{template}/.github/workflows/ci.yml", "{project}/.github/workflows/ci.yml"]


@pytest.mark.parametrize("name", WORKFLOWS, ids=["template", "project"])
def test_workflows_follow_the_schema(name: str, template: Path, baked: Bake) -> None:
    file = name.format(template=template, project=baked())
    run("check-jsonschema", "--builtin-schema", "vendor.github-workflows", file, cwd=template)


def test_the_gitlab_pipeline_follows_the_schema(baked: Bake) -> None:
    options = ("--builtin-schema", "vendor.gitlab-ci", "--data-transform", "gitlab-ci")
    run("check-jsonschema", *options, ".gitlab-ci.yml", cwd=baked(ci="gitlab"))


@pytest.mark.parametrize(("ci", "name"), [("github", ".github/workflows/ci.yml"), ("gitlab", ".gitlab-ci.yml")])
def test_expressions_of_the_ci_survive(ci: str, name: str, template: Path, baked: Bake) -> None:
    assert (baked(ci=ci) / name).read_bytes() == (template / PROJECT / name).read_bytes()


def test_the_workflow_still_has_its_expressions(baked: Bake) -> None:
    workflow = (baked() / ".github" / "workflows" / "ci.yml").read_text(encoding="utf-8")
    assert "${{ matrix.python }}" in workflow


@pytest.mark.parametrize("torch_build", choices()["torch_build"])
def test_the_dockerfile_is_clean(torch_build: str, baked: Bake) -> None:
    run("hadolint", "Dockerfile", "deploy/server/Dockerfile", cwd=baked(torch_build=torch_build))


def test_the_image_gets_what_its_build_reads(baked: Bake) -> None:
    project = baked()
    lines = (project / ".dockerignore").read_text(encoding="utf-8").split()
    assert lines[0] == "*"
    assert all((project / line.removeprefix("!")).exists() for line in lines[1:])
    copied = next(line for line in (project / "Dockerfile").read_text("utf-8").splitlines() if line.startswith("COPY"))
    assert set(copied.split()[1:-1]) <= {line.removeprefix("!") for line in lines}


def test_shell_scripts_are_clean(baked: Bake) -> None:
    run("shellcheck", baked(slurm="yes") / "scripts" / "train.sbatch", TEMPLATE / ".ci" / "run", cwd=TEMPLATE)


def test_commit_hooks_are_valid_and_use_the_projects_own_tools(baked: Bake) -> None:
    config = baked() / ".pre-commit-config.yaml"
    run("pre-commit", "validate-config", config, cwd=TEMPLATE)
    repositories = yaml.safe_load(config.read_text(encoding="utf-8"))["repos"]
    assert {repository["repo"] for repository in repositories} == {"local"}


def test_ci_runs_the_readmes_test_command() -> None:
    command = (TEMPLATE / ".ci" / "run").read_text(encoding="utf-8").splitlines()[-1]
    assert command == "make test"
    assert f"\n{command} " in (TEMPLATE / "README.md").read_text(encoding="utf-8")


def test_editors_can_read_the_questions() -> None:
    assert json.loads((TEMPLATE / "cookiecutter.json").read_text(encoding="utf-8"))["project_name"]
