"""What the process of one variant does when it is asked; between questions it waits and computes nothing."""

import os
import re
import time
from collections.abc import Callable
from functools import cache
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ..export import open_format
from ..export.graph import Scores
from ..export.verification import VerificationError

SETTLE_SECONDS = 0.005  # as long as threads of other processes may go on spinning after their last call


@cache
def _loaded(format: str, folder: Path, threads: int) -> Callable[[NDArray[np.uint8]], Scores]:
    return open_format(format).load(folder, threads)


@cache
def _noise(shape: tuple[int, ...]) -> NDArray[np.uint8]:
    return np.random.default_rng(0).integers(0, 256, shape, np.uint8)


def prepare(format: str, folder: Path, threads: int) -> dict[str, str]:
    """Import what the format needs, then stay on as many CPUs as there are threads; returns versions."""
    kind = open_format(format)
    if reason := getattr(kind, "unmeasurable", lambda folder: None)(folder):
        raise VerificationError(reason)
    versions = {name: version(name) for name in kind.PACKAGES}
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[-threads:])
    if find_spec("resource"):
        _peak_after_imports()
    return versions


def milliseconds_to_load(format: str, folder: Path, threads: int, image: NDArray[np.uint8]) -> float:
    """From the files to the scores of the first batch; the second time, since the first one imports the runtime."""
    for _ in range(2):
        _loaded.cache_clear()
        start = time.perf_counter()
        _loaded(format, folder, threads)(image)
        taken = time.perf_counter() - start
    return 1000 * taken


def scores(format: str, folder: Path, threads: int, images: NDArray[np.uint8]) -> Scores:
    """Of uint8 [N, C, H, W]."""
    return _loaded(format, folder, threads)(images)


def milliseconds(format: str, folder: Path, threads: int, shape: tuple[int, ...], calls: int) -> list[float]:
    """Of each of some calls with a batch of noise, after calls that only warm up."""
    run, images, taken = _loaded(format, folder, threads), _noise(shape), []
    settled = time.perf_counter() + SETTLE_SECONDS
    run(images)
    while time.perf_counter() < settled:
        run(images)
    for _ in range(calls):
        start = time.perf_counter()
        run(images)
        taken.append(1000 * (time.perf_counter() - start))
    return taken


def memory(format: str, folder: Path, threads: int) -> tuple[float, float]:
    """The most that this process has had, and how much of it came after the imports, in megabytes."""
    peak = _peak()
    return peak, peak - _peak_after_imports()


def _peak() -> float:
    status = Path("/proc/self/status")
    if status.exists():  # getrusage would count what the parent had when it started this process
        return int(re.findall(r"VmHWM:\s*(\d+) kB", status.read_text())[0]) * 1024 / 1e6
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6


_peak_after_imports = cache(_peak)
