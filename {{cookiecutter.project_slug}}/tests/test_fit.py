"""fit: the run folder, the log, resume, and runs that go wrong."""

import csv
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

from {{cookiecutter.package_name}}.callbacks import CALLBACKS
from {{cookiecutter.package_name}}.checkpoints import load_classifier
from {{cookiecutter.package_name}}.classifier import ImageClassifier
from {{cookiecutter.package_name}}.cli import main
from {{cookiecutter.package_name}}.fit_config import FitCLI
from {{cookiecutter.package_name}}.runs import is_finished, newest_run

SHORT = ["--trainer.max_epochs", "2", "--trainer.limit_train_batches", "6", "--trainer.limit_val_batches", "2"]


def read_log(run: Path) -> list[dict[str, str]]:
    with (run / "metrics.csv").open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def read_last(run: Path) -> dict[str, Any]:
    checkpoint: dict[str, Any] = torch.load(run / "checkpoints" / "last.ckpt", weights_only=True)
    return checkpoint


def test_run_folder_holds_everything_that_happened(run: Path) -> None:
    assert is_finished(run)
    assert {"config.yaml", "checkpoints", "metrics.csv", "result.json", "spec.json"} <= {p.name for p in run.iterdir()}
    assert yaml.safe_load((run / "config.yaml").read_text(encoding="utf-8"))["data"]["source"]
    columns = {key for row in read_log(run) for key, value in row.items() if value}
    assert {"step", "epoch", "train/loss", "val/loss", "val/accuracy", "val/f1", "val/auroc"} <= columns


def test_checkpoint_alone_rebuilds_the_classifier(checkpoint: Path) -> None:
    ours, plain = (
        load_classifier(checkpoint),
        ImageClassifier.load_from_checkpoint(checkpoint, map_location="cpu").eval(),
    )
    images = torch.randint(256, (3, ours.spec.decoding.channels, *ours.spec.decoding.image_size), dtype=torch.uint8)
    assert torch.equal(ours(images), plain(images))
    assert ours.spec == plain.spec and len(ours.spec.classes) > 1


def test_a_stopped_and_resumed_run_equals_an_uninterrupted_one(
    project: Path, data: list[str], fit_until: Callable[..., Path]
) -> None:
    options = [*data, *SHORT, "--trainer.log_every_n_steps", "1", "--last_checkpoint.every_n_train_steps", "4"]
    assert main(["fit", *options]) == 0
    whole = newest_run(finished=True)
    stopped = fit_until(ImageClassifier, "on_train_batch_start", lambda self, *args: self.global_step >= 10, *options)
    assert main(["fit", "--resume"]) == 0
    expected, found = read_last(whole), read_last(stopped)
    assert found["global_step"] == expected["global_step"] == 12
    assert all(torch.equal(value, found["state_dict"][key]) for key, value in expected["state_dict"].items())
    assert read_log(stopped) == read_log(whole)


def test_a_finished_run_is_not_resumed(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["fit", "--resume", str(run)]) == 2
    assert "after 2 epochs, nothing to resume" in capsys.readouterr().err


def test_init_from_starts_with_the_weights(checkpoint: Path, project: Path, data: list[str]) -> None:
    stand_still = ["--model.learning_rate", "0", "--model.weight_decay", "0"]
    assert main(["fit", *data, *SHORT, *stand_still, "--init_from", str(checkpoint)]) == 0
    started = read_last(newest_run(finished=True))["state_dict"]
    trained = dict(load_classifier(checkpoint).network.named_parameters(prefix="network"))
    assert all(torch.equal(started[key], value) for key, value in trained.items())


