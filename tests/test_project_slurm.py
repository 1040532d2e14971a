"""A real SLURM stops a job, queues it again, and its run ends as if nothing had happened."""

import shlex
import sys
from collections.abc import Iterator

import pytest
import torch
from projects import Project, bake_project
from slurm import Environment, command, end_of, is_installed, slurm, wait_for
from test_project_resume import read_last
from test_project_wandb import identity, offline_ids

needs_slurm = pytest.mark.skipif(not is_installed(), reason="no slurmctld, slurmd or munged")
SCRIPT = "scripts/train.sbatch"
TWO_TASKS = ("--ntasks-per-node=2", "--gpus-per-node=2", "--cpus-per-task=1")
TWO_RANKS = ("-c", "configs/ddp.yaml", "--trainer.devices", "2", "--trainer.accelerator", "cpu")
LENGTH = ("--trainer.max_epochs", "5", "--trainer.limit_train_batches", "11", "--trainer.log_every_n_steps", "1")
PROGRAM = f'#!/bin/sh\nexec {sys.executable} -m smoke "$@"\n'
STOPPING = """#!/bin/sh
trap 'exit 143' TERM
touch started
while :; do sleep 0.1; done
"""
NOTE = """#!/bin/sh
echo "$@" >> calls
[ "$(wc -l < calls)" -gt 1 ] || exit 143
"""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Environment]:
    with slurm(tmp_path_factory.mktemp("slurm")) as env:
        yield env


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Project:
    return bake_project(tmp_path_factory.mktemp("cluster"), {"slurm": "yes", "logger": "wandb"})


def install(project: Project, program: str) -> None:
    """Put a program where the script looks for the project's command."""
    path = project.folder / ".venv" / "bin" / "smoke"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(program, encoding="utf-8")
    path.chmod(0o755)


def submit(project: Project, cluster: Environment, *args: str) -> str:
    """Submit a job; returns its job."""
    given = {"PYTHONPATH": str(project.folder / "src"), "OMP_NUM_THREADS": "1", "WANDB_MODE": "offline"}
    return command(cluster | given, "sbatch", "--parsable", *args, cwd=project.folder)


def output_of(project: Project, job: str) -> str:
    return (project.folder / f"slurm-{job}.out").read_text(encoding="utf-8")


@needs_slurm
def test_a_job_that_is_stopped_and_queued_again_equals_one_that_was_not(project: Project, cluster: Environment) -> None:
    install(project, PROGRAM)
    whole = project.fit(*TWO_RANKS, *LENGTH, env={"WANDB_MODE": "offline"})
    job = submit(project, cluster, *TWO_TASKS, SCRIPT, *TWO_RANKS, *LENGTH)
    project.wait_for_step(12)
    command(cluster, "scancel", "--signal=TERM", job)
    assert end_of(cluster, job) == ("COMPLETED", 0), output_of(project, job)
    (run,) = set(project.runs()) - {whole}
    assert run.name.endswith(f"_{job}")
    assert output_of(project, job).count(f"resuming {run.relative_to(project.folder)} ") == 1
    torch.testing.assert_close(read_last(run), read_last(whole), rtol=0, atol=0)
    assert (run / "metrics.csv").read_text(encoding="utf-8") == (whole / "metrics.csv").read_text(encoding="utf-8")
    assert set(offline_ids(run)) == {identity(run)}


@needs_slurm
def test_without_a_checkpoint_of_its_own_a_job_starts_anew(project: Project, cluster: Environment) -> None:
    install(project, NOTE)
    other = project.folder / "runs" / "of" / "2026-01-01_00-00-00_9999" / "checkpoints"
    other.mkdir(parents=True)
    (other / "last.ckpt").touch()
    job = submit(project, cluster, SCRIPT, "--name", "anew")
    assert end_of(cluster, job) == ("COMPLETED", 0)
    assert (project.folder / "calls").read_text(encoding="utf-8") == "fit --name anew\n" * 2


@needs_slurm
def test_a_mistake_is_not_queued_again(project: Project, cluster: Environment) -> None:
    install(project, "#!/bin/sh\nexit 2\n")
    job = submit(project, cluster, SCRIPT)
    assert end_of(cluster, job) == ("FAILED", 2)


@needs_slurm
def test_fewer_tasks_than_devices_are_refused(project: Project, cluster: Environment) -> None:
    install(project, PROGRAM)
    job = submit(project, cluster, "--ntasks-per-node=1", SCRIPT, *TWO_RANKS)
    assert end_of(cluster, job) == ("FAILED", 2)
    lines = [line for line in output_of(project, job).splitlines() if line.startswith("python -m smoke fit: ")]
    assert len(lines) == 1 and "SLURM started 1 processes" in lines[0]


@needs_slurm
def test_a_job_that_a_person_cancels_is_not_queued_again(project: Project, cluster: Environment) -> None:
    install(project, STOPPING)
    job = submit(project, cluster, SCRIPT)
    wait_for("started", cluster, "ls", str(project.folder))
    command(cluster, "scancel", job)
    assert end_of(cluster, job)[0] == "CANCELLED"
    assert "Restarts=0" in command(cluster, "scontrol", "show", "job", job)


@needs_slurm
def test_slurm_takes_the_commands_of_the_page(project: Project, cluster: Environment) -> None:
    lines = (project.folder / "docs" / "scale.md").read_text(encoding="utf-8").splitlines()
    found = [shlex.split(line)[1:] for line in lines if line.startswith("sbatch ")]
    assert found
    for args in found:
        place = args.index(SCRIPT)  # this cluster has one node
        command(cluster, "sbatch", "--test-only", *args[:place], "--nodes=1", *args[place:], cwd=project.folder)
