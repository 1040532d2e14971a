"""Golden images: drawn, not taken from any data, with the scores by which consumers of a bundle check themselves."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import ExifTags, Image
from torch import Tensor

from ..data.decoding import Decoding
from .graph import OUTPUTS, Options, Scores
from .verification import Run, VerificationError, compare

FOLDER, INDEX, PIXELS = "golden", "golden.json", ".pixels.npy"
FILE_TOLERANCE = 0.02  # of probabilities from the file, since other programs decode and resize a little differently


def _draw(folder: Path, decoding: Decoding) -> None:
    """Four files without symmetry, of odd sizes and of kinds that are easily misread."""
    rng = np.random.default_rng(0)
    sizes = [(int(height * min(1.6, decoding.max_aspect_ratio)), height) for height in (29, 37, 41, 67)]
    if decoding.channels > 3:
        for width, height in sizes:
            np.save(folder / f"bands{height}.npy", rng.integers(0, 256, (height, width, decoding.channels), np.uint8))
        return
    blots = [Image.fromarray(rng.integers(0, 256, (5, 4, 4), np.uint8)).resize(size) for size in sizes]
    rotated = Image.Exif()
    rotated[ExifTags.Base.Orientation] = 6
    blots[0].save(folder / "rgba.png")
    blots[1].convert("RGB").save(folder / "rgb.png")
    blots[2].convert("RGB").save(folder / "rotated.jpg", exif=rotated, quality=95)
    Image.fromarray(np.asarray(blots[3].convert("L")).astype(np.uint16) * 251 + 100).save(folder / "grey16.png")


def draw_golden(bundle: Path, decoding: Decoding) -> Tensor:
    """Draw the files, and store what the decoding policy makes of them: uint8 [N, C, H, W]."""
    folder = bundle / FOLDER
    folder.mkdir()
    _draw(folder, decoding)
    files = sorted(folder.iterdir())
    pixels = torch.stack([decoding.decode(file) for file in files])
    for file, image in zip(files, pixels.numpy(), strict=True):
        np.save(file.with_suffix(PIXELS), image)
    return pixels


def score_golden(bundle: Path, expected: Run, *, tolerance: float) -> None:
    """Store what the model makes of the pixels, and how far a consumer's scores may lie from that."""
    entries, folder = [], bundle / FOLDER
    for file in sorted(file for file in folder.iterdir() if not file.name.endswith(PIXELS)):
        pixels = file.with_suffix(PIXELS)
        scores = expected(torch.from_numpy(np.load(pixels))[None])
        values = {name: scores[name][0].tolist() for name in OUTPUTS}
        entries.append({"file": file.name, "pixels": pixels.name, **values})
    content = {"tolerance": tolerance, "file_tolerance": FILE_TOLERANCE, "images": entries}
    (folder / INDEX).write_text(json.dumps(content, indent=2), "utf-8")


def read_golden(bundle: Path) -> Iterator[tuple[Path, Tensor, Scores]]:
    """Each file, its pixels uint8 [C, H, W] and its scores [1, K]."""
    folder = bundle / FOLDER
    for entry in json.loads((folder / INDEX).read_text("utf-8"))["images"]:
        scores = {name: np.array([entry[name]], np.float32) for name in OUTPUTS}
        yield folder / entry["file"], torch.from_numpy(np.load(folder / entry["pixels"])), scores


def check_golden(run: Run, bundle: Path, decoding: Decoding, options: Options) -> dict[str, Any]:
    """From the bytes of the files to the stored pixels, and by the exported model to the stored scores."""
    worst = {}
    for file, pixels, scores in read_golden(bundle):
        decoded = decoding.decode(file)
        if not decoded.equal(pixels):
            raise VerificationError(f"golden image {file.name} is not decoded to the stored pixels.")
        worst[file.name] = compare(f"golden image {file.name}", run(decoded[None]), scores, options)
    return worst
