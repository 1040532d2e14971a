"""The steps of a run are timed part by part, and traced."""

import json
from pathlib import Path

import pytest
import torch

from {{cookiecutter.package_name}}.cli import main
from {{cookiecutter.package_name}}.runs import newest_run

SHORT = ["--trainer.max_epochs", "2", "-c", "configs/profiling.yaml"]
FEW = ["--profiling.skip", "2", "--profiling.record", "3", "--profiling.warm_up", "1"]


def test_a_run_tells_where_the_time_of_its_steps_goes(project: Path, data: list[str]) -> None:
    assert main(["fit", *data, *SHORT, *FEW]) == 0
    folder = newest_run(finished=True) / "profile"
    found = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
    assert (found["timed_steps"], found["traced_steps"], found["incomplete"]) == (3, 3, None)
    assert sum(found["shares"].values()) == pytest.approx(1)
    assert all(found["shares"][part] > 0 for part in ("waiting for data", "forward", "backward", "optimizer"))
    assert {path.name for path in folder.iterdir()} == {"operators.txt", "step.png", "summary.json", "trace.json"}


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_on_a_gpu(project: Path, data: list[str]) -> None:
    options = ["--trainer.accelerator", "cuda", "--trainer.devices", "1", "--profiling.memory_snapshot", "true"]
    assert main(["fit", *data, *SHORT, *FEW, *options]) == 0
    folder = newest_run(finished=True) / "profile"
    assert (folder / "memory.pickle").stat().st_size > 0
    assert "Self CUDA" in (folder / "operators.txt").read_text(encoding="utf-8")
