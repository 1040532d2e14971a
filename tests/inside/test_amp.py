"""Precision by the hardware; steps that are not finite are named, skipped or stopped; a resume changes nothing."""

import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from smoke.callbacks.amp import Amp
from smoke.classifier import ImageClassifier
from smoke.cli import main
from smoke.fit_config import FitCLI
from smoke.precision import keep_float32, native_precision
from smoke.runs import newest_run, read_result
from torch import Tensor, nn

SHORT = ["-c", "configs/amp.yaml", "--trainer.max_epochs", "2", "--trainer.limit_train_batches", "6"]
SHORT += ["--trainer.limit_val_batches", "2", "--trainer.log_every_n_steps", "1", "--trainer.accelerator", "cpu"]
BFLOAT16 = [*SHORT, "--amp.precision", "bf16-mixed"]
SCALER = """
trainer:
  plugins: [{class_path: lightning.pytorch.plugins.MixedPrecision, init_args: {precision: 16-mixed, device: cpu}}]
amp: {precision: null}
data: {decoding: {image_size: [8, 8]}}
"""  # small images, as CPUs are slow in float16


@pytest.fixture
def scaled(project: Path) -> list[str]:
    """Options of a run in float16 with a loss scale."""
    (project / "scaler.yaml").write_text(SCALER, encoding="utf-8")
    return [*SHORT, "-c", "scaler.yaml"]


@pytest.fixture
def times_at(monkeypatch: pytest.MonkeyPatch) -> Callable[[float, Callable[[int], bool]], None]:
    """Multiply the loss of some batches, by their number."""
    step = ImageClassifier.training_step

    def plant(factor: float, chosen: Callable[[int], bool]) -> None:
        monkeypatch.setattr(
            ImageClassifier, "training_step", lambda self, batch, i: step(self, batch, i) * (factor if chosen(i) else 1)
        )

    return plant


def read_details(run: Path) -> dict[str, Any]:
    details: dict[str, Any] = json.loads((run / "amp.json").read_text(encoding="utf-8"))
    return details


@pytest.mark.parametrize(
    ("capability", "precision"),
    [((6, 1), "32-true"), ((7, 0), "16-mixed"), ((7, 5), "16-mixed"), ((8, 0), "bf16-mixed"), ((9, 0), "bf16-mixed")],
)
def test_emulated_bfloat16_is_never_chosen(
    capability: tuple[int, int], precision: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.version, "hip", None)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    major, minor = capability
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: SimpleNamespace(major=major, minor=minor))
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: capability)
    monkeypatch.setattr(torch.cuda, "_check_bf16_tensor_supported", lambda device: True)
    assert torch.cuda.is_bf16_supported()
    found, reason = native_precision(torch.device("cuda", 0))
    assert found == precision and f"{major}.{minor}" in reason


@pytest.mark.parametrize(
    ("flags", "precision"),
    [({}, "32-true"), ({"avx512_f": True, "amx_bf16": False}, "32-true"), ({"avx512_bf16": True}, "bf16-mixed")],
)
def test_a_cpu_gets_bfloat16_only_if_it_computes_it(
    flags: dict[str, bool], precision: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: flags)
    assert native_precision(torch.device("cpu"))[0] == precision


def test_the_precision_in_effect_is_stored_with_what_it_changed(project: Path, data: list[str]) -> None:
    assert main(["fit", *data, *BFLOAT16, "--amp.keep_fp32", "[head]", "--trainer.gradient_clip_val", "1"]) == 0
    run = newest_run(finished=True)
    details = read_details(run)
    assert details["precision"] == read_result(run)["precision"] == "bf16-mixed"
    assert details["keep_fp32"] == ["head"] and details["num_skipped"] == 0
    changes = {change["what"]: change for change in details["changes"]}
    assert changes["forward and backward"]["before"] > 0 and changes["forward and backward"]["after"] > 0
    assert 0 <= changes["val accuracy"]["after"] <= 1
    assert json.loads((run / "report.json").read_text(encoding="utf-8"))["amp"] == details["changes"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--amp.precision", "16-mixed"], "amp.precision 16-mixed needs a GPU"),
        (["--amp.precision", "bf16-mixed", "--trainer.precision", "64"], "contradicts trainer.precision 64-true"),
        (["--amp.keep_fp32", "[feet.*]"], "'feet.*' fits no module; there are features, features.0"),
        (["--amp.min_scale", "0"], "amp.min_scale must be above 0"),
    ],
)
def test_what_can_not_be_is_refused(
    options: list[str], message: str, project: Path, data: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["fit", *data, *SHORT, *options]) == 2
    assert message in capsys.readouterr().err


