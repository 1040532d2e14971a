"""Images uint8 [C, H, W] with their labels, from files or in memory."""

import torch
from torch import Tensor
from torch.utils.data import Dataset

from .decoding import Decoding
from .sources import Samples

FILLER = -1  # the label of an image that counts for nothing


class Images(Dataset[tuple[Tensor, Tensor]]):
    """Images that are decoded whenever they are asked for or, in memory, once; those are fetched by whole batches.

    A negative index gives an image that counts for nothing, where processes must have as many batches as others.
    """

    def __init__(self, samples: Samples, labels: Tensor, decoding: Decoding, *, in_memory: bool) -> None:
        self.samples = samples
        self.labels = labels
        self.decoding = decoding
        self.in_memory = in_memory and len(labels) > 0
        if self.in_memory:
            self.pixels = torch.stack([decoding.decode(image) for image in samples.images])

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        image = self.pixels[index] if self.in_memory else self.decoding.decode(self.samples.images[index])
        return image, self.labels[index] if index >= 0 else torch.full_like(self.labels[index], FILLER)

    def __getitems__(self, indices: list[int]) -> tuple[Tensor, Tensor] | list[tuple[Tensor, Tensor]]:
        if not self.in_memory or min(indices) < 0:
            return [self[index] for index in indices]
        return self.pixels[indices], self.labels[indices]

    def class_counts(self, classes: list[str]) -> dict[str, int]:
        counts = self.labels.bincount(minlength=len(classes)) if self.labels.ndim == 1 else self.labels.sum(0)
        return {name: int(count) for name, count in zip(classes, counts, strict=True)}


def counted(labels: Tensor) -> Tensor:
    """Which images are no filler, bool [N], by their labels [N] or [N, K]."""
    return labels.reshape(len(labels), -1)[:, 0] != FILLER


def encode_labels(samples: Samples, classes: list[str], task: str) -> Tensor:
    """Class indices, int64 [N]; for multilabel ones and zeros, float32 [N, num_classes]."""
    numbers = {name: number for number, name in enumerate(classes)}
    for key, labels in zip(samples.keys, samples.labels, strict=True):
        if unknown := [label for label in labels if label not in numbers]:
            raise ValueError(f"class {unknown[0]!r} of {key} is unknown; the training split has {classes}.")
        if task == "multiclass" and len(labels) != 1:
            raise ValueError(f"{key} has the labels {list(labels)}; only task multilabel takes that.")
    if task == "multiclass":
        return torch.tensor([numbers[label] for (label,) in samples.labels], dtype=torch.int64)
    encoded = torch.zeros(len(samples.labels), len(classes))
    for row, labels in zip(encoded, samples.labels, strict=True):
        row[[numbers[label] for label in labels]] = 1
    return encoded
