"""The `benchmark` command."""

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from ..checkpoints import find_checkpoint, load_classifier
from ..data.datamodule import ImageDataModule
from ..data.loading import available_cpus
from ..export.bundle import replacing, sha256
from ..export.graph import Graph
from ..export.verification import VerificationError
from ..runs import write_json
from .comparison import Comparison
from .measurement import TestSplit, describe_machine, measure
from .page import write_page
from .picture import draw
from .variants import Variant, check_variants, variants_in, variants_of

NUMBERS, PICTURE, PAGE = "benchmark.json", "pareto.png", "report.html"


def benchmark(
    paths: Sequence[Path] = (),
    *,
    ckpt_path: Path | None = None,
    batch: str = "1,64",
    threads: int = 1,
    rounds: int = 20,
    max_accuracy_drop: float = 0.02,
    root: str | None = None,
    output: Path | None = None,
    force: bool = False,
    num_workers: int | Literal["auto"] = "auto",
) -> None:
    """Measure bundles of one checkpoint, each in its own runtime, and say which to use on this machine.

    Args:
        paths: bundles; without them all those beside the checkpoint.
        ckpt_path: checkpoint that the bundles come from, which says where the test images are; without it the one
            beside the bundles or, without paths, the best one of the newest finished run below runs/.
        batch: sizes of the batches that are timed, with commas between them.
        threads: CPU threads, and CPUs, that each runtime gets.
        rounds: how often every variant has its turn, at least 1.
        max_accuracy_drop: how far a variant may fall below the model in float32 on the test split, absolute, in [0, 1].
        root: where the data is now, if it has moved since training.
        output: folder of benchmark.json, pareto.png and report.html, by default `benchmark` beside the bundles.
        force: replace an existing report.
        num_workers: processes that decode the test images.
    """
    batches = _sizes(batch)
    settings = {"threads": threads, "rounds": rounds, "max_accuracy_drop": max_accuracy_drop}
    _check(threads, rounds, max_accuracy_drop)
    checkpoint = None if paths else find_checkpoint(ckpt_path)
    variants = variants_in(paths) if checkpoint is None else variants_of(checkpoint)
    check_variants(variants)
    output = output or variants[0].folder.absolute().parent / "benchmark"
    with replacing(output, force=force, mark=NUMBERS) as folder:
        split = _test_split(variants[0], checkpoint or ckpt_path, root, num_workers)
        rows, quality = measure(variants, batches, split, threads=threads, rounds=rounds)
        if not any(any(row.batches.values()) for row in rows):
            raise VerificationError(f"nothing could be timed; {rows[0].name}: {next(iter(rows[0].missing.values()))}.")
        compared = Comparison(variants, rows, quality, settings, describe_machine())
        write_json(folder / NUMBERS, compared.as_dict() | {"files": [PICTURE, PAGE]})
        write_page(folder / PAGE, compared, draw(compared.rows, folder / PICTURE))
    print(compared.as_text())
    print(f"written: {output / PAGE}")


def _sizes(batch: str) -> tuple[int, ...]:
    sizes = [part.strip() for part in batch.split(",")]
    if not all(size.isdecimal() and int(size) for size in sizes):
        raise ValueError(f"batch must be numbers of at least 1 with commas between them, got {batch!r}.")
    return tuple(dict.fromkeys(map(int, sizes)))


def _check(threads: int, rounds: int, max_accuracy_drop: float) -> None:
    if not 1 <= threads <= available_cpus():
        raise ValueError(f"threads must be from 1 to {available_cpus()}, the CPUs of this process, got {threads}.")
    if rounds < 1:
        raise ValueError(f"rounds must be at least 1, got {rounds}.")
    if not 0 <= max_accuracy_drop <= 1:
        raise ValueError(f"max_accuracy_drop must be in [0, 1], got {max_accuracy_drop}.")


def _test_split(
    variant: Variant, ckpt_path: Path | None, root: str | None, num_workers: int | Literal["auto"]
) -> TestSplit | str:
    """The model in float32 and the images of the test split, or why there are none."""
    origin = variant.model["checkpoint"]
    checkpoint = ckpt_path or variant.folder.resolve().parent / origin["name"]
    if not checkpoint.is_file() or sha256(checkpoint) != origin["sha256"]:
        if ckpt_path:
            raise ValueError(f"bundle {variant.folder} does not come from checkpoint {ckpt_path}.")
        return f"its checkpoint is not beside it, --ckpt_path says where {origin['name']} is"
    graph = Graph(load_classifier(checkpoint))
    data = ImageDataModule.from_spec(graph.spec, root=root, num_workers=num_workers)
    try:
        return graph, data.test_dataloader()
    except (OSError, ValueError) as error:
        if root is not None:
            raise
        return f"the test split can't be reached, --root says where the data is ({error})"
