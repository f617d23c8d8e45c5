"""What is left of an explorable where no widgets can be drawn: its numbers, as HTML or as text."""

import html
from collections.abc import Iterable

from torch import Tensor

from attnlab.engine import Stage, format_matrix

__all__ = ["beside_widget", "numbers_text", "still_html"]


def still_html(code: str, stages: Iterable[Stage]) -> str:
    """The line that makes an explorable, and its stages as tables."""
    tables = "".join(map(_table, stages))
    return (
        f"<p><code>{html.escape(code)}</code> shows this when its notebook runs:</p>"
        f'<div style="display: flex; flex-wrap: wrap; gap: 1em 2em">{tables}</div>'
    )


def beside_widget(still: str, model_id: str) -> str:
    """`still` as an output beside the widget `model_id`, for pages that keep the widget but can't draw it.

    Style sheet only: it shows after a moment, and not at all where the widget is drawn.
    """
    place, drawn = f".attnlab-still-{model_id}", f"body:has(.attnlab-drawn-{model_id})"
    return (
        "<style>@keyframes attnlab-still-late { from { max-height: 0; visibility: hidden } } "
        f"{place} {{ animation: attnlab-still-late 2s step-end; overflow: hidden }} "
        f"{drawn} {place}, {drawn} .jp-OutputArea-child:has({place}) {{ display: none }}</style>"
        f'<div class="attnlab-still {place[1:]}">{still}</div>'
    )


def numbers_text(stages: Iterable[Stage]) -> str:
    """Stages as tab-separated text at full precision."""
    return "\n\n".join(
        f"{stage.name} · {_sizes(stage)}\n{format_matrix(_rows(stage).double(), separator=chr(9))}"
        for stage in stages
    )


def _table(stage: Stage) -> str:
    # Not a caption of the table, which would be as narrow as its numbers.
    caption = html.escape(f"{stage.name} · {_sizes(stage)}")
    rows = "".join(f"<tr>{''.join(f'<td>{x:.4g}</td>' for x in row)}</tr>" for row in _rows(stage).tolist())
    return (
        f'<figure style="margin: 0"><figcaption>{caption}</figcaption>'
        f'<table style="margin: 0">{rows}</table></figure>'
    )


def _rows(stage: Stage) -> Tensor:
    return stage.tensor.reshape(-1, stage.tensor.shape[-1] if stage.axes else 1)


def _sizes(stage: Stage) -> str:
    return " × ".join(f"{axis} {n}" for axis, n in zip(stage.axes, stage.tensor.shape, strict=True))
