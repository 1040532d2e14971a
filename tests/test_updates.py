"""A project bakes from a clone, is whole in git, and takes updates of the template."""

from pathlib import Path

import pytest
from baking import bake, copy_template, files_of, run
from conftest import Bake

NEW_MODULE = '"""From {{ the }} template, {% raw."""\n'


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """Git repository of the template."""
    template = copy_template(tmp_path / "template")
    run("git", "init", "--quiet", cwd=template)
    commit(template)
    return template


def commit(folder: Path) -> None:
    run("git", "add", "--all", cwd=folder)
    run("git", "commit", "--quiet", "--message", "change", cwd=folder)


def tracked(project: Path) -> set[str]:
    return set(run("git", "-c", "core.quotePath=false", "ls-files", cwd=project).splitlines())


def test_a_clone_bakes_what_the_working_tree_does(repository: Path, tmp_path: Path, baked: Bake) -> None:
    url = f"git+file://{repository}"
    run("cookiecutter", url, "--no-input", "--default-config", "-o", tmp_path / "out", cwd=tmp_path)
    assert files_of(tmp_path / "out" / "digits") == files_of(baked())


def test_git_keeps_every_file_of_a_project(template: Path, tmp_path: Path) -> None:
    project = bake(template, tmp_path, {"slurm": "yes"})
    run("git", "init", "--quiet", cwd=project)
    commit(project)
    assert tracked(project) == files_of(project)
    assert any(name.startswith("src/digits/data/") for name in tracked(project))


def test_git_ignores_what_work_leaves_behind(template: Path, tmp_path: Path) -> None:
    project = bake(template, tmp_path)
    for folder in ("data/cats", "runs/default/now", "exports/model", ".venv/bin", "src/digits/__pycache__"):
        (project / folder).mkdir(parents=True)
        (project / folder / "file.pyc").write_text("x", encoding="utf-8")
    run("git", "init", "--quiet", cwd=project)
    commit(project)
    assert not any(name.endswith("file.pyc") for name in tracked(project))


def change_template(repository: Path) -> None:
    """Make another release: one file changed, one new, one gone."""
    project = repository / "{{cookiecutter.project_slug}}"
    package = project / "src" / "{{cookiecutter.package_name}}"
    readme = project / "README.md"
    readme.write_text(readme.read_text(encoding="utf-8") + "\nA new line of the template.\n", encoding="utf-8")
    (package / "new_module.py").write_text(NEW_MODULE, encoding="utf-8")
    (project / ".dockerignore").unlink()
    commit(repository)


def change_project(project: Path) -> None:
    """Work as a team does: one file changed, one new."""
    ignored = (project / ".gitignore").read_text(encoding="utf-8")
    (project / ".gitignore").write_text(f"/mine/\n{ignored}", encoding="utf-8")
    (project / "src" / "digits" / "mine.py").write_text('"""Ours."""\n', encoding="utf-8")
    commit(project)


def test_an_update_brings_the_templates_changes_and_keeps_the_teams(repository: Path, tmp_path: Path) -> None:
    description = 'a "quoted" \\ 图 😀'
    answers = f'{{"description": "{description.translate({34: chr(92) + chr(34), 92: chr(92) * 2})}"}}'
    run("cruft", "create", repository, "--no-input", "--output-dir", tmp_path, "--extra-context", answers, cwd=tmp_path)
    project = tmp_path / "digits"
    run("git", "init", "--quiet", cwd=project)
    commit(project)
    change_project(project)
    change_template(repository)
    run("cruft", "update", "--skip-apply-ask", cwd=project)
    assert (project / "README.md").read_text(encoding="utf-8").endswith("\nA new line of the template.\n")
    assert (project / "src" / "digits" / "new_module.py").read_text(encoding="utf-8") == NEW_MODULE
    assert not (project / ".dockerignore").exists()
    assert (project / ".gitignore").read_text(encoding="utf-8").startswith("/mine/\n")
    assert (project / "src" / "digits" / "mine.py").is_file()
    assert description in (project / "README.md").read_text(encoding="utf-8")
    assert not list(project.rglob("*.rej"))


def test_a_project_is_up_to_date_just_after_it_was_made(repository: Path, tmp_path: Path) -> None:
    run("cruft", "create", repository, "--no-input", "--output-dir", tmp_path, cwd=tmp_path)
    assert "up to date" in run("cruft", "check", cwd=tmp_path / "digits")
    assert run("cruft", "diff", cwd=tmp_path / "digits") == ""
