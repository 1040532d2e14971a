"""A compiled run computes what a plain one does, in two graphs, and tells what keeps it from that."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from smoke.classifier import ImageClassifier
from smoke.cli import main
from smoke.networks import NETWORKS
from smoke.networks.simple_cnn import SimpleCNN
from smoke.runs import newest_run
from torch import Tensor, nn

# 20 images in a batch and fewer than 16 in the last: torch guards convolutions by that number.
SHORT = ["--trainer.max_epochs", "1", "--data.batch_size", "20", "--trainer.logger", "false"]
USES_RELU = ["--model.init_args.network", "UsesRelu"]
PLAIN_PYTHON = ["-c", "configs/compile.yaml", "--compile.backend", "eager"]


@pytest.fixture(autouse=True)
def networks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(NETWORKS, "Draws", Draws)
    monkeypatch.setitem(NETWORKS, "UsesRelu", UsesRelu)


class Draws(SimpleCNN):
    """With dropout."""

    def forward(self, images: Tensor) -> Tensor:
        return super().forward(nn.functional.dropout(images, 0.5, self.training))


class UsesRelu(SimpleCNN):
    """With the function that torch's backends for tests get wrong."""

    def forward(self, images: Tensor) -> Tensor:
        return super().forward(torch.relu(images))


def breaks(self: SimpleCNN, images: Tensor) -> Tensor:
    features = self.features(images)
    torch._dynamo.graph_break()
    return self.head(features.flatten(1))


def breaks_in_a_loop(self: SimpleCNN, images: Tensor) -> Tensor:
    for block in self.features:
        images = block(images)
        torch._dynamo.graph_break()
    return self.head(images.flatten(1))


def told() -> dict[str, Any]:
    return json.loads((newest_run(finished=True) / "compile.json").read_text(encoding="utf-8"))


def weights() -> dict[str, Tensor]:
    return torch.load(newest_run(finished=True) / "checkpoints" / "last.ckpt", weights_only=True)["state_dict"]


@pytest.mark.parametrize("dynamic", ["true", "false"])
def test_training_validation_and_smaller_batches_take_two_graphs(dynamic: str, project: Path, data: list[str]) -> None:
    assert main(["fit", *data, *SHORT, *PLAIN_PYTHON, "--compile.dynamic", dynamic]) == 0
    found = told()
    assert (found["graphs"], found["graph_breaks"], found["recompiles"]) == (2, {}, {})
    assert found["largest_difference"]["relative"] == 0 and found["compared_in"] == "training"
    report = json.loads((newest_run(finished=True) / "report.json").read_text(encoding="utf-8"))
    assert report["compile"][0]["before"] == found["eager_ms"] and report["compile"][0]["after"] == found["compiled_ms"]


@pytest.mark.parametrize("network", ["SimpleCNN", "Draws"])
def test_the_weights_are_those_of_a_run_without(network: str, project: Path, data: list[str]) -> None:
    options = ["fit", *data, *SHORT, "--model.init_args.network", network]
    assert main(options) == 0
    expected = weights()
    assert main([*options, *PLAIN_PYTHON]) == 0
    assert told()["compared_in"].startswith("evaluation" if network == "Draws" else "training")
    assert told()["graphs"] == 2
    found = weights()
    assert found.keys() == expected.keys()
    assert all(torch.equal(found[key], value) for key, value in expected.items())


@pytest.mark.parametrize(("forward", "graphs"), [(breaks, 4), (breaks_in_a_loop, 0)])
def test_a_graph_break_is_reported_with_its_place(
    forward: Any, graphs: int, project: Path, data: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(SimpleCNN, "forward", forward)
    assert main(["fit", *data, *SHORT, *PLAIN_PYTHON]) == 0
    assert any("test_compile.py" in place for place in told()["graph_breaks"])
    assert told()["graphs"] == graphs


def test_another_graph_in_the_middle_of_a_run_is_reported(
    project: Path, data: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    fired: list[int] = []

    def hook_in(self: ImageClassifier) -> None:
        if self.current_epoch == 1:
            self.network.features[0].register_forward_hook(lambda *_: fired.append(1))

    monkeypatch.setattr(ImageClassifier, "on_train_epoch_start", hook_in)
    assert main(["fit", *data, *SHORT, *PLAIN_PYTHON, "--trainer.max_epochs", "2"]) == 0
    assert fired and any("_forward_hooks" in reason for reason in told()["recompiles"])


@torch._dynamo.register_backend
def broken_for_a_test(graph: Any, inputs: Any) -> None:
    raise RuntimeError("no compiler")


@pytest.mark.parametrize("backend", ["broken_for_a_test", "relu_compile_error_TESTING_ONLY"])
def test_a_backend_that_does_not_work_stops_the_run_in_one_line(
    backend: str, project: Path, data: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["fit", *data, *SHORT, *PLAIN_PYTHON, *USES_RELU, "--compile.backend", backend]) == 1
    (line,) = capsys.readouterr().err.strip().splitlines()[-1:]
    assert f"compile.backend {backend} does not work here" in line and "compile.on_failure" in line
    assert not list(project.rglob("*.ckpt"))


def test_or_the_run_goes_on_without(project: Path, data: list[str]) -> None:
    options = ["--compile.backend", "relu_compile_error_TESTING_ONLY", "--compile.on_failure", "eager"]
    with pytest.warns(UserWarning, match="without compiling"):
        assert main(["fit", *data, *SHORT, *PLAIN_PYTHON, *USES_RELU, *options]) == 0
    assert told()["compiled"] is False and told()["reason"]


def test_a_backend_that_computes_something_else_stops_the_run(
    project: Path, data: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    backend = ["--compile.backend", "relu_accuracy_error_TESTING_ONLY"]
    assert main(["fit", *data, *SHORT, *PLAIN_PYTHON, *USES_RELU, *backend]) == 1
    assert "does not compute what it did before: {'of': " in capsys.readouterr().err


def test_an_unknown_backend_is_refused(project: Path, data: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["fit", *data, *PLAIN_PYTHON, "--compile.backend", "inducktor"]) == 2
    assert "compile.backend must be one of" in capsys.readouterr().err


@torch._dynamo.register_backend
def rounds_for_a_test(graph: Any, inputs: Any) -> Any:
    return lambda *args: tuple(1.0001 * output for output in graph(*args))


def test_a_run_that_goes_on_with_the_small_last_batch_validates_compiled_as_before(
    project: Path, data: list[str], fit_until: Callable[..., Path]
) -> None:
    def is_small(self: ImageClassifier, batch: Any, batch_idx: int) -> bool:
        return len(batch[0]) < 20

    options = [*data, *SHORT, *PLAIN_PYTHON, "--compile.backend", "rounds_for_a_test"]
    options += ["--last_checkpoint.every_n_train_steps", "2", "--trainer.log_every_n_steps", "1"]
    assert main(["fit", *options]) == 0
    whole = newest_run(finished=True)
    stopped = fit_until(ImageClassifier, "on_train_batch_start", is_small, *options)
    assert main(["fit", "--resume"]) == 0
    assert (stopped / "metrics.csv").read_text("utf-8") == (whole / "metrics.csv").read_text("utf-8")


@pytest.mark.skipif(shutil.which("g++") is None, reason="needs a C++ compiler")
def test_inductor_agrees(project: Path, data: list[str]) -> None:
    assert main(["fit", *data, *SHORT, "-c", "configs/compile.yaml"]) == 0
    assert told()["compiled"] and 0 < told()["largest_difference"]["relative"] < 0.05
