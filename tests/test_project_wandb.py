"""wandb without a network neither asks, waits nor fails, and leaves one offline run for each run."""

from pathlib import Path

import pytest
from projects import SHORT, Project, bake_project

UNREACHABLE = {"WANDB_BASE_URL": "http://127.0.0.1:9"}  # nothing listens on that port
KEYS = [{}, {"WANDB_API_KEY": "0123456789" * 4}]
TWO_RANKS = ("-c", "configs/ddp.yaml", "--trainer.devices", "2", "--trainer.accelerator", "cpu")
LONG = ("--trainer.max_epochs", "6", "--trainer.limit_train_batches", "8", "--trainer.log_every_n_steps", "1")
EVERY_FOUR_STEPS = ("--last_checkpoint.every_n_train_steps", "4")


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return bake_project(tmp_path, {"logger": "wandb"})


def offline_ids(folder: Path) -> list[str]:
    """Ids in the names offline-run-<time>-<id>."""
    return [path.name.split("-", 3)[3] for path in folder.rglob("offline-run-*")]


def identity(run: Path) -> str:
    return f"{run.parent.name}_{run.name}"


@pytest.mark.parametrize("key", KEYS, ids=["no key", "key"])
def test_each_of_two_runs_leaves_one_offline_run_in_its_folder(key: dict[str, str], project: Project) -> None:
    runs = [project.fit(*SHORT, env=UNREACHABLE | key) for _ in range(2)]
    assert [offline_ids(run) for run in runs] == [[identity(run)] for run in runs]
    assert len(offline_ids(project.folder)) == 2
    assert not (project.folder / "wandb").exists()


def test_a_resumed_run_keeps_its_id(project: Project) -> None:
    run = project.kill_fit(*LONG, *EVERY_FOUR_STEPS, step=20, env=UNREACHABLE)
    project.run("fit", "--resume", env=UNREACHABLE)
    assert (run / "result.json").is_file()
    assert project.runs() == [run]
    assert set(offline_ids(project.folder)) == set(offline_ids(run)) == {identity(run)}


def test_two_ranks_leave_one_run(project: Project) -> None:
    run = project.fit(*TWO_RANKS, *SHORT, env=UNREACHABLE)
    assert offline_ids(project.folder) == [identity(run)]
    assert [path.parent for path in project.folder.rglob("config.yaml")] == [run]
