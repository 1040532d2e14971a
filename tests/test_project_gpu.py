"""On a CUDA device, in mixed precision, a project trains, tests and exports what it does on the CPU."""

import os
from pathlib import Path

import pytest
import torch
from projects import SHORT, bake_project, numbers, read_json

VISIBLE = {"CUDA_VISIBLE_DEVICES": os.environ.get("CUDA_VISIBLE_DEVICES", "0")}


PROBE = '''"""Shows in which precision the first batch norm computes."""

from lightning import Callback


class Probe(Callback):
    def on_train_start(self, trainer, pl_module):
        norm = pl_module.network.features[0][1]
        norm.register_forward_hook(lambda _, args, output: print(type(norm).__name__, str(output.dtype)[6:]))
'''

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")]


@pytest.mark.parametrize("precision", ["16-mixed", "bf16-mixed"])
def test_mixed_precision_trains_and_exports_a_model_that_is_right(precision: str, tmp_path: Path) -> None:
    project = bake_project(tmp_path)
    options = ("--trainer.precision", precision, "--trainer.gradient_clip_val", "1.0")
    run = project.fit("--trainer.accelerator", "cuda", *options, env=VISIBLE)
    project.run("test", "--accelerator", "cuda", env=VISIBLE)
    on_gpu = numbers(run / "test")["test/accuracy"]
    project.run("test")
    project.run("export", "--output", "bundle", env=VISIBLE)
    checks = read_json(project.folder / "bundle" / "model.json")["checks"]
    assert on_gpu >= 0.97
    assert numbers(run / "test")["test/accuracy"] == pytest.approx(on_gpu, abs=0.005)
    assert max(checks["test_split"]["largest_difference"].values()) <= 1e-4


@pytest.mark.parametrize("sharded", ["false", "true"])
@pytest.mark.parametrize("offloaded", ["false", "true"])
def test_fsdp_trains_saves_and_exports(sharded: str, offloaded: str, tmp_path: Path) -> None:
    project = bake_project(tmp_path)
    options = (
        *("--trainer.devices", "1", "--trainer.gradient_clip_val", "1.0"),
        *("--trainer.strategy.save_distributed_checkpoint", sharded, "--trainer.strategy.cpu_offload", offloaded),
        *("--trainer.strategy.activation_checkpointing", offloaded),
    )
    run = project.fit("-c", "configs/fsdp.yaml", "--trainer.accelerator", "cuda", *options, *SHORT, env=VISIBLE)
    checkpoint = run / "checkpoints" / "best.ckpt"
    assert checkpoint.is_dir() == (sharded == "true")
    if checkpoint.is_dir():
        project.run("consolidate", "--ckpt_path", checkpoint, "--output", "whole.ckpt")
        checkpoint = project.folder / "whole.ckpt"
    project.run("validate", "--ckpt_path", checkpoint, "--output", "val")
    assert numbers(project.folder / "val")["images"] == 305
    project.run("export", "--ckpt_path", checkpoint, "--output", "bundle")


@pytest.mark.parametrize("strategy", ["ddp", "fsdp"])
def test_batch_norm_is_synchronised_and_stays_in_float32(strategy: str, tmp_path: Path) -> None:
    project = bake_project(tmp_path)
    (project.package_folder / "callbacks" / "probe.py").write_text(PROBE, encoding="utf-8")
    amp = ("-c", "configs/amp.yaml", "--amp.keep_fp32", "[features.0.1]", "--probe", "{}")
    options = ("-c", f"configs/{strategy}.yaml", "--trainer.devices", "1", "--trainer.accelerator", "cuda")
    assert "SyncBatchNorm float32" in project.run("fit", *options, *amp, *SHORT, env=VISIBLE).stdout


def test_the_projects_own_gpu_tests_pass(tmp_path: Path) -> None:
    done = bake_project(tmp_path).python("pytest", "-q", "-m", "gpu", env=VISIBLE)
    assert " passed" in done.stdout and "skipped" not in done.stdout
