"""DDP and FSDP train as one process does, on the CPU: the same losses, checkpoints that hold, and refusals by name."""

import shutil
from pathlib import Path

import pytest
import torch
from killing import strike
from projects import Project, bake_project, numbers, read_json, read_rows
from test_project_together import OPTIONS, QUIET

CPUS = ("--trainer.devices", "2", "--trainer.accelerator", "cpu")
DDP, FSDP = (("-c", f"configs/{name}.yaml", *CPUS) for name in ("ddp", "fsdp"))
SIZE = (*FSDP, "--trainer.strategy.wrap", "size", "--trainer.strategy.min_num_params", "1000")
SHARDED = (*FSDP, "--trainer.strategy.save_distributed_checkpoint", "true")
# 153 and 152 images of the validation split: in batches of 4 or 8 one process has a batch more than the other.
LENGTH = ("--trainer.max_epochs", "2", "--trainer.limit_train_batches", "10", "--trainer.log_every_n_steps", "1")
COMMON = (*LENGTH, *QUIET, "--data.augmentation.crop_padding", "0")
NETWORK = '''"""Networks without batch norm; of the second a layer is not used, of the third a gradient is NaN."""

from torch import Tensor, nn

from . import register


@register
class Plain(nn.Module):
    def __init__(self, num_classes: int, channels: int, image_size: tuple[int, int]) -> None:
        super().__init__()
        sizes = ((channels, 16), (16, 16), (16, 16))
        self.blocks = nn.Sequential(*(nn.Sequential(nn.Conv2d(*size, 3, stride=2), nn.ReLU()) for size in sizes))
        self.head = nn.Linear(16, num_classes)

    def forward(self, images: Tensor) -> Tensor:
        return self.head(self.blocks(images).mean((2, 3)))


@register
class Idle(Plain):
    def __init__(self, num_classes: int, channels: int, image_size: tuple[int, int]) -> None:
        super().__init__(num_classes, channels, image_size)
        self.unused = nn.Linear(2, 2)


@register
class Spoilt(Plain):
    def forward(self, images: Tensor) -> Tensor:
        last = self.head.weight[-1]  # which the second process holds
        return super().forward(images) + (last - last.detach()).sum().sqrt()
'''

SMALL_DISK = """import resource
import sys

from smoke.cli import main

resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
sys.exit(main(sys.argv[1:]))
"""


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Project:
    project = bake_project(tmp_path_factory.mktemp("strategies"), {"logger": "csv"})
    (project.package_folder / "networks" / "plain.py").write_text(NETWORK, encoding="utf-8")
    return project


@pytest.fixture(scope="module")
def alone(project: Project) -> Path:
    return project.fit(*COMMON, "--model.network", "Plain", "--data.batch_size", "8")


@pytest.fixture(scope="module")
def whole(project: Project) -> Path:
    """Sharded, with batch norm."""
    return project.fit(*SHARDED, *COMMON, "--data.batch_size", "8")


def losses(run: Path, name: str) -> list[float]:
    return [float(row[name]) for row in read_rows(run / "metrics.csv") if row.get(name)]


def state(checkpoint: Path) -> dict[str, torch.Tensor]:
    weights: dict[str, torch.Tensor] = torch.load(checkpoint, weights_only=True)["state_dict"]
    return weights


def state_of(project: Project, checkpoint: Path) -> dict[str, torch.Tensor]:
    """Of a file, or of a folder that is first made one."""
    file = checkpoint.with_name("whole.ckpt")
    if checkpoint.is_dir() and not file.exists():
        project.run("consolidate", "--ckpt_path", checkpoint, "--output", file)
    return state(file if checkpoint.is_dir() else checkpoint)


@pytest.mark.parametrize("strategy", [DDP, FSDP, SIZE], ids=["ddp", "fsdp", "size"])
def test_two_processes_with_half_the_batch_each_lose_what_one_does(
    strategy: tuple[str, ...], project: Project, alone: Path
) -> None:
    run = project.fit(*strategy, *COMMON, "--model.network", "Plain", "--data.batch_size", "4")
    for name, number in (("train/loss", 20), ("val/loss", 2), ("val/accuracy", 2)):
        expected = losses(alone, name)
        assert len(expected) == number
        assert losses(run, name) == pytest.approx(expected, abs=1e-4), name
    assert {path.name for path in run.iterdir()} == {path.name for path in alone.iterdir()}
    expected_weights = state(alone / "checkpoints" / "last.ckpt")
    torch.testing.assert_close(state(run / "checkpoints" / "last.ckpt"), expected_weights, rtol=0, atol=1e-3)


@pytest.mark.parametrize("strategy", [DDP, FSDP], ids=["ddp", "fsdp"])
def test_with_batch_norm_the_best_checkpoint_is_what_was_scored(strategy: tuple[str, ...], project: Project) -> None:
    run = project.fit(*strategy, *COMMON)
    project.run("validate", "--output", run / "alone")
    score = read_json(run / "result.json")["score"]
    assert numbers(run / "alone")["val/loss"] == pytest.approx(score, abs=1e-6)


@pytest.mark.parametrize("strategy", [FSDP, SHARDED], ids=["files", "folders"])
def test_a_run_that_was_stopped_goes_on(strategy: tuple[str, ...], project: Project, whole: Path) -> None:
    done = strike(project, "SIGTERM", "step", 13, *strategy, *COMMON, "--data.batch_size", "8")
    assert done.returncode == 143, done.stderr
    assert done.stderr.count("batch norm is not synchronised") == 1
    stopped = project.runs()[-1]
    last = stopped / "checkpoints" / "last.ckpt"
    assert (last / ".metadata").is_file() == (strategy == SHARDED)
    if strategy == SHARDED:  # as kills between two renames leave them
        for folder in (last, last.with_name("best.ckpt")):
            folder.rename(folder.with_name(f"{folder.name}.old"))
    project.run("fit", "--resume")
    expected = state_of(project, whole / "checkpoints" / "last.ckpt")
    torch.testing.assert_close(state_of(project, last), expected, rtol=0, atol=0)
    assert (stopped / "metrics.csv").read_bytes() == (whole / "metrics.csv").read_bytes()
    assert {path.name for path in last.parent.iterdir()} <= {"best.ckpt", "last.ckpt", "whole.ckpt"}


