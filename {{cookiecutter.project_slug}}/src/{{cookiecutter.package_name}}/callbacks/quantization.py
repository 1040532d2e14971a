"""Quantization-aware training, with proof that int8 keeps the accuracy."""

import tempfile
from functools import partial
from pathlib import Path
from typing import Any

import torch
from lightning import Callback, LightningModule, Trainer
from lightning.pytorch.utilities import rank_zero_info
from torch import nn

from ..checkpointing import best_checkpoint, check_steps, start_anew, train_until
from ..checkpoints import load_classifier
from ..classifier import ImageClassifier
from ..data.datamodule import ImageDataModule
from ..export.graph import INPUT, Graph, Options
from ..export.judge import Judge
from ..export.verification import check_split
from ..fake_quantization import install, uninstall
from ..measure import head_of, milliseconds
from ..report import Change
from ..runs import write_json


class Quantization(Callback):
    """Lets the last epochs feel the rounding of int8, so that the exported int8 file keeps the accuracy (Jacob 2018).

    Validation and checkpoints are those of the float model; at the end onnxruntime tells what int8 makes of it.

    Args:
        begin_epoch: first epoch (from 0) that is trained with rounding.
        freeze_epoch: epoch from which ranges and batch-norm statistics stay as they are.
        max_accuracy_drop: how far int8 may fall below the float model on the validation split, absolute, in [0, 1].
    """

    NOT_SHARDED = "a copy of the network is needed, which shares do not make"

    def __init__(self, begin_epoch: int = 10, freeze_epoch: int = 13, max_accuracy_drop: float = 0.02) -> None:
        if not 0 <= begin_epoch < freeze_epoch:
            raise ValueError(f"begin_epoch must be below freeze_epoch, got {begin_epoch} and {freeze_epoch}.")
        if not 0 <= max_accuracy_drop <= 1:
            raise ValueError(f"max_accuracy_drop must be in [0, 1], got {max_accuracy_drop}.")
        self.begin_epoch, self.freeze_epoch = begin_epoch, freeze_epoch
        self.max_accuracy_drop = max_accuracy_drop
        self.changes: list[Change] = []
        self.failure: str | None = None
        self._before: dict[str, float] | None = None

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        assert isinstance(pl_module, ImageClassifier)
        train_until(trainer, self.freeze_epoch, option="quantization.freeze_epoch")
        self._ranges = install(pl_module.network, head=head_of(pl_module))

    def teardown(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        assert isinstance(pl_module, ImageClassifier)
        uninstall(pl_module.network)

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        check_steps(trainer, self.freeze_epoch, option="quantization.freeze_epoch")
        self._set_modes(trainer, pl_module)  # a run that is resumed in mid-epoch does not start this epoch again

    def on_train_epoch_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if trainer.current_epoch == self.begin_epoch:
            assert isinstance(pl_module, ImageClassifier)
            self._before = _int8_numbers(trainer, pl_module)
            rank_zero_info("quantization: from now on training rounds as int8 does")
            start_anew(trainer)
        self._set_modes(trainer, pl_module)

    def _set_modes(self, trainer: Trainer, pl_module: LightningModule) -> None:
        frozen = trainer.current_epoch >= self.freeze_epoch
        for entry in self._ranges.values():
            entry.rounds = trainer.current_epoch >= self.begin_epoch
            entry.observes = not frozen
        for module in pl_module.modules():
            if frozen and isinstance(module, nn.modules.batchnorm._BatchNorm):
                module.eval()

    def on_fit_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if trainer.fast_dev_run:  # type: ignore[attr-defined]
            return
        if self._before is None:
            raise RuntimeError(f"the run ended before quantization.begin_epoch {self.begin_epoch}.")
        after = _int8_numbers(trainer, load_classifier(best_checkpoint(trainer).final_path))
        self.changes = _changes(self._before, after)
        if trainer.is_global_zero:
            content = {"before": self._before, "after": after, "max_accuracy_drop": self.max_accuracy_drop}
            write_json(Path(trainer.default_root_dir) / "quantization.json", content)
        if after["float_accuracy"] - after["int8_accuracy"] > self.max_accuracy_drop:
            self.failure = (
                f"int8 accuracy {after['int8_accuracy']:.4f} is more than quantization.max_accuracy_drop "
                f"{self.max_accuracy_drop} below the float model's {after['float_accuracy']:.4f}; begin earlier "
                f"(begin_epoch) or train longer. The checkpoint stays: {best_checkpoint(trainer).final_path}."
            )

    def state_dict(self) -> dict[str, Any]:
        ranges = {name: torch.stack((entry.low, entry.high)).cpu() for name, entry in self._ranges.items()}
        return {"before": self._before, "ranges": ranges}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self._before = state_dict["before"]
        for name, (low, high) in state_dict["ranges"].items():
            self._ranges[name].low.copy_(low)
            self._ranges[name].high.copy_(high)


def _int8_numbers(trainer: Trainer, classifier: ImageClassifier) -> dict[str, float]:
    """By the first process, which tells the others."""
    numbers: dict[str, float] = {}
    if trainer.is_global_zero:
        with tempfile.TemporaryDirectory() as folder:
            numbers = _compare_with_float(classifier, Path(folder))
    return trainer.strategy.broadcast(numbers)


def _compare_with_float(classifier: ImageClassifier, folder: Path) -> dict[str, float]:
    """Both as onnxruntime runs them: shares in [0, 1] on the validation split, megabytes, milliseconds for an image."""
    from ..export import onnx  # which takes a second to load
    from ..export.int8 import to_int8

    data, graph, options = ImageDataModule.from_spec(classifier.spec), Graph(classifier), Options(quantize=8)
    files = {name: folder / name / onnx.FILE for name in ("float", "int8")}
    for file in files.values():
        file.parent.mkdir()
        onnx.write_float(graph, file, options)
    to_int8(files["int8"], Judge(graph, data, options).calibration())
    runs = {name: onnx.run_file(file) for name, file in files.items()}
    found = check_split(runs["int8"], graph, data.val_dataloader(), options, name="val")
    image = torch.zeros(graph.shapes(1)[INPUT], dtype=torch.uint8)
    times = milliseconds({name: partial(run, image) for name, run in runs.items()})
    return {
        "float_accuracy": found["accuracy"]["model"],
        "int8_accuracy": found["accuracy"]["exported"],
        "agreement": found["agreement"],
        **{f"{name}_megabytes": file.stat().st_size / 1e6 for name, file in files.items()},
        **{f"{name}_milliseconds": taken for name, taken in times.items()},
    }


def _changes(before: dict[str, float], after: dict[str, float]) -> list[Change]:
    return [
        Change("accuracy in float", before["float_accuracy"], after["float_accuracy"]),
        Change("accuracy in int8", before["int8_accuracy"], after["int8_accuracy"]),
        Change("agreement of int8 with float", before["agreement"], after["agreement"]),
        Change("size, float to int8", after["float_megabytes"], after["int8_megabytes"], "MB"),
        Change("latency, float to int8", after["float_milliseconds"], after["int8_milliseconds"], "ms"),
    ]
