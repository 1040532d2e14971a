"""What follows from the numbers: which variant to use."""

from collections.abc import Sequence

from .rows import Row

MARGIN = 0.1  # share by which times or sizes must differ to count: less is noise, or not worth a change
TINY = 1e-9  # what sums of shares may be off
GOOD, BAD = "use it", "don't"


def choose_reference(rows: Sequence[Row]) -> Row:
    """What the others are compared with: the float32 ONNX, else the first in float32, else the first that ran."""
    return min(rows, key=_lack)


def _lack(row: Row) -> tuple[bool, bool, bool, int]:
    times = list(row.batches.values())
    return not any(times), row.precision != "float32", row.format != "onnx", times.count(None)


def speeds(row: Row, other: Row) -> dict[int, float]:
    """How many times as fast as the other one, at the batch sizes at which both were timed."""
    both = {size: (timing, other.batches[size]) for size, timing in row.batches.items()}
    return {size: theirs.median_ms / own.median_ms for size, (own, theirs) in both.items() if own and theirs}


def _shown(found: dict[int, float]) -> list[str]:
    return [f"{speed:.2f}x at {'' if number else 'batch '}{size}" for number, (size, speed) in enumerate(found.items())]


def drop(row: Row, accuracy: float | None) -> float | None:
    """How far its accuracy is below the model's, where both are known."""
    return None if row.accuracy is None or accuracy is None else accuracy - row.accuracy


def fastest(rows: Sequence[Row], reference: Row, size: int, accuracy: float | None, max_accuracy_drop: float) -> str:
    """The fastest at a batch size, of those that keep the accuracy or whose accuracy is not known."""
    kept = (row for row in rows if (drop(row, accuracy) or 0) <= max_accuracy_drop + TINY)
    found = {row.name: speed for row in kept if (speed := speeds(row, reference).get(size))}
    best = max(found, key=lambda name: found[name], default=None)
    if best is None:
        return f"Nothing to compare at batch {size}"
    if found[best] <= 1 + MARGIN:
        return f"Nothing is more than {MARGIN:.0%} faster than {reference.name} at batch {size}"
    return f"Fastest at batch {size}: {best}, {found[best]:.2f}x {reference.name}"


def verdict(row: Row, reference: Row, accuracy: float | None, max_accuracy_drop: float) -> str:
    """The first of these rules that holds; `accuracy` is that of the model itself.

    1. It did not run: not measured, and why.
    2. Accuracy is more than `max_accuracy_drop` below the model's: don't.
    3. No batch size at which the reference was timed too: can't say.
    4. At some batch size more than 10 % slower than the reference, at none more than 10 % faster: don't.
    5. As fast as the reference, and not smaller by 10 %: no reason to.
    6. What follows says use it, but if its accuracy is not known: measure that first.
    7. At some batch size faster, at another slower: use it at the former alone.
    8. At some faster, at none slower, or as fast and smaller: use it.
    """
    if not any(row.batches.values()):
        return f"{next(iter(row.missing.values()))}: not measured"
    if row is reference:
        return "reference"
    found = speeds(row, reference)
    facts = _shown(found)
    below = drop(row, accuracy)
    facts.append("accuracy unknown" if below is None else f"accuracy {0 - below:+.4f}")
    lighter = row.megabytes < (1 - MARGIN) * reference.megabytes
    return f"{', '.join(facts)}: {_advice(found, below, max_accuracy_drop, reference.name, lighter)}"


def _advice(found: dict[int, float], below: float | None, limit: float, reference: str, lighter: bool) -> str:
    faster = [str(size) for size, speed in found.items() if speed > 1 + MARGIN]
    slower = [str(size) for size, speed in found.items() if speed < 1 - MARGIN]
    rules = (
        (below is not None and below > limit + TINY, f"below the model by more than {limit:g}: {BAD}"),
        (not found, f"no batch size that {reference} was timed at too: can't say"),
        (slower and not faster, f"slower than {reference}: {BAD}"),
        (not faster and not lighter, f"as fast as {reference}: no reason to"),
        (below is None, f"measure its accuracy first (--root), then {GOOD}"),
        (slower and faster, f"{GOOD} at batch {' and '.join(faster)} alone"),
        (faster, GOOD),
        (lighter, f"as fast as {reference} and smaller: {GOOD}"),
    )
    return next(text for holds, text in rules if holds)


def slower_int8(rows: Sequence[Row], reference: Row) -> list[str]:
    """Each variant in int8 that is slower than the reference or its own format in float32, by name."""
    found = []
    for row in (row for row in rows if row.precision == "int8"):
        for other in (other for other in rows if other.precision == "float32"):
            slow = _shown({size: speed for size, speed in speeds(row, other).items() if speed < 1})
            if slow and (other is reference or other.format == row.format):
                found.append(f"{row.name} is slower than {other.name}: {', '.join(slow)}")
    return found


def points(rows: Sequence[Row], size: int) -> dict[str, tuple[float, float]]:
    """Milliseconds and accuracy at a batch size of the rows that have both, by name."""
    known = ((row.name, row.batches[size], row.accuracy) for row in rows)
    return {name: (timing.median_ms, accuracy) for name, timing, accuracy in known if timing and accuracy is not None}


def front(found: dict[str, tuple[float, float]]) -> list[str]:
    """The Pareto front, fastest first: nothing that is at least as fast is more accurate, or as accurate and faster."""
    best: list[str] = []
    for name in sorted(found, key=lambda name: (found[name][0], -found[name][1])):
        if not best or found[name][1] > found[best[-1]][1]:
            best.append(name)
    return best
