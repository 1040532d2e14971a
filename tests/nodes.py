"""Two nodes on one machine: network namespaces with a cable between them, in a user namespace that needs no root."""

import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

ADDRESSES = ("10.77.0.1", "10.77.0.2")
INTERFACE = "cable"
TOOLS = ("ip", "nsenter", "unshare")
OWN_USERS = ("unshare", "--user", "--map-root-user")


@dataclass(frozen=True)
class Node:
    """A network of its own; it is there as long as the process that holds it."""

    address: str
    holder: int

    @property
    def network(self) -> tuple[str, ...]:
        """Put before a command, runs it in this network."""
        return ("nsenter", f"--target={self.holder}", "--user", "--net", "--preserve-credentials")

    @property
    def machine(self) -> tuple[str, ...]:
        """Put before a command, runs it here with all that it starts: with the first process, all die at once."""
        return (*self.network, "unshare", "--pid", "--fork", "--kill-child=KILL")

    def configure(self, *command: str) -> None:
        """Change this network."""
        subprocess.run((*self.network, "ip", *command), check=True)


@contextmanager
def _held(*within: str) -> Iterator[int]:
    """A process in a new network, which ends with its standard input."""
    command = (*within, "--net", "sh", "-c", "echo ready && exec cat")
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout and process.stdout.readline() == "ready\n"
        yield process.pid


@contextmanager
def two_nodes() -> Iterator[tuple[Node, Node]]:
    """Two nodes that reach each other by their addresses, and nothing else."""
    with ExitStack() as stack:
        first = Node(ADDRESSES[0], stack.enter_context(_held(*OWN_USERS)))
        second = Node(ADDRESSES[1], stack.enter_context(_held(*first.network, "unshare")))
        first.configure("link", "add", INTERFACE, "type", "veth", "peer", INTERFACE, "netns", str(second.holder))
        for node in (first, second):
            node.configure("address", "add", f"{node.address}/24", "dev", INTERFACE)
            for interface in ("lo", INTERFACE):
                node.configure("link", "set", interface, "up")
        yield first, second


def kill_node(process: subprocess.Popen[str]) -> None:
    """What a power cut does to all that was started on the node; its network closes their connections."""
    process.kill()
    assert process.wait() == -signal.SIGKILL


def why_no_nodes() -> str:
    """Why this machine has no such nodes, or nothing."""
    if not all(map(shutil.which, TOOLS)):
        return f"no {', '.join(TOOLS)}"
    try:
        with two_nodes():
            return ""
    except (AssertionError, subprocess.CalledProcessError):
        return "no network namespaces"
