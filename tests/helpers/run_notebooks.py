"""Runs notebooks as the server of pages does, in a process of its own: nbclient leaves its event loop open.

`python run_notebooks.py FOLDER NOTEBOOK…` writes each, with its outputs, into the folder; one that fails is
written as `.failed`, with the reason.
"""

import asyncio
import sys
from pathlib import Path

import nbformat
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError

from attnlab.explorables.kernels import ThisPython, WarmKernels


async def main(folder: Path, paths: list[Path]) -> None:
    """Run one after the other, each with a kernel of its own."""
    kernels = WarmKernels(warm=0, kernel_spec_manager=ThisPython())
    try:
        for path in paths:
            kernel = kernels.get_kernel(await kernels.start_kernel())
            notebook = nbformat.read(path, as_version=4)
            try:
                await NotebookClient(notebook, km=kernel, timeout=120).async_execute()
            except CellExecutionError as error:
                (folder / path.with_suffix(".failed").name).write_text(str(error))
            else:
                nbformat.write(notebook, folder / path.name)
    finally:
        await kernels.shutdown_all()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), [Path(path) for path in sys.argv[2:]]))
