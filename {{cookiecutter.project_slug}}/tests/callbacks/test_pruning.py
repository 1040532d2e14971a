"""What is pruned has the sparsity that was asked for, and is used like any other model."""

import json
from pathlib import Path

import pytest
import torch

from {{cookiecutter.package_name}}.cli import main
from {{cookiecutter.package_name}}.runs import newest_run

SHORT = ["--trainer.max_epochs", "3", "--trainer.limit_train_batches", "4", "-c", "configs/pruning.yaml"]
SPARSE = [*SHORT, "--pruning.target_sparsity", "0.8", "--pruning.max_accuracy_drop", "1"]
CHANNELS = [*SHORT, "--pruning.kind", "structured", "--pruning.target_sparsity", "0.5", "--pruning.round_to", "2"]


def test_the_final_checkpoint_has_the_target_sparsity(project: Path, data: list[str]) -> None:
    assert main(["fit", *data, *SPARSE]) == 0
    run = newest_run(finished=True)
    found = json.loads((run / "pruning.json").read_text(encoding="utf-8"))
    assert found["sparsity"]["after"] == pytest.approx(0.8, abs=1e-3)
    weights = torch.load(run / "checkpoints" / "best.ckpt", weights_only=True)["state_dict"]
    kernels = [value for key, value in weights.items() if key.endswith(".weight") and value.ndim > 1]
    zeros = sum(int((kernel == 0).sum()) for kernel in kernels) / sum(kernel.numel() for kernel in kernels)
    assert zeros == pytest.approx(0.8, abs=1e-3)


def test_a_network_without_half_of_its_channels_goes_the_whole_road(
    project: Path, data: list[str], checkpoint: Path
) -> None:
    options = [*CHANNELS, "--pruning.max_accuracy_drop", "1", "--init_from", str(checkpoint)]
    assert main(["fit", *data, *options]) == 0
    found = json.loads((newest_run(finished=True) / "pruning.json").read_text(encoding="utf-8"))
    assert found["sparsity"]["after"] == pytest.approx(0.5, abs=0.05)
    assert found["MACs"]["after"] < 0.6 * found["MACs"]["before"]
    assert main(["test"]) == 0
    assert main(["export", "--output", "bundle", "--num_workers", "0"]) == 0


def test_a_target_that_the_run_can_not_reach_is_refused(
    project: Path, data: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["fit", *data, *SPARSE, "--pruning.end_epoch", "3"]) == 2
    assert "pruning.end_epoch 3 is never reached" in capsys.readouterr().err
    assert main(["fit", *data, *CHANNELS]) == 2
    assert "--init_from" in capsys.readouterr().err


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("options", [SPARSE, CHANNELS], ids=["weights", "channels"])
def test_on_a_gpu(options: list[str], project: Path, data: list[str], checkpoint: Path) -> None:
    on_gpu = ["--trainer.accelerator", "cuda", "--trainer.devices", "1", "--init_from", str(checkpoint)]
    assert main(["fit", *data, *options, *on_gpu, "--pruning.max_accuracy_drop", "1"]) == 0
