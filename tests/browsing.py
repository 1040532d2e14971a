"""Headless Chromium, to which a folder that is served here is the whole world."""

import functools
import os
import queue
import shutil
import signal
import subprocess
import threading
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "google-chrome", "chromium-browser"))), None)
ONLY_HERE = "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1"
SECONDS = 120.0  # far beyond what a page here needs: it hangs


class _Server(ThreadingHTTPServer):
    def __init__(self, folder: Path) -> None:
        self.reports: queue.Queue[str] = queue.Queue()
        super().__init__(("127.0.0.1", 0), functools.partial(_Handler, directory=str(folder)))


class _Handler(SimpleHTTPRequestHandler):
    server: _Server

    def do_POST(self) -> None:
        self.server.reports.put(self.rfile.read(int(self.headers["Content-Length"])).decode())
        self.send_response(204)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


def visit(site: Path, page: str, profile: Path) -> str:
    """Open a page of the folder, and return what it sends by POST."""
    with _Server(site) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        options = ("--headless=new", "--no-sandbox", "--disable-gpu", ONLY_HERE, f"--user-data-dir={profile}")
        command = [str(CHROMIUM), *options, f"http://127.0.0.1:{server.server_port}/{page}"]
        browser = subprocess.Popen(command, stderr=subprocess.DEVNULL, start_new_session=True)
        try:
            return server.reports.get(timeout=SECONDS)
        finally:
            os.killpg(browser.pid, signal.SIGKILL)
            browser.wait()
            server.shutdown()
