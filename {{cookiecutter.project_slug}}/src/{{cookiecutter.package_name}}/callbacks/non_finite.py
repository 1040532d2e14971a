"""Stops a run whose loss is no longer finite, before any checkpoint is written from it."""

import math
from typing import Any

import torch
from lightning import Callback, LightningModule, Trainer
from torch import Tensor


class NonFinite(Callback):
    """Names the first step and batch whose loss is NaN or infinite.

    The loss stays on the device; once per logging interval, before validation and before a checkpoint it is looked at.

    Args:
        monitor: logged value that must be finite after each validation.
    """

    def __init__(self, monitor: str = "val/loss") -> None:
        self.monitor = monitor
        self._seen: list[tuple[int, int, int, Tensor]] = []

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        self._seen.append((trainer.global_step, trainer.current_epoch, batch_idx, outputs["loss"].detach()))
        if len(self._seen) >= trainer.log_every_n_steps:  # type: ignore[attr-defined]
            self._check()

    def on_validation_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._check()

    def on_save_checkpoint(self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]) -> None:
        self._check()

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._check()

    def on_validation_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        value = trainer.callback_metrics.get(self.monitor)
        if value is not None and not math.isfinite(value):
            raise FloatingPointError(
                f"{self.monitor} is {float(value)} after epoch {trainer.current_epoch}; the run stops."
            )

    def _check(self) -> None:
        if not self._seen:
            return
        finite = torch.stack([loss for *_, loss in self._seen]).isfinite().tolist()
        seen, self._seen = self._seen, []
        if not all(finite):
            step, epoch, batch_idx, loss = seen[finite.index(False)]
            raise FloatingPointError(
                f"the loss is {float(loss)} at step {step} (epoch {epoch}, batch {batch_idx}); the run stops, earlier "
                "checkpoints stay. Try a lower learning_rate or trainer.gradient_clip_val, or look at that batch."
            )
