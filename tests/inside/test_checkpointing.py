"""best.ckpt is the model that was scored, and a stopped run goes on from last.ckpt as if nothing had happened."""

import csv
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from lightning import Callback, LightningModule, Trainer
from smoke import checkpointing
from smoke.callbacks import CALLBACKS
from smoke.checkpointing import AtomicCheckpointIO, BestCheckpoint, LastCheckpoint
from smoke.classifier import ImageClassifier
from smoke.cli import main
from smoke.runs import newest_run, read_result

SHORT = ["--trainer.max_epochs", "2", "--trainer.limit_train_batches", "6", "--trainer.log_every_n_steps", "1"]
SHORT += ["--trainer.logger", "false"]
IN_MID_EPOCH = ["--last_checkpoint.every_n_train_steps", "4"]
SAVED = {
    "after an epoch": [],
    "in mid-epoch": IN_MID_EPOCH,
    "by the clock": ["--last_checkpoint.every_n_minutes", "1e-9"],
    "validated in mid-epoch": [*IN_MID_EPOCH, "--trainer.val_check_interval", "4"],
    "validated every other epoch": [*IN_MID_EPOCH, "--trainer.check_val_every_n_epoch", "2"],
}
Fit = Callable[..., Path]


class Anew(Callback):
    """Changes the model in the third epoch."""

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        checkpointing.train_until(trainer, 2, option="anew.epoch")

    def on_train_epoch_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if trainer.current_epoch == 2:
            checkpointing.start_anew(trainer)


def read_log(run: Path) -> list[dict[str, str]]:
    with (run / "metrics.csv").open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def read_checkpoint(run: Path, name: str = "last.ckpt") -> dict[str, Any]:
    checkpoint: dict[str, Any] = torch.load(run / "checkpoints" / name, weights_only=True)
    return checkpoint


def at_step(step: int) -> Callable[..., bool]:
    return lambda self, *args: self.global_step >= step


@pytest.mark.parametrize("saved", SAVED)
def test_the_best_checkpoint_is_the_model_that_was_scored(saved: str, project: Path, data: list[str]) -> None:
    assert main(["fit", *data, *SHORT, *SAVED[saved]]) == 0
    run = newest_run(finished=True)
    assert main(["validate"]) == 0
    found = json.loads((run / "val" / "metrics.json").read_text(encoding="utf-8"))
    assert Path(found["checkpoint"]).name == "best.ckpt"
    assert found["val/loss"] == pytest.approx(read_result(run)["score"], abs=1e-6)
    assert read_result(run)["score"] == min(float(row["val/loss"]) for row in read_log(run) if row["val/loss"])


@pytest.mark.parametrize("hook", ["on_train_batch_start", "on_validation_batch_end"])
@pytest.mark.parametrize("saved", ["after an epoch", "in mid-epoch", "validated in mid-epoch"])
def test_a_stopped_and_resumed_run_equals_an_uninterrupted_one(
    saved: str, hook: str, project: Path, data: list[str], fit_until: Fit
) -> None:
    options = [*data, *SHORT, *SAVED[saved]]
    assert main(["fit", "--name", "whole", *options]) == 0
    whole = newest_run(finished=True)
    stopped = fit_until(ImageClassifier, hook, at_step(10), "--name", "stopped", *options)
    assert main(["fit", "--resume"]) == 0

    expected, found = read_checkpoint(whole), read_checkpoint(stopped)
    assert found["global_step"] == expected["global_step"] == 12
    assert all(torch.equal(value, found["state_dict"][key]) for key, value in expected["state_dict"].items())
    assert read_log(stopped) == read_log(whole)
    assert read_result(stopped) == read_result(whole)


