"""TASKS: what single-label and multi-label classification differ in: loss, probabilities, metrics."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor
from torchmetrics import MetricCollection
from torchmetrics import classification as tm
from torchmetrics.utilities.data import dim_zero_cat


def _mean_over_present(scores: Tensor, positives: Tensor) -> Tensor:
    """Mean of the classes' scores [K], for `positives` [N, K]; torchmetrics counts a class that does not occur as 0."""
    present = positives.any(0) & ~positives.all(0)
    return scores[present].mean()


class MulticlassAUROC(tm.MulticlassAUROC):
    """One against the rest, the mean over the classes that occur."""

    def __init__(self, num_classes: int) -> None:
        super().__init__(num_classes, average="none")

    def compute(self) -> Tensor:  # type: ignore[override]
        labels = dim_zero_cat(self.target)
        return _mean_over_present(super().compute(), F.one_hot(labels, self.num_classes).bool())


class MultilabelAUROC(tm.MultilabelAUROC):
    """The mean over the labels that occur."""

    def __init__(self, num_labels: int) -> None:
        super().__init__(num_labels, average="none")

    def compute(self) -> Tensor:  # type: ignore[override]
        return _mean_over_present(super().compute(), dim_zero_cat(self.target).bool())


class MultilabelCalibrationError(tm.BinaryCalibrationError):
    """Expected calibration error over all labels of all images."""

    def update(self, preds: Tensor, target: Tensor) -> None:
        super().update(preds.flatten(), target.flatten().long())


def _multiclass_loss(logits: Tensor, labels: Tensor, weights: Tensor | None, smoothing: float) -> Tensor:
    return F.cross_entropy(logits, labels, weight=weights, label_smoothing=smoothing)


def _multilabel_loss(logits: Tensor, labels: Tensor, weights: Tensor | None, smoothing: float) -> Tensor:
    targets = labels * (1 - smoothing) + smoothing / 2
    return F.binary_cross_entropy_with_logits(logits, targets, weight=weights)


def _multiclass_metrics(num_classes: int) -> MetricCollection:
    return MetricCollection(
        {
            "accuracy": tm.MulticlassAccuracy(num_classes, average="micro"),
            "accuracy_macro": tm.MulticlassAccuracy(num_classes, average="macro"),
            "f1": tm.MulticlassF1Score(num_classes, average="macro"),
            "auroc": MulticlassAUROC(num_classes),
            "calibration_error": tm.MulticlassCalibrationError(num_classes),
        }
    )


def _multilabel_metrics(num_labels: int) -> MetricCollection:
    return MetricCollection(
        {
            "accuracy": tm.MultilabelAccuracy(num_labels, average="micro"),
            "accuracy_macro": tm.MultilabelAccuracy(num_labels, average="macro"),
            "f1": tm.MultilabelF1Score(num_labels, average="macro"),
            "auroc": MultilabelAUROC(num_labels),
            "calibration_error": MultilabelCalibrationError(),
        }
    )


def _multiclass_mistakes(probabilities: Tensor, labels: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    sureness, predicted = probabilities.max(-1)
    return sureness, predicted, predicted != labels


def _multilabel_mistakes(probabilities: Tensor, labels: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    error, worst = (probabilities - labels).abs().max(-1)
    return error, worst, error > 0.5


@dataclass(frozen=True)
class Task:
    """What follows from one label or several per image.

    `loss` takes logits [N, K], labels, class weights [K] or None, and label smoothing in [0, 1). `metrics` and
    `confusion` take probabilities [N, K] and labels, int64 [N] or float32 [N, K]; so does `mistakes`, which tells for
    each image how sure the worst answer is in [0, 1], its class, and whether it is wrong.
    """

    loss: Callable[[Tensor, Tensor, Tensor | None, float], Tensor]
    probabilities: Callable[[Tensor], Tensor]
    metrics: Callable[[int], MetricCollection]
    confusion: Callable[[int], tm.MulticlassConfusionMatrix | tm.MultilabelConfusionMatrix]
    mistakes: Callable[[Tensor, Tensor], tuple[Tensor, Tensor, Tensor]]


TASKS = {
    "multiclass": Task(
        loss=_multiclass_loss,
        probabilities=lambda logits: logits.softmax(-1),
        metrics=_multiclass_metrics,
        confusion=tm.MulticlassConfusionMatrix,
        mistakes=_multiclass_mistakes,
    ),
    "multilabel": Task(
        loss=_multilabel_loss,
        probabilities=torch.sigmoid,
        metrics=_multilabel_metrics,
        confusion=tm.MultilabelConfusionMatrix,
        mistakes=_multilabel_mistakes,
    ),
}