def test_modules_kept_in_float32_compute_in_it_and_leave_the_rest_as_it_was() -> None:
    network = nn.Sequential(nn.Linear(4, 4), nn.Sequential(nn.Linear(4, 4), nn.ReLU()), nn.Linear(4, 2))
    keys, types = list(network.state_dict()), {}
    for name, module in network.named_modules():
        module.register_forward_hook(lambda module, args, output, name=name: types.update({name: output.dtype}))
    assert list(keep_float32(network, ["1.*"], torch.device("cpu"))) == ["1.0", "1.1"]
    compiled = torch.compile(network, backend="eager", fullgraph=True)
    for run in (network, compiled):
        types.clear()
        with torch.autocast("cpu", torch.bfloat16):
            run(torch.randn(3, 4))
        assert types["0"] == types["2"] == torch.bfloat16
        assert types["1.0"] == types["1.1"] == torch.float32
    assert list(network.state_dict()) == keys


def test_a_run_gives_modules_their_own_forward_back(project: Path, data: list[str]) -> None:
    cli = FitCLI([*data, *BFLOAT16, "--amp.keep_fp32", "[head, features.*]"])
    cli.trainer.fit(cli.model, cli.datamodule)
    assert not any("forward" in vars(module) for module in cli.model.modules())


def test_only_the_batches_of_one_step_are_held(project: Path, data: list[str]) -> None:
    cli = FitCLI([*data, *BFLOAT16, "--trainer.accumulate_grad_batches", "3", "--trainer.max_epochs", "1"])
    (callback,) = (callback for callback in cli.trainer.callbacks if isinstance(callback, Amp))
    cli.trainer.fit(cli.model, cli.datamodule)
    assert [batch.number for batch in callback._batches] == [3, 4, 5]


def test_a_run_that_is_watched_equals_one_that_is_not(project: Path, data: list[str]) -> None:
    plain = [*SHORT[2:], "--trainer.precision", "bf16-mixed"]
    checkpoints = []
    for options in (plain, BFLOAT16):
        assert main(["fit", *data, *options]) == 0
        checkpoints.append(torch.load(newest_run(finished=True) / "checkpoints" / "last.ckpt", weights_only=True))
    expected, found = (checkpoint["state_dict"] for checkpoint in checkpoints)
    assert list(expected) == list(found) and all(torch.equal(value, found[key]) for key, value in expected.items())


def test_an_overflow_is_skipped_and_named_and_training_goes_on(
    scaled: list[str], data: list[str], times_at: Callable[..., None]
) -> None:
    times_at(1e30, lambda number: number == 3)
    assert main(["fit", *data, *scaled]) == 0
    details = read_details(newest_run(finished=True))
    assert details["precision"] == "16-mixed" and details["loss_scale"] == 65536 / 4
    assert [found["step"] for found in details["first_skipped"]] == [4, 10]
    assert {found["phase"] for found in details["first_skipped"]} == {"backward"}
    assert details["changes"][-1]["after"] == details["num_skipped"] == 2


def test_only_the_first_skipped_steps_are_looked_into(
    scaled: list[str], data: list[str], times_at: Callable[..., None]
) -> None:
    times_at(1e30, lambda number: True)
    assert main(["fit", *data, *scaled, "--trainer.max_epochs", "1"]) == 0
    details = read_details(newest_run(finished=True))
    assert details["num_skipped"] == 6 and len(details["first_skipped"]) == 5


