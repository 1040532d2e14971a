"""Time, in rounds in which every variant has its turn, so that a busy machine slows all alike."""

import random
from collections import defaultdict
from collections.abc import Sequence

import numpy as np
from tqdm import tqdm

from ..export.verification import VerificationError
from . import worker
from .rows import Row, Timing
from .runtime import Runtime

NUM_WARM_UP_ROUNDS = 2
TURN_MS, MOST_CALLS = 20.0, 50  # a turn has as many calls as fit into that time


def time_batches(rows: Sequence[Row], runtimes: dict[str, Runtime], batches: Sequence[int], rounds: int) -> None:
    """Fill in each row's batches; one that fails is missing with its reason."""
    seen: dict[tuple[str, int], list[float]] = defaultdict(list)
    calls: dict[tuple[str, int], int] = defaultdict(lambda: 3)
    order = random.Random(0)
    for number in tqdm(range(-NUM_WARM_UP_ROUNDS, rounds), desc="timing", unit="round", leave=False):
        for row, size in _turns(rows, batches, order):
            taken = _turn(row, runtimes[row.name], size, calls[row.name, size])
            if number < 0:
                calls[row.name, size] = _num_calls(taken)
            else:
                seen[row.name, size] += taken
    for row, size in _turns(rows, batches, order):
        row.batches[size] = summary(seen[row.name, size], size)


def _turns(rows: Sequence[Row], batches: Sequence[int], order: random.Random) -> list[tuple[Row, int]]:
    """All variants with one batch size, then with the next, each time in another order; without those that failed."""
    turns = [(row, size) for size in batches for row in order.sample(rows, len(rows))]
    return [(row, size) for row, size in turns if f"batch {size}" not in row.missing]


def _turn(row: Row, runtime: Runtime, size: int, calls: int) -> list[float]:
    shape = (size, *runtime.variant.model["input"]["shape"][1:])
    try:
        taken: list[float] = runtime.ask(worker.milliseconds, shape, calls)
    except VerificationError as error:
        row.miss(str(error), f"batch {size}")
        return []
    return taken


def _num_calls(taken: list[float]) -> int:
    return max(1, min(MOST_CALLS, int(TURN_MS / np.median(taken or [TURN_MS]))))


def summary(taken: list[float], size: int) -> Timing:
    """What is kept of the milliseconds of all calls."""
    median, p95 = np.percentile(taken, (50, 95)).tolist()
    return Timing(median, p95, min(taken), 1000 * size / median, len(taken))
