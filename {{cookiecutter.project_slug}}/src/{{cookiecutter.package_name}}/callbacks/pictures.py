"""Confusion matrix and the most confident mistakes, as pictures in the run folder and in the loggers."""

from pathlib import Path
from typing import Any

from lightning import Callback, LightningModule, Trainer
from lightning.pytorch.loggers import TensorBoardLogger, WandbLogger
from lightning.pytorch.trainer.states import TrainerFn
from lightning.pytorch.utilities import rank_zero_only
from matplotlib import pyplot as plt
from matplotlib.figure import Figure
from torch import Tensor
from torchmetrics import Metric

from ..classifier import ImageClassifier
from ..data.datasets import counted

Mistake = tuple[float, Tensor, str]  # how sure, image uint8 [C, H, W], caption


class Pictures(Callback):
    """Draws what a test, or the last validation of a run, got wrong.

    The confusion matrix counts the images of all processes, the mistakes are those of the first one.

    Args:
        num_mistakes: mistakes shown, at least 1.
        max_classes: with more classes than this no confusion matrix is drawn.
    """

    def __init__(self, num_mistakes: int = 16, max_classes: int = 50) -> None:
        if num_mistakes < 1:
            raise ValueError(f"num_mistakes must be at least 1, got {num_mistakes}.")
        self.num_mistakes = num_mistakes
        self.max_classes = max_classes
        self._confusion: Metric | None = None
        self._mistakes: list[Mistake] = []

    def _start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        assert isinstance(pl_module, ImageClassifier)
        self._confusion = pl_module.task.confusion(len(pl_module.spec.classes)).to(pl_module.device)
        self._mistakes = []

    def _collect(
        self,
        trainer: Trainer,
        pl_module: LightningModule,
        outputs: Any,
        batch: Any,
        batch_idx: int,
        dataloader_idx: int = 0,
    ) -> None:
        assert isinstance(pl_module, ImageClassifier) and self._confusion is not None
        kept = counted(batch[1])
        if not kept.any():
            return
        images, labels = (part[kept] for part in batch)
        classes = pl_module.spec.classes
        probabilities = pl_module.probabilities(outputs[kept])
        self._confusion.update(probabilities, labels.long())
        sureness, predicted, wrong = pl_module.task.mistakes(probabilities, labels)
        for index in (sureness * wrong).topk(min(self.num_mistakes, len(images))).indices[: int(wrong.sum())].tolist():
            name, truth = classes[predicted[index]], labels[index]
            is_what = classes[truth] if truth.ndim == 0 else ("absent", "present")[int(truth[predicted[index]])]
            caption = f"{name} {sureness[index]:.2f}\nis {is_what}"
            self._mistakes.append((float(sureness[index]), images[index].cpu(), caption))
        self._mistakes = sorted(self._mistakes, key=lambda mistake: -mistake[0])[: self.num_mistakes]

    on_validation_epoch_start = on_test_epoch_start = _start
    on_validation_batch_end = on_test_batch_end = _collect

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._draw(trainer, pl_module, "val")

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if trainer.state.fn == TrainerFn.VALIDATING:
            self._draw(trainer, pl_module, "val")

    def on_test_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._draw(trainer, pl_module, "test")

    def _draw(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        assert isinstance(pl_module, ImageClassifier)
        classes = pl_module.spec.classes
        if self._confusion is None or trainer.fast_dev_run:  # type: ignore[attr-defined]
            return
        if len(classes) <= self.max_classes:
            counts = self._confusion.compute()  # by all processes together
            _publish(trainer, f"{stage}_confusion_matrix", self._confusion.plot(counts, labels=classes)[0])
        if self._mistakes:
            _publish(trainer, f"{stage}_mistakes", _grid(self._mistakes))


def _grid(mistakes: list[Mistake]) -> Figure:
    num_columns = min(4, len(mistakes))
    num_rows = -(-len(mistakes) // num_columns)
    figure = Figure(figsize=(2 * num_columns, 2.5 * num_rows), layout="constrained")
    axes = figure.subplots(num_rows, num_columns, squeeze=False).ravel()
    for axis in axes:
        axis.axis("off")
    for axis, (_, image, caption) in zip(axes, mistakes, strict=False):
        picture = image.permute(1, 2, 0) if len(image) == 3 else image[0]
        axis.imshow(picture.numpy(), cmap="gray", vmin=0, vmax=255)
        axis.set_title(caption, fontsize=9)
    return figure


@rank_zero_only
def _publish(trainer: Trainer, name: str, figure: Figure) -> None:
    path = Path(trainer.default_root_dir) / "pictures" / f"{name}.png"
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120)
    for logger in trainer.loggers:
        if isinstance(logger, TensorBoardLogger):
            logger.experiment.add_figure(name, figure, trainer.global_step)
        elif isinstance(logger, WandbLogger):
            logger.log_image(name, [str(path)])
    plt.close(figure)
