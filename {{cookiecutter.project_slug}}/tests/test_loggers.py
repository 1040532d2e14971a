"""metrics.csv keeps what was logged; wandb never blocks."""

import csv
from pathlib import Path

import pytest
from jsonargparse import Namespace

from {{cookiecutter.package_name}}.loggers import MetricsCsv, run_arguments


def rows_of(run: Path) -> list[dict[str, str]]:
    with (run / "metrics.csv").open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def test_rows_are_on_disk_at_once_and_new_columns_keep_old_rows(tmp_path: Path) -> None:
    log = MetricsCsv(tmp_path)
    log.log_metrics({"train/loss": 1.0}, step=0)
    assert rows_of(tmp_path) == [{"step": "0", "train/loss": "1.0"}]
    log.log_metrics({"val/loss": 2.0}, step=1)
    assert rows_of(tmp_path) == [
        {"step": "0", "train/loss": "1.0", "val/loss": ""},
        {"step": "1", "train/loss": "", "val/loss": "2.0"},
    ]


def test_a_resumed_log_drops_what_is_due_again_and_half_a_line(tmp_path: Path) -> None:
    log = MetricsCsv(tmp_path)
    for step in range(4):
        log.log_metrics({"loss": float(step)}, step=step)
    with (tmp_path / "metrics.csv").open("a", encoding="utf-8") as file:
        file.write("1")
    resumed = MetricsCsv(tmp_path, first_step=2)
    resumed.log_metrics({"loss": 9.0}, step=2)
    resumed.log_metrics({"other": 5.0}, step=3)
    assert [(row["step"], row["loss"]) for row in rows_of(tmp_path)] == [
        ("0", "0.0"),
        ("1", "1.0"),
        ("2", "9.0"),
        ("3", ""),
    ]


@pytest.mark.parametrize("key", [None, "x" * 40])
def test_wandb_is_offline_without_key_or_network(
    key: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("requests")
    for name in ("WANDB_API_KEY", "WANDB_MODE"):
        monkeypatch.delenv(name, raising=False)
    if key:
        monkeypatch.setenv("WANDB_API_KEY", key)
    monkeypatch.setenv("NETRC", str(tmp_path / "none"))
    monkeypatch.setenv("WANDB_BASE_URL", "http://127.0.0.1:9")  # nothing listens there
    run = tmp_path / "digits" / "2030-01-01_00-00-00"
    found = run_arguments(Namespace(class_path="lightning.pytorch.loggers.WandbLogger", init_args=Namespace()), run)
    assert found["offline"] is True
    assert found["version"] == "digits_2030-01-01_00-00-00" and found["save_dir"] == str(run)
