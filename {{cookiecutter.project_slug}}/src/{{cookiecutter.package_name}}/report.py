"""What a run's optimisations changed: one table at its end, report.json, and a line in the loggers."""

from dataclasses import asdict, dataclass
from pathlib import Path

from lightning import Trainer
from lightning.pytorch.utilities import rank_zero_only

from .runs import write_json


@dataclass(frozen=True)
class Change:
    """One measured number, before and after; None where there is none to compare with."""

    what: str
    before: float | None
    after: float | None
    unit: str = ""

    def cells(self) -> tuple[str, str, str, str]:
        ratio = f"{self.after / self.before:.3g}" if self.before and self.after is not None else ""
        return f"{self.what} {self.unit}".strip(), _show(self.before), _show(self.after), ratio


def _show(value: float | None) -> str:
    return "" if value is None else f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def failures(trainer: Trainer) -> str:
    """What the run's optimisations could not keep; empty if nothing."""
    found = [getattr(callback, "failure", None) for callback in trainer.callbacks]  # type: ignore[attr-defined]
    return " ".join(filter(None, found))


@rank_zero_only
def report(trainer: Trainer, run: Path) -> None:
    """Collect the `changes` that callbacks have measured."""
    found: dict[str, list[Change]] = {
        type(callback).__name__.lower(): callback.changes
        for callback in trainer.callbacks  # type: ignore[attr-defined]
        if getattr(callback, "changes", None)
    }
    if not found:
        return
    rows = [(name, *change.cells()) for name, changes in found.items() for change in changes]
    print(_table([("", "", "before", "after", "after/before"), *rows]))
    content = {name: [asdict(change) for change in changes] for name, changes in found.items()}
    write_json(run / "report.json", content)
    after = {f"report/{name}/{change.what}": change.after for name, changes in found.items() for change in changes}
    for logger in trainer.loggers[1:]:  # the first is metrics.csv, which has a line for each step
        logger.log_metrics({name: value for name, value in after.items() if value is not None}, trainer.global_step)


def _table(rows: list[tuple[str, ...]]) -> str:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  ".join(cell.ljust(width) if number < 2 else cell.rjust(width) for number, (cell, width) in enumerate(pairs))
        for pairs in (list(zip(row, widths, strict=True)) for row in rows)
    )
