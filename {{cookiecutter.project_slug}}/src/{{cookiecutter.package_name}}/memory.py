"""Out of memory: at which step and batch, what the allocator holds, what to try; and how large a batch fits."""

import copy
import logging
import tempfile
from typing import Any

import torch
from lightning import Callback, LightningModule, Trainer
from lightning.pytorch.tuner.tuning import Tuner
from lightning.pytorch.utilities import rank_zero_info
from lightning.pytorch.utilities.memory import is_oom_error
from lightning.pytorch.utilities.seed import isolate_rng

from .classifier import ImageClassifier
from .data.datamodule import ImageDataModule

QUIET = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False, "enable_model_summary": False}


class OutOfMemory(Callback):
    """Turns torch's message into one that says where it happened and what to try, in this order."""

    def __init__(self) -> None:
        self._batch = "before the first batch"

    def on_train_batch_start(self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int) -> None:
        self._batch = _describe("training", batch, batch_idx)

    def on_validation_batch_start(
        self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int, dataloader_idx: int = 0
    ) -> None:
        self._batch = _describe("validation", batch, batch_idx)

    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:
        if not is_oom_error(exception):
            return
        what = ". ".join(str(exception).split(". ")[:2]).rstrip(".")  # less torch's own advice
        batch_size = getattr(trainer.datamodule, "batch_size", 2)  # type: ignore[attr-defined]
        exception.args = (
            f"{what}, at step {trainer.global_step} (epoch {trainer.current_epoch}), {self._batch}; "
            f"{_allocated(trainer.strategy.root_device)}. Try in this order: "
            f"--data.batch_size {max(1, batch_size // 2)} with "
            f"--trainer.accumulate_grad_batches {2 * trainer.accumulate_grad_batches} (--find_batch_size {batch_size} "
            "looks for what fits); --trainer.precision bf16-mixed; -c configs/fsdp.yaml with activation checkpointing.",
        )


def _describe(stage: str, batch: Any, batch_idx: int) -> str:
    return f"{stage} batch {batch_idx} of shapes {', '.join(str(list(part.shape)) for part in batch)}"


def _allocated(device: torch.device) -> str:
    if device.type != "cuda":
        return f"on {device}"
    free, total = torch.cuda.mem_get_info(device)
    numbers = (torch.cuda.memory_allocated(device), torch.cuda.memory_reserved(device), free, total)
    return "{} has {:.2f} GB allocated, {:.2f} reserved, {:.2f} of {:.2f} free".format(
        device, *(number / 1e9 for number in numbers)
    )


def largest_batch_size(trainer: dict[str, Any], classifier: ImageClassifier, data: ImageDataModule, limit: int) -> int:
    """The largest power of two, or `limit` if that is less, with which copies of what is given train three steps."""
    if limit < 1:
        raise ValueError(f"find_batch_size must be at least 1, got {limit}.")
    data = copy.copy(data)
    logging.disable(logging.INFO)  # of each trial, and of the number that Lightning takes in the end
    with isolate_rng(), tempfile.TemporaryDirectory() as folder:
        tuner = Tuner(Trainer(**copy.deepcopy(trainer) | QUIET | {"default_root_dir": folder}))
        try:  # Lightning 2.6 answers max_val without having tried it
            found = tuner.scale_batch_size(copy.deepcopy(classifier), datamodule=data, max_val=2 * limit)
        except ValueError as error:
            if data.batch_size == 0:
                raise RuntimeError("find_batch_size: not even one image fits into memory.") from error
            raise
        finally:
            logging.disable(logging.NOTSET)
    assert found is not None
    rank_zero_info(f"find_batch_size: {min(found, limit)}")
    return min(found, limit)
