"""The project's server in processes of its own, and clients that need not be polite."""

import contextlib
import http.client
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from projects import Project

SECONDS = 60.0  # far beyond what any of this needs: it hangs
Body = bytes | Iterator[bytes] | None
Headers = dict[str, str]
Answer = tuple[int, bytes]


def members(group: int) -> Iterator[Path]:
    """Folders in /proc of the processes of a group that still run."""
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it has ended meanwhile
            state, _, member_of = (folder / "stat").read_text("utf-8").rpartition(") ")[2].split()[:3]
            if state != "Z" and int(member_of) == group:
                yield folder


@dataclass(frozen=True)
class Server:
    """A server in a process group of its own."""

    process: subprocess.Popen[bytes]
    port: int

    def ask(self, method: str, path: str, body: Body = None, headers: Headers | None = None) -> Answer:
        """Send a request on a connection of its own."""
        with contextlib.closing(http.client.HTTPConnection("127.0.0.1", self.port, timeout=SECONDS)) as connection:
            connection.request(method, path, body, headers or {})
            response = connection.getresponse()
            return response.status, response.read()

    def classify(self, body: Body, headers: Headers | None = None) -> Answer:
        """Upload what should be an image."""
        return self.ask("POST", "/predict", body, headers)

    def speak(self, content: bytes) -> bytes:
        """Send bytes that need not be HTTP, end there, and return the first line that comes."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=SECONDS) as connection:
            connection.sendall(content)
            connection.shutdown(socket.SHUT_WR)
            return connection.makefile("rb").readline()

    def memory(self, key: str) -> int:
        """Bytes of all its processes: VmRSS is what each holds, VmHWM the most that it ever held."""
        lines = [line for folder in members(self.process.pid) for line in (folder / "status").open(encoding="utf-8")]
        return sum(1024 * int(line.split()[1]) for line in lines if line.startswith(key))

    def is_healthy(self) -> bool:
        """Whether it says so; an error if it has ended."""
        assert self.process.poll() is None, "the server ended"
        with contextlib.suppress(ConnectionError):
            return self.ask("GET", "/health")[0] == http.HTTPStatus.OK
        return False


def wait_for(condition: Callable[[], bool]) -> None:
    """Ask until it holds."""
    deadline = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < deadline, "it takes too long"
        time.sleep(0.05)


def start(project: Project, bundle: Path, *options: str) -> Server:
    """Start the server where nothing of the project can be imported; its output goes to a file beside the bundle."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    program = project.folder / "deploy" / "server" / "server.py"
    command = [sys.executable, str(program), f"--bundle={bundle}", f"--port={port}", *options]
    environment = {"PYTHONPATH": "", "OMP_NUM_THREADS": "1", "HOME": str(bundle.parent)}
    with bundle.with_suffix(".log").open("wb") as log:
        process = subprocess.Popen(
            command, cwd=bundle.parent, env=environment, stdout=log, stderr=log, start_new_session=True
        )
    return Server(process, port)


def kill(server: Server) -> None:
    """End whatever is left of the group that was started here."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(server.process.pid, signal.SIGKILL)
    server.process.wait(SECONDS)
