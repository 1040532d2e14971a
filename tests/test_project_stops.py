"""A run that is asked to stop, or whose disk is full, ends in one line with a checkpoint from which it goes on."""

from pathlib import Path

import pytest
import torch
from killing import strike
from projects import Project, bake_project
from test_project_together import QUIET

LENGTH = ("--trainer.max_epochs", "3", "--trainer.limit_train_batches", "6", "--trainer.log_every_n_steps", "1")
FIT = (*LENGTH, *QUIET)
# What comes when, exit code and first word of the line, and the step of the checkpoint.
STOPS = {
    "terminated in a step": ("SIGTERM", "step", 8, 143, "terminated", 9),
    "terminated in the first step": ("SIGTERM", "step", 0, 143, "terminated", 1),
    "terminated in a validation": ("SIGTERM", "validation", 12, 143, "terminated", 12),
    "terminated between epochs": ("SIGTERM", "epochs", 6, 143, "terminated", 7),
    "terminated in the last step": ("SIGTERM", "step", 17, 143, "terminated", 18),
    "interrupted in a step": ("SIGINT", "step", 8, 130, "interrupted", 9),
    "full in a step": ("FULL", "step", 8, 2, "[Errno 27] File too large", 6),
}


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Project:
    return bake_project(tmp_path_factory.mktemp("stops"), {"logger": "csv"})


@pytest.fixture(scope="module")
def whole(project: Project) -> Path:
    return project.fit(*FIT)


def read_last(run: Path) -> dict[str, object]:
    content: dict[str, object] = torch.load(run / "checkpoints" / "last.ckpt", weights_only=True)
    return content


@pytest.mark.parametrize("case", STOPS)
def test_a_stopped_run_ends_in_one_line_and_goes_on(case: str, project: Project, whole: Path) -> None:
    fault, moment, step, code, word, saved = STOPS[case]
    done = strike(project, fault, moment, step, *FIT)
    run = project.runs()[-1].relative_to(project.folder)
    assert done.returncode == code, done.stderr
    assert f" fit: {word}" in done.stderr.splitlines()[-1] and "Traceback" not in done.stderr
    assert done.stderr.endswith(f"fit --resume {run}\n")
    stopped = project.folder / run
    assert read_last(stopped)["global_step"] == saved
    assert {path.name for path in (stopped / "checkpoints").iterdir()} <= {"best.ckpt", "last.ckpt"}

    project.run("fit", "--resume")
    expected, found = read_last(whole), read_last(stopped)
    torch.testing.assert_close(found["state_dict"], expected["state_dict"], rtol=0, atol=0)
    assert (stopped / "metrics.csv").read_bytes() == (whole / "metrics.csv").read_bytes()
