"""Uses the installed wheel from an empty folder; run by `tests/wheel`, not by pytest."""

import re
import subprocess
import sys
import time
import urllib.error
from importlib.resources import files

import attnlab.engine
from attnlab.widgets import AttentionExplorable
from helpers.served import faults, fetch, free_port


def main() -> None:
    if "site-packages" not in str(attnlab.engine.__file__):
        sys.exit(f"expected the installed wheel, got {attnlab.engine.__file__}")
    explorable = AttentionExplorable(preset="two keys")
    if abs(explorable.output.item() - 13.3024) > 5e-5:
        sys.exit(f"two keys: expected 13.3024, got {explorable.output.item()}")
    if "createRequests" not in explorable.view._esm or ".attnlab-cell" not in explorable.view._css:
        sys.exit("the scripts or styles are missing from the wheel")
    if "<svg" not in explorable.figure("weights").svg():
        sys.exit("expected an SVG figure")
    notebooks = [f.name for f in files("attnlab.explorables").iterdir() if f.name.endswith(".ipynb")]
    if "01-attention.ipynb" not in notebooks:
        sys.exit(f"expected 01-attention.ipynb in the wheel, got {notebooks}")
    _serve()
    print("wheel: engine, widgets, figure, notebooks and the served page work from the installed wheel")


def _serve() -> None:
    port = free_port()
    server = subprocess.Popen(
        ["attnlab", "serve", "--no-browser", "--ip", "127.0.0.1", "--port", str(port), "--warm", "0"]
    )
    try:
        page = _get(f"http://127.0.0.1:{port}/attention")
        if not re.search(r"<h1[^>]*>\s*What does one query read\?", page):
            sys.exit("the served page has no title of its own")
        if found := faults(page):
            sys.exit(f"the served page is not complete: {'; '.join(found)}")
    finally:
        server.terminate()
        server.wait(30)


def _get(url: str) -> str:
    deadline = time.monotonic() + 90
    while True:
        try:
            return fetch(url).text
        except (urllib.error.URLError, ConnectionError):
            if time.monotonic() > deadline:
                raise
            time.sleep(0.2)  # between two attempts; the condition is the answer itself


if __name__ == "__main__":
    main()
