"""The checks, the same for every format; one that fails says what was seen."""

import contextlib
import os
import re
import signal
import zipfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from functools import cache, partial
from multiprocessing import get_context, parent_process
from pathlib import Path
from threading import Thread
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from tqdm import tqdm

from . import open_format
from .graph import OUTPUTS, Graph, Options, Scores

Run = Callable[[Tensor], Scores]
Batches = Iterable[tuple[Tensor, Tensor]]
ANSWERS: dict[str, Callable[[NDArray[np.float32]], NDArray[Any]]] = {
    "multiclass": lambda logits: logits.argmax(1),
    "multilabel": lambda logits: logits >= 0,
}


class VerificationError(RuntimeError):
    """The model, or what was exported of it, failed a check."""


def reason(error: BaseException) -> str:
    """The first paragraph of the innermost cause, and the line of the network that it names, without colours."""
    while error.__cause__:
        error = error.__cause__
    text = re.sub(r"\x1b\[\d*m", "", str(error))
    place = re.search(r'following call raised this error:\s+File "(.+)", line (\d+)', text)
    return " ".join(text.split("\n\n")[0].split()) + (f" ({place[1]}:{place[2]})" if place else "")


def compare(what: str, found: Scores, expected: Scores, options: Options) -> dict[str, float]:
    """The largest difference in each output; an error where one exceeds the tolerance."""
    worst = {}
    for name in OUTPUTS:
        if found[name].shape != expected[name].shape:
            raise VerificationError(f"{what}: {name} have shape {found[name].shape}, not {expected[name].shape}.")
        worst[name] = float(np.abs(found[name] - expected[name]).max())
        if not np.allclose(found[name], expected[name], atol=options.atol, rtol=options.rtol):
            limit = f"{options.atol:g} + {options.rtol:g} * |{name}|"
            raise VerificationError(f"{what}: {name} differ by up to {worst[name]:.3g}, allowed are {limit}.")
    return worst


def reference(graph: Graph, images: Tensor, options: Options) -> Scores:
    """The model's own scores of a batch."""
    try:
        scores = options.in_batch(graph.scores, images)
    except (RuntimeError, ValueError) as error:
        reason = str(error).splitlines()[0]
        raise VerificationError(f"the network fails on a batch of {len(images)} images: {reason}") from error
    if scores["logits"].shape != (len(images), len(graph.spec.classes)):
        raise VerificationError(f"the network gives {len(images)} images logits of shape {scores['logits'].shape}.")
    if not np.isfinite(scores["logits"]).all():
        raise VerificationError("the network's logits are not finite.")
    return scores


def probe(graph: Graph, images: Tensor, options: Options) -> dict[str, Any]:
    """What must hold for the model itself, before anything can be compared with it."""
    batch, before = images[: options.sizes[-1]], {name: values.clone() for name, values in graph.named_buffers()}
    first, again, alone = (reference(graph, inputs, options) for inputs in (batch, batch, batch[:1]))
    if changed := [name for name, values in graph.named_buffers() if not values.equal(before[name])]:
        raise VerificationError(f"the network changes its own buffers in evaluation mode: {', '.join(changed)}.")
    top = {name: scores[:1] for name, scores in first.items()}
    repeat = "the model gives the same images other scores the second time (dropout in evaluation mode?)"
    single = (
        "the model's scores of an image depend on its batch (statistics of the batch? rounding, if atol is near 0?)"
    )
    return {
        "same_input_twice": compare(repeat, again, first, options),
        "alone_and_in_batch": compare(single, alone, top, options),
    }


def one_by_one(run: Run, images: Tensor) -> Scores:
    """Scores of each image alone."""
    each = [run(image[None]) for image in images]
    return {name: np.concatenate([scores[name] for scores in each]) for name in OUTPUTS}


def check_batch_sizes(run: Run, expected: Run, images: Tensor, options: Options) -> dict[str, Any]:
    """Every size that is tried; images are repeated where they are too few."""
    worst = {}
    for size in options.sizes:
        batch = images[torch.arange(size) % len(images)]
        worst[str(size)] = compare(f"a batch of {size}", run(batch), expected(batch), options)
    return worst


def check_split(run: Run, graph: Graph, batches: Batches, options: Options, *, name: str) -> dict[str, Any]:
    """Accuracy (over all labels, where there are several) of both, and how their answers and scores differ.

    Within the tolerance answers differ at ties only; a lossy model has an accuracy to keep instead of a tolerance.
    """
    totals, worst = Counter[str](), dict.fromkeys(OUTPUTS, 0.0)
    limit = replace(options, atol=1e30) if options.is_lossy else options
    for images, labels in tqdm(batches, desc=f"{name} split", unit="batch", leave=False):
        scores = run(images), reference(graph, images, options)
        differences = compare(f"the {name} split", *scores, limit)
        worst = {output: max(worst[output], differences[output]) for output in OUTPUTS}
        exported, model = (ANSWERS[graph.spec.task](each["logits"]) for each in scores)
        found = {"exported": exported == labels.numpy(), "model": model == labels.numpy(), "differ": exported != model}
        totals.update({what: int(values.sum()) for what, values in found.items()})
        totals.update(images=len(images), answers=model.size)
    return {
        "images": totals["images"],
        "accuracy": {what: totals[what] / totals["answers"] for what in ("model", "exported")},
        "agreement": 1 - totals["differ"] / totals["answers"],
        "different_answers": totals["differ"],
        "largest_difference": worst,
    }


def check_contents(folder: Path, images: Tensor | None, places: Iterable[Path]) -> dict[str, bool | None]:
    """No file names a place on this machine or holds an image that it was tried with."""
    needles = {f"{place}/".encode(): str(place) for place in places if len(str(place)) > 3}
    for image in images if images is not None else ():
        needles |= {image.numpy().tobytes(): "a test image"} if image.min() < image.max() else {}
    for file in (file for file in folder.rglob("*") if file.is_file()):
        content = b"".join(_contents(file))
        if found := [what for needle, what in needles.items() if needle in content]:
            raise VerificationError(f"{file.name} holds {found[0]}, which must not leave this machine.")
    return {"without_paths": True, "without_test_images": None if images is None else True}


def _contents(file: Path) -> Iterator[bytes]:
    """The file, and what an archive holds, which may be compressed."""
    yield file.read_bytes()
    if zipfile.is_zipfile(file):
        with zipfile.ZipFile(file) as archive:
            yield from map(archive.read, archive.namelist())


@cache
def _loaded(name: str, folder: Path) -> Callable[[NDArray[np.uint8]], Scores]:
    return open_format(name).load(folder)


def _scores(name: str, folder: Path, images: NDArray[np.uint8]) -> Scores:
    return _loaded(name, folder)(images)


def _end_with_parent() -> None:
    parent = parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


def _serve() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    Thread(target=_end_with_parent, daemon=True).start()


def fresh_process() -> ProcessPoolExecutor:
    """One that inherits nothing, and ends with this one, however that ends; Ctrl-C is for this one alone."""
    return ProcessPoolExecutor(1, mp_context=get_context("spawn"), initializer=_serve)


@contextlib.contextmanager
def load_afresh(folder: Path, options: Options) -> Iterator[Run]:
    """The format's `load` in a process of its own, which is told the format's name and the bundle's folder alone."""

    def ask(images: Tensor) -> Scores:
        future = executor.submit(_scores, options.format, folder, images.numpy())
        if error := future.exception():  # runtimes raise what they like
            raise VerificationError(f"the {options.format} file does not run: {error}") from error
        return future.result()

    with fresh_process() as executor:
        yield partial(options.in_batch, ask)
