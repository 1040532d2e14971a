"""The bundle: a folder that holds a model and all that its consumers must know."""

import contextlib
import hashlib
import inspect
import json
import platform
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, replace
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from .. import __version__
from ..data.datamodule import ImageDataModule
from ..data.datasets import Images
from ..data.decoding import IMAGE_SUFFIXES
from . import open_format
from .golden import check_golden, draw_golden, score_golden
from .graph import INPUT, Graph, Options
from .judge import Judge
from .verification import (
    Run,
    check_batch_sizes,
    check_contents,
    check_split,
    load_afresh,
    one_by_one,
    probe,
    reference,
)

MODEL = "model.json"
UNREACHABLE = "the test split could not be reached, --root says where the data is"
COLOURS = {1: "grey", 3: "RGB"}
MEANINGS = {
    "multiclass": "softmax of the logits: they sum to 1, the answer is the largest",
    "multilabel": "sigmoid of the logits: each stands for itself, the answers are those of at least 0.5",
}
CARD = """# {checkpoint[name]} as {format} in {precision}

Classifies images ({task}); labels.txt names the classes in the order of the scores. model.json says how to decode image
files (pixels stay in [0, 255]: normalising is inside the model), what comes out, and what was checked. A consumer that
gets other scores than golden.json for the images in golden/ decodes in another way and must not be used.

Test split: {test_split}
{remark}"""
ROUNDING = {32: 0.0, 16: 0.02, 8: 0.0}  # how far scores of the same image may lie apart in batches of different sizes


def check_replaceable(output: Path, *, force: bool, mark: str = MODEL) -> None:
    """Raise an error if something is there that must stay: all but the file `mark` and the files that it lists."""
    if not output.exists():
        return
    if not (force and (output / mark).is_file()):
        raise FileExistsError(f"output {output} exists; --force replaces it if it is such a folder (holds {mark}).")
    if strangers := _strangers(output, mark):
        shown = ", ".join(strangers[:3])
        raise FileExistsError(f"output {output} holds {shown}, not written with a {mark}: move it, or choose another.")


def _strangers(folder: Path, mark: str) -> list[str]:
    try:
        own = {mark, *json.loads((folder / mark).read_text("utf-8"))["files"]}
    except (ValueError, LookupError, TypeError):  # another program's
        own = set()
    return sorted({file.relative_to(folder).as_posix() for file in folder.rglob("*") if not file.is_dir()} - own)


@contextlib.contextmanager
def replacing(output: Path, *, force: bool, mark: str = MODEL) -> Iterator[Path]:
    """A new folder that takes the place of `output` if the block ends well; else it vanishes and the old one stays."""
    check_replaceable(output, force=force, mark=mark)
    output = output.resolve()  # a link stays, what it leads to is replaced
    existing = next(parent for parent in output.parents if parent.exists())
    with tempfile.TemporaryDirectory(dir=existing, prefix=f".{output.name}-") as aside:
        new, old = Path(aside, "new"), Path(aside, "old")
        new.mkdir()
        yield new
        output.parent.mkdir(parents=True, exist_ok=True)
        try:
            if output.exists():
                output.rename(old)
            new.rename(output)
        finally:
            if old.exists() and not output.exists():
                old.rename(output)


def sha256(file: Path) -> str:
    """Of the file's content."""
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _versions(packages: tuple[str, ...]) -> dict[str, str]:
    own = {__name__.split(".")[0]: __version__, "python": platform.python_version()}
    return own | {name: version(name) for name in ("torch", *packages)}


def _labels(classes: list[str]) -> str:
    if broken := [name for name in classes if name.splitlines() != [name]]:
        raise ValueError(f"labels.txt has one class a line, so a class can't be named {broken[0]!r}.")
    return "\n".join([*classes, ""])


