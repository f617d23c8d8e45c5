"""Pictures for the front page: each notebook's own explorable, computed when the page is first asked for.

Run as a program of its own (`python -m attnlab.explorables.thumbnails FOLDER`), so that the server needs no
PyTorch and a notebook that fails costs its picture and nothing else.
"""

import ast
import asyncio
import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from attnlab.explorables.catalogue import Catalogue

__all__ = ["Thumbnails"]

_SECONDS = 90


class Thumbnails:
    """The pictures of one folder, made once."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._made: asyncio.Task[Mapping[str, str]] | None = None

    async def svg(self, slug: str) -> str | None:
        """The picture of a page as SVG, or None when it has none."""
        if self._made is None:
            self._made = asyncio.ensure_future(_run(self._folder))
        # Shielded: a visitor who leaves must not take the picture from the others.
        return (await asyncio.shield(self._made)).get(slug)


async def _run(folder: Path) -> Mapping[str, str]:
    program = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", __name__, str(folder)),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
        env={"OMP_NUM_THREADS": "1", **os.environ},
    )
    try:
        output, _ = await asyncio.wait_for(program.communicate(), _SECONDS)
        found: Mapping[str, str] = json.loads(output)
    except (TimeoutError, ValueError):
        found = {}
    finally:
        if program.returncode is None:
            program.kill()
    return found


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


def _main(folder: Path) -> None:
    found = {}
    for explorable in Catalogue.of(folder):
        try:
            picture = _picture(folder / explorable.file)
        except Exception as error:  # somebody's own notebook may fail in any way
            print(f"{explorable.file}: {error!r}", file=sys.stderr)
            continue
        if picture is not None:
            found[explorable.slug] = picture
    json.dump(found, sys.stdout)


if __name__ == "__main__":
    _main(Path(sys.argv[1]))
