"""All numbers of all variants, and on what they were measured."""

import json
import os
import platform
import re
from collections.abc import Sequence
from concurrent.futures import wait
from contextlib import ExitStack, closing
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from ..data.loading import available_cpus
from ..export.golden import FOLDER, INDEX, read_golden
from ..export.graph import Graph, Options
from ..export.verification import Batches, VerificationError, compare
from . import worker
from .quality import Quality, score_test_split
from .rows import Row
from .runtime import Runtime
from .timing import time_batches
from .variants import Variant

TestSplit = tuple[Graph, Batches]


def measure(
    variants: Sequence[Variant], batches: Sequence[int], split: TestSplit | str, *, threads: int, rounds: int
) -> tuple[list[Row], Quality | str]:
    """Load, time and score the variants; instead of the test split there may be the reason why there is none."""
    rows = [_row(variant, batches) for variant in variants]
    with ExitStack() as stack:
        runtimes = {v.name: stack.enter_context(closing(Runtime(v, threads))) for v in variants}
        wait([runtime.ready for runtime in runtimes.values()])  # nothing is timed while another one starts
        loaded = [row for row in rows if _load(row, runtimes[row.name])]
        time_batches(loaded, runtimes, batches, rounds)
        quality = split if isinstance(split, str) else score_test_split(loaded, runtimes, *split)
        for row in loaded:
            _measure_memory(row, runtimes[row.name])
    for row in rows if isinstance(quality, str) else ():
        row.miss(str(quality), "accuracy", "agreement")
    return rows, quality


def _row(variant: Variant, batches: Sequence[int]) -> Row:
    told = {key: variant.model[key] for key in ("format", "precision", "remark")}
    row = Row(variant.name, str(variant.folder), dict.fromkeys(batches), variant.megabytes, **told)
    if variant.batch:
        others = [f"batch {size}" for size in batches if size != variant.batch]
        row.miss(f"it takes batches of {variant.batch} alone", *others)
    return row


def _load(row: Row, runtime: Runtime) -> bool:
    """Whether it loads, and gives the golden images the scores that it had where it was exported."""
    folder = runtime.variant.folder
    tolerance = json.loads((folder / FOLDER / INDEX).read_text("utf-8"))["tolerance"]
    golden = [(file.name, pixels.numpy()[None], scores) for file, pixels, scores in read_golden(folder)]
    try:
        image = np.resize(golden[0][1], (runtime.variant.batch or 1, *golden[0][1].shape[1:]))
        load_ms: float = runtime.ask(worker.milliseconds_to_load, image)
        for name, pixels, scores in golden:
            compare(f"golden image {name}", runtime.scores(pixels), scores, Options(atol=tolerance))
    except VerificationError as error:
        row.miss(str(error), *row.unmeasured())
        return False
    row.load_ms, row.versions = load_ms, runtime.ready.result()
    return True


def _measure_memory(row: Row, runtime: Runtime) -> None:
    try:
        memory = runtime.ask(worker.memory)
    except VerificationError as error:
        row.miss(str(error), "peak_megabytes", "added_megabytes")
    else:
        row.peak_megabytes, row.added_megabytes = memory


def describe_machine() -> dict[str, Any]:
    """CPU, system and date; the versions of runtimes are with the variants."""
    cpuinfo = Path("/proc/cpuinfo")
    names = re.findall(r"model name\s*: (.+)", cpuinfo.read_text("utf-8")) if cpuinfo.exists() else []
    return {
        "cpu": next(iter(names), platform.processor() or platform.machine()),
        "cpus": os.cpu_count(),
        "available_cpus": available_cpus(),
        "system": platform.platform(),
        "versions": {"python": platform.python_version(), "torch": version("torch")},
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
    }
