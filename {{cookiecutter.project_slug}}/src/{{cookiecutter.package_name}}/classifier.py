"""ImageClassifier: preprocessing and network in one LightningModule, with loss, metrics, optimizer and schedule."""

from typing import Any, Literal

import torch
from lightning import LightningModule
from lightning.pytorch.utilities.types import OptimizerLRScheduler
from torch import Tensor, nn
from torchmetrics import MeanMetric, MetricCollection

from .data.datasets import counted
from .data.spec import DataSpec
from .networks import build_network
from .optimization import FUSED_DEVICES, OPTIMIZERS, SCHEDULES, build_schedule, parameter_groups
from .randomness import step_seed
from .shapes import take_shapes
from .strategies import FullyShard, share_buffers
from .tasks import TASKS


class Normalize(nn.Module):
    """uint8 [N, C, H, W] in [0, 255] to float32, per channel (x / 255 - mean) / std."""

    mean: Tensor
    std: Tensor

    def __init__(self, mean: list[float], std: list[float]) -> None:
        super().__init__()
        self.register_buffer("mean", torch.tensor(mean).view(-1, 1, 1))
        self.register_buffer("std", torch.tensor(std).view(-1, 1, 1))

    def forward(self, images: Tensor) -> Tensor:
        # As one multiplication and addition: a third of a small network's time on a CPU would go into more passes.
        return torch.addcmul(-self.mean / self.std, images.to(self.mean.dtype), 1 / (255 * self.std))