@pytest.mark.parametrize(("options", "step"), [("in mid-epoch", 4), ("by the clock", 5)])
def test_a_run_that_stopped_in_its_first_epoch_is_resumed(
    options: str, step: int, project: Path, data: list[str], fit_until: Fit
) -> None:
    stopped = fit_until(
        ImageClassifier, "on_train_batch_start", at_step(5), "--name", "stopped", *data, *SHORT, *SAVED[options]
    )
    saved = read_checkpoint(stopped)
    assert (saved["epoch"], saved["global_step"]) == (0, step)
    assert main(["fit", "--resume"]) == 0


def test_a_run_that_stopped_between_its_two_checkpoints_keeps_the_score_of_the_better_one(
    project: Path, data: list[str], fit_until: Fit
) -> None:
    def at_the_second_end(self: LastCheckpoint, trainer: Any, pl_module: Any) -> bool:
        return trainer.current_epoch == 1

    stopped = fit_until(LastCheckpoint, "on_train_epoch_end", at_the_second_end, "--name", "stopped", *data, *SHORT)
    best = stopped / "checkpoints" / "best.ckpt"
    content = read_checkpoint(stopped, "best.ckpt")
    assert content["epoch"] == 1 and read_checkpoint(stopped)["epoch"] == 0
    moved = stopped.rename(project / "moved")
    before = (moved / "checkpoints" / "best.ckpt").stat().st_mtime_ns
    assert main(["fit", "--resume", str(moved)]) == 0
    assert {path.name for path in (moved / "checkpoints").iterdir()} == {"best.ckpt", "last.ckpt"}
    assert (moved / "checkpoints" / "best.ckpt").stat().st_mtime_ns == before and not best.exists()
    (kept,) = (state for key, state in content["callbacks"].items() if key.startswith(BestCheckpoint.__name__))
    assert read_result(moved)["score"] == float(kept["best_model_score"])


def test_a_moved_run_is_resumed_with_the_best_score_it_had(
    project: Path, data: list[str], fit_until: Fit, monkeypatch: pytest.MonkeyPatch
) -> None:
    stopped = fit_until(ImageClassifier, "on_train_batch_start", at_step(8), "--name", "stopped", *data, *SHORT)
    moved = stopped.rename(project / "moved")
    best = moved / "checkpoints" / "best.ckpt"
    before = best.stat().st_mtime_ns
    best.rename(f"{best}.old")  # as a kill between two renames leaves it
    worse = lambda self, batch, i: (self.log("val/loss", 1e9), self(batch[0]))[1]  # noqa: E731
    monkeypatch.setattr(ImageClassifier, "validation_step", worse)
    assert main(["fit", "--resume", str(moved.resolve())]) == 0
    assert {path.name for path in best.parent.iterdir()} == {"best.ckpt", "last.ckpt"}
    assert best.stat().st_mtime_ns == before


def test_a_run_that_starts_anew_trains_on_and_forgets_earlier_scores(
    project: Path, data: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(CALLBACKS, "anew", Anew)
    stops_at_once = ["--early_stopping.patience", "1", "--early_stopping.min_delta", "9"]
    length = ["--trainer.max_epochs", "6", "--trainer.limit_train_batches", "2", "--trainer.logger", "false"]
    assert main(["fit", *data, *length, *stops_at_once, "--anew", "{}"]) == 0
    run = newest_run(finished=True)
    assert read_checkpoint(run, "best.ckpt")["epoch"] >= 2
    assert read_result(run)["epochs"] == 4  # one that counts and one that is no better


def test_a_checkpoint_whose_writing_fails_leaves_the_one_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "last.ckpt"
    AtomicCheckpointIO().save_checkpoint({"step": 1}, path)

    def fail(*args: object) -> None:
        raise OSError("no space left on device")

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(OSError, match="no space left"):
        AtomicCheckpointIO().save_checkpoint({"step": 2}, path)
    assert torch.load(path) == {"step": 1}


@pytest.mark.parametrize(("name", "value"), [("every_n_minutes", 0), ("every_n_train_steps", -1)])
def test_senseless_intervals_are_refused(name: str, value: int) -> None:
    with pytest.raises(ValueError, match=f"{name} must be"):
        LastCheckpoint(**{name: value})
