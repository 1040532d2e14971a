"""The five optimisations: each alone, any two and all of them at once, in one process and in two, whole and resumed."""

import json
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
import torch
from projects import Project, bake_project, read_json

OPTIONS = {  # so short that all of them come into play
    "amp": ("--amp.precision", "bf16-mixed"),
    "compile": ("--compile.backend", "aot_eager"),
    "profiling": (),
    "pruning": ("--pruning.begin_epoch", "0", "--pruning.end_epoch", "1", "--pruning.max_accuracy_drop", "1"),
    "quantization": (
        *("--quantization.begin_epoch", "1", "--quantization.freeze_epoch", "2"),
        *("--quantization.max_accuracy_drop", "1"),
    ),
}
SHORT = (
    *("--trainer.max_epochs", "3", "--trainer.limit_train_batches", "8", "--trainer.limit_val_batches", "2"),
    *("--trainer.log_every_n_steps", "1", "--last_checkpoint.every_n_train_steps", "5"),
)
QUIET = ("--trainer.enable_progress_bar", "false", "--trainer.enable_model_summary", "false", "--pictures", "null")
RANKS = ("-c", "configs/ddp.yaml", "--trainer.devices", "2", "--trainer.accelerator", "cpu")
STOP = 12  # in the middle of the second epoch
SINGLES = [(key,) for key in OPTIONS]
PAIRS = list(combinations(OPTIONS, 2))
ALL = tuple(OPTIONS)
# Runs all fits one after another in this process, or in each of the processes that torchrun starts.
MANY = """
import json
import sys

from smoke.classifier import ImageClassifier
from smoke.cli import main

stop_at, backward = None, ImageClassifier.on_before_backward


class Stopped(BaseException):
    pass


def on_before_backward(self, loss):
    if stop_at is not None and self.global_step >= stop_at:
        raise Stopped
    return backward(self, loss)


ImageClassifier.on_before_backward = on_before_backward
for args, stop_at in json.loads(sys.argv[1]):
    try:
        code = main(args)
    except Stopped:
        stop_at = None
        code = main(["fit", "--resume"])
    assert code == 0, args
"""


def fit(overlays: tuple[str, ...], name: str, *options: str) -> list[str]:
    chosen = [part for key in overlays for part in ("-c", f"configs/{key}.yaml", *OPTIONS[key])]
    return ["fit", "--name", "-".join((*overlays, name)), *SHORT, *QUIET, *chosen, *options]


def fits() -> list[tuple[list[str], int | None]]:
    whole = [fit(overlays, "whole") for overlays in ((), *SINGLES, *PAIRS, ALL)]
    stopped = [fit(overlays, "resumed") for overlays in (*SINGLES, ALL)]
    return [*((args, None) for args in whole), *((args, STOP) for args in stopped)]


def fits_of_two_processes() -> list[tuple[list[str], int | None]]:
    whole = [fit(overlays, "ranks-whole", *RANKS) for overlays in (*SINGLES, ALL)]
    stopped = [fit(overlays, "ranks-resumed", *RANKS) for overlays in (*SINGLES, ALL)]
    return [*((args, None) for args in whole), *((args, STOP) for args in stopped)]


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Project:
    project = bake_project(tmp_path_factory.mktemp("together"), {"logger": "csv"})
    script = project.folder / "many.py"
    script.write_text(MANY, encoding="utf-8")
    project.python("many", json.dumps(fits()), env={"PYTHONPATH": f"{project.folder / 'src'}:{project.folder}"})
    launcher = ("torch.distributed.run", "--standalone", "--nproc_per_node", "2")
    project.python(*launcher, script, json.dumps(fits_of_two_processes()))
    return project


def run_of(project: Project, overlays: tuple[str, ...], name: str) -> Path:
    (run,) = (project.folder / "runs" / "-".join((*overlays, name))).iterdir()
    return run


def read_checkpoint(run: Path, name: str) -> dict[str, Any]:
    checkpoint: dict[str, Any] = torch.load(run / "checkpoints" / name, weights_only=True)
    return checkpoint


@pytest.mark.parametrize("overlays", [*SINGLES, *PAIRS, ALL], ids="-".join)
def test_each_shows_its_before_and_after_and_leaves_the_names_of_weights(
    overlays: tuple[str, ...], project: Project
) -> None:
    run, plain = run_of(project, overlays, "whole"), run_of(project, (), "whole")
    report = read_json(run / "report.json")
    assert set(report) == set(overlays)
    assert all(any(change["before"] is not None for change in changes) for changes in report.values())
    expected = read_checkpoint(plain, "best.ckpt")["state_dict"]
    found = read_checkpoint(run, "best.ckpt")["state_dict"]
    assert {name: value.shape for name, value in found.items()} == {k: v.shape for k, v in expected.items()}
    assert all(value.isfinite().all() for value in found.values())


@pytest.mark.parametrize("name", ["", "ranks-"], ids=["one process", "two processes"])
@pytest.mark.parametrize("overlays", [*SINGLES, ALL], ids="-".join)
def test_a_run_stopped_in_mid_epoch_and_resumed_equals_a_whole_one(
    overlays: tuple[str, ...], name: str, project: Project
) -> None:
    whole, resumed = (run_of(project, overlays, f"{name}{kind}") for kind in ("whole", "resumed"))
    expected, found = (read_checkpoint(run, "last.ckpt") for run in (whole, resumed))
    assert found["global_step"] == expected["global_step"] == 24
    torch.testing.assert_close(found["state_dict"], expected["state_dict"], rtol=0, atol=0)
    log = (whole / "metrics.csv").read_text(encoding="utf-8")
    assert (resumed / "metrics.csv").read_text(encoding="utf-8") == log
    assert set(read_json(resumed / "report.json")) == set(overlays)


@pytest.mark.parametrize("overlays", [("pruning",), ("quantization",), ALL], ids="-".join)
def test_a_new_run_starts_from_the_weights_of_each(overlays: tuple[str, ...], project: Project) -> None:
    weights = run_of(project, overlays, "whole") / "checkpoints" / "best.ckpt"
    stand_still = ("--model.learning_rate", "0", "--model.weight_decay", "0", "--trainer.max_epochs", "1")
    run = project.fit("--name", "started", *stand_still, *QUIET, "--init_from", weights)
    expected, found = read_checkpoint(weights.parent.parent, "best.ckpt"), read_checkpoint(run, "last.ckpt")
    trained = [name for name in expected["state_dict"] if name.endswith((".weight", ".bias"))]
    assert len(trained) > 4
    assert all(torch.equal(found["state_dict"][name], expected["state_dict"][name]) for name in trained)