class ImageClassifier(LightningModule):
    """Classifies uint8 images [N, C, H, W]; its checkpoint alone is enough to use it.

    Args:
        spec: what the data module says of the data, linked from it.
        network: name in NETWORKS, such as SimpleCNN or resnet18.
        network_args: options of that network.
        label_smoothing: share in [0, 1) of each label that is spread over all classes.
        class_weights: "balanced" (inverse to the classes' share of the training images) or one weight per class.
        optimizer: adamw or sgd.
        learning_rate: the highest one, after warm-up.
        weight_decay: for matrices and kernels; norms and biases have none.
        momentum: SGD's momentum, AdamW's first beta, in [0, 1).
        schedule: cosine, linear or constant, per step.
        warmup_share: share in [0, 1) of all steps in which the learning rate rises.
        seed: decides dropout's draws, linked from seed_everything.
    """

    class_weights: Tensor | None

    def __init__(
        self,
        spec: dict[str, Any],
        network: str = "SimpleCNN",
        network_args: dict[str, Any] | None = None,
        label_smoothing: float = 0.0,
        class_weights: Literal["balanced"] | list[float] | None = None,
        optimizer: Literal["adamw", "sgd"] = "adamw",
        learning_rate: float = 3e-3,
        weight_decay: float = 0.01,
        momentum: float = 0.9,
        schedule: Literal["cosine", "linear", "constant"] = "cosine",
        warmup_share: float = 0.1,
        seed: int = 0,
    ) -> None:
        super().__init__()
        self._check_choice("optimizer", optimizer, OPTIMIZERS)
        self._check_choice("schedule", schedule, SCHEDULES)
        self._check_share("label_smoothing", label_smoothing)
        self._check_share("warmup_share", warmup_share)
        self.save_hyperparameters()
        # The weights are in the checkpoint: whoever loads it must not download them again.
        self.hparams["network_args"] = {k: v for k, v in (network_args or {}).items() if k != "weights"}
        self.spec = DataSpec.from_dict(spec)
        self.task = TASKS[self.spec.task]
        num_classes, decoding = len(self.spec.classes), self.spec.decoding
        self.network = build_network(
            network,
            num_classes=num_classes,
            channels=decoding.channels,
            image_size=decoding.image_size,
            **(network_args or {}),
        ).to(memory_format=torch.channels_last)
        self.normalize = Normalize(*getattr(self.network, "normalization", (self.spec.mean, self.spec.std)))
        self.register_buffer("class_weights", self._weights(class_weights), persistent=False)
        self.val_metrics = self.task.metrics(num_classes).clone(prefix="val/")
        self.test_metrics = self.val_metrics.clone(prefix="test/")
        # By default torchmetrics leaves NaN out of a mean with no more than a warning.
        self.val_loss, self.test_loss = MeanMetric(nan_strategy="disable"), MeanMetric(nan_strategy="disable")

    @staticmethod
    def _check_choice(name: str, value: str, table: dict[str, Any]) -> None:
        if value not in table:
            raise ValueError(f"{name} must be one of {', '.join(table)}, got {value!r}.")

    @staticmethod
    def _check_share(name: str, value: float) -> None:
        if not 0 <= value < 1:
            raise ValueError(f"{name} must be in [0, 1), got {value}.")

    def _weights(self, given: str | list[float] | None) -> Tensor | None:
        if given is None:
            return None
        if given == "balanced":
            counts = torch.tensor(self.spec.class_counts).clamp(min=1)
            return counts.sum() / (len(counts) * counts)
        if len(given) != len(self.spec.classes):
            raise ValueError(
                f"class_weights needs one weight for each of {len(self.spec.classes)} classes, got {given}."
            )
        return torch.tensor(given)

    def configure_model(self) -> None:
        if self.device_mesh is not None and isinstance(self.trainer.strategy, FullyShard):
            self.trainer.strategy.shard(self.network)

    def forward(self, images: Tensor) -> Tensor:
        """Logits, float32 [N, num_classes], of images, uint8 [N, C, H, W]."""
        logits: Tensor = self.network(self.normalize(images))
        return logits.float()

    def probabilities(self, logits: Tensor) -> Tensor:
        """Probabilities [N, num_classes]: they sum to 1 (multiclass), or each stands for itself (multilabel)."""
        return self.task.probabilities(logits)

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        prefix, weights = "network.", checkpoint.get("state_dict", {})  # which FullyShard has already loaded
        stored = {k.removeprefix(prefix): v for k, v in weights.items() if k.startswith(prefix)}
        take_shapes(self.network, stored)

    def on_train_batch_start(self, batch: Any, batch_idx: int) -> None:
        torch.manual_seed(step_seed(self.trainer, self.hparams["seed"]))

    def training_step(self, batch: tuple[Tensor, Tensor], batch_idx: int) -> Tensor:
        images, labels = batch
        loss = self.task.loss(self(images), labels, self.class_weights, self.hparams["label_smoothing"])
        self.log("train/loss", loss, prog_bar=True, sync_dist=True)
        return loss

    def on_after_backward(self) -> None:
        if self.trainer.world_size > 1:
            share_buffers(self.network)

    def _evaluate(
        self, batch: tuple[Tensor, Tensor], stage: str, loss: MeanMetric, metrics: MetricCollection
    ) -> Tensor:
        images, labels = batch
        logits: Tensor = self(images)
        if len(kept := counted(labels).nonzero().flatten()):
            # Once per image: torchmetrics 1.9 forgets weights where NaN is not left out.
            loss.update(self.task.loss(logits[kept], labels[kept], None, 0.0).expand(len(kept)))
            metrics.update(self.probabilities(logits[kept]), labels[kept].long())
        self.log(f"{stage}/loss", loss, prog_bar=True, on_step=False, on_epoch=True)
        self.log_dict(metrics, on_step=False, on_epoch=True)
        return logits

    def validation_step(self, batch: tuple[Tensor, Tensor], batch_idx: int) -> Tensor:
        return self._evaluate(batch, "val", self.val_loss, self.val_metrics)

    def test_step(self, batch: tuple[Tensor, Tensor], batch_idx: int) -> Tensor:
        return self._evaluate(batch, "test", self.test_loss, self.test_metrics)

    def predict_step(self, batch: tuple[Tensor, Tensor], batch_idx: int) -> tuple[Tensor, Tensor]:
        """Of images and their numbers in the input: the numbers and the probabilities."""
        images, numbers = batch
        return numbers, self.probabilities(self(images))

    def _fused(self) -> bool:
        # Fused optimizers unscale gradients themselves, so Lightning refuses to clip them in mixed precision.
        clips_mixed = bool(self.trainer.gradient_clip_val) and "mixed" in str(self.trainer.precision)
        return self.device.type in FUSED_DEVICES and not clips_mixed

    def configure_optimizers(self) -> OptimizerLRScheduler:
        options = self.hparams
        groups = parameter_groups(self.network, options["weight_decay"])
        optimizer = OPTIMIZERS[options["optimizer"]](
            groups, options["learning_rate"], options["momentum"], self._fused()
        )
        schedule = build_schedule(
            optimizer,
            options["schedule"],
            num_steps=self.trainer.estimated_stepping_batches,
            warmup_share=options["warmup_share"],
        )
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}
