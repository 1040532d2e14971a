"""Too large a batch is named with what to try, and the largest that fits is found and leaves no trace but its size."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
import yaml
from smoke.cli import main
from smoke.networks.simple_cnn import SimpleCNN
from smoke.runs import newest_run

SHORT = ["--trainer.max_epochs", "3", "--trainer.log_every_n_steps", "1", "--trainer.logger", "false"]
ALL = {
    "amp": ["--amp.precision", "bf16-mixed"],
    "compile": ["--compile.backend", "eager"],
    "profiling": [],
    "pruning": ["--pruning.begin_epoch", "0", "--pruning.end_epoch", "1", "--pruning.max_accuracy_drop", "1"],
    "quantization": ["--quantization.begin_epoch", "1", "--quantization.freeze_epoch", "2"],
}
OVERLAYS = [part for key, options in ALL.items() for part in ("-c", f"configs/{key}.yaml", *options)]
MESSAGE = "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 8 GiB of which 1 GiB is free."
LARGEST = 20


@pytest.fixture
def small_memory(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """A network that has memory for LARGEST images in training; gives the sizes that it was tried with."""
    tried, forward = [], SimpleCNN.forward

    def limited(self, images):
        if self.training:
            tried.append(len(images))
            if len(images) > LARGEST:
                raise torch.OutOfMemoryError(MESSAGE)
        return forward(self, images)

    monkeypatch.setattr(SimpleCNN, "forward", limited)
    return tried


def read_run(run: Path) -> tuple[dict, str, dict]:
    config = yaml.safe_load((run / "config.yaml").read_text(encoding="utf-8"))
    weights = torch.load(run / "checkpoints" / "last.ckpt", weights_only=True)["state_dict"]
    return config, (run / "metrics.csv").read_text(encoding="utf-8"), weights


@pytest.mark.parametrize("overlays", [[], OVERLAYS], ids=["alone", "with all callbacks"])
def test_the_size_that_was_found_trains_as_if_it_had_been_given(overlays, project, data, small_memory):
    options = [*data, *SHORT, *overlays, "--quantization.max_accuracy_drop", "1"] if overlays else [*data, *SHORT]
    assert main(["fit", *options, "--find_batch_size", "32"]) == 0
    found = newest_run(finished=True)
    assert LARGEST < max(small_memory) <= 32
    assert main(["fit", *options, "--data.batch_size", "16"]) == 0
    given = newest_run(finished=True)
    assert found != given
    (config, log, weights), (expected, expected_log, expected_weights) = read_run(found), read_run(given)
    assert config == expected and config["data"]["batch_size"] == 16
    assert log == expected_log
    torch.testing.assert_close(weights, expected_weights, rtol=0, atol=0)


@pytest.mark.parametrize(("limit", "size"), [("12", 12), ("1", 1)])
def test_the_limit_is_kept(limit, size, project, data):
    assert main(["fit", *data, *SHORT, "--trainer.limit_train_batches", "2", "--find_batch_size", limit]) == 0
    assert read_run(newest_run(finished=True))[0]["data"]["batch_size"] == size


def test_where_nothing_fits_the_search_says_so_and_leaves_nothing(project, data, small_memory, monkeypatch, capsys):
    monkeypatch.setattr(f"{__name__}.LARGEST", 0)
    assert main(["fit", *data, *SHORT, "--find_batch_size", "32"]) == 1
    assert "not even one image fits" in capsys.readouterr().err
    assert not Path("runs").exists()


@pytest.mark.parametrize("limit", ["0", "-3"])
def test_a_senseless_limit_is_refused(limit, project, data, capsys):
    assert main(["fit", *data, "--find_batch_size", limit]) == 2
    assert f"find_batch_size must be at least 1, got {limit}" in capsys.readouterr().err


def test_the_search_is_refused_for_several_processes(project, data, capsys):
    sharded = ["-c", "configs/fsdp.yaml", "--trainer.accelerator", "cpu"]
    assert main(["fit", *data, *sharded, "--find_batch_size", "32"]) == 2
    assert "find_batch_size looks with one process" in capsys.readouterr().err
    assert not Path("runs").exists()


def test_out_of_memory_is_one_line_with_step_shapes_and_what_to_try(project, data, small_memory, capsys):
    assert main(["fit", *data, *SHORT, "--data.batch_size", "24"]) == 1
    line = capsys.readouterr().err.splitlines()[-1]
    assert (
        "CUDA out of memory. Tried to allocate 2.00 GiB, at step 0 (epoch 0), training batch 0 of shapes [24, " in line
    )
    knobs = ["batch_size 12 with --trainer.accumulate_grad_batches 2", "bf16-mixed", "activation checkpointing"]
    places = [line.index(knob) for knob in knobs]
    assert places == sorted(places)


@pytest.mark.parametrize("name", [None, "PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF"])
def test_the_allocator_grows_its_segments_unless_it_was_told_otherwise(name, project, monkeypatch):
    for variable in ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF"):
        monkeypatch.setenv(variable, "")  # so that it is put back afterwards
        monkeypatch.delenv(variable)
    given = {name: "backend:native"} if name else {}
    os.environ.update(given)
    assert main(["test"]) == 2
    expected = given or {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}
    assert {key: value for key, value in os.environ.items() if key.endswith("ALLOC_CONF")} == expected
