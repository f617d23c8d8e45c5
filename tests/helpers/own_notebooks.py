"""Notebooks as somebody else may write them."""

from pathlib import Path

import nbformat
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

__all__ = ["write"]


def write(folder: Path, name: str, title: str, *code: str, **metadata: object) -> Path:
    """A notebook with a title, a question and these lines; `metadata` is what attnlab reads of it."""
    cells = [new_markdown_cell(f"# {title}\n\nWhat is seen first?"), *map(new_code_cell, code)]
    path = folder / f"{name}.ipynb"
    nbformat.write(new_notebook(cells=cells, metadata={"attnlab": metadata} if metadata else {}), path)
    return path
