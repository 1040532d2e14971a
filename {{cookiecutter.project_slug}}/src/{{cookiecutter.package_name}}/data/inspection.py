"""One pass over images that finds the broken ones and measures the others."""

import math

import torch
from lightning.pytorch.utilities import rank_zero_only
from torch.utils.data import DataLoader, Dataset
from tqdm import tqdm

from .datasets import Images
from .decoding import BrokenImageError


class _Sums(Dataset[tuple[list[list[int]], str]]):
    """Of each image, per channel: number, sum and sum of squares of its levels, as integers; or why it is broken."""

    def __init__(self, images: Images) -> None:
        self.images = images

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: int) -> tuple[list[list[int]], str]:
        try:
            levels = self.images[index][0].flatten(1).long()
        except BrokenImageError as error:
            return [[0], [0], [0]], str(error)
        return torch.stack((torch.ones_like(levels), levels, levels * levels)).sum(2).tolist(), ""


def inspect_images(images: Images, *, name: str, num_workers: int) -> tuple[list[float], list[float], dict[str, str]]:
    """Mean and deviation per channel, of images scaled to [0, 1], and what is wrong with the broken ones, by key.

    A bar on stderr shows the progress of what takes more than two seconds.
    """
    loader = DataLoader(_Sums(images), 32, num_workers=num_workers, collate_fn=list, generator=torch.Generator())
    rows = (row for batch in loader for row in batch)
    bar = tqdm(rows, f"checking {name}", len(images), delay=2, disable=rank_zero_only.rank != 0)  # type: ignore[attr-defined]
    total = torch.zeros(3, 1, dtype=torch.int64)
    broken: dict[str, str] = {}
    for key, (sums, error) in zip(images.samples.keys, bar, strict=True):
        total = total + torch.tensor(sums)
        broken |= {key: error} if error else {}
    moments = [(max(count, 1), level, square) for count, level, square in zip(*total.tolist(), strict=True)]
    mean = [level / (255 * count) for count, level, _ in moments]
    std = [math.sqrt(count * square - level**2) / (255 * count) or 1.0 for count, level, square in moments]
    return mean, std, broken
