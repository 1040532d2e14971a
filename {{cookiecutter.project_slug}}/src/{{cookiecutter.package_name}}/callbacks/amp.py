"""Mixed precision: chosen by the hardware, watched for steps that are not finite, and measured against float32."""

import math
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any, Literal

from lightning import Callback, LightningModule, Trainer
from lightning.pytorch.plugins import MixedPrecision, Precision
from lightning.pytorch.utilities import rank_zero_info
from torch import Tensor, nn
from torch.linalg import vector_norm
from torch.nn.utils import get_total_norm
from torch.optim import Optimizer

from ..checkpointing import best_checkpoint
from ..checkpoints import load_classifier
from ..classifier import ImageClassifier
from ..measure import local_gradients, milliseconds, validation_accuracy
from ..non_finite_search import Batch, leaving_no_trace, of_any_process, search
from ..precision import keep_float32, set_precision
from ..randomness import step_seed
from ..report import Change
from ..runs import write_json
from ..strategies import FullyShard

NUM_SEARCHES = 5  # a search takes as long as a step, and a run may skip many


class Amp(Callback):
    """Mixed precision where the hardware computes it; traces a NaN or infinity to the module it came from.

    Args:
        precision: auto (what the device computes natively), bf16-mixed, 16-mixed or 32-true; null: trainer.precision.
        keep_fp32: modules of the network that stay in float32: names or patterns such as head or features.1.*
        min_scale: loss scale of 16-mixed below which the run stops, above 0.
    """

    def __init__(
        self,
        precision: Literal["auto", "bf16-mixed", "16-mixed", "32-true"] | None = "auto",
        keep_fp32: list[str] | None = None,
        min_scale: float = 1.0,
    ) -> None:
        if min_scale <= 0:
            raise ValueError(f"amp.min_scale must be above 0, got {min_scale}.")
        self.precision = precision
        self.keep_fp32 = keep_fp32 or []
        self.min_scale = min_scale
        self.changes: list[Change] = []
        self._kept: dict[str, nn.Module] = {}
        self._batches: list[Batch] = []  # of the optimizer step that is due
        self._scale: float | None = None
        self._state: dict[str, Any] = {"milliseconds": None, "num_skipped": 0, "first_skipped": []}

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        assert isinstance(pl_module, ImageClassifier)
        self._reason = set_precision(trainer, self.precision)
        self._kept = keep_float32(pl_module.network, self.keep_fp32, trainer.strategy.root_device)
        rank_zero_info(f"amp: precision {trainer.precision}, {self._reason}")

    def teardown(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        for module in self._kept.values():
            del module.forward
        self._kept = {}

    def state_dict(self) -> dict[str, Any]:
        return self._state

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self._state = state_dict

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._scale = trainer.scaler.get_scale() if trainer.scaler else None

    def on_train_batch_start(self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int) -> None:
        assert isinstance(pl_module, ImageClassifier)
        self._batches.append(Batch(batch, batch_idx, step_seed(trainer, pl_module.hparams["seed"])))
        if not self._state["milliseconds"] and isinstance(trainer.precision_plugin, MixedPrecision):
            self._state["milliseconds"] = _milliseconds(pl_module, self._batches[-1], trainer.precision_plugin)

    def on_before_zero_grad(self, trainer: Trainer, pl_module: LightningModule, optimizer: Optimizer) -> None:
        self._batches = self._batches[-1:]

    def on_before_optimizer_step(self, trainer: Trainer, pl_module: LightningModule, optimizer: Optimizer) -> None:
        if self._scale is not None:  # the scaler itself looks at all gradients
            return
        weights = (weight for group in optimizer.param_groups for weight in group["params"])
        norm = _norm([weight.grad for weight in weights if weight.grad is not None])
        sharded = isinstance(trainer.strategy, FullyShard)
        if sharded and not trainer.strategy.reduce_boolean_decision(math.isfinite(norm)):
            norm = math.nan  # maybe in the share of another process alone
        if not math.isfinite(norm):
            assert isinstance(pl_module, ImageClassifier)
            found = search(trainer, pl_module, self._batches, scale=1.0)
            raise FloatingPointError(
                f"the gradient is {norm:g} at {self._where(trainer, trainer.global_step + 1)}, {_first(found)}. "
                "The run stops before the weights take it. Try a lower learning_rate, or amp.keep_fp32 for that module."
            )

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        if self._scale is None or not trainer.scaler:
            return
        before, self._scale = self._scale, trainer.scaler.get_scale()
        if self._scale < before:
            self._note_skipped(trainer, pl_module, before, self._scale)

    def on_validation_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        _check_buffers(trainer, pl_module)

    def on_fit_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if trainer.fast_dev_run:  # type: ignore[attr-defined]
            return
        if times := self._state["milliseconds"]:
            self.changes.append(Change("forward and backward", times[0], times[1], "ms"))
            self.changes.append(Change("val accuracy", *self._accuracies(trainer)))
        if self._scale is not None:
            self.changes.append(Change("skipped steps", None, self._state["num_skipped"]))
        details = {
            "precision": trainer.precision,
            "reason": self._reason,
            "keep_fp32": list(self._kept),
            "loss_scale": self._scale,
            "num_skipped": self._state["num_skipped"],
            "first_skipped": self._state["first_skipped"],
            "changes": [asdict(change) for change in self.changes],
        }
        if trainer.is_global_zero:
            write_json(Path(trainer.default_root_dir) / "amp.json", details)

    def _accuracies(self, trainer: Trainer) -> tuple[float, float]:
        classifier = load_classifier(best_checkpoint(trainer).final_path)
        keep_float32(classifier.network, self.keep_fp32, trainer.strategy.root_device)
        before = validation_accuracy(trainer, classifier)
        with trainer.precision_plugin.val_step_context():
            return before, validation_accuracy(trainer, classifier)

    def _where(self, trainer: Trainer, step: int) -> str:
        return f"step {step} (epoch {trainer.current_epoch}, batch {self._batches[-1].number})"

    def _note_skipped(self, trainer: Trainer, pl_module: LightningModule, before: float, scale: float) -> None:
        assert isinstance(pl_module, ImageClassifier)
        where, state = self._where(trainer, trainer.global_step), self._state
        state["num_skipped"] += 1
        if state["num_skipped"] <= NUM_SEARCHES:
            found = search(trainer, pl_module, self._batches, before)
            state["first_skipped"].append({"step": trainer.global_step} | (asdict(found) if found else {}))
            rank_zero_info(f"amp: {where} was skipped, loss scale {before:g} to {scale:g}, {_first(found)}")
        _check_buffers(trainer, pl_module)
        if scale < self.min_scale:
            module = state["first_skipped"][-1].get("module", "no module alone")
            raise FloatingPointError(
                f"the loss scale fell to {scale:g}, below amp.min_scale {self.min_scale:g}, at {where}: float16 can't "
                f"hold what {module} computes. Try amp.precision bf16-mixed, amp.keep_fp32, or a lower learning_rate."
            )


def _milliseconds(classifier: ImageClassifier, batch: Batch, precision: Precision) -> list[float]:
    """In float32 and in this precision, without compiling."""

    def step(precision: Precision) -> None:
        local_gradients(batch.loss(classifier, precision), classifier)

    with leaving_no_trace(classifier):
        return list(milliseconds({"a": partial(step, Precision()), "b": partial(step, precision)}, rounds=5).values())


def _norm(gradients: list[Tensor]) -> float:
    if gradients and gradients[0].device.type == "cpu":  # where each operation of more costs a small network time
        return sum(float(vector_norm(gradient)) for gradient in gradients)
    return float(get_total_norm(gradients))


def _check_buffers(trainer: Trainer, pl_module: LightningModule) -> None:
    stored = pl_module.state_dict()
    names = [n for n, b in pl_module.named_buffers() if n in stored and not b.isfinite().all()]
    if name := of_any_process(trainer, names[0] if names else None):
        raise FloatingPointError(
            f"buffer {name} is not finite at step {trainer.global_step}: images evaluate to NaN from now on. The run "
            "stops, earlier checkpoints stay. Try amp.keep_fp32 for the module before it, or a lower learning_rate."
        )


def _first(found: object) -> str:
    return f"first in {found}" if found else "but not when it was run again"
