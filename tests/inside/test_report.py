"""The table at the end of a run, and the same numbers in report.json and the loggers."""

import csv
import json
from pathlib import Path

import pytest
from lightning import Callback, Trainer
from lightning.pytorch.loggers import CSVLogger
from smoke.report import Change, report


class Shrinking(Callback):
    changes = (Change("size", 8.0, 2.0, "MB"), Change("rounds", None, 3.0))


def test_changes_are_printed_written_and_logged(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    loggers = [CSVLogger(tmp_path, name) for name in ("metrics.csv", "other")]
    report(Trainer(callbacks=[Shrinking()], logger=loggers, accelerator="cpu"), tmp_path)
    header, size, rounds = capsys.readouterr().out.splitlines()[-3:]
    assert header.split() == ["before", "after", "after/before"]
    assert size.split() == ["shrinking", "size", "MB", "8", "2", "0.25"] and rounds.split() == [
        "shrinking",
        "rounds",
        "3",
    ]
    content = json.loads((tmp_path / "report.json").read_text("utf-8"))
    assert content["shrinking"][0] == {"what": "size", "before": 8.0, "after": 2.0, "unit": "MB"}
    loggers[1].save()
    with Path(loggers[1].log_dir, "metrics.csv").open(newline="") as file:
        assert next(csv.DictReader(file))["report/shrinking/size"] == "2.0"


def test_without_optimisations_there_is_no_report(run: Path, tmp_path: Path) -> None:
    assert not (run / "report.json").exists()
    report(Trainer(logger=False, accelerator="cpu"), tmp_path)
    assert not (tmp_path / "report.json").exists()
