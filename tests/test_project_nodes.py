"""Two nodes train together; when one dies, the other says so and ends, and both go on from the checkpoint."""

import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch
from nodes import ADDRESSES, INTERFACE, Node, kill_node, two_nodes, why_no_nodes
from projects import Project, bake_project
from test_project_resume import files_of, read_last

NO_NODES = why_no_nodes()
pytestmark = pytest.mark.skipif(bool(NO_NODES), reason=NO_NODES)
ONE_EACH = ("-c", "configs/ddp.yaml", "--trainer.num_nodes", "2", "--trainer.devices", "1")
ON_CPUS = ("--trainer.accelerator", "cpu", "--trainer.log_every_n_steps", "1", "--trainer.max_epochs", "8")
IN_MID_EPOCH = ("--last_checkpoint.every_n_train_steps", "4")
ENDS_WITHIN = 60.0  # seconds after the other node's death
SECONDS = 300.0
Processes = list[subprocess.Popen[str]]


@pytest.fixture(scope="module")
def nodes() -> Iterator[tuple[Node, Node]]:
    with two_nodes() as nodes:
        yield nodes


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Project:
    return bake_project(tmp_path_factory.mktemp("nodes"), {"logger": "csv"})


@contextmanager
def started(project: Project, nodes: tuple[Node, Node], *args: str | Path) -> Iterator[Processes]:
    """torchrun on each node, as docs/scale.md says."""
    agents: Processes = []
    try:
        for rank, node in enumerate(nodes):
            torchrun = (f"--node-rank={rank}", "--nnodes=2", "--nproc-per-node=1", f"--master-addr={ADDRESSES[0]}")
            command = ("torch.distributed.run", *torchrun, "--master-port=29500", "-m", "smoke", "fit", *args)
            agents.append(project.start(*command, env={"GLOO_SOCKET_IFNAME": INTERFACE}, within=node.machine))
        yield agents
    finally:
        for agent in agents:
            agent.kill()
            agent.communicate()


def lose_a_node(project: Project, agents: Processes, *, lost: int, step: int) -> None:
    """Kill one node; the other must end in time with one line that names it."""
    project.wait_for_step(step, agents[lost])
    kill_node(agents[lost])
    stderr = agents[1 - lost].communicate(timeout=ENDS_WITHIN)[1]
    assert agents[1 - lost].returncode == 1, stderr
    (line,) = [line for line in stderr.splitlines() if line.startswith("python -m smoke fit: ")]
    print(line)
    assert re.search(rf"another process of this run, or its node, is lost: .*\[{re.escape(ADDRESSES[lost])}\]", line)
    assert "go on with: python -m smoke fit --resume" in line


def test_a_run_that_loses_each_node_once_ends_like_one_on_a_single_machine(
    project: Project, nodes: tuple[Node, Node]
) -> None:
    whole = project.fit("-c", "configs/ddp.yaml", *ON_CPUS, *IN_MID_EPOCH)
    with started(project, nodes, *ONE_EACH, *ON_CPUS, *IN_MID_EPOCH) as agents:
        lose_a_node(project, agents, lost=0, step=15)
    (run,) = set(project.runs()) - {whole}
    with started(project, nodes, "--resume") as agents:
        lose_a_node(project, agents, lost=1, step=project.last_step() + 15)
    with started(project, nodes, "--resume", run) as agents:
        for agent in agents:
            stderr = agent.communicate(timeout=SECONDS)[1]
            assert agent.returncode == 0, stderr
    assert set(project.runs()) == {whole, run}
    assert files_of(run) == files_of(whole)
    torch.testing.assert_close(read_last(run), read_last(whole), rtol=0, atol=0)
    assert (run / "metrics.csv").read_text(encoding="utf-8") == (whole / "metrics.csv").read_text(encoding="utf-8")
