"""Pruning to a target: single weights on a schedule, or whole channels before training."""

import copy
import math
from pathlib import Path
from typing import Any, Literal

from lightning import Callback, LightningModule, Trainer
from torch import Tensor

from ..checkpointing import best_checkpoint, check_steps, start_anew, train_until
from ..checkpoints import load_classifier
from ..classifier import ImageClassifier
from ..measure import costs, head_of, latencies, validation_accuracy
from ..report import Change
from ..runs import write_json
from ..sparsity import (
    TOLERANCE,
    apply_masks,
    num_nonzero,
    prunable_weights,
    remove_channels,
    removed_share,
    smallest_masked,
)

NUM_UPDATES = 20  # of the masks, evenly over the schedule
TOLERANCES = {"unstructured": 1e-3, "structured": TOLERANCE}  # of the share that the final checkpoint has
FOREIGN = {"unstructured": ("round_to",), "structured": ("begin_epoch", "end_epoch")}


class Pruning(Callback):
    """Removes what weighs least, until the final model has a target sparsity.

    Unstructured: the smallest weights of all convolutions and linear layers together are set to zero, more and more of
    them on the cubic schedule of Zhu & Gupta 2017. The model gets neither smaller nor faster by that alone. Structured:
    whole channels of a trained network (--init_from) are removed before it is trained on; it gets smaller and faster.

    Args:
        target_sparsity: share in (0, 1) of the weights, or of the channels, that the final model lacks; after
            --init_from a network that was pruned by channels, of those that this one still has.
        kind: unstructured or structured.
        begin_epoch: unstructured, first epoch (from 0) that removes weights; by default a third of trainer.max_epochs.
        end_epoch: unstructured, first epoch with the target; only validations at the target count for best.ckpt and
            early stopping. By default two thirds of trainer.max_epochs.
        round_to: structured, multiple to which the channels kept in a layer are rounded down; by default 8.
        max_accuracy_drop: the run fails if the validation accuracy of the final model is lower by more than this share
            in [0, 1] than before the first weight or channel was removed; null for no limit.
    """

    NOT_SHARDED = "channels can not be removed from shares of weights"

    def __init__(
        self,
        target_sparsity: float,
        kind: Literal["unstructured", "structured"] = "unstructured",
        begin_epoch: int | None = None,
        end_epoch: int | None = None,
        round_to: int | None = None,
        max_accuracy_drop: float | None = 0.02,
    ) -> None:
        if not 0 < target_sparsity < 1:
            raise ValueError(f"pruning.target_sparsity must be in (0, 1), got {target_sparsity}.")
        if max_accuracy_drop is not None and not 0 <= max_accuracy_drop <= 1:
            raise ValueError(f"pruning.max_accuracy_drop must be in [0, 1] or null, got {max_accuracy_drop}.")
        if round_to is not None and round_to < 1:
            raise ValueError(f"pruning.round_to must be at least 1, got {round_to}.")
        given = {"begin_epoch": begin_epoch, "end_epoch": end_epoch, "round_to": round_to}
        if foreign := [name for name in FOREIGN[kind] if given[name] is not None]:
            raise ValueError(f"{kind} pruning has no {' and no '.join(foreign)}.")
        self.target_sparsity, self.kind, self.max_accuracy_drop = target_sparsity, kind, max_accuracy_drop
        self.begin_epoch, self.end_epoch, self.round_to = begin_epoch, end_epoch, round_to or 8
        self.changes: list[Change] = []
        self.failure: str | None = None
        self._accuracy = math.nan  # before
        self._masks: dict[str, Tensor] = {}  # by the weight's name; False where it is zero

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        if stage != "fit":
            return
        assert isinstance(pl_module, ImageClassifier)
        self._debugging = bool(trainer.fast_dev_run)  # type: ignore[attr-defined]
        self._original = copy.deepcopy(pl_module)
        {"unstructured": self._plan, "structured": self._remove_channels}[self.kind](trainer, pl_module)

    def state_dict(self) -> dict[str, Any]:
        return {"accuracy": self._accuracy, "masks": self._masks}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self._accuracy, self._masks = state_dict["accuracy"], state_dict["masks"]

    def _remove_channels(self, trainer: Trainer, classifier: ImageClassifier) -> None:
        if getattr(classifier, "initialised_from", None) is None:
            raise ValueError("structured pruning needs a trained network: fit --init_from CHECKPOINT.")
        if trainer.ckpt_path:  # resumed: the checkpoint brings the shapes
            return
        self._accuracy = validation_accuracy(trainer, self._original)
        self._original.cpu()
        remove_channels(classifier, share=self.target_sparsity, round_to=self.round_to)

    def _plan(self, trainer: Trainer, classifier: ImageClassifier) -> None:
        epochs = trainer.max_epochs or -1
        if None in (self.begin_epoch, self.end_epoch) and epochs < 0:
            raise ValueError("pruning.begin_epoch and end_epoch must be given where trainer.max_epochs sets no end.")
        self._begin = epochs // 3 if self.begin_epoch is None else self.begin_epoch
        self._end = max(2 * epochs // 3, self._begin + 1) if self.end_epoch is None else self.end_epoch
        if not 0 <= self._begin < self._end:
            raise ValueError(f"pruning.begin_epoch {self._begin} must be in [0, end_epoch), which is {self._end}.")
        train_until(trainer, self._end, option="pruning.end_epoch")

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if self.kind == "structured" or self._debugging:
            return
        self._masks = {name: mask.to(pl_module.device) for name, mask in self._masks.items()}
        check_steps(trainer, self._end, option="pruning.end_epoch")

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        if self.kind == "structured":
            return
        assert isinstance(pl_module, ImageClassifier)
        weights = prunable_weights(pl_module.network)
        apply_masks(weights, self._masks)
        done = (trainer.current_epoch - self._begin) * trainer.num_training_batches + batch_idx + 1
        total = (self._end - self._begin) * trainer.num_training_batches
        if not 0 < done <= total or done * NUM_UPDATES // total == (done - 1) * NUM_UPDATES // total:
            return
        if not self._masks:
            self._accuracy = validation_accuracy(trainer, pl_module)
        self._masks = smallest_masked(weights, self.target_sparsity * (1 - (1 - done / total) ** 3))
        apply_masks(weights, self._masks)
        if done == total:
            start_anew(trainer)

    def on_fit_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if self._debugging:
            return
        path = best_checkpoint(trainer).final_path
        final = load_classifier(path)
        sparsity = self._sparsity(final)
        if abs(sparsity - self.target_sparsity) > TOLERANCES[self.kind]:
            raise RuntimeError(
                f"{path} has sparsity {sparsity:.4f}, pruning.target_sparsity is {self.target_sparsity}."
            )
        accuracy = validation_accuracy(trainer, final)
        if trainer.is_global_zero:
            self._report(Path(trainer.default_root_dir), final, sparsity, accuracy)
        self._check_accuracy(accuracy, path)

    def _sparsity(self, final: ImageClassifier) -> float:
        if self.kind == "structured":
            return removed_share(self._original.network, final.network, head=head_of(self._original))
        weights = prunable_weights(final.network).values()
        return 1 - num_nonzero(weights) / sum(weight.numel() for weight in weights)

    def _report(self, run: Path, final: ImageClassifier, sparsity: float, accuracy: float) -> None:
        models = {"before": self._original.to(final.device), "after": final}
        cost = {name: costs(model) for name, model in models.items()}
        nonzero = {name: float(num_nonzero(model.network.parameters())) for name, model in models.items()}
        times = {size: latencies(models, batch_size=size) for size in (1, 64)}
        unit = {"unstructured": "of weights", "structured": "of channels"}[self.kind]
        self.changes = [
            Change("sparsity", self._sparsity(self._original), sparsity, unit),
            Change("accuracy", self._accuracy, accuracy, "of validation"),
            *(Change(what, cost["before"][what], cost["after"][what]) for what in cost["before"]),
            Change("parameters not zero", nonzero["before"], nonzero["after"]),
            *(Change(f"PyTorch, batch of {size}", time["before"], time["after"], "ms") for size, time in times.items()),
        ]
        measured = {c.what: {"before": c.before, "after": c.after, "unit": c.unit} for c in self.changes}
        write_json(run / "pruning.json", {"kind": self.kind, **measured, "layers": self._layers(final)})

    def _layers(self, final: ImageClassifier) -> dict[str, dict[str, dict[str, Any]]]:
        """Of each weight the shape, and what share of the original one is zero or removed."""
        after = prunable_weights(final.network)
        return {
            name: {
                key: {"shape": "x".join(map(str, kept.shape)), "sparsity": 1 - num_nonzero([kept]) / weight.numel()}
                for key, kept in (("before", weight), ("after", after[name]))
            }
            for name, weight in prunable_weights(self._original.network).items()
        }

    def _check_accuracy(self, accuracy: float, path: Path) -> None:
        if self.max_accuracy_drop is not None and self._accuracy - accuracy > self.max_accuracy_drop:
            self.failure = (
                f"the validation accuracy fell from {self._accuracy:.4f} to {accuracy:.4f}, by more than "
                f"pruning.max_accuracy_drop {self.max_accuracy_drop}. Try a lower target_sparsity or more epochs after "
                f"pruning. The run does not count as finished; its model is {path}."
            )
