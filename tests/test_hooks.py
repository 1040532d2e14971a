"""Hooks need nothing of the machine, and never destroy what was in the folder."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from baking import bake, copy_template, files_of
from conftest import Bake
from cookiecutter.exceptions import FailedHookException, OutputDirExistsException

KEPT = {"keep.txt": "mine", "src/digits/mine.py": "MINE = True\n", ".github/workflows/mine.yml": "on: push\n"}


@pytest.fixture
def occupied(tmp_path: Path) -> Path:
    """Folder of a person, where the project is to be baked."""
    project = tmp_path / "digits"
    for name, text in KEPT.items():
        (project / name).parent.mkdir(parents=True, exist_ok=True)
        (project / name).write_text(text, encoding="utf-8")
    return project


def read(project: Path) -> dict[str, str]:
    return {name: (project / name).read_text(encoding="utf-8") for name in files_of(project)}


def test_a_bake_needs_no_git_no_path_no_home_and_no_terminal(template: Path, tmp_path: Path, baked: Bake) -> None:
    code = "import sys; from cookiecutter.cli import main; main(sys.argv[1:])"
    command = [sys.executable, "-c", code, str(template), "--no-input", "--default-config", "-o", str(tmp_path)]
    environment = {"HOME": str(tmp_path / "nowhere"), "PATH": "", "http_proxy": "http://127.0.0.1:9"}
    done = subprocess.run(command, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert files_of(tmp_path / "digits") == files_of(baked())


def test_the_next_two_commands_are_printed(template: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    bake(template, tmp_path, {"project_slug": "shapes", "torch_build": "cu126"})
    _, install, fit = capfd.readouterr().err.splitlines()
    assert install.startswith("  cd shapes && python -m pip install 'torch")
    assert install.endswith("/whl/cu126 && python -m pip install -e .")
    assert fit == "  shapes fit"


def test_hooks_import_the_standard_library_alone(template: Path) -> None:
    for hook in (template / "hooks").glob("*.py"):
        lines = hook.read_text(encoding="utf-8").splitlines()
        modules = {line.split()[1].partition(".")[0] for line in lines if line.startswith(("import ", "from "))}
        assert modules <= sys.stdlib_module_names


def test_an_existing_folder_is_left_alone(template: Path, occupied: Path) -> None:
    with pytest.raises(OutputDirExistsException):
        bake(template, occupied.parent)
    assert read(occupied) == KEPT


def test_overwriting_with_a_bad_answer_changes_nothing(template: Path, occupied: Path) -> None:
    with pytest.raises(FailedHookException):
        bake(template, occupied.parent, {"package_name": "torch"}, overwrite=True)
    assert read(occupied) == KEPT


def test_overwriting_keeps_files_that_the_template_does_not_have(template: Path, occupied: Path) -> None:
    bake(template, occupied.parent, {"ci": "none"}, overwrite=True)
    assert read(occupied).items() >= KEPT.items()


def test_overwriting_never_deletes_a_file_that_an_answer_leaves_out(
    template: Path, occupied: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (occupied / "Dockerfile").write_text("FROM scratch\n", encoding="utf-8")
    with pytest.raises(FailedHookException):
        bake(template, occupied.parent, {"docker": "no"}, overwrite=True)
    assert capfd.readouterr().err.startswith("docker 'no' leaves out 'Dockerfile', which this folder has")
    assert read(occupied) == KEPT | {"Dockerfile": "FROM scratch\n"}


def test_a_failing_post_hook_keeps_the_persons_files(occupied: Path, tmp_path: Path) -> None:
    template = copy_template(tmp_path / "template")
    (template / "hooks" / "post_gen_project.py").write_text("raise SystemExit(1)\n", encoding="utf-8")
    with pytest.raises(FailedHookException):
        bake(template, occupied.parent, overwrite=True)
    assert read(occupied).items() >= KEPT.items()


def test_every_file_that_an_answer_leaves_out_is_in_the_template(template: Path, baked: Bake) -> None:
    everything = files_of(template / "{{cookiecutter.project_slug}}")
    table = json.loads((template / "cookiecutter.json").read_text(encoding="utf-8"))["_left_out"]
    left_out = {name for files in table.values() for names in files.values() for name in names}
    left_out = {name.replace("{package}", "{{cookiecutter.package_name}}") for name in left_out}
    assert left_out <= everything
