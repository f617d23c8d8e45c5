"""What is left of an explorable where no widgets can be drawn: its numbers, as HTML or as text."""

import html
from collections.abc import Iterable

from torch import Tensor

from attnlab.engine import Stage, format_matrix

__all__ = ["numbers_text", "still_html"]


def still_html(code: str, stages: Iterable[Stage]) -> str:
    """The line that makes an explorable, and its stages as tables."""
    tables = "".join(map(_table, stages))
    return f"<p><code>{html.escape(code)}</code> shows this when its notebook runs:</p>{tables}"


def numbers_text(stages: Iterable[Stage]) -> str:
    """Stages as tab-separated text at full precision."""
    return "\n\n".join(
        f"{stage.name} · {_sizes(stage)}\n{format_matrix(_rows(stage).double(), separator=chr(9))}"
        for stage in stages
    )


def _table(stage: Stage) -> str:
    caption = html.escape(f"{stage.name} · {_sizes(stage)}")
    rows = "".join(f"<tr>{''.join(f'<td>{x:.4g}</td>' for x in row)}</tr>" for row in _rows(stage).tolist())
    return f"<table><caption>{caption}</caption>{rows}</table>"


def _rows(stage: Stage) -> Tensor:
    return stage.tensor.reshape(-1, stage.tensor.shape[-1] if stage.axes else 1)


def _sizes(stage: Stage) -> str:
    return " × ".join(f"{axis} {n}" for axis, n in zip(stage.axes, stage.tensor.shape, strict=True))
