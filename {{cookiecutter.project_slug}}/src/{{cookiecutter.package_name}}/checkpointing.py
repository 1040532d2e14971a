"""What `fit` writes into checkpoints/: best.ckpt to use and last.ckpt to go on from."""

import io
import math
import os
import signal
import time
from pathlib import Path
from typing import Any, Literal

import torch
from lightning import Callback, LightningModule, Trainer
from lightning.pytorch.callbacks import Checkpoint, ModelCheckpoint
from lightning.pytorch.plugins.io import TorchCheckpointIO

from .checkpoints import read_checkpoint
from .cli import Terminated
from .runs import put_in_place

CONFIG = "config.yaml"
NEXT = "next.ckpt"  # becomes last.ckpt


class BestCheckpoint(ModelCheckpoint):
    """Keeps best.ckpt: the weights that the best validation so far has scored.

    Args:
        monitor: logged value that decides, such as val/loss or val/accuracy.
        mode: whether the lowest (min) or the highest (max) value is best.
    """

    def __init__(self, monitor: str = "val/loss", mode: Literal["min", "max"] = "min") -> None:
        # At the end of a validation and no other time: later weights are not those that were scored.
        super().__init__(
            filename="best", monitor=monitor, mode=mode, save_on_train_epoch_end=False, enable_version_counter=False
        )
        self.since = 0

    @property
    def path(self) -> Path:
        return Path(str(self.dirpath)) / "best.ckpt"

    @property
    def final_path(self) -> Path:
        """What the run ends with: without any validation the last one."""
        return self.path if self.best_model_score is not None else self.path.with_name("last.ckpt")

    def forget(self, step: int) -> None:
        """Take validations from this step on only."""
        self.since = step
        self.best_k_models, self.best_model_score = {}, None
        self.best_model_path = self.kth_best_model_path = ""

    def state_dict(self) -> dict[str, Any]:
        return super().state_dict() | {"since": self.since}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.since, self.current_score = state_dict["since"], state_dict["current_score"]
        kept = read_checkpoint(self.path) if self.path.exists() else None
        # The file knows its own score; it may be newer than last.ckpt, and the run may have been moved.
        if kept and kept["global_step"] >= self.since:
            state = kept["callbacks"][self.state_key]
            paths = dict.fromkeys(("best_model_path", "kth_best_model_path"), str(self.path))
            best = {str(self.path): state["best_model_score"]}
            super().load_state_dict(state | paths | {"dirpath": self.dirpath, "best_k_models": best})
            self.current_score = state["current_score"]  # which Lightning 2.6 stores and does not load


class LastCheckpoint(Checkpoint):
    """Keeps last.ckpt, from which `fit --resume` goes on: written after each epoch, in between, and before a stop.

    SIGINT (Ctrl-C) and SIGTERM wait for the step, or for the validation that is next; a second one does not.

    Args:
        every_n_minutes: minutes between two checkpoints in an epoch.
        every_n_train_steps: optimizer steps between two checkpoints in an epoch; 0 for none.
    """

    def __init__(self, every_n_minutes: float = 30.0, every_n_train_steps: int = 0) -> None:
        if every_n_minutes <= 0:
            raise ValueError(f"every_n_minutes must be above 0, got {every_n_minutes}.")
        if every_n_train_steps < 0:
            raise ValueError(f"every_n_train_steps must be at least 0, got {every_n_train_steps}.")
        self.every_n_minutes = every_n_minutes
        self.every_n_train_steps = every_n_train_steps
        self._handlers: dict[int, Any] = {}

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._saved_at = time.monotonic()
        self._step = trainer.global_step
        self._due = self._written = self._stops = False
        self._signal: int | None = None
        if not trainer.fast_dev_run:  # type: ignore[attr-defined]
            self._handlers = {number: signal.signal(number, self._note) for number in (signal.SIGINT, signal.SIGTERM)}

    def _note(self, number: int, frame: Any) -> None:
        self._signal = number
        signal.signal(number, self._handlers[number])
        os.write(2, b"\nstops after this step, or after the validation that is next; a second signal stops at once\n")

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        stepped, self._step = trainer.global_step != self._step, trainer.global_step
        self._due = self._due or self._is_due(trainer, batch_idx)
        # Gradients that are being accumulated are in no checkpoint; a resume would leave out a validation that is next.
        if self._due and stepped and not _validates_next(trainer, batch_idx):
            self._save(trainer)

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._save(trainer)

    def on_train_batch_start(self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int) -> None:
        self._publish(trainer)

    def on_train_epoch_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._publish(trainer)

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._stops = self._signal is not None
        self._publish(trainer)
        for number, handler in self._handlers.items():
            signal.signal(number, handler)

    def _is_due(self, trainer: Trainer, batch_idx: int) -> bool:
        if self.every_n_train_steps and trainer.global_step % self.every_n_train_steps == 0:
            return True
        if trainer.world_size > 1 and (batch_idx + 1) % trainer.log_every_n_steps:  # type: ignore[attr-defined]
            return False  # processes agree that seldom
        late = time.monotonic() - self._saved_at >= 60 * self.every_n_minutes
        return trainer.strategy.reduce_boolean_decision(late or self._signal is not None, all=False)

    def _save(self, trainer: Trainer) -> None:
        if trainer.fast_dev_run:  # type: ignore[attr-defined]
            return
        self._stops = trainer.strategy.reduce_boolean_decision(self._signal is not None, all=False)
        trainer.save_checkpoint(_last(trainer).with_name(NEXT), weights_only=False)
        self._saved_at, self._due, self._written = time.monotonic(), False, True

    def _publish(self, trainer: Trainer) -> None:
        """Only now have the loggers got all that belongs to the steps before: a resume does not log it again."""
        if self._written and trainer.is_global_zero:
            put_in_place(_last(trainer).with_name(NEXT), _last(trainer))
        self._written = False
        if self._stops:
            raise KeyboardInterrupt if self._signal == signal.SIGINT else Terminated


