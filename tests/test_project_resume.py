"""A run that was killed and resumed equals one that was not, bit for bit."""

from pathlib import Path
from typing import Any

import pytest
import torch
from projects import NETWORK, Project, bake_project, draw_folder

NETWORK_OPTIONS = ("--model.network", "SmallResidual", "--model.network_args", "{dropout: 0.3}")
LENGTH = ("--trainer.max_epochs", "6", "--trainer.limit_train_batches", "11", "--trainer.log_every_n_steps", "1")
IN_MID_EPOCH = ("--last_checkpoint.every_n_train_steps", "4")
FOLDER = ("--data.source", "folder", "--data.root", "images", "--data.batch_size", "4", "--data.num_workers", "2")
FLIPS = ("--data.augmentation", "{crop_padding: 3, horizontal_flip: true}")
CASES = {
    "in mid-epoch": IN_MID_EPOCH,
    "in mid-epoch with workers": (*IN_MID_EPOCH, *FOLDER),
    "after an epoch": (),
}
KILLED_AT = {"in mid-epoch with workers": 7}  # in the first epoch; else in the third


def read_last(run: Path) -> dict[str, Any]:
    content: dict[str, Any] = torch.load(run / "checkpoints" / "last.ckpt", weights_only=True)
    return {name: content[name] for name in ("state_dict", "global_step", "epoch")} | {
        "moments": content["optimizer_states"][0]["state"]
    }


def files_of(run: Path) -> set[str]:
    return {path.relative_to(run).as_posix() for path in run.rglob("*")}


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Project:
    project = bake_project(tmp_path_factory.mktemp("resume"), {"logger": "csv"})
    (project.package_folder / "networks" / "small_residual.py").write_text(NETWORK, encoding="utf-8")
    draw_folder(project.folder / "images")
    return project


@pytest.mark.parametrize("case", CASES)
def test_a_killed_and_resumed_run_equals_an_uninterrupted_one(case: str, project: Project) -> None:
    options = (*NETWORK_OPTIONS, *LENGTH, *FLIPS, *CASES[case])
    whole = project.fit(*options)
    killed = project.kill_fit(*options, step=KILLED_AT.get(case, 25))
    runs = project.runs()
    resumed = project.run("fit", "--resume")
    print(next(line for line in resumed.stderr.splitlines() if line.startswith("resuming")))
    assert project.runs() == runs
    assert files_of(killed) == files_of(whole)
    torch.testing.assert_close(read_last(killed), read_last(whole), rtol=0, atol=0)
    assert (killed / "metrics.csv").read_text(encoding="utf-8") == (whole / "metrics.csv").read_text(encoding="utf-8")