def test_a_loss_scale_that_collapses_stops_the_run(
    scaled: list[str], data: list[str], times_at: Callable[..., None], capsys: pytest.CaptureFixture[str]
) -> None:
    times_at(1e30, lambda number: True)
    assert main(["fit", *data, *scaled, "--amp.min_scale", "20000"]) == 1
    error = capsys.readouterr().err
    assert "fell to 16384, below amp.min_scale 20000, at step 2 (epoch 0, batch 1)" in error
    assert "bf16-mixed" in error


def test_a_nan_in_a_weight_drawn_at_random_stops_the_run_before_the_others_take_it(
    project: Path, data: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    cli = FitCLI([*data, *BFLOAT16])
    parameters = dict(cli.model.network.named_parameters())
    name = sorted(parameters)[int(torch.randint(len(parameters), ()))]

    def plant(self: ImageClassifier, batch: Any, batch_idx: int) -> None:
        if batch_idx == 3:
            parameters[name].data.view(-1)[0] = torch.nan

    monkeypatch.setattr(ImageClassifier, "on_train_batch_start", plant)
    found = rf"gradient is nan at step 4 \(epoch 0, batch 3\), first in the output of {name.rpartition('.')[0]} \("
    with pytest.raises(FloatingPointError, match=found):
        cli.trainer.fit(cli.model, cli.datamodule)
    assert all(value.isfinite().all() for key, value in parameters.items() if key != name)


def test_a_bad_batch_among_accumulated_ones_is_found(
    project: Path, data: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    step = ImageClassifier.training_step

    def bad(self: ImageClassifier, batch: Any, i: int) -> Tensor:
        return step(self, batch, i) + (self.network.head.weight.square().sum() * (i != 3)).sqrt()

    monkeypatch.setattr(ImageClassifier, "training_step", bad)
    assert main(["fit", *data, *BFLOAT16, "--trainer.accumulate_grad_batches", "3"]) == 1
    error = capsys.readouterr().err
    assert "the gradient is nan at step 2 (epoch 0, batch 5), first in the gradient of the loss" in error


def test_a_poisoned_batch_norm_stops_the_run_before_validation(
    project: Path, data: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def poison(self: ImageClassifier) -> None:
        next(m for m in self.modules() if isinstance(m, nn.BatchNorm2d)).running_mean[0] = torch.inf  # type: ignore[index]

    monkeypatch.setattr(ImageClassifier, "on_train_epoch_start", poison)
    assert main(["fit", *data, *BFLOAT16]) == 1
    assert "running_mean is not finite at step 6" in capsys.readouterr().err
    assert not list(project.rglob("*.ckpt"))


def test_a_batch_norm_that_a_skipped_step_has_poisoned_stops_the_run(
    scaled: list[str], data: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    forward = nn.Conv2d.forward
    monkeypatch.setattr(nn.Conv2d, "forward", lambda self, images: forward(self, images) * 1e5)
    assert main(["fit", *data, *scaled, "--trainer.num_sanity_val_steps", "0"]) == 1
    error = capsys.readouterr().err
    assert "is not finite at step 1" in error and "running_" in error


def test_a_run_stopped_in_mid_epoch_and_resumed_equals_a_whole_one(
    project: Path, data: list[str], fit_until: Callable[..., Path]
) -> None:
    options = [*data, *BFLOAT16, "--last_checkpoint.every_n_train_steps", "4", "--amp.keep_fp32", "['features.1.*']"]
    assert main(["fit", *options]) == 0
    whole = newest_run(finished=True)
    stopped = fit_until(ImageClassifier, "on_train_batch_start", lambda self, *args: self.global_step >= 10, *options)
    saved = torch.load(stopped / "checkpoints" / "last.ckpt", weights_only=True)
    assert saved["global_step"] == 8
    assert main(["fit", "--resume"]) == 0

    expected, found = (torch.load(run / "checkpoints" / "last.ckpt", weights_only=True) for run in (whole, stopped))
    assert all(torch.equal(value, found["state_dict"][key]) for key, value in expected["state_dict"].items())
    assert (stopped / "metrics.csv").read_text("utf-8") == (whole / "metrics.csv").read_text("utf-8")
    times = saved["callbacks"]["Amp"]["milliseconds"]
    assert [read_details(stopped)["changes"][0][when] for when in ("before", "after")] == times
