"""The last epochs are trained with the rounding of int8, and onnxruntime tells what int8 gives."""

import json
from pathlib import Path

import pytest
import torch

from {{cookiecutter.package_name}}.cli import main
from {{cookiecutter.package_name}}.runs import newest_run

SHORT = ["--trainer.max_epochs", "3", "--trainer.limit_train_batches", "4", "-c", "configs/quantization.yaml"]
EPOCHS = ["--quantization.begin_epoch", "1", "--quantization.freeze_epoch", "2"]


def test_the_run_tells_what_int8_gives_before_and_after(project: Path, data: list[str], run: Path) -> None:
    assert main(["fit", *data, *SHORT, *EPOCHS, "--quantization.max_accuracy_drop", "1"]) == 0
    quantized = newest_run(finished=True)
    content = json.loads((quantized / "quantization.json").read_text(encoding="utf-8"))
    for numbers in (content["before"], content["after"]):
        assert 0 <= numbers["agreement"] <= 1 and 0 < numbers["int8_megabytes"] < numbers["float_megabytes"]
    plain, found = (torch.load(each / "checkpoints" / "last.ckpt", weights_only=True) for each in (run, quantized))
    assert found["state_dict"].keys() == plain["state_dict"].keys()


def test_a_plan_that_can_not_come_true_is_refused(
    project: Path, data: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["fit", *data, *SHORT]) == 2
    assert "quantization.freeze_epoch 13 is never reached" in capsys.readouterr().err


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_on_a_gpu(project: Path, data: list[str]) -> None:
    on_gpu = ["--trainer.accelerator", "cuda", "--trainer.devices", "1", "--trainer.precision", "bf16-mixed"]
    assert main(["fit", *data, *SHORT, *EPOCHS, *on_gpu, "--quantization.max_accuracy_drop", "1"]) == 0