def test_init_from_refuses_weights_that_do_not_fit(
    checkpoint: Path, project: Path, data: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    content = torch.load(checkpoint, weights_only=True)
    content["state_dict"].popitem()
    torch.save(content, project / "other.ckpt")
    assert main(["fit", *data, *SHORT, "--init_from", "other.ckpt"]) == 2
    assert "other.ckpt does not fit" in capsys.readouterr().err


def test_init_from_refuses_a_network_of_another_width(
    checkpoint: Path, project: Path, data: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    wider = ["--model.network", "SimpleCNN", "--model.network_args", "{width: 24}"]
    assert main(["fit", *data, *SHORT, *wider, "--init_from", str(checkpoint)]) == 2
    assert "does not fit" in capsys.readouterr().err


def test_init_from_refuses_other_classes(
    checkpoint: Path, project: Path, data: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    content = torch.load(checkpoint, weights_only=True)
    content["hyper_parameters"]["spec"]["classes"][0] = "zebra"
    torch.save(content, project / "other.ckpt")
    assert main(["fit", *data, *SHORT, "--init_from", "other.ckpt"]) == 2
    assert "knows the classes zebra" in capsys.readouterr().err


def test_default_callbacks_survive_an_overlay_that_lists_its_own(project: Path, data: list[str]) -> None:
    (project / "timer.yaml").write_text("trainer: {callbacks: [{class_path: Timer}]}\n", encoding="utf-8")
    found = {type(callback).__name__ for callback in FitCLI([*data, "-c", "timer.yaml"]).trainer.callbacks}
    assert {"Timer", "BestCheckpoint", "LastCheckpoint", "EarlyStopping", "LearningRateMonitor"} <= found
    default = yaml.safe_load((project / "configs" / "default.yaml").read_text(encoding="utf-8"))
    assert {kind.__name__ for key, kind in CALLBACKS.items() if key in default} <= found


def test_a_run_goes_on_with_the_options_it_had_and_no_others(
    project: Path, data: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["fit", *data, *SHORT]) == 0
    run = newest_run(finished=True)
    (run / "result.json").unlink()
    other = ["--model.learning_rate", "0.5", "--data.batch_size", "9"]
    assert main(["fit", "--resume", str(run), *data, *other]) == 2
    error = capsys.readouterr().err
    assert "model.init_args.learning_rate: 0.003 before, 0.5 now" in error and "--init_from" in error
    assert "data.batch_size: 8 before, 9 now" in error and error.count(" before, ") == 2

    text = (run / "config.yaml").read_text(encoding="utf-8")
    (run / "config.yaml").write_text(text.replace("batch_size: 8", "batch_size: 9"), encoding="utf-8")
    assert main(["fit", "--resume"]) == 2
    assert "data.batch_size: 8 before, 9 now" in capsys.readouterr().err

    (run / "config.yaml").write_text(text, encoding="utf-8")
    assert main(["fit", *data, *SHORT, "--resume"]) == 0


def test_a_network_that_can_not_be_built_is_refused_before_images_are_read(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["fit", "--model.network", "Nope", "--data.source", "folder", "--data.root", "nowhere"]) == 2
    assert "network 'Nope' is unknown" in capsys.readouterr().err
    assert not Path("runs").exists()


def test_early_stopping_without_validation_is_refused_before_training(
    project: Path, data: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["fit", *data, "--trainer.limit_val_batches", "0"]) == 2
    assert "early_stopping.strict false" in capsys.readouterr().err


def test_a_run_without_a_step_is_an_error(project: Path, data: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["fit", *data, "--trainer.max_epochs", "0"]) == 2
    assert "no checkpoint was written" in capsys.readouterr().err


def test_a_run_whose_data_has_changed_is_not_resumed(
    project: Path, data: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["fit", *data, *SHORT]) == 0
    run = newest_run(finished=True)
    (run / "result.json").unlink()
    content = read_last(run)
    content["hyper_parameters"]["spec"]["class_counts"][0] += 1
    torch.save(content, run / "checkpoints" / "last.ckpt")
    assert main(["fit", "--resume"]) == 2
    assert "the data is no longer" in capsys.readouterr().err


def test_debug_runs_leave_no_run_folder(project: Path, data: list[str]) -> None:
    files = [file for key in CALLBACKS if (file := Path("configs", f"{key}.yaml")).is_file()]
    overlays = [part for file in files for part in ("-c", str(file))]
    backend = ["--compile.backend", "eager"] if "compile" in CALLBACKS else []  # which needs no compiler for C++
    assert main(["fit", *overlays, "-c", "configs/debug.yaml", *data, *backend]) == 0
    assert not (project / "runs").exists()
