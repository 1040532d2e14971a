"""Bundle: what `export` wrote, checked before it scores an image; needs numpy, onnxruntime and Pillow alone."""

import hashlib
import json
import struct
import zlib
from pathlib import Path
from typing import BinaryIO

import numpy as np
import onnxruntime
from PIL import Image, ImageOps

OUTPUTS = ["logits", "probabilities"]
MODES = {1: "L", 3: "RGB"}
NEEDED = {"model.onnx", "labels.txt", "golden/golden.json"}
# What Pillow raises on damaged bytes, and on images of more than Image.MAX_IMAGE_PIXELS.
DAMAGE = (OSError, ValueError, SyntaxError, EOFError, RuntimeError, ArithmeticError, LookupError, TypeError)
DAMAGE += (MemoryError, struct.error, zlib.error, Image.DecompressionBombError, Image.DecompressionBombWarning)


class Bundle:
    """A bundle that is whole and, on this machine, gives the scores that its golden images must have."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        try:
            self.model = json.loads((folder / "model.json").read_text("utf-8"))
            self.policy, self.classes = self.model["decoding"], self.model["classes"]
            self._check_files()
            self.mode, self.kinds = MODES[self.policy["channels"]], self._kinds()
            self.session = onnxruntime.InferenceSession(folder / "model.onnx", providers=["CPUExecutionProvider"])
            self._check_golden()
        except (AttributeError, LookupError, TypeError) as error:
            raise ValueError(f"{folder} holds no bundle as export writes them: {error!r}") from error

    def decode(self, file: Path | BinaryIO) -> np.ndarray:
        """The first frame as the model takes it, uint8 [C, H, W], or a ValueError that says in one line why not."""
        name = file if isinstance(file, Path) else "the image"
        try:
            image = self._opened(file)
            if max(image.size) > self.policy["max_aspect_ratio"] * min(image.size):
                raise ValueError(f"sides {image.size} exceed max_aspect_ratio {self.policy['max_aspect_ratio']}")
            if self.policy["rotate"]:
                ImageOps.exif_transpose(image, in_place=True)
            return np.atleast_3d(self._resized(self._flattened(image))).transpose(2, 0, 1)
        except Image.UnidentifiedImageError:
            raise ValueError(f"{name} is not one of {', '.join(self.kinds)}, or its header is damaged") from None
        except DAMAGE as error:
            reason = " ".join(str(error).split()) or type(error).__name__
            raise ValueError(f"{name} can't be decoded: {reason}") from error

    def scores(self, images: np.ndarray) -> dict[str, np.ndarray]:
        """Logits and probabilities, float32 [N, K], of uint8 [N, C, H, W]; a fixed batch is filled up."""
        batch = self.model["input"]["shape"][0]
        size = batch if isinstance(batch, int) else len(images)
        parts = [self._run(images[start : start + size], size) for start in range(0, len(images), size)]
        return dict(zip(OUTPUTS, map(np.concatenate, zip(*parts, strict=True)), strict=True))

    def labels(self, probabilities: np.ndarray) -> list[str]:
        """Of one image: the class of the largest or, where it can have several, those of at least 0.5."""
        several = self.model["task"] == "multilabel"
        chosen = np.flatnonzero(probabilities >= 0.5) if several else [probabilities.argmax()]
        return [self.classes[index] for index in chosen]

    def _run(self, images: np.ndarray, size: int) -> list[np.ndarray]:
        filled = np.resize(images, (size, *images.shape[1:]))
        return [values[: len(images)] for values in self.session.run(OUTPUTS, {"images": filled})]

    def _check_files(self) -> None:
        if self.model["format"] != "onnx" or self.policy["channels"] not in MODES:
            raise ValueError("only ONNX of grey or colour images can be used here")
        if missing := NEEDED - self.model["files"].keys():
            raise ValueError(f"model.json has no hash of {', '.join(sorted(missing))}")
        for name, digest in self.model["files"].items():
            if hashlib.sha256((self.folder / name).read_bytes()).hexdigest() != digest:
                raise ValueError(f"{name} is not the file that was exported")
        if self.classes != (self.folder / "labels.txt").read_text("utf-8").split("\n")[:-1]:
            raise ValueError("model.json names other classes than labels.txt")

    def _check_golden(self) -> None:
        golden = json.loads((self.folder / "golden" / "golden.json").read_text("utf-8"))
        if not golden["images"]:
            raise ValueError("golden.json lists no image")
        for entry in golden["images"]:
            file, stored = (self.folder / "golden" / entry[name] for name in ("file", "pixels"))
            scores = self.scores(np.stack([self.decode(file), np.load(stored)]))
            for name in OUTPUTS:
                expected = np.array(entry[name])
                off = np.abs(scores[name] - expected) / np.maximum(1, np.abs(expected))
                if not off.max() <= golden["tolerance"]:
                    way = "decodes files" if off[1].max() <= golden["tolerance"] else "computes"
                    raise ValueError(f"golden image {file.name} gets other scores: this machine {way} in another way")

    def _kinds(self) -> list[str]:
        """Pillow's names of the file formats that the model was trained on; others, some run programs, stay shut."""
        known = Image.registered_extensions()
        return sorted({known[suffix] for suffix in self.policy["suffixes"] if suffix in known})

    def _opened(self, file: Path | BinaryIO) -> Image.Image:
        if isinstance(file, Path) and file.suffix.lower() == ".npy":
            return Image.fromarray(np.load(file))
        return Image.open(file, formats=self.kinds)

    def _flattened(self, image: Image.Image) -> Image.Image:
        if image.mode[0] in "FI":
            levels = np.asarray(image)
            if image.mode == "F" or "transparency" in image.info or not 0 <= levels.min() <= levels.max() < 2**16:
                raise ValueError(f"mode {image.mode} with more than 16 bits or with a transparent level")
            image = Image.fromarray((levels // 257).astype(np.uint8))
        if image.has_transparency_data:
            paper = Image.new("RGBA", image.size, (self.policy["background"],) * 3 + (255,))
            image = Image.alpha_composite(paper, image.convert("RGBA"))
        return image.convert(self.mode)

    def _resized(self, image: Image.Image) -> Image.Image:
        (height, width), rules = self.policy["image_size"], {"crop": max, "pad": min}
        if self.policy["resize"] == "squash":
            return image.resize((width, height), Image.Resampling.BILINEAR)
        scale = rules[self.policy["resize"]](height / image.height, width / image.width)
        scaled = image.resize([max(1, int(side * scale + 0.5)) for side in image.size], Image.Resampling.BILINEAR)
        canvas = Image.new(self.mode, (width, height), (self.policy["background"],) * len(self.mode))
        canvas.paste(scaled, (int((width - scaled.width) / 2), int((height - scaled.height) / 2)))
        return canvas
