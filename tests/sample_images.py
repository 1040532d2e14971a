"""Write a few of scikit-learn's digits as PNG files, for `predict` to read: python sample_images.py FOLDER."""

import sys
from pathlib import Path

from PIL import Image
from sklearn.datasets import load_digits

SCALE = 255 / 16  # the digits' grey levels are 0 to 16

if __name__ == "__main__":
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    digits = load_digits()
    for index in range(10):
        pixels = (digits.images[index] * SCALE).round().astype("uint8")
        Image.fromarray(pixels).save(folder / f"{index}_shows_{digits.target[index]}.png")
