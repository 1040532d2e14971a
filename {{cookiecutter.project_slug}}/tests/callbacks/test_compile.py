"""A compiled run computes what a plain one does, as one graph for training and one for validation."""

import json
from pathlib import Path

import pytest
import torch

from {{cookiecutter.package_name}}.cli import main
from {{cookiecutter.package_name}}.runs import newest_run

SHORT = ["--trainer.max_epochs", "1", "--trainer.limit_train_batches", "4", "-c", "configs/compile.yaml"]


def test_the_network_is_compiled_as_a_whole_and_computes_the_same(project: Path, data: list[str]) -> None:
    assert main(["fit", *data, *SHORT, "--compile.backend", "eager"]) == 0  # needs no compiler for C++
    run = newest_run(finished=True)
    found = json.loads((run / "compile.json").read_text(encoding="utf-8"))
    assert (found["graphs"], found["graph_breaks"], found["recompiles"]) == (2, {}, {})
    assert found["largest_difference"]["relative"] <= found["largest_difference"]["tolerance"]
    keys = torch.load(run / "checkpoints" / "last.ckpt", weights_only=True)["state_dict"]
    assert not any("_orig_mod" in key for key in keys)


def test_an_unknown_backend_is_refused(project: Path, data: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["fit", *data, *SHORT, "--compile.backend", "inducktor"]) == 2
    assert "compile.backend must be one of" in capsys.readouterr().err


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("mode", ["default", "reduce-overhead"])
def test_on_a_gpu(mode: str, project: Path, data: list[str]) -> None:
    options = ["--compile.mode", mode, "--trainer.accelerator", "cuda", "--trainer.devices", "1"]
    assert main(["fit", *data, *SHORT, *options]) == 0
    found = json.loads((newest_run(finished=True) / "compile.json").read_text(encoding="utf-8"))
    assert found["graphs"] == 2 and not found["recompiles"]
