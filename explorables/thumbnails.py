"""Pictures for the front page: each notebook's own explorable, computed when the page is first asked for.

Run as a program of its own (`python -m attnlab.explorables.thumbnails FOLDER SLUG …`), so that the server
needs no PyTorch and a notebook that fails costs its picture and nothing else. It answers with a line of JSON
for each slug, as soon as it can: the slug and its picture, or null where there is none. Each picture is shown
when it is there, not when all are.
"""

import ast
import asyncio
import json
import logging
import math
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from attnlab.explorables.answers import answers_only
from attnlab.explorables.catalogue import Catalogue

__all__ = ["Thumbnails"]

_SECONDS = 90.0  # for all pictures together
_PAUSE = 300.0  # seconds before those are tried again that a program owes us which failed or took too long
# -P: a module of the folder that the server was started in must not stand for another one.
_COMMAND = (sys.executable, "-P", "-m", "attnlab.explorables.thumbnails")


class Thumbnails:
    """The pictures of one catalogue; each is made once."""

    def __init__(self, catalogue: Catalogue) -> None:
        self._folder = catalogue.folder.resolve()
        self._owed = [explorable.slug for explorable in catalogue]
        self._made: dict[str, str | None] = {}
        self._making: asyncio.Future[None] | None = None
        self._awaited: dict[str, asyncio.Future[None]] = {}
        self._tried = -math.inf
        self._program: subprocess.Popen[bytes] | None = None
        self._closed = False

    async def svg(self, slug: str) -> str | None:
        """The picture of a page as SVG, or None when it has none."""
        if slug not in self._made:
            idle = self._making is None or self._making.done()
            loop = asyncio.get_running_loop()
            if idle and time.monotonic() - self._tried >= _PAUSE:
                # A thread, because not every event loop has processes: on Windows Voilà's has none.
                self._making = asyncio.ensure_future(asyncio.to_thread(self._make, loop))
            if self._making and not self._making.done():
                own = self._awaited.setdefault(slug, loop.create_future())
                # A visitor who leaves takes the picture from nobody: what is waited for here goes on.
                await asyncio.wait((self._making, own), return_when=asyncio.FIRST_COMPLETED)
                self._awaited.pop(slug, None)  # also where the program ended without it
        return self._made.get(slug)

    def close(self) -> None:
        """End what still computes."""
        self._closed = True
        if self._program:
            self._program.kill()

    def _arrived(self, slug: str) -> None:
        if (own := self._awaited.pop(slug, None)) is not None:
            own.set_result(None)

    def _make(self, loop: asyncio.AbstractEventLoop) -> None:
        """Run the program for what is owed, and keep what it has finished even if it fails later."""
        try:
            with tempfile.TemporaryDirectory(prefix="attnlab-") as empty:  # as for the kernels of the pages
                complaints = self._run(empty, loop)
        except OSError as error:  # no memory, no process, no room
            complaints = str(error)
        if complaints and not self._closed:
            logging.getLogger(__name__).warning("Pictures: %s", complaints)
        owed = [slug for slug in self._owed if slug not in self._made]
        # The first is the one that the program came to grief with; next time the others come first.
        self._owed = owed[1:] + owed[:1]
        self._tried = time.monotonic()

    def _run(self, empty: str, loop: asyncio.AbstractEventLoop) -> str:
        """Take what the program answers. Returns what it complains of, or we of it."""
        with tempfile.TemporaryFile() as said:
            self._program = subprocess.Popen(
                [*_COMMAND, str(self._folder), *self._owed],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=said,
                cwd=empty,
                env={"OMP_NUM_THREADS": "1", **os.environ},
            )
            late = threading.Timer(_SECONDS, self._program.kill)
            late.start()
            with self._program as program:
                if self._closed:
                    program.kill()
                assert program.stdout is not None
                for line in program.stdout:
                    if line.endswith(b"\n"):  # else it was cut off
                        slug, self._made[slug] = json.loads(line)
                        with suppress(RuntimeError):  # the server has ended meanwhile
                            loop.call_soon_threadsafe(self._arrived, slug)
            end = ""
            if late.finished.is_set():
                end = f"not ready after {_SECONDS:g} seconds"
            elif program.returncode:
                end = f"the program ended with status {program.returncode}"
            late.cancel()
            said.seek(0)
            return "\n".join(filter(None, (said.read().decode(errors="replace").strip(), end)))


def _picture(notebook: Path) -> str | None:
    """The figure of the first explorable that the notebook's own lines make."""
    names: dict[str, Any] = {}
    for cell in json.loads(notebook.read_text(encoding="utf-8"))["cells"]:
        if cell["cell_type"] != "code":
            continue
        *lines, last = ast.parse("".join(cell["source"])).body
        exec(compile(ast.Module(lines, []), notebook.name, "exec"), names)
        if isinstance(last, ast.Expr):
            made = eval(compile(ast.Expression(last.value), notebook.name, "eval"), names)
            if hasattr(made, "figure"):
                svg: str = made.figure().svg()
                return svg
        else:
            exec(compile(ast.Module([last], []), notebook.name, "exec"), names)
    return None


def _main(folder: Path, slugs: Sequence[str]) -> None:
    answers = answers_only()
    catalogue = Catalogue.of(folder)
    for slug in slugs:
        explorable = catalogue.find(slug)
        picture = None
        try:
            picture = _picture(folder / explorable.file) if explorable else None
        except Exception as error:  # somebody's own notebook may fail in any way
            print(f"{slug}: {error!r}", file=sys.stderr)
        with open(answers, "wb", closefd=False) as line:
            line.write(json.dumps([slug, picture]).encode() + b"\n")


if __name__ == "__main__":
    _main(Path(sys.argv[1]), sys.argv[2:])
