"""What is known of each variant; where a number is missing, the reason is there."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from operator import attrgetter

TIMES = (("median ms", "median_ms", ".3f"), ("p95 ms", "p95_ms", ".3f"), ("images/s", "images_per_second", ",.0f"))
NUMBERS = (
    ("load ms", "load_ms", ".1f"),
    ("memory MB", "peak_megabytes", ",.0f"),
    ("added MB", "added_megabytes", ",.0f"),
    ("size MB", "megabytes", ",.3f"),
    ("accuracy", "accuracy", ".4f"),
    ("agreement", "agreement", ".4f"),
)


@dataclass(frozen=True)
class Timing:
    """Of a batch: its latency in milliseconds, from so many calls, and what that makes in a second."""

    median_ms: float
    p95_ms: float
    min_ms: float
    images_per_second: float
    calls: int


@dataclass
class Row:
    """One variant. `missing` has a reason for each number that is None, by the number's name ("batch 64")."""

    name: str
    folder: str
    batches: dict[int, Timing | None]
    megabytes: float
    format: str
    precision: str
    remark: str = ""
    versions: dict[str, str] = field(default_factory=dict)
    load_ms: float | None = None
    peak_megabytes: float | None = None
    added_megabytes: float | None = None
    accuracy: float | None = None
    agreement: float | None = None
    verdict: str = ""
    missing: dict[str, str] = field(default_factory=dict)

    def miss(self, reason: str, *names: str) -> None:
        """Say why numbers are missing."""
        self.missing |= dict.fromkeys(names, reason)

    def unmeasured(self) -> list[str]:
        """Names of the numbers that are None."""
        numbers = {f"batch {size}": timing for size, timing in self.batches.items()}
        numbers |= {name: getattr(self, name) for _, name, _ in NUMBERS}
        return [name for name, value in numbers.items() if value is None]


@dataclass(frozen=True)
class Column:
    """A column of the table: its title, and how which number is shown."""

    title: str
    digits: str
    number: Callable[[Row], float | None]

    def cell(self, row: Row) -> str:
        value = self.number(row)
        return "-" if value is None else format(value, self.digits)


def columns(batches: Sequence[int]) -> dict[str, list[Column]]:
    """Of the table in the terminal and on the page, in groups."""
    timed = {
        f"batch {size}": [Column(title, digits, _timing(size, name)) for title, name, digits in TIMES]
        for size in batches
    }
    return timed | {"": [Column(title, digits, attrgetter(name)) for title, name, digits in NUMBERS]}


def _timing(size: int, name: str) -> Callable[[Row], float | None]:
    return lambda row: None if (timing := row.batches[size]) is None else getattr(timing, name)
