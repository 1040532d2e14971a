"""Training images by which the ranges of an int8 model are set."""

from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

from ..data.datamodule import ImageDataModule

NUM_IMAGES = 512


def calibration_batches(data: ImageDataModule, *, batch_size: int) -> Iterator[Tensor]:
    """From all over the training split, uint8 [batch_size, C, H, W], not augmented; the last one is filled up."""
    images = data.split("train")
    chosen = np.linspace(0, len(images) - 1, min(NUM_IMAGES, len(images))).astype(int)
    for start in range(0, len(chosen), batch_size):
        indices = np.resize(chosen[start : start + batch_size], batch_size)
        yield torch.stack([images[index][0] for index in indices])