def describe(graph: Graph, options: Options, checkpoint: Path) -> dict[str, Any]:
    """What consumers must know."""
    spec, decoding, kind = graph.spec, graph.spec.decoding, open_format(options.format)
    policy = inspect.cleandoc(str(type(decoding).__doc__)).split("\n\nArgs:")[0]
    layout = {"layout": "NCHW", "dtype": "uint8", "colours": COLOURS.get(decoding.channels, "bands, as in the file")}
    return {
        "format": options.format,
        "precision": options.precision,
        "remark": getattr(kind, "remark", lambda: "")(),
        "task": spec.task,
        "classes": spec.classes,
        "input": {"name": INPUT, "shape": graph.shapes(options.axis)[INPUT], **layout},
        "decoding": {**asdict(decoding), "suffixes": sorted(IMAGE_SUFFIXES), "policy": policy},
        "preprocessing": {"inside_the_model": "(pixel / 255 - mean) / std", **graph.preprocessing()},
        "outputs": {"logits": "the network's raw scores", "probabilities": MEANINGS[spec.task]},
        "versions": _versions((*kind.PACKAGES, *kind.PRECISIONS[options.quantize])),
        "checkpoint": {"name": checkpoint.name, "sha256": sha256(checkpoint)},
    }


def _spread(images: Images) -> Tensor:
    """At most 64 images from all over the split, uint8 [N, C, H, W]."""
    return torch.stack([images[index][0] for index in range(0, len(images), -(-len(images) // 64))])


def summary(model: dict[str, Any]) -> str:
    """What the test split showed, in a sentence."""
    if (found := model["checks"]["test_split"]) is None:
        return UNREACHABLE
    return (
        f"{found['images']} images, accuracy {found['accuracy']['exported']:.4f} (the checkpoint's is "
        f"{found['accuracy']['model']:.4f}), {found['different_answers']} different answers, "
        f"probabilities differ by at most {found['largest_difference']['probabilities']:.1e}"
    )


def seal(folder: Path, model: dict[str, Any]) -> None:
    """Write the model card, and model.json with the hashes of all other files."""
    (folder / "README.md").write_text(CARD.format(**model, test_split=summary(model)), "utf-8")
    files = sorted(file for file in folder.rglob("*") if file.is_file())
    hashes = {file.relative_to(folder).as_posix(): sha256(file) for file in files}
    text = json.dumps({**model, "files": hashes}, ensure_ascii=False, indent=2, allow_nan=False)
    (folder / MODEL).write_text(text + "\n", "utf-8")


def write_bundle(
    folder: Path, graph: Graph, options: Options, checkpoint: Path, data: ImageDataModule | None
) -> dict[str, Any]:
    """Fill the folder and check all of it; what needs images is null without data. Returns model.json."""
    (folder / "labels.txt").write_text(_labels(graph.spec.classes), "utf-8", newline="\n")
    golden = draw_golden(folder, graph.spec.decoding)
    images = _spread(data.split("test")) if data else golden
    checks = {"atol": options.atol, "rtol": options.rtol} | probe(graph, images, options)
    judge = Judge(graph, data, options) if options.is_lossy and data else None
    open_format(options.format).write(graph, folder, options, judge)
    with load_afresh(folder, options) as run:
        # A lossy model has scores of its own; they must not depend on the batch.
        expected: Run = partial(one_by_one, run) if options.is_lossy else partial(reference, graph, options=options)
        own = replace(options, atol=max(options.atol, ROUNDING[options.quantize]))
        score_golden(folder, expected, tolerance=max(1e-4, own.atol))
        checks["batch_sizes"] = check_batch_sizes(run, expected, images, own)
        checks["golden"] = check_golden(run, folder, graph.spec.decoding, own)
        checks["test_split"] = data and check_split(run, graph, data.test_dataloader(), options, name="test")
        if judge:
            checks["val_split"] = judge("as written", run)
            judge.require(checks["val_split"])
            checks["tried"] = judge.tried
    places = (checkpoint.resolve().parent, Path.home(), Path.cwd(), Path(__file__).parents[1], Path(sys.prefix))
    checks["contents"] = check_contents(folder, images if data else None, places)
    if data is None:
        checks["missing"] = UNREACHABLE
    model = describe(graph, options, checkpoint) | {"checks": checks}
    seal(folder, model)
    return model
