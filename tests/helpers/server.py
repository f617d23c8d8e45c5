"""Servers for tests and measurements, each ready when its address answers and ended at the end."""

import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

BIN = Path(sys.executable).parent
START_SECONDS = 90


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def wait_for(url: str, process: subprocess.Popen) -> None:
    """Returns when `url` answers. Raises `RuntimeError` when the process has ended or after 90 s."""
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise RuntimeError(f"the server ended with status {process.returncode}")
        try:
            with urllib.request.urlopen(url, timeout=30):
                return
        except urllib.error.HTTPError:
            return
        except (urllib.error.URLError, ConnectionError, TimeoutError):
            time.sleep(0.1)  # between two looks at the condition
    raise RuntimeError(f"no answer from {url} within {START_SECONDS} s")


@contextmanager
def running(command: Sequence[str], url: str, cwd: Path | None = None) -> Iterator[str]:
    """Runs `command` from this environment's tools while the block runs; yields `url` once it answers."""
    environment = os.environ | {
        "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}",
        "JUPYTER_PREFER_ENV_PATH": "1",
    }
    process = subprocess.Popen(
        command, env=environment, cwd=cwd, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        wait_for(url, process)
        yield url
    finally:
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()


@contextmanager
def attnlab_server(
    folder: Path | None = None, *, warm: int = 1, options: Sequence[str] = ()
) -> Iterator[str]:
    """`attnlab serve` on a free port, on the shipped notebooks or those of `folder`; yields its address."""
    port = free_port()
    command = [str(BIN / "attnlab"), "serve", "--no-browser", "--ip", "127.0.0.1", "--port", str(port)]
    command += ["--warm", str(warm), *(["--notebooks", str(folder)] if folder else []), *options]
    with running(command, f"http://127.0.0.1:{port}/") as url:
        yield url


@contextmanager
def voila_server(notebook: Path) -> Iterator[str]:
    """Stock Voilà on one notebook, as anybody would start it; yields its address."""
    port = free_port()
    command = [str(BIN / "voila"), str(notebook), "--no-browser", "--Voila.ip=127.0.0.1", f"--port={port}"]
    # Its only page starts a kernel; the icon doesn't.
    url = f"http://127.0.0.1:{port}/"
    with running(command, f"{url}voila/static/voila.js"):
        yield url
