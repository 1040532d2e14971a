"""scikit-learn's bundled 1,797 digits of 8 x 8 pixels; no download."""

from pathlib import Path

import numpy as np
from sklearn.datasets import load_digits

from . import Samples, Source


def open_source(root: Path | None) -> Source:
    """Images of 8 x 8 pixels, levels 0 to 16 as 0 to 255."""
    if root is not None:
        raise ValueError(f"source digits is bundled and has no root, got root {root}.")
    digits = load_digits()
    images = (digits.images * 255 // 16).astype(np.uint8)
    keys = [f"digits/{index}" for index in range(len(images))]
    labels = [(str(label),) for label in digits.target]
    return Source([str(name) for name in digits.target_names], {"train": Samples(keys, images, labels)}, in_memory=True)
