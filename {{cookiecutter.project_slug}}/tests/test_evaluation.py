"""validate and test: the same numbers from the checkpoint alone, wherever it lies."""

import json
import shutil
from pathlib import Path

import pytest

from {{cookiecutter.package_name}}.cli import main


def scores(folder: Path) -> dict[str, float]:
    values: dict[str, float] = json.loads((folder / "metrics.json").read_text(encoding="utf-8"))
    return {name: value for name, value in values.items() if "/" in name}


@pytest.mark.parametrize(("verb", "split"), [("validate", "val"), ("test", "test")])
def test_checkpoint_alone_gives_the_same_numbers(verb: str, split: str, run: Path, project: Path) -> None:
    shutil.copy(run / "checkpoints" / "best.ckpt", project / "copied.ckpt")
    assert main([verb, "--ckpt_path", str(run / "checkpoints" / "best.ckpt")]) == 0
    assert main([verb, "--ckpt_path", "copied.ckpt", "--output", "out", "--batch_size", "5"]) == 0
    here, there = scores(run / split), scores(project / "out")
    assert here.keys() == there.keys() and f"{split}/accuracy" in here
    assert there == pytest.approx(here, abs=1e-6)


def test_validation_repeats_what_the_run_has_logged(run: Path) -> None:
    assert main(["validate", "--ckpt_path", str(run / "checkpoints" / "best.ckpt")]) == 0
    result = json.loads((run / "result.json").read_text(encoding="utf-8"))
    assert scores(run / "val")[result["monitor"]] == pytest.approx(result["score"], abs=1e-5)


def test_without_a_path_the_best_checkpoint_of_the_newest_finished_run_is_taken(
    run: Path, project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    finished = project / "runs" / "x" / "2030-01-01_00-00-00"
    shutil.copytree(run, finished)
    shutil.copytree(run, finished.with_name("2030-01-02_00-00-00"), ignore=shutil.ignore_patterns("result.json"))
    assert main(["test"]) == 0
    assert "2030-01-01_00-00-00/checkpoints/best.ckpt" in capsys.readouterr().out.replace("\\", "/")


def test_data_that_moved_away_is_named_with_the_option(
    checkpoint: Path, project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code = main(["test", "--ckpt_path", str(checkpoint), "--root", "nowhere"])
    assert code == 2 and "root" in capsys.readouterr().err
