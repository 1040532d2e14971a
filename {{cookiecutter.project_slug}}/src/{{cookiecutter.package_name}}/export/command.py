"""The `export` command."""

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Literal

from ..checkpoints import find_checkpoint, load_classifier
from ..data.datamodule import ImageDataModule
from ..data.spec import DataSpec
from . import FORMATS, obstacle, open_format
from .bundle import UNREACHABLE, check_replaceable, replacing, summary, write_bundle
from .graph import PRECISIONS, Graph, Options
from .verification import VerificationError


def export(
    ckpt_path: Path | None = None,
    *,
    format: str = "onnx",
    quantize: str = "32",
    output: Path | None = None,
    opset: int = 20,
    batch: Literal["dynamic"] | int = "dynamic",
    atol: float = 1e-4,
    rtol: float = 1e-4,
    max_accuracy_drop: float = 0.02,
    min_agreement: float = 0.9,
    root: str | None = None,
    force: bool = False,
    num_workers: int | Literal["auto"] = "auto",
) -> None:
    """Write bundles for deployment: the model, what its consumers must know, and the proof that it is the same model.

    Args:
        ckpt_path: checkpoint; without it the best one of the newest finished run below runs/.
        format: kinds of model file, names of files in the export folder of this package with commas between them; all
            for those that can be written here.
        quantize: bits of the weights, 32, 16 (float16) or 8 (int8, with ranges from training images), or several with
            commas between them.
        output: the bundle's folder, by default beside the checkpoint, named after it and the format; of several bundles
            the folder that holds them.
        opset: ONNX operator set of the file, from 18 to 25.
        batch: dynamic, or the fixed number of images that every call takes.
        atol: allowed absolute difference of logits and probabilities from the model's.
        rtol: allowed difference relative to the model's value, added to atol.
        max_accuracy_drop: how far float16 and int8 may fall below the model on the validation split, absolute, in
            [0, 1]. Layers of ONNX files in int8 are taken back to float until it holds.
        min_agreement: share in [0, 1] of validation images for which float16 and int8 must give the model's answer.
        root: where the data is now, if it has moved since training.
        force: replace existing bundles, once the new ones are verified.
        num_workers: processes that decode the test images.
    """
    limits = Options("", opset, batch, atol, rtol, 32, max_accuracy_drop, min_agreement)
    _check(limits)
    wanted = [replace(limits, format=name, quantize=bits) for name, bits in _variants(format, quantize)]
    checkpoint = find_checkpoint(ckpt_path)
    places = _places(wanted, checkpoint, output)
    for place in places.values():
        check_replaceable(place, force=force)
    graph = Graph(load_classifier(checkpoint))
    data = _reachable(graph.spec, root, batch, num_workers, needed=any(options.is_lossy for options in places))
    _write(places, graph, checkpoint, data, force=force)


def _check(options: Options) -> None:
    if options.batch != "dynamic" and options.batch < 1:
        raise ValueError(f"batch must be dynamic or at least 1, got {options.batch}.")
    if not 18 <= options.opset <= 25:  # what torch.onnx writes itself; to others it converts, or only says that it does
        raise ValueError(f"opset must be from 18 to 25, got {options.opset}.")
    for name in ("atol", "rtol"):
        if not 0 <= (tolerance := getattr(options, name)) < math.inf:
            raise ValueError(f"{name} must be finite and at least 0, got {tolerance}.")
    for name in ("max_accuracy_drop", "min_agreement"):
        if not 0 <= (share := getattr(options, name)) <= 1:
            raise ValueError(f"{name} must be in [0, 1], got {share}.")


def _listed(name: str, given: str, allowed: Sequence[str]) -> list[str]:
    values = list(dict.fromkeys(part.strip() for part in given.split(",")))
    if not set(values) <= set(allowed):
        raise ValueError(f"{name} must be of {', '.join(allowed)}, with commas between several, got {given!r}.")
    return values


def _variants(format: str, quantize: str) -> list[tuple[str, int]]:
    """Format and bits of each bundle; `all` says what it leaves out, what was asked for by name must be possible."""
    bits = [int(value) for value in _listed("quantize", quantize, [*map(str, PRECISIONS)])]
    names = FORMATS if format == "all" else _listed("format, if not all,", format, FORMATS)
    found = []
    for name, number in product(names, bits):
        opt_in = "it is written where it is asked for by name" if getattr(open_format(name), "OPT_IN", False) else None
        reason = obstacle(name, number) or (opt_in if format == "all" else None)
        if reason and format != "all":
            raise ValueError(f"format {name} can't be written with quantize {number}: {reason}.")
        if reason:
            print(f"{name} in {PRECISIONS[number]}: skipped, {reason}")
        else:
            found.append((name, number))
    return found


def _places(variants: list[Options], checkpoint: Path, output: Path | None) -> dict[Options, Path]:
    """The folder of each bundle."""
    if output is not None and len(variants) == 1:
        return {variants[0]: output}
    return {options: (output or checkpoint.parent) / f"{checkpoint.stem}-{options.name}" for options in variants}


def _write(
    places: dict[Options, Path], graph: Graph, checkpoint: Path, data: ImageDataModule | None, *, force: bool
) -> None:
    failed = []
    for options, place in places.items():
        try:
            with replacing(place, force=force) as folder:
                model = write_bundle(folder, graph, options, checkpoint, data)
        except VerificationError as error:
            if len(places) == 1:
                raise
            failed.append(options.name)
            print(f"{options.name}: not written, {error}")
            continue
        print(f"bundle: {place} is verified; test split: {summary(model)}. {model['remark']}".rstrip())
    if failed:
        raise VerificationError(f"{len(failed)} of {len(places)} bundles failed: {', '.join(failed)}.")


def _reachable(
    spec: DataSpec,
    root: str | None,
    batch: Literal["dynamic"] | int,
    num_workers: int | Literal["auto"],
    *,
    needed: bool,
) -> ImageDataModule | None:
    batch_size = 64 if batch == "dynamic" else batch
    data = ImageDataModule.from_spec(spec, root=root, batch_size=batch_size, num_workers=num_workers)
    try:
        data.test_dataloader()
    except (OSError, ValueError) as error:
        if root is not None or needed:  # float16 and int8 are judged, and int8 calibrated, with images
            raise
        print(f"{UNREACHABLE} ({error})")
        return None
    return data