def test_a_full_disk_leaves_a_sharded_checkpoint_to_go_on_from(project: Project, whole: Path) -> None:
    done = strike(project, "FULL", "step", 13, *SHARDED, *COMMON, "--data.batch_size", "8")
    assert done.returncode == 2 and "Traceback" not in done.stderr, done.stderr
    stopped = project.runs()[-1]
    last = stopped / "checkpoints" / "last.ckpt"
    assert "best.ckpt can't be written: [Errno 27] File too large" in done.stderr
    assert done.stderr.endswith(f"fit --resume {stopped.relative_to(project.folder)}\n")
    assert {path.name for path in last.parent.iterdir()} == {"best.ckpt", "last.ckpt"}
    project.run("fit", "--resume", stopped)
    expected = state_of(project, whole / "checkpoints" / "last.ckpt")
    torch.testing.assert_close(state_of(project, last), expected, rtol=0, atol=0)


def test_a_damaged_sharded_checkpoint_is_named(project: Project, whole: Path) -> None:
    run = whole.with_name("damaged")
    shutil.copytree(whole, run)
    (run / "result.json").unlink()
    last = run / "checkpoints" / "last.ckpt"
    (last / "__1_0.distcp").unlink()
    for command in (("consolidate", "--ckpt_path", last), ("fit", "--resume", run)):
        error = project.run(*command, code=2).stderr
        assert f"{last} can't be read: " in error and "__1_0.distcp" in error and "Traceback" not in error
    shutil.rmtree(run)


def test_a_sharded_checkpoint_is_exported_once_it_is_a_file(project: Project, whole: Path) -> None:
    best = whole / "checkpoints" / "best.ckpt"
    error = project.run("export", "--ckpt_path", best, code=2).stderr
    assert f"consolidate --ckpt_path {best}" in error and error.count("\n") == 1
    assert f"consolidate --ckpt_path {best}" in project.run("fit", "--init_from", best, code=2).stderr
    file = best.with_name("best-file.ckpt")
    project.run("consolidate", "--ckpt_path", best, "--output", file)
    project.run("validate", "--ckpt_path", file, "--output", whole / "file")
    assert numbers(whole / "file")["val/loss"] == pytest.approx(read_json(whole / "result.json")["score"], abs=1e-6)
    project.run("export", "--ckpt_path", file, "--output", "bundle")
    assert "exists" in project.run("consolidate", "--ckpt_path", best, "--output", file, code=2).stderr
    (project.folder / "small.py").write_text(SMALL_DISK, encoding="utf-8")
    options = ("consolidate", "--ckpt_path", best, "--output", "whole.ckpt")
    error = project.python("small", *options, code=2, env={"PYTHONPATH": "src"}).stderr
    assert "output whole.ckpt can't be written, " in error and not list(project.folder.glob("*whole.ckpt*"))
    nowhere = ("consolidate", "--ckpt_path", best, "--output", "no/x.ckpt")
    assert "the folder no does not exist" in project.run(*nowhere, code=2).stderr
    assert "no sharded checkpoint" in project.run("consolidate", "--ckpt_path", file, "--output", "x", code=2).stderr


def test_amp_compile_and_profiling_go_with_fsdp_and_activation_checkpointing(project: Project) -> None:
    keys = ("amp", "compile", "profiling")
    overlays = [part for key in keys for part in ("-c", f"configs/{key}.yaml", *OPTIONS[key])]
    options = ("--trainer.strategy.activation_checkpointing", "true", "--trainer.strategy.cpu_offload", "true")
    run = project.fit(*FSDP, *options, *overlays, *COMMON, "--data.batch_size", "8")
    report = read_json(run / "report.json")
    assert set(report) == set(keys)
    project.run("validate", "--output", run / "alone")
    (accuracy,) = (change["after"] for change in report["amp"] if change["what"] == "val accuracy")
    assert accuracy == pytest.approx(numbers(run / "alone")["val/accuracy"], abs=1e-6)


def test_a_gradient_that_is_not_finite_in_the_share_of_one_process_stops_all(project: Project) -> None:
    amp = ("-c", "configs/amp.yaml", *OPTIONS["amp"])
    error = project.run("fit", *FSDP, *amp, *COMMON, "--model.network", "Spoilt", code=1).stderr
    assert "the gradient is nan" in error and "first in the gradient of network (" in error


@pytest.mark.parametrize("key", ["pruning", "quantization"])
def test_what_does_not_go_with_fsdp_is_refused_by_name(key: str, project: Project) -> None:
    error = project.run("fit", *FSDP, "-c", f"configs/{key}.yaml", *QUIET, code=2).stderr
    assert f"{key} does not go with FullyShard" in error and "Traceback" not in error


def test_a_layer_that_is_not_used_is_named(project: Project) -> None:
    error = project.run("fit", *DDP, *COMMON, "--model.network", "Idle", code=1).stderr
    assert "does not depend on network.unused.weight, network.unused.bias" in error and "find_unused" in error
    project.run("fit", *DDP, *COMMON, "--model.network", "Idle", "--trainer.strategy.find_unused_parameters", "true")
