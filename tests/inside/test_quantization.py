"""Quantization-aware training begins, freezes, keeps the names, and proves what int8 gives."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from smoke.callbacks import quantization
from smoke.classifier import ImageClassifier
from smoke.cli import main
from smoke.runs import newest_run

SHORT = ["--trainer.max_epochs", "3", "--trainer.limit_train_batches", "6", "--trainer.logger", "false"]
EPOCHS = ["--quantization.begin_epoch", "1", "--quantization.freeze_epoch", "2"]
QUANTIZED = ["-c", "configs/quantization.yaml", *EPOCHS]


NUMBERS = {
    "float_accuracy": 0.9,
    "int8_accuracy": 0.9,
    "agreement": 1.0,
    "float_megabytes": 2.0,
    "int8_megabytes": 1.0,
    "float_milliseconds": 2.0,
    "int8_milliseconds": 1.0,
}


def read(run: Path, name: str = "last.ckpt") -> dict[str, Any]:
    content: dict[str, Any] = torch.load(run / "checkpoints" / name, weights_only=True)
    return content


@pytest.fixture(scope="module")
def seen() -> list[dict[str, torch.Tensor]]:
    """Batch-norm statistics and ranges at the end of each epoch."""
    return []


@pytest.fixture(scope="module")
def quantized(run: Path, data: list[str], seen: list[dict[str, torch.Tensor]]) -> Path:
    def watch(self: ImageClassifier) -> None:
        state = {name: value for name, value in self.state_dict().items() if "running_" in name}
        ranges = {name: value for name, value in self.named_buffers() if name.endswith((".low", ".high"))}
        seen.append({name: value.clone() for name, value in (state | ranges).items()})

    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(run.parents[2])
        patch.setattr(ImageClassifier, "on_train_epoch_end", watch)
        assert main(["fit", "--name", "quantized", *data, *SHORT, *QUANTIZED]) == 0
        return newest_run(finished=True).resolve()


def test_the_run_tells_what_int8_gives_before_and_after(quantized: Path) -> None:
    content = json.loads((quantized / "quantization.json").read_text("utf-8"))
    for numbers in (content["before"], content["after"]):
        assert numbers["float_accuracy"] - numbers["int8_accuracy"] <= content["max_accuracy_drop"]
        assert 0 < numbers["int8_megabytes"] < numbers["float_megabytes"]
    (changes,) = json.loads((quantized / "report.json").read_text("utf-8")).values()
    assert {"accuracy in int8", "agreement of int8 with float"} <= {change["what"] for change in changes}


def test_names_are_those_of_a_plain_run_and_only_models_trained_with_rounding_count(run: Path, quantized: Path) -> None:
    assert read(quantized)["state_dict"].keys() == read(run)["state_dict"].keys()
    assert read(quantized, "best.ckpt")["epoch"] >= 1


def test_statistics_and_ranges_move_until_they_are_frozen(quantized: Path, seen: list[dict[str, torch.Tensor]]) -> None:
    first, second, third = seen
    assert not any(torch.equal(first[name], second[name]) for name in first)
    assert all(torch.equal(second[name], third[name]) for name in first)


@pytest.mark.parametrize("step", [8, 14])
def test_a_stopped_and_resumed_run_equals_an_uninterrupted_one(
    step: int,
    quantized: Path,
    project: Path,
    data: list[str],
    monkeypatch: pytest.MonkeyPatch,
    fit_until: Callable[..., Path],
) -> None:
    monkeypatch.setattr(quantization, "_compare_with_float", lambda *args: NUMBERS)  # not what is looked at here
    options = [*data, *SHORT, *QUANTIZED, "--last_checkpoint.every_n_train_steps", "2"]
    stopped = fit_until(ImageClassifier, "on_before_backward", lambda self, *args: self.global_step >= step, *options)
    assert main(["fit", "--resume"]) == 0
    expected, found = read(quantized)["state_dict"], read(stopped)["state_dict"]
    assert all(torch.equal(value, found[name]) for name, value in expected.items())


def test_int8_that_loses_too_much_ends_the_run(
    project: Path, data: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(quantization, "_compare_with_float", lambda *args: NUMBERS | {"int8_accuracy": 0.1})
    assert main(["fit", *data, *SHORT, *QUANTIZED]) == 1
    error = capsys.readouterr().err
    assert "int8 accuracy 0.1000" in error and "best.ckpt" in error


def test_a_plan_that_can_not_come_true_is_refused(
    project: Path, data: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["fit", *data, *SHORT, "-c", "configs/quantization.yaml"]) == 2
    assert "quantization.freeze_epoch 13 is never reached" in capsys.readouterr().err
    assert main(["fit", *data, *SHORT, *QUANTIZED, "--trainer.max_steps", "11"]) == 2
    assert "quantization.freeze_epoch 2 is never reached: that takes 12 steps" in capsys.readouterr().err
    with pytest.raises(ValueError, match="begin_epoch must be below"):
        quantization.Quantization(begin_epoch=2, freeze_epoch=2)
