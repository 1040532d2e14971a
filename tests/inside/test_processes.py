"""Whoever starts the processes must start one for each device; else some idle, or each trains for itself."""

import pytest
from lightning import Trainer
from smoke.fit_config import refuse_other_processes

ELASTIC = {"TORCHELASTIC_RUN_ID": "none", "RANK": "0", "LOCAL_RANK": "0"}
SRUN = {"SLURM_JOB_ID": "1", "SLURM_JOB_NAME": "train", "SLURM_PROCID": "0", "SLURM_LOCALID": "0", "SLURM_NODEID": "0"}
# Number of processes in all and on this node.
LAUNCHERS = {
    "torchrun": lambda total, here: ELASTIC | {"WORLD_SIZE": total, "LOCAL_WORLD_SIZE": here},
    "SLURM": lambda total, here: SRUN | {"SLURM_NTASKS": total, "SLURM_NTASKS_PER_NODE": here},
}
# Processes in all and on this node, devices, nodes.
MISMATCHES = {
    "more processes": ("2", "2", 1, 1),
    "fewer processes": ("1", "1", 2, 1),
    "all on one of two nodes": ("2", "2", 1, 2),
    "one of two nodes": ("2", "2", 2, 2),
}


def start(monkeypatch, launcher, total, here):
    for name, value in LAUNCHERS[launcher](total, here).items():
        monkeypatch.setenv(name, value)


def make_trainer(devices, nodes):
    strategy = "ddp" if devices * nodes > 1 else "auto"
    return Trainer(accelerator="cpu", devices=devices, num_nodes=nodes, strategy=strategy, logger=False)


@pytest.mark.parametrize("case", MISMATCHES)
@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_a_number_of_processes_that_is_not_that_of_the_devices_is_refused(launcher, case, monkeypatch):
    total, here, devices, nodes = MISMATCHES[case]
    start(monkeypatch, launcher, total, here)
    with pytest.raises(ValueError, match=f"{launcher} started {total} processes, {here} of them on this node, but"):
        refuse_other_processes(make_trainer(devices, nodes))


@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_one_process_for_each_device_is_fine(launcher, monkeypatch):
    start(monkeypatch, launcher, "4", "2")
    refuse_other_processes(make_trainer(2, 2))


def test_who_starts_processes_by_lightning_is_left_alone():
    refuse_other_processes(make_trainer(2, 1))