def _last(trainer: Trainer) -> Path:
    return Path(trainer.default_root_dir) / "checkpoints" / "last.ckpt"


def _validates_next(trainer: Trainer, batch_idx: int) -> bool:
    batches = trainer.fit_loop.total_batch_idx if trainer.check_val_every_n_epoch is None else batch_idx
    return trainer.is_last_batch or (batches + 1) % (trainer.val_check_batch or math.inf) == 0


def best_checkpoint(trainer: Trainer) -> BestCheckpoint:
    """The callback that keeps best.ckpt."""
    (best,) = (callback for callback in trainer.checkpoint_callbacks if isinstance(callback, BestCheckpoint))
    return best


def start_anew(trainer: Trainer) -> None:
    """Choose the best checkpoint, and stop early, by validations from now on: the model has become another one."""
    best_checkpoint(trainer).forget(trainer.global_step)
    trainer.should_stop = False
    for callback in trainer.early_stopping_callbacks:
        callback.best_score = torch.tensor(math.inf if callback.mode == "min" else -math.inf)
        callback.wait_count = 0


def train_until(trainer: Trainer, epoch: int, *, option: str) -> None:
    """Refuse a run that ends before this epoch (from 0), and keep early stopping from ending it there."""
    if trainer.fast_dev_run:  # type: ignore[attr-defined]
        return
    if trainer.max_epochs not in (None, -1) and trainer.max_epochs <= epoch:
        raise ValueError(f"{option} {epoch} is never reached: trainer.max_epochs is {trainer.max_epochs}.")
    trainer.fit_loop.min_epochs = max(trainer.fit_loop.min_epochs or 0, epoch + 1)


def check_steps(trainer: Trainer, epoch: int, *, option: str) -> None:
    """Refuse, at the start of training, a run whose steps end before this epoch (from 0)."""
    if trainer.fast_dev_run:  # type: ignore[attr-defined]
        return
    needed = epoch * math.ceil(trainer.num_training_batches / trainer.accumulate_grad_batches)
    if trainer.estimated_stepping_batches < needed:
        raise ValueError(
            f"{option} {epoch} is never reached: that takes {needed} steps, trainer.max_steps is {trainer.max_steps}."
        )


class KeepConfig(Callback):
    """Puts the text of config.yaml into each checkpoint, so that a resume sees what was changed since."""

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self.text = (Path(trainer.default_root_dir) / CONFIG).read_text("utf-8") if trainer.is_global_zero else ""

    def on_save_checkpoint(self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]) -> None:
        checkpoint[CONFIG] = self.text


class AtomicCheckpointIO(TorchCheckpointIO):
    """Writes beside the file, then renames it: Lightning 2.6 moves it from the temporary folder, maybe another disk."""

    def save_checkpoint(self, checkpoint: dict[str, Any], path: str | Path, storage_options: Any | None = None) -> None:
        content = io.BytesIO()  # torch.save to a file that can't grow has no OSError to tell
        torch.save(checkpoint, content)
        aside = Path(f"{path}.part")
        aside.parent.mkdir(parents=True, exist_ok=True)
        try:
            with aside.open("wb") as file:
                file.write(content.getbuffer())
                file.flush()
                os.fsync(file.fileno())  # or after a power cut the new name may stand for an empty file
            aside.replace(path)
        except OSError:
            aside.unlink(missing_ok=True)
            raise
