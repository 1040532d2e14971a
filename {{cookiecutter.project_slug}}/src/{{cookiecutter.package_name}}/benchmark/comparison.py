"""What was measured, and what follows from it in words."""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from .quality import Quality
from .rows import Row, columns
from .variants import Variant
from .verdict import choose_reference, fastest, front, points, slower_int8, verdict


@dataclass(frozen=True)
class Comparison:
    """The rows, with what and how they were measured, and the answers of the model itself or why there are none."""

    variants: list[Variant]
    rows: list[Row]
    quality: Quality | str
    settings: dict[str, Any]
    machine: dict[str, Any]

    def __post_init__(self) -> None:
        for row in self.rows:
            row.verdict = verdict(row, self.reference, self.accuracy, self.settings["max_accuracy_drop"])

    @property
    def batches(self) -> tuple[int, ...]:
        return tuple(self.rows[0].batches)

    @property
    def accuracy(self) -> float | None:
        return self.quality.accuracy if isinstance(self.quality, Quality) else None

    @property
    def reference(self) -> Row:
        return choose_reference(self.rows)

    @property
    def bundle(self) -> Variant:
        """That of the reference."""
        return next(variant for variant in self.variants if variant.name == self.reference.name)

    def findings(self) -> Iterator[str]:
        """What is fastest of what is accurate enough, and each int8 that is slower than float."""
        for size in self.batches:
            yield fastest(self.rows, self.reference, size, self.accuracy, self.settings["max_accuracy_drop"])
        yield from slower_int8(self.rows, self.reference)

    def notes(self) -> list[str]:
        """Why numbers are missing, and what the formats remark."""
        about = defaultdict(list)
        for row in self.rows:
            for reason in dict.fromkeys(row.missing.values()):
                names = ", ".join(name for name, other in row.missing.items() if other == reason)
                about[f"no {names}: {reason}"].append(row.name)
            about[row.remark].append(row.name)
        return [f"{', '.join(names)}: {text}" for text, names in about.items() if text]

    def as_dict(self) -> dict[str, Any]:
        """All numbers, in plain values."""
        split, missing = (None, self.quality) if isinstance(self.quality, str) else (self.quality.as_dict(), None)
        return {
            "checkpoint": self.bundle.model["checkpoint"],
            "settings": self.settings,
            "machine": self.machine,
            "reference": self.reference.name,
            "findings": list(self.findings()),
            "pareto": {size: front(points(self.rows, size)) for size in self.batches},
            "test_split": split,
            "test_split_missing": missing,
            "variants": [asdict(row) for row in self.rows],
        }

    def as_text(self) -> str:
        """The table for a terminal, findings and notes below it."""
        groups = columns(self.batches)
        shown = [column for group in groups.values() for column in group]
        above = [title if place == 0 else "" for title, group in groups.items() for place in range(len(group))]
        lines = [("", *above, ""), ("variant", *(column.title for column in shown), "verdict")]
        lines += [(row.name, *(column.cell(row) for column in shown), row.verdict) for row in self.rows]
        widths = [max(map(len, cells)) for cells in zip(*lines, strict=True)]
        table = ["  ".join(_aligned(line, widths)).rstrip() for line in lines]
        return "\n".join([*table, "", *self.findings(), *self.notes()])


def _aligned(line: tuple[str, ...], widths: list[int]) -> Iterator[str]:
    """Words to the left, numbers to the right."""
    for place, (cell, width) in enumerate(zip(line, widths, strict=True)):
        yield cell.ljust(width) if place in (0, len(line) - 1) else cell.rjust(width)
