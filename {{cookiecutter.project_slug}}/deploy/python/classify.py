"""python classify.py BUNDLE FILE_OR_FOLDER...: path, label and score of images as CSV, once the bundle is checked."""

import csv
import hashlib
import json
import sys
from pathlib import Path

import numpy as np
import onnxruntime
from PIL import Image, ImageOps

bundle, paths, output = Path(sys.argv[1]), map(Path, sys.argv[2:]), csv.writer(sys.stdout)
model, golden = (json.loads((bundle / name).read_text("utf-8")) for name in ("model.json", "golden/golden.json"))
policy, num = model["decoding"], model["input"]["shape"][0]
mode = {1: "L", 3: "RGB"}.get(policy["channels"]) or sys.exit("this program decodes grey and colour images only")


def _decode(file: Path) -> np.ndarray:
    image = Image.fromarray(np.load(file)) if file.suffix.lower() == ".npy" else Image.open(file)
    image = ImageOps.exif_transpose(image) if policy["rotate"] else image
    if max(image.size) > policy["max_aspect_ratio"] * min(image.size):
        raise ValueError(f"sides {image.size} exceed max_aspect_ratio {policy['max_aspect_ratio']}")
    if image.mode[0] in "FI":
        levels = np.asarray(image)
        if image.mode == "F" or "transparency" in image.info or not 0 <= levels.min() <= levels.max() < 2**16:
            raise ValueError(f"mode {image.mode} with more than 16 bits or with a transparent level")
        image = Image.fromarray((levels // 257).astype(np.uint8))
    if image.has_transparency_data:
        paper = Image.new("RGBA", image.size, (policy["background"],) * 3 + (255,))
        image = Image.alpha_composite(paper, image.convert("RGBA"))
    image, (height, width) = image.convert(mode), policy["image_size"]
    scale = {"squash": lambda *_: 0, "crop": max, "pad": min}[policy["resize"]](
        height / image.height, width / image.width
    )
    size = [max(1, int(side * scale + 0.5)) for side in image.size] if scale else [width, height]
    canvas = Image.new(mode, (width, height), (policy["background"],) * len(mode))
    image = image.resize(size, Image.Resampling.BILINEAR)
    canvas.paste(image, (int((width - image.width) / 2), int((height - image.height) / 2)))
    return np.atleast_3d(canvas).transpose(2, 0, 1)


def _scores(file: Path) -> np.ndarray:
    return session.run(["probabilities"], {"images": np.stack([_decode(file)] * (1 if num == "batch" else num))})[0][0]


for name, digest in model["files"].items():
    if hashlib.sha256((bundle / name).read_bytes()).hexdigest() != digest:
        sys.exit(f"{name} is not the file that was exported")
session = onnxruntime.InferenceSession(bundle / "model.onnx", providers=["CPUExecutionProvider"])
for image in golden["images"]:
    if not np.allclose(_scores(bundle / "golden" / image["file"]), image["probabilities"], 0, golden["tolerance"]):
        sys.exit(f"golden image {image['file']} gets other scores: this machine decodes or computes in another way")
output.writerow(["path", "label", "score"])
for path in paths:
    files = (file for file in path.rglob("[!.]*") if file.suffix.lower() in policy["suffixes"])
    for file in sorted(files) if path.is_dir() else [path]:
        scores = _scores(file)
        chosen = [scores.argmax()] if model["task"] == "multiclass" else np.flatnonzero(scores >= 0.5)
        output.writerow([file, "|".join(model["classes"][index] for index in chosen), f"{scores.max():.6f}"])
