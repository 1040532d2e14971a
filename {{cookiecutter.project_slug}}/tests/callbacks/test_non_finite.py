"""A loss that is not finite is found, wherever it comes up, and named."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from {{cookiecutter.package_name}}.callbacks.non_finite import NonFinite
from {{cookiecutter.package_name}}.classifier import ImageClassifier
from {{cookiecutter.package_name}}.cli import main

SHORT = ["--trainer.max_epochs", "2", "--trainer.limit_train_batches", "6", "--trainer.limit_val_batches", "2"]


def after_steps(callback: NonFinite, losses: list[float], every: int) -> None:
    for step, loss in enumerate(losses):
        trainer: Any = SimpleNamespace(global_step=step, current_epoch=0, log_every_n_steps=every)
        callback.on_train_batch_end(trainer, None, {"loss": torch.tensor(loss)}, None, step)  # type: ignore[arg-type]


def test_first_bad_step_is_named_at_the_end_of_the_interval() -> None:
    with pytest.raises(FloatingPointError, match=r"step 1 \(epoch 0, batch 1\)"):
        after_steps(NonFinite(), [1.0, float("inf"), float("nan"), 1.0], every=4)


def test_no_checkpoint_is_written_from_a_bad_step_within_the_interval() -> None:
    callback = NonFinite()
    after_steps(callback, [1.0, float("nan")], every=100)
    with pytest.raises(FloatingPointError, match="step 1"):
        callback.on_save_checkpoint(None, None, {})  # type: ignore[arg-type]


def test_a_monitor_that_is_not_finite_stops_the_run() -> None:
    trainer: Any = SimpleNamespace(callback_metrics={"val/loss": torch.tensor(float("nan"))}, current_epoch=3)
    with pytest.raises(FloatingPointError, match="val/loss is nan after epoch 3"):
        NonFinite().on_validation_epoch_end(trainer, None)  # type: ignore[arg-type]


def test_finite_losses_pass() -> None:
    callback = NonFinite()
    after_steps(callback, [1.0] * 9, every=4)
    callback.on_save_checkpoint(None, None, {})  # type: ignore[arg-type]


def test_a_loss_that_is_not_finite_stops_the_run_and_leaves_no_checkpoint(
    project: Path, data: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    loss = ImageClassifier.training_step
    monkeypatch.setattr(
        ImageClassifier, "training_step", lambda self, batch, i: loss(self, batch, i) * (torch.nan if i == 3 else 1.0)
    )
    assert main(["fit", *data, *SHORT]) == 1
    assert "the loss is nan at step 4 (epoch 0, batch 3)" in capsys.readouterr().err
    assert not list(project.rglob("*.ckpt"))


def test_a_validation_loss_that_is_not_finite_stops_the_run(
    project: Path, data: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    forward = ImageClassifier.forward
    monkeypatch.setattr(
        ImageClassifier, "forward", lambda self, images: forward(self, images) * (1.0 if self.training else torch.nan)
    )
    assert main(["fit", *data, *SHORT, "--trainer.num_sanity_val_steps", "0"]) == 1
    assert "val/loss is nan after epoch 0" in capsys.readouterr().err
    assert not list(project.rglob("*.ckpt"))
