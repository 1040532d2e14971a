"""Pruning ends at its target: in the checkpoint that is used, after a resume, wherever it is loaded."""

import json
import shutil
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from smoke import measure
from smoke.callbacks import CALLBACKS, pruning
from smoke.callbacks.pruning import Pruning
from smoke.checkpoints import load_classifier
from smoke.classifier import ImageClassifier
from smoke.cli import main
from smoke.runs import newest_run, read_result
from smoke.sparsity import prunable_weights, smallest_masked

SHORT = ["--trainer.max_epochs", "3", "--trainer.limit_train_batches", "6", "--trainer.log_every_n_steps", "1"]
SHORT += ["--pictures", "null"] if "pictures" in CALLBACKS else []
SPARSE = ["--pruning.target_sparsity", "0.8", "--pruning.max_accuracy_drop", "null"]
CHANNELS = ["--pruning.target_sparsity", "0.5", "--pruning.max_accuracy_drop", "null", "--pruning.kind", "structured"]


@pytest.fixture(autouse=True, scope="module")
def measured_once() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(measure, "milliseconds", partial(measure.milliseconds, rounds=1, warm_up=0))
        yield


def fit(*options: str) -> Path:
    assert main(["fit", *SHORT, *options]) == 0
    return newest_run(finished=True)


@pytest.fixture
def stop_at(fit_until: Callable[..., Path]) -> Callable[..., Path]:
    def stop(step: int, *options: str) -> Path:
        common = ["--name", "stopped", *SHORT, "--last_checkpoint.every_n_train_steps", "4"]
        return fit_until(
            ImageClassifier, "on_train_batch_end", lambda self, *args: self.global_step >= step, *common, *options
        )

    return stop


def read(run: Path, name: str = "last.ckpt") -> dict[str, Any]:
    checkpoint: dict[str, Any] = torch.load(run / "checkpoints" / name, weights_only=True)
    return checkpoint


def zero_share(classifier: ImageClassifier) -> float:
    weights = torch.cat([weight.flatten() for weight in prunable_weights(classifier.network).values()])
    return float((weights == 0).double().mean())


def num_channels(classifier: ImageClassifier) -> list[int]:
    return [len(weight) for weight in prunable_weights(classifier.network).values()]


def equal(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(value, other[key]) for key, value in one.items())


@pytest.mark.parametrize(("share", "kept"), [(0.75, [1, 7]), (0.25, [0, 1, 4, 5, 6, 7]), (0.0, range(8))])
def test_the_smallest_weights_of_all_layers_go_and_exactly_as_many_as_asked(share: float, kept: list[int]) -> None:
    weights = {"one": torch.tensor([[0.1, -5.0], [0.0, 0.0]]), "two": torch.tensor([-0.2, 0.0, 0.0, 3.0])}
    masks = smallest_masked(weights, share)
    assert torch.cat([masks["one"].flatten(), masks["two"]]).nonzero().flatten().tolist() == list(kept)
    assert masks["one"].shape == (2, 2)


