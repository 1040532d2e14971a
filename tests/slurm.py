"""A SLURM of one node on loopback, run by whoever runs the tests; its daemons live as long as the block."""

import getpass
import os
import re
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "srun")
FOLDERS = f"{os.environ['PATH']}:/usr/sbin:/usr/local/sbin"
# The node promises what it has not, so that the script's own lines fit in. A requeued job waits for cred_expire.
CONF = """\
ClusterName=test
SlurmctldHost=localhost(127.0.0.1)
SlurmctldPort={controller}
SlurmdPort={daemon}
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
AuthInfo=socket={folder}/munge,cred_expire=5
CredType=cred/munge
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SwitchType=switch/none
MpiDefault=none
ReturnToService=2
SchedulerParameters=batch_sched_delay=0,sched_interval=1
SlurmdParameters=config_overrides
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
GresTypes=gpu
NodeName=localhost NodeAddr=127.0.0.1 CPUs=64 RealMemory=64000 Gres=gpu:4
PartitionName=main Nodes=ALL Default=YES
"""
GRES = "".join(f"Name=gpu File=/dev/{name}\n" for name in ("null", "zero", "full", "random"))
SECONDS = 300.0
Environment = dict[str, str]


def is_installed() -> bool:
    """Whether the daemons and the commands are there."""
    return all(shutil.which(program, path=FOLDERS) for program in PROGRAMS)


def _free_ports(number: int) -> list[int]:
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(number)]
        for free in sockets:
            free.bind(("127.0.0.1", 0))
        return [free.getsockname()[1] for free in sockets]


def _write_settings(folder: Path) -> None:
    for name in ("state", "spool"):
        (folder / name).mkdir(parents=True)
    controller, daemon = _free_ports(2)
    text = CONF.format(controller=controller, daemon=daemon, user=getpass.getuser(), folder=folder)
    (folder / "slurm.conf").write_text(text, encoding="utf-8")
    (folder / "gres.conf").write_text(GRES, encoding="utf-8")
    key = folder / "key"
    key.touch(mode=0o600)
    key.write_bytes(os.urandom(128))


@contextmanager
def _daemon(log: Path, *command: str) -> Iterator[None]:
    with log.open("wb") as output:
        env = os.environ | {"PATH": FOLDERS}
        process = subprocess.Popen(command, env=env, stdin=subprocess.DEVNULL, stdout=output, stderr=output)
    try:
        yield
    finally:
        process.terminate()
        process.wait(timeout=SECONDS)


def command(env: Environment, *args: str, cwd: Path | None = None) -> str:
    """What one of SLURM's commands prints."""
    done = subprocess.run(args, env=os.environ | env, cwd=cwd, check=True, capture_output=True, text=True)
    return done.stdout.strip()


def wait_for(pattern: str, env: Environment, *args: str) -> re.Match[str]:
    """Ask until the answer has this pattern."""
    deadline = time.monotonic() + SECONDS
    while not (found := re.search(pattern, answer := command(env, *args))):
        assert time.monotonic() < deadline, f"{args} never said {pattern!r}, but {answer}"
        time.sleep(0.2)
    return found


def end_of(env: Environment, job: str) -> tuple[str, int]:
    """State and exit code with which a job ends."""
    pattern = r"JobState=(COMPLETED|FAILED|CANCELLED) (?:.|\n)*ExitCode=(\d+):"
    ended = wait_for(pattern, env, "scontrol", "show", "job", job)
    return ended[1], int(ended[2])


@contextmanager
def slurm(folder: Path) -> Iterator[Environment]:
    """A cluster that is ready for jobs; gives the environment in which its commands find it."""
    _write_settings(folder)
    env = {"SLURM_CONF": f"{folder}/slurm.conf"}
    munge = [f"--{key}={folder}/{key.partition('-')[0]}" for key in ("key-file", "seed-file")]
    munge += [f"--socket={folder}/munge", f"--pid-file={folder}/munged.pid", f"--log-file={folder}/munged.log"]
    conf = f"{folder}/slurm.conf"
    with (
        _daemon(folder / "munged.out", "munged", "--foreground", "--force", *munge),
        _daemon(folder / "slurmctld.log", "slurmctld", "-D", "-f", conf),
        _daemon(folder / "slurmd.log", "slurmd", "-D", "-N", "localhost", "-f", conf),
    ):
        wait_for("idle", env, "sinfo", "--noheader", "--format=%T")
        yield env
