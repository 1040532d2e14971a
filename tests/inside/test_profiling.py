"""The parts of a step add up to it, the trace is written, and outside the recorded steps nothing happens."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from lightning.pytorch.profilers import PassThroughProfiler
from smoke import spans
from smoke.callbacks import profiling
from smoke.callbacks.profiling import Profiling
from smoke.classifier import ImageClassifier
from smoke.cli import main
from smoke.runs import newest_run

SHORT = ["--trainer.max_epochs", "2", "--trainer.logger", "false", "-c", "configs/profiling.yaml"]
FEW = ["--profiling.skip", "2", "--profiling.record", "3", "--profiling.warm_up", "1"]


def told() -> dict[str, Any]:
    return json.loads((newest_run(finished=True) / "profile" / "summary.json").read_text(encoding="utf-8"))


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Seconds that the profiler sees, moved by the test."""
    now = [0.0]
    monkeypatch.setattr(spans, "time", SimpleNamespace(perf_counter=lambda: now[0]))
    return now


def test_nested_time_counts_once_and_what_is_no_step_not_at_all(clock: list[float]) -> None:
    parts = spans.Spans()
    script = [  # seconds, then what begins (+) or ends (-)
        (1, "+[_TrainingEpochLoop].train_dataloader_next"),
        (2, "-"),
        (4, "+[LightningModule]Net.optimizer_step"),
        (8, "+[Strategy]Single.training_step"),
        (16, "+log"),
        (32, "-"),
        (64, "-"),
        (128, "+[Callback]Some.on_after_backward"),
        (256, "-"),
        (512, "-"),
        (1024, "+[Callback]Some.on_validation_start"),
        (2048, "-"),
        (4096, "+[_TrainingEpochLoop].train_dataloader_next"),
    ]
    for seconds, name in script:
        clock[0] += seconds
        parts.start(name[1:]) if name[0] == "+" else parts.stop(name[1:])
    parts.finish()
    expected = {"waiting for data": 2, "forward": 16 + 64, "logging": 32, "optimizer": 8 + 128 + 512}
    expected |= {"other callbacks": 256, "the training loop": 1 + 4 + 1024}
    assert {part: value for part, value in parts.seconds.items() if value} == expected


def test_a_run_is_timed_and_traced(project: Path, data: list[str]) -> None:
    assert main(["fit", *data, *SHORT, *FEW]) == 0
    found = told()
    assert (found["timed_steps"], found["traced_steps"], found["incomplete"]) == (3, 3, None)
    assert sum(found["shares"].values()) == pytest.approx(1)
    assert all(found["shares"][part] > 0 for part in ("waiting for data", "augmentation", "forward", "backward"))
    assert found["images_per_second"] == pytest.approx(1000 * 8 / found["step_ms"])
    assert found["bottleneck"].split(" takes ")[0] in profiling.ADVICE
    folder = newest_run(finished=True) / "profile"
    assert {path.name for path in folder.iterdir()} == {"operators.txt", "step.png", "summary.json", "trace.json"}
    assert "aten::convolution_backward" in (folder / "operators.txt").read_text(encoding="utf-8")
    events = json.loads((folder / "trace.json").read_text(encoding="utf-8"))["traceEvents"]
    assert sum(event["name"] == "forward" for event in events) == 3


def test_the_slowest_part_is_named() -> None:
    shares = dict.fromkeys([*spans.PARTS.values(), spans.CALLBACKS, spans.REST], 0.1)
    assert profiling._bottleneck(shares).startswith("forward and backward takes 20% of a step: ")
    slow = shares | {"waiting for data": 0.5}
    assert (
        profiling._bottleneck(slow) == f"waiting for data takes 50% of a step: {profiling.ADVICE['waiting for data']}."
    )


def test_all_that_is_measured_is_the_recorded_steps(
    project: Path, data: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[bool] = []
    step = ImageClassifier.training_step

    def watched(self: ImageClassifier, batch: Any, batch_idx: int) -> Any:
        seen.append(not isinstance(self.trainer.profiler, PassThroughProfiler) and "log" in vars(self))
        return step(self, batch, batch_idx)

    monkeypatch.setattr(ImageClassifier, "training_step", watched)
    assert main(["fit", *data, *SHORT, *FEW]) == 0
    assert seen[:10] == [False, False, True, True, True, False, True, True, True, False] and not any(seen[10:])


@pytest.mark.parametrize(("num_steps", "timed", "traced"), [(2, 0, 0), (4, 2, 0), (6, 3, 0), (7, 3, 1)])
def test_a_run_of_few_steps_tells_what_there_is(
    num_steps: int, timed: int, traced: int, project: Path, data: list[str]
) -> None:
    short = ["--trainer.max_epochs", "1", "--trainer.limit_train_batches", str(num_steps)]
    assert main(["fit", *data, *SHORT, *FEW, *short]) == 0
    found = told()
    assert (found["timed_steps"], found["traced_steps"]) == (timed, traced)
    assert found["incomplete"] and (found["bottleneck"] is None) == (timed == 0)
    folder = newest_run(finished=True) / "profile"
    assert (folder / "trace.json").exists() == (folder / "operators.txt").exists() == (traced > 0)


def test_the_weights_are_those_of_a_run_without(project: Path, data: list[str]) -> None:
    weights = []
    for options in (SHORT[:4], [*SHORT, *FEW]):
        assert main(["fit", *data, *options]) == 0
        last = newest_run(finished=True) / "checkpoints" / "last.ckpt"
        weights.append(torch.load(last, weights_only=True)["state_dict"])
    assert weights[0].keys() == weights[1].keys()
    assert all(torch.equal(value, weights[1][key]) for key, value in weights[0].items())


def test_a_finished_profile_survives_a_resume() -> None:
    before, after = Profiling(), Profiling()
    before.summary = {"step_ms": 2.0, "traced_step_ms": 3.0}
    after.load_state_dict(before.state_dict())
    after.on_train_start(SimpleNamespace(is_global_zero=True, fast_dev_run=False), None)  # type: ignore[arg-type]
    assert after._schedule is None and after.changes[0].after == 3.0


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (["--profiling.record", "0"], "profiling.record must be at least 1, got 0"),
        (["--trainer.profiler", "simple"], "exclude each other"),
        (["--profiling.memory_snapshot", "true", "--trainer.accelerator", "cpu"], "needs a CUDA device, got cpu"),
    ],
)
def test_what_can_not_be_recorded_is_refused(
    options: list[str], reason: str, project: Path, data: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["fit", *data, *SHORT, *options]) == 2
    assert reason in capsys.readouterr().err
