"""In bfloat16 the network trains, and a NaN in it is traced to its module."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from {{cookiecutter.package_name}}.classifier import ImageClassifier
from {{cookiecutter.package_name}}.cli import main
from {{cookiecutter.package_name}}.precision import native_precision
from {{cookiecutter.package_name}}.runs import newest_run, read_result

SHORT = ["--trainer.max_epochs", "1", "--trainer.limit_train_batches", "4", "--trainer.accelerator", "cpu"]
BFLOAT16 = [*SHORT, "-c", "configs/amp.yaml", "--amp.precision", "bf16-mixed"]


def test_the_precision_in_effect_is_stored_with_what_it_changed(project: Path, data: list[str]) -> None:
    assert main(["fit", *data, *BFLOAT16]) == 0
    run = newest_run(finished=True)
    details = json.loads((run / "amp.json").read_text(encoding="utf-8"))
    assert details["precision"] == read_result(run)["precision"] == "bf16-mixed"
    assert {change["what"] for change in details["changes"]} == {"forward and backward", "val accuracy"}


def test_a_nan_in_the_network_stops_the_run_and_is_traced_to_its_module(
    project: Path, data: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def plant(self: ImageClassifier, batch: Any, batch_idx: int) -> None:
        if batch_idx == 2:
            next(self.network.parameters()).data[0] = torch.nan

    monkeypatch.setattr(ImageClassifier, "on_train_batch_start", plant)
    assert main(["fit", *data, *BFLOAT16]) == 1
    assert "step 3 (epoch 0, batch 2), first in the output of" in capsys.readouterr().err


def test_float16_on_a_cpu_is_refused(project: Path, data: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["fit", *data, *SHORT, "-c", "configs/amp.yaml", "--amp.precision", "16-mixed"]) == 2
    assert "needs a GPU" in capsys.readouterr().err


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("precision", ["auto", "16-mixed"])
def test_on_a_gpu(precision: str, project: Path, data: list[str]) -> None:
    options = ["-c", "configs/amp.yaml", "--trainer.accelerator", "cuda", "--trainer.devices", "1"]
    assert main(["fit", *data, *SHORT[:4], *options, "--amp.precision", precision]) == 0
    found = read_result(newest_run(finished=True))["precision"]
    assert found == (native_precision(torch.device("cuda", 0))[0] if precision == "auto" else precision)
