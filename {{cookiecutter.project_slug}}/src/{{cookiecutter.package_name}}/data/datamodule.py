"""ImageDataModule: the images of a source in three splits, as batches of uint8."""

import os
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import torch
from lightning import LightningDataModule
from lightning.pytorch.strategies import ModelParallelStrategy
from lightning.pytorch.utilities import rank_zero_info
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from ..randomness import step_seed
from .augmentation import Augmentation
from .datasets import Images, encode_labels
from .decoding import Decoding
from .inspection import count_classes, inspect_images
from .loading import EvaluationOrder, TrainingLoader, TrainingOrder, auto_workers, collate
from .sources import SPLITS, Source, open_source
from .spec import DataSpec, Splits

_DECODING, _SPLITS, _AUGMENTATION = Decoding(), Splits(), Augmentation()


class ImageDataModule(LightningDataModule):
    """The images of a source in three splits.

    Args:
        source: digits, folder, csv, cifar10, or another file of data/sources.
        root: the folder, or for csv the file, that the source reads.
        source_args: further options of the source.
        task: one class per image (multiclass) or any number of them (multilabel).
        decoding: how image files become pixels.
        splits: what the validation and test splits get where the source does not separate them.
        augmentation: random changes of training images.
        mean: per channel, of images scaled to [0, 1]; measured on the training split if not given.
        std: deviation per channel, likewise.
        on_broken: a file that can't be decoded is an error, or is left out and listed (skip).
        batch_size: images per batch and process, at least 1.
        num_workers: processes that decode; auto takes this process's share of the CPUs, and none for images in memory.
        pin_memory: copy batches to the GPU from pinned memory; auto does so with CUDA only.
        persistent_workers: keep the workers between epochs.
        prefetch_factor: batches that each worker prepares ahead, at least 1.
        seed: decides the order and the augmentation of training images.
    """

    def __init__(
        self,
        source: str = "digits",
        root: str | None = None,
        source_args: dict[str, Any] | None = None,
        task: Literal["multiclass", "multilabel"] = "multiclass",
        decoding: Decoding = _DECODING,
        splits: Splits = _SPLITS,
        augmentation: Augmentation = _AUGMENTATION,
        mean: list[float] | None = None,
        std: list[float] | None = None,
        on_broken: Literal["error", "skip"] = "error",
        batch_size: int = 64,
        num_workers: int | Literal["auto"] = "auto",
        pin_memory: bool | Literal["auto"] = "auto",
        persistent_workers: bool = True,
        prefetch_factor: int = 2,
        seed: int = 0,
    ) -> None:
        super().__init__()
        for name, values in (("mean", mean), ("std", std)):
            if values is not None and len(values) != decoding.channels:
                raise ValueError(f"{name} needs one value for each of {decoding.channels} channels, got {values}.")
        if batch_size < 1:
            raise ValueError(f"batch_size must be at least 1, got {batch_size}.")
        if num_workers != "auto" and num_workers < 0:
            raise ValueError(f"num_workers must be auto or at least 0, got {num_workers}.")
        self.root = None if root is None else str(Path(root).expanduser().absolute())
        self.task: str = task
        self.source, self.source_args = source, source_args or {}
        self.decoding, self.splits, self.augmentation = decoding, splits, augmentation
        self.mean, self.std, self.on_broken = mean, std, on_broken
        self.batch_size, self.num_workers, self.pin_memory = batch_size, num_workers, pin_memory
        self.persistent_workers, self.prefetch_factor, self.seed = persistent_workers, prefetch_factor, seed
        self.predict_dataset: Dataset[Any] | None = None
        self._spec: DataSpec | None = None
        self._skipped: set[str] = set()
        self._splits: dict[str, Images] = {}

    @classmethod
    def from_spec(
        cls,
        spec: DataSpec,
        *,
        root: str | None = None,
        batch_size: int = 64,
        num_workers: int | Literal["auto"] = "auto",
    ) -> "ImageDataModule":
        """The splits and classes of the training; `root` is where the data is now."""
        data = cls(spec.source, root or spec.root, spec.source_args, batch_size=batch_size, num_workers=num_workers)
        data.task, data.decoding, data.splits = spec.task, spec.decoding, spec.splits
        data._spec, data._skipped = spec, set(spec.skipped)
        return data

    @property
    def spec(self) -> DataSpec:
        """What a checkpoint keeps; the first call reads all images once."""
        if self._spec is None:
            self._spec = self._inspect()
        return self._spec

    def split(self, name: str) -> Images:
        """Images uint8 [C, H, W] and labels of "train", "val" or "test"."""
        return self._images(name, self.spec.classes)

    @cached_property
    def _source(self) -> Source:
        source = open_source(self.source, Path(self.root) if self.root else None, self.source_args)
        if self._spec and (unknown := [name for name in source.classes if name not in self._spec.classes]):
            raise ValueError(f"classes {unknown} in root {self.root} are unknown; trained on {self._spec.classes}.")
        return replace(source, splits=self.splits.complete(source.splits))

    def _images(self, name: str, classes: list[str]) -> Images:
        if name not in self._source.splits:
            raise ValueError(f"root {self.root} has no {name} images.")
        if name not in self._splits:
            samples = self._source.splits[name]
            samples = samples.where([key not in self._skipped for key in samples.keys])
            labels = encode_labels(samples, classes, self.task)
            self._splits[name] = Images(samples, labels, self.decoding, in_memory=self._source.in_memory)
        return self._splits[name]

    def _inspect(self) -> DataSpec:
        classes = self._source.classes
        if len(classes) < 2:
            raise ValueError(f"root {self.root} must have at least two classes, found {classes}.")
        broken: dict[str, str] = {}
        for name in ("test", "val", "train"):
            images = self._images(name, classes)
            mean, std, errors = inspect_images(images, name=name, num_threads=self._num_workers(images))
            broken |= errors
        self._leave_out(broken)
        splits = {name: self._images(name, classes) for name in SPLITS}
        return DataSpec(
            task=self.task,
            classes=classes,
            class_counts=count_classes(splits, classes, salt=self.splits.salt),
            decoding=self.decoding,
            mean=self.mean or mean,
            std=self.std or std,
            source=self.source,
            root=self.root,
            source_args=self.source_args,
            splits=self.splits,
            skipped=sorted(broken),
        )

    def _leave_out(self, broken: dict[str, str]) -> None:
        if broken and self.on_broken == "error":
            raise ValueError(f"{len(broken)} broken images (left out with on_broken: skip): {[*broken.values()][:3]}.")
        if broken:
            rank_zero_info(f"{len(broken)} broken images are left out: {[*broken.values()]}")
            self._skipped = set(broken)
            self._splits.clear()

    def _num_workers(self, dataset: Dataset[Any]) -> int:
        if self.num_workers != "auto":
            return self.num_workers
        processes = self.trainer.num_devices if self.trainer else int(os.environ.get("LOCAL_WORLD_SIZE", 1))
        return 0 if getattr(dataset, "in_memory", False) else auto_workers(processes)

    def _options(self, dataset: Dataset[Any]) -> dict[str, Any]:
        """Arguments of a DataLoader that are valid together."""
        num_workers, device = self._num_workers(dataset), self.trainer and self.trainer.strategy.root_device.type
        return {
            "batch_size": self.batch_size,
            "num_workers": num_workers,
            "pin_memory": device == "cuda" if self.pin_memory == "auto" else self.pin_memory,
            "persistent_workers": self.persistent_workers and num_workers > 0,
            "prefetch_factor": self.prefetch_factor if num_workers else None,
            "collate_fn": collate,
            "generator": torch.Generator(),  # its own, so that a loader does not move the global random state
        }

    def _ranks(self) -> tuple[int, int]:
        """Number of processes, and which one this is."""
        return (self.trainer.world_size, self.trainer.global_rank) if self.trainer else (1, 0)

    def _filled(self, name: str) -> Images:
        images, least = self.split(name), self._ranks()[0] * (2 if name == "train" else 1)
        if len(images) < least:
            raise ValueError(f"the {name} split of root {self.root} has {len(images)} images, needs at least {least}.")
        return images

    def loader(self, dataset: Dataset[Any]) -> DataLoader[Any]:
        """Batches in order, each image once; of several processes, each has its share."""
        # Processes that hold a share of the weights each wait for one another in every batch.
        even = bool(self.trainer and isinstance(self.trainer.strategy, ModelParallelStrategy))
        order = EvaluationOrder(dataset, *self._ranks(), even=even)
        return DataLoader(dataset, sampler=order, **self._options(dataset))

    def train_dataloader(self) -> TrainingLoader:
        images, trainer = self._filled("train"), self.trainer
        order = TrainingOrder(
            images,
            *self._ranks(),
            batch_size=self.batch_size,
            seed=self.seed,
            position=lambda: trainer.fit_loop.epoch_loop.batch_progress.current.ready if trainer else 0,
        )
        return TrainingLoader(images, sampler=order, **self._options(images))

    def val_dataloader(self) -> DataLoader[Any]:
        return self.loader(self._filled("val"))

    def test_dataloader(self) -> DataLoader[Any]:
        return self.loader(self._filled("test"))

    def predict_dataloader(self) -> DataLoader[Any]:
        assert self.predict_dataset is not None
        return self.loader(self.predict_dataset)

    def on_after_batch_transfer(self, batch: tuple[Tensor, Tensor], dataloader_idx: int) -> tuple[Tensor, Tensor]:
        if not (self.trainer and self.trainer.training):
            return batch
        images, labels = batch
        generator = torch.Generator(images.device).manual_seed(step_seed(self.trainer, self.seed))
        return self.augmentation(images, generator), labels
