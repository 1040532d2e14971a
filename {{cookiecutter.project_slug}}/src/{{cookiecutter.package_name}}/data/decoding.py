"""From an image file to uint8 pixels, stated so that others can repeat it to the pixel."""

import struct
import zlib
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from tokenize import TokenError
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image, ImageOps
from torch import Tensor

IMAGE_SUFFIXES = (".avif", ".bmp", ".gif", ".jpeg", ".jpg", ".npy", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp")
_MODES = {1: "L", 3: "RGB"}
# What the decoders raise on damaged bytes, as found by feeding them such.
_DAMAGE: tuple[type[Exception], ...] = (OSError, ValueError, SyntaxError, EOFError, RuntimeError, ArithmeticError)
_DAMAGE += (LookupError, TypeError, MemoryError, struct.error, zlib.error, TokenError, Image.DecompressionBombError)


class BrokenImageError(ValueError):
    """A file can't be decoded. The message stays one sentence when it comes out of a worker process."""

    def __init__(self, message: str) -> None:
        super().__init__(message.rpartition("BrokenImageError: ")[2].strip())


@dataclass(frozen=True)
class Decoding:
    """How an image becomes uint8 [channels, height, width].

    Pillow decodes the first frame and `ImageOps.exif_transpose` rotates it. Grey of 16 bits becomes `value // 257`.
    Alpha of any kind is composited on the background (`Image.alpha_composite`), then `convert("L")` or `"RGB"` follows.
    Pillow's BILINEAR resizes: squash to image_size, crop and pad to `max(1, int(side * scale + 0.5))`, where scale is
    the larger (crop) or smaller (pad) of `height_out / height` and `width_out / width`, placed on the background at
    `int((side_out - side) / 2)`. Arrays, uint8 or uint16 [height, width] or [height, width, channels], come from .npy
    and, for other than 1 and 3 channels, from .tif; those are resized band by band.

    Args:
        image_size: height and width in pixels.
        channels: 1 (grey), 3 (RGB), or the number of bands of .npy and .tif files.
        resize: squash to the size, crop the middle, or pad to keep all of the image.
        background: grey level in [0, 255] behind transparent pixels and around padded images.
        rotate: follow the orientation that the camera noted (EXIF).
        max_aspect_ratio: images with a larger long side / short side are refused.
    """

    image_size: tuple[int, int] = (32, 32)
    channels: int = 3
    resize: Literal["squash", "crop", "pad"] = "squash"
    background: int = 255
    rotate: bool = True
    max_aspect_ratio: float = 200.0

    def __post_init__(self) -> None:
        if len(self.image_size) != 2 or min(*self.image_size, self.channels) < 1:
            raise ValueError(f"image_size and channels must be at least 1, got {self.image_size} and {self.channels}.")
        if not 0 <= self.background <= 255:
            raise ValueError(f"background must be in [0, 255], got {self.background}.")

    def decode(self, source: Path | NDArray[Any]) -> Tensor:
        """Return uint8 [channels, height, width], or raise a BrokenImageError (a ValueError) that names the file."""
        try:
            bands = [np.asarray(self._resized(image)) for image in self._opened(source)]
        except _DAMAGE as error:
            name = source if isinstance(source, Path) else "array"
            raise BrokenImageError(f"{name} can't be decoded: {error}") from error
        return torch.from_numpy(np.dstack(bands).transpose(2, 0, 1).copy())

    def _opened(self, source: Path | NDArray[Any]) -> list[Image.Image]:
        """One grey or RGB image, or one grey image for each band."""
        if not isinstance(source, Path):
            return self._split(source)
        if source.suffix.lower() == ".npy":
            return self._split(np.load(source, allow_pickle=False))
        if self.channels not in _MODES:
            return self._split(_read_tiff(source))
        with Image.open(source) as file:
            return [self._flattened(ImageOps.exif_transpose(file) if self.rotate else file)]

    def _split(self, array: NDArray[Any]) -> list[Image.Image]:
        if array.ndim not in (2, 3) or array.dtype.name not in ("uint8", "uint16"):
            raise ValueError(f"expected uint8 or uint16 [height, width, channels], got {array.dtype} {array.shape}")
        pixels = np.atleast_3d(array // 257 if array.itemsize == 2 else array).astype(np.uint8)
        num_bands = pixels.shape[2]
        if num_bands in _MODES and self.channels in _MODES:
            return [Image.fromarray(pixels if num_bands == 3 else pixels[:, :, 0]).convert(_MODES[self.channels])]
        if num_bands != self.channels:
            raise ValueError(f"expected {self.channels} channels, got {num_bands}")
        return [Image.fromarray(pixels[:, :, band]) for band in range(num_bands)]

    def _flattened(self, image: Image.Image) -> Image.Image:
        if image.mode[0] in "FI":
            levels = np.asarray(image)
            if image.mode == "F" or levels.min() < 0 or levels.max() > 65535 or "transparency" in image.info:
                raise ValueError(f"mode {image.mode} with more than 16 bits or a transparent level is not supported")
            image = Image.fromarray((levels // 257).astype(np.uint8))
        if image.has_transparency_data:
            paper = Image.new("RGBA", image.size, (self.background,) * 3 + (255,))
            image = Image.alpha_composite(paper, image.convert("RGBA"))
        return image.convert(_MODES[self.channels])

    def _resized(self, image: Image.Image) -> Image.Image:
        if max(image.size) > min(image.size) * self.max_aspect_ratio:
            raise ValueError(f"{image.width} x {image.height} pixels exceed max_aspect_ratio {self.max_aspect_ratio}")
        height, width = self.image_size
        if self.resize == "squash":
            return image.resize((width, height), Image.Resampling.BILINEAR)
        scale = {"crop": max, "pad": min}[self.resize](height / image.height, width / image.width)
        scaled_width, scaled_height = (max(1, int(side * scale + 0.5)) for side in image.size)
        scaled = image.resize((scaled_width, scaled_height), Image.Resampling.BILINEAR)
        canvas = Image.new(image.mode, (width, height), (self.background,) * len(image.getbands()))
        canvas.paste(scaled, (int((width - scaled_width) / 2), int((height - scaled_height) / 2)))
        return canvas


def _read_tiff(path: Path) -> NDArray[Any]:
    if find_spec("tifffile") is None:
        raise ModuleNotFoundError(f"reading the bands of {path} needs the package tifffile: install the extra 'tiff'.")
    from tifffile import TiffFile

    with TiffFile(path) as file:
        series = file.series[0]
        if series.nbytes > 2**31:
            raise ValueError(f"it claims {series.nbytes} bytes, the limit is 2 GiB")
        bands = [axis for axis, name in enumerate(series.axes) if name not in "YX"]
        return np.moveaxis(series.asarray(), bands, range(-len(bands), 0))
