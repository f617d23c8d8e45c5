"""Servers as a user starts them: a free port, a process, a look whether it answers, a clean end."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil

from helpers.served import free_port

__all__ = ["Server", "attnlab_pages", "jupyter_lab", "stock_voila", "until"]

START_SECONDS = 90
STOP_SECONDS = 20


@dataclass(frozen=True)
class Server:
    """A running server."""

    url: str
    """Its base address, with a slash at the end."""
    process: subprocess.Popen[bytes]
    log: Path

    def kernels(self) -> dict[str, int]:
        """Id → process number of each kernel that listens now."""
        process = {}
        for child in psutil.Process(self.process.pid).children(recursive=True):
            with contextlib.suppress(psutil.Error):
                for connection in child.net_connections("tcp"):
                    if connection.status == psutil.CONN_LISTEN:
                        process[connection.laddr.port] = child.pid
        found = {}
        for file in Path(tempfile.gettempdir()).glob("voila_*/kernel-*.json"):
            # Files of kernels that are gone may lie about; one that is just being written says nothing yet.
            with contextlib.suppress(OSError, ValueError):
                port = json.loads(file.read_text())["shell_port"]
                if port in process:
                    found[file.stem.removeprefix("kernel-")] = process[port]
        return found


def until(holds: Callable[[], object], *, seconds: float, what: str) -> None:
    """Waits until `holds()` is true; fails with `what` and the last answer after `seconds`."""
    end = time.monotonic() + seconds
    while not (last := holds()):
        if time.monotonic() > end:
            raise AssertionError(f"not within {seconds:g} s: {what} (last: {last!r})")
        time.sleep(0.05)


@contextmanager
def attnlab_pages(folder: Path, *arguments: str, base_url: str = "/", prelude: str = "") -> Iterator[Server]:
    """`attnlab serve` with these arguments; its log is written into `folder`.

    `prelude` is Python that runs before: for times that nobody wants to wait for in a test.
    """
    port = free_port()
    program = f"import sys\n{prelude}\nfrom attnlab.explorables.command import main\nsys.exit(main())"
    start = ("-c", program) if prelude else ("-m", "attnlab.explorables.command")
    command = [
        *(sys.executable, *start, "serve", "--no-browser"),
        *("--port", str(port), "--base-url", base_url),
        *arguments,
    ]
    with _running(command, f"http://localhost:{port}{base_url}", folder / "pages.log", folder) as server:
        yield server


@contextmanager
def jupyter_lab(folder: Path, notebooks: Path) -> Iterator[Server]:
    """JupyterLab on the folder `notebooks`, with no settings but its own defaults."""
    port = free_port()
    command = [
        *(sys.executable, "-m", "jupyterlab", "--no-browser", "--allow-root"),
        f"--ServerApp.port={port}",
        "--ServerApp.port_retries=0",
        f"--ServerApp.root_dir={notebooks}",
        "--IdentityProvider.token=",
        "--LabApp.news_url=None",
        "--LabApp.check_for_updates_class=jupyterlab.NeverCheckForUpdate",
        "--LabApp.extension_manager=readonly",
    ]
    settings = {
        "JUPYTER_CONFIG_DIR": str(folder / "config"),
        "JUPYTERLAB_SETTINGS_DIR": str(folder / "settings"),
        "JUPYTERLAB_WORKSPACES_DIR": str(folder / "workspaces"),
    }
    with _running(command, f"http://localhost:{port}/", folder / "lab.log", folder, settings) as server:
        yield server


@contextmanager
def stock_voila(folder: Path, notebook: Path) -> Iterator[Server]:
    """Voilà itself on one notebook, as anybody would start it."""
    port = free_port()
    command = [*(sys.executable, "-m", "voila", str(notebook)), "--no-browser", f"--port={port}"]
    # Its only page starts a kernel; a script of its own doesn't.
    ready = f"http://localhost:{port}/voila/static/voila.js"
    with _running(command, ready, folder / "voila.log", folder) as server:
        yield Server(f"http://localhost:{port}/", server.process, server.log)


@contextmanager
def _running(
    command: Sequence[str], url: str, log: Path, folder: Path, settings: Mapping[str, str] | None = None
) -> Iterator[Server]:
    environment = {**os.environ, **(settings or {})}
    with log.open("wb") as out:
        process = subprocess.Popen(
            command, stdout=out, stderr=subprocess.STDOUT, cwd=folder, env=environment, start_new_session=True
        )
    try:
        deadline = time.monotonic() + START_SECONDS
        while not _answers(url):
            if process.poll() is not None or time.monotonic() > deadline:
                raise AssertionError(f"{' '.join(command)} did not start:\n{log.read_text()[-3000:]}")
            time.sleep(0.1)
        yield Server(url, process, log)
    finally:
        children = psutil.Process(process.pid).children(recursive=True) if process.poll() is None else []
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        # Nothing of a test may outlive it, not even what a server left behind.
        for child in psutil.wait_procs(children, timeout=2)[1]:
            with contextlib.suppress(psutil.Error):
                child.kill()


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=5) as response:
            return bool(response.status == 200)
    except (urllib.error.URLError, OSError):
        return False
