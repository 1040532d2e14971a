"""Before training: which images are broken, mean and deviation of the others, and how many each class has."""

import math
from multiprocessing.pool import ThreadPool

import numpy as np
from lightning.pytorch.utilities import rank_zero_info, rank_zero_only
from numpy.typing import NDArray
from tqdm import tqdm

from .datasets import Images
from .decoding import BrokenImageError


def inspect_images(images: Images, *, name: str, num_threads: int) -> tuple[list[float], list[float], dict[str, str]]:
    """Mean and deviation per channel, of images scaled to [0, 1], and what is wrong with the broken ones, by key.

    A bar on stderr shows the progress of what takes more than two seconds.
    """

    def sums(index: int) -> tuple[NDArray[np.int64], str]:
        try:
            levels = images[index][0].flatten(1).numpy()
        except BrokenImageError as error:
            return np.zeros((3, 1), np.int64), str(error)
        squares = np.square(levels, dtype=np.uint16)
        count = np.full(len(levels), levels.shape[1])
        return np.stack((count, levels.sum(1, dtype=np.int64), squares.sum(1, dtype=np.int64))), ""

    total = np.zeros((3, 1), np.int64)  # integers, so that the order does not matter
    broken: dict[str, str] = {}
    with ThreadPool(max(num_threads, 1)) as pool:
        results = pool.imap(sums, range(len(images)), chunksize=32)
        bar = tqdm(results, f"checking {name}", len(images), delay=2, disable=rank_zero_only.rank != 0)  # type: ignore[attr-defined]
        for key, (part, error) in zip(images.samples.keys, bar, strict=True):
            total = total + part
            broken |= {key: error} if error else {}
    moments = [(max(count, 1), level, square) for count, level, square in zip(*total.tolist(), strict=True)]
    mean = [level / (255 * count) for count, level, _ in moments]
    std = [math.sqrt(count * square - level**2) / (255 * count) or 1.0 for count, level, square in moments]
    return mean, std, broken


def count_classes(splits: dict[str, Images], classes: list[str], *, salt: str) -> list[int]:
    """Training images of each class, a ValueError where one has none; reports those of every split."""
    counts = {name: images.class_counts(classes) for name, images in splits.items()}
    if missing := [label for label, count in counts["train"].items() if not count]:
        raise ValueError(
            f"no training images of the classes {missing} with splits.salt {salt!r}: add images, lower "
            "splits.val_share and splits.test_share, or change the salt."
        )
    for name, numbers in counts.items():
        rank_zero_info(f"{name}: {len(splits[name])} images, {numbers}")
    return list(counts["train"].values())