def test_the_model_that_is_scored_and_kept_has_the_target(
    project: Path, data: list[str], checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scored: list[float] = []
    monkeypatch.setattr(ImageClassifier, "on_validation_epoch_start", lambda self: scored.append(zero_share(self)))
    run = fit(*data, *SPARSE, "--trainer.num_sanity_val_steps", "0", "--trainer.val_check_interval", "3")
    at_half = 0.8 * (1 - 0.5**3)
    assert scored == pytest.approx([0, 0, at_half, *3 * [0.8]], abs=1e-4)
    for name in ("best.ckpt", "last.ckpt"):
        assert zero_share(load_classifier(run / "checkpoints" / name)) == pytest.approx(0.8, abs=1e-4)
    assert read(run)["state_dict"].keys() == torch.load(checkpoint, weights_only=True)["state_dict"].keys()
    found = json.loads((run / "pruning.json").read_text(encoding="utf-8"))
    assert found["sparsity"]["after"] == pytest.approx(0.8, abs=1e-4) and found["MACs"]["after"] > 0
    assert set(found["layers"]) == set(prunable_weights(load_classifier(checkpoint).network))
    report = json.loads((run / "report.json").read_text(encoding="utf-8"))
    assert {change["what"]: change["after"] for change in report["pruning"]}["accuracy"] == found["accuracy"]["after"]


def test_better_validations_before_the_target_do_not_count(
    project: Path, data: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        ImageClassifier,
        "validation_step",
        lambda self, batch, i: (self.log("val/loss", float(self.current_epoch)), self(batch[0]))[1],
    )
    run = fit(*data, *SPARSE, "--early_stopping.patience", "1")
    assert read(run, "best.ckpt")["epoch"] == 1 and read_result(run)["score"] == 1
    assert zero_share(load_classifier(run / "checkpoints" / "best.ckpt")) == pytest.approx(0.8, abs=1e-4)


def test_a_run_stopped_in_its_schedule_goes_on_with_its_masks(
    project: Path, data: list[str], stop_at: Callable[..., Path]
) -> None:
    whole = fit(*data, *SPARSE)
    stopped = stop_at(9, *data, *SPARSE)
    assert main(["fit", "--resume"]) == 0
    assert equal(read(stopped)["state_dict"], read(whole)["state_dict"])
    assert (stopped / "metrics.csv").read_text("utf-8") == (whole / "metrics.csv").read_text("utf-8")
    assert read_result(stopped) == read_result(whole)
    before = [json.loads((run / "pruning.json").read_text("utf-8"))["accuracy"] for run in (stopped, whole)]
    assert before[0] == before[1]


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (["--pruning.end_epoch", "3"], "pruning.end_epoch 3 is never reached: trainer.max_epochs is 3"),
        (["--trainer.max_steps", "11"], "pruning.end_epoch 2 is never reached: that takes 12 steps"),
        (["--pruning.begin_epoch", "2", "--pruning.end_epoch", "2"], "pruning.begin_epoch 2 must be in [0, end_epoch)"),
        (["--trainer.max_epochs", "-1", "--trainer.max_steps", "9"], "pruning.begin_epoch and end_epoch must be given"),
        (["--pruning.kind", "structured"], "structured pruning needs a trained network: fit --init_from"),
    ],
)
def test_a_target_that_the_run_can_not_reach_is_refused_before_training(
    options: list[str], reason: str, project: Path, data: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["fit", *SHORT, *data, *SPARSE, *options]) == 2
    assert reason in capsys.readouterr().err
    assert not list(project.rglob("*.ckpt"))


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"target_sparsity": 1.0}, r"target_sparsity must be in \(0, 1\)"),
        ({"max_accuracy_drop": -0.1}, "max_accuracy_drop must be in"),
        ({"kind": "structured", "round_to": 0}, "round_to must be at least 1"),
        ({"kind": "structured", "end_epoch": 3}, "structured pruning has no end_epoch"),
        ({"round_to": 8}, "unstructured pruning has no round_to"),
    ],
)
def test_senseless_options_are_refused(options: dict[str, Any], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        Pruning(**{"target_sparsity": 0.5, **options})


def test_a_debugging_run_passes_and_writes_nothing(project: Path, data: list[str]) -> None:
    assert main(["fit", "-c", "configs/pruning.yaml", "-c", "configs/debug.yaml", *data]) == 0
    assert not (project / "runs").exists()


def test_a_model_that_lost_its_zeros_fails_the_run(
    project: Path, data: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pruning, "apply_masks", lambda weights, masks: None)
    assert main(["fit", *SHORT, *data, *SPARSE]) == 1
    assert "best.ckpt has sparsity 0.0000, pruning.target_sparsity is 0.8" in capsys.readouterr().err


@pytest.fixture(scope="session")
def small(checkpoint: Path, tmp_path_factory: pytest.TempPathFactory, data: list[str]) -> Path:
    """Checkpoint of a run that has removed half of the channels."""
    folder = tmp_path_factory.mktemp("pruned")
    shutil.copytree(Path(__file__).parents[1] / "configs", folder / "configs")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        return (fit(*data, *CHANNELS, "--init_from", str(checkpoint)) / "checkpoints" / "best.ckpt").resolve()


def test_channels_are_gone_and_measured(small: Path, checkpoint: Path) -> None:
    before, after = load_classifier(checkpoint), load_classifier(small)
    assert num_channels(after) == [width // 2 for width in num_channels(before)[:-1]] + num_channels(before)[-1:]
    found = json.loads((small.parent.parent / "pruning.json").read_text(encoding="utf-8"))
    assert found["sparsity"]["after"] == 0.5
    assert found["MACs"]["after"] < 0.4 * found["MACs"]["before"]
    assert found["parameters"]["after"] == sum(p.numel() for p in after.network.parameters())


def test_a_checkpoint_with_fewer_channels_is_used_like_any_other(
    small: Path, project: Path, data: list[str], image_folder: Path
) -> None:
    images = torch.randint(256, (2, 3, 32, 32), dtype=torch.uint8)
    plain = ImageClassifier.load_from_checkpoint(small, map_location="cpu").eval()
    assert torch.equal(plain(images), load_classifier(small)(images))
    for verb in ("validate", "test"):
        assert main([verb, "--ckpt_path", str(small)]) == 0
    assert main(["predict", str(image_folder / "images"), "--ckpt_path", str(small), "--output", "p.csv"]) == 0
    assert main(["export", "--ckpt_path", str(small), "--output", "bundle"]) == 0
    further = fit(*data, *CHANNELS, "--pruning.round_to", "4", "--init_from", str(small))
    assert num_channels(load_classifier(further / "checkpoints" / "best.ckpt"))[:-1] == [4, 8]


def test_a_stopped_run_goes_on_without_removing_channels_again(
    project: Path, data: list[str], checkpoint: Path, stop_at: Callable[..., Path]
) -> None:
    options = [*data, *CHANNELS, "--init_from", str(checkpoint)]
    whole = fit(*options)
    stopped = stop_at(9, *options)
    assert main(["fit", "--resume"]) == 0
    assert equal(read(stopped)["state_dict"], read(whole)["state_dict"])
    one, other = (json.loads((run / "pruning.json").read_text("utf-8")) for run in (stopped, whole))
    assert one["accuracy"] == other["accuracy"] and one["layers"] == other["layers"]


def test_an_accuracy_that_fell_too_far_fails_the_run_and_keeps_its_numbers(
    project: Path, data: list[str], checkpoint: Path, capsys: pytest.CaptureFixture[str], monkeypatch: Any
) -> None:
    def spoilt(path: Path, load: Callable[[Path], ImageClassifier] = load_classifier) -> ImageClassifier:
        classifier = load(path)
        torch.nn.init.zeros_(classifier.network.head.weight)
        return classifier

    monkeypatch.setattr(pruning, "load_classifier", spoilt)
    options = [*CHANNELS, "--pruning.max_accuracy_drop", "0.1", "--init_from", str(checkpoint)]
    assert main(["fit", *SHORT, *data, *options]) == 1
    error = capsys.readouterr().err
    assert "the validation accuracy fell from" in error and "best.ckpt" in error
    assert len(list(project.rglob("pruning.json"))) == len(list(project.rglob("report.json"))) == 1
    assert main(["fit", "--resume"]) == 1  # nothing is left to train, but the check is made again
    assert "the validation accuracy fell from" in capsys.readouterr().err
    assert not list(project.rglob("result.json"))
