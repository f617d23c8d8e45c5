"""TraceView: the stages of a trace as linked grids of numbers that can be grabbed."""

from collections.abc import Mapping, Sequence
from typing import Any

import anywidget
import torch
import traitlets as t
from torch import Tensor

from attnlab.engine import Stage, Trace
from attnlab.widgets._script import script, style
from attnlab.widgets.words import VIEW_WORDS

__all__ = ["TraceView", "array"]

# The largest stage that is sent: a 128 × 128 grid. More could neither be read nor pointed at.
MAX_CELLS = 16_384


class TraceView(anywidget.AnyWidget):
    """Draws stages as grids, one cell a number; leading axes become facets.

    `TraceView(trace)` shows any trace. Cells of different stages light up together when they agree
    on the axis names they share. An `Explorable` declares more: which stages can be edited, how
    they are coloured, in which order they stand.
    """

    _esm = script("trace_view")
    _css = style("trace_view")

    stages = t.Dict().tag(sync=True)
    """What is known of each stage beside its numbers: {name: {title, axes, role, note, step, ramp, …}}."""
    layout_blocks: t.List[Any] = t.List().tag(sync=True)
    """Blocks from top to bottom: grids, sizes, message, readout, explanation, table, plots, text, checks."""
    answer = t.Dict().tag(sync=True, echo_update=False)
    """All numbers of one result in one message, as binary, with its state, message and checks."""
    request = t.Dict().tag(sync=True, echo_update=False)
    """The newest edits of the reader: {id, edits}; at most one request is under way."""
    selected = t.Dict(allow_none=True, default_value=None).tag(sync=True)
    """The chosen cell: {stage, index}, or None."""
    grounds = t.Dict().tag(sync=True)
    """Name of a plot → SVG. Plots come after the numbers, in messages of their own."""
    plots = t.Dict().tag(sync=True)
    """Name of a plot → {marks, name}: what lies on its ground, and its name if it is another one."""
    tracked = t.Dict().tag(sync=True)
    """Axis name → position of the row that is told in detail."""
    step = t.Int(0).tag(sync=True)
    """Stages of later steps are outlined, not filled; 0 shows all."""
    decimals = t.Int(4, min=2, max=8).tag(sync=True)
    """Digits after the point, 2 to 8."""
    labels = t.Dict().tag(sync=True)
    """Axis name → label of each position, for example tokens; positions are numbered by default."""
    words = t.Dict(VIEW_WORDS).tag(sync=True)

    def __init__(
        self, trace: Trace | None = None, *, at: Mapping[str, int] | None = None, **kwargs: Any
    ) -> None:
        unknown = [name for name in kwargs if not self.has_trait(name)]
        if unknown:
            raise TypeError(f"TraceView has no argument {unknown[0]!r}")
        super().__init__(**kwargs)
        if trace is not None:
            self.show(trace, at=at)

    def show(self, trace: Trace, *, at: Mapping[str, int] | None = None) -> None:
        """Draws every stage of `trace` that holds numbers, in the order of computation.

        `at` chooses a position along leading axes, `at={"batch": 0, "head": 3}`; only that part is sent.
        Stages of more than 1,024 numbers a facet are drawn as a picture, still to be pointed at.

        Raises `ValueError` for a part of a stage of more than 16,384 elements (128 × 128), and for an axis
        or a position that the trace doesn't have.
        """
        parts = [_part(stage, at or {}) for stage in trace.stages()]
        unknown = [axis for axis in at or {} if not any(axis in stage.axes for stage in trace.stages())]
        if unknown:
            raise ValueError(f"at: expected axes of the trace, got {unknown[0]!r}")
        drawn = [stage for stage in parts if stage.tensor.is_floating_point()]
        for stage in drawn:
            if stage.tensor.numel() > MAX_CELLS:
                raise ValueError(
                    f"{stage.name}: expected at most {MAX_CELLS:,} elements, got {stage.tensor.numel():,} "
                    f"({' × '.join(map(str, stage.tensor.shape))}); choose one head, or a slice"
                )
        mask = next((stage.tensor for stage in parts if stage.name == "allowed"), None)
        with self.hold_sync():
            self.stages = {stage.name: _spec(stage, mask) for stage in drawn}
            self.layout_blocks = [
                {"kind": "grids", "items": [{"stage": stage.name} for stage in drawn]},
                {"kind": "readout"},
            ]
            tensors = {stage.name: stage.tensor for stage in drawn}
            if mask is not None and "scores" in tensors:
                # One mask for all heads is sent for each: lined up here by name, not there by position.
                tensors["allowed"] = mask.expand(tensors["scores"].shape)
            self.answer = answer(tensors)


def _part(stage: Stage, at: Mapping[str, int]) -> Stage:
    """The part of a stage at the chosen positions; an axis of size 1 stands for all positions."""
    tensor, axes = stage.tensor, list(stage.axes)
    for axis, position in at.items():
        if axis not in axes:
            continue
        dim = axes.index(axis)
        size = tensor.shape[dim]
        if not (0 <= position < size or size == 1):
            raise ValueError(f"at: expected {axis} 0 to {size - 1}, got {position}")
        tensor = tensor.select(dim, position if size > 1 else 0)
        axes.pop(dim)
    return Stage(stage.name, tensor, tuple(axes), stage.note)


def _spec(stage: Stage, mask: Tensor | None) -> dict[str, Any]:
    """How a stage is drawn when its page says nothing: from its annotation and its numbers."""
    spec: dict[str, Any] = {
        "axes": list(stage.axes),
        "note": stage.note,
        "ramp": "signed",
        "group": stage.name,
    }
    if mask is None or stage.axes[-2:] != ("query", "key"):
        return spec
    blocked = stage.tensor[~mask.expand(stage.tensor.shape)]
    # Raw scores are not masked yet, whatever the mask says.
    applied = bool(((blocked == 0) | blocked.isneginf() | blocked.isnan()).all())
    return spec | ({"masked": "allowed"} if applied else {})


def answer(
    tensors: Mapping[str, Tensor],
    *,
    ack: int = 0,
    nonce: str = "",
    state: str = "ready",
    stale: bool = False,
    message: str = "",
    refused: Mapping[str, Any] | None = None,
    wrong: Mapping[str, Any] | None = None,
    texts: Mapping[str, str] | None = None,
    checks: Sequence[Mapping[str, Any]] = (),
    tags: Sequence[Mapping[str, Any]] = (),
    explanation: Mapping[str, Any] | None = None,
    gradients: Mapping[str, Tensor] | None = None,
) -> dict[str, Any]:
    """One result as the message that `TraceView` draws: everything in it belongs together."""
    return {
        "ack": ack,
        "nonce": nonce,
        "state": state,
        "stale": stale,
        "message": message,
        "refused": dict(refused) if refused else None,
        "wrong": dict(wrong) if wrong else None,
        "texts": dict(texts or {}),
        "checks": [dict(check) for check in checks],
        "tags": [dict(tag) for tag in tags],
        "explanation": explanation,
        "gradients": {name: array(tensor) for name, tensor in (gradients or {}).items()},
        "arrays": {name: array(tensor) for name, tensor in tensors.items()},
    }


def array(tensor: Tensor) -> dict[str, Any]:
    """A tensor as binary with its shape and dtype, exactly: float32 holds all half precision."""
    if tensor.dtype == torch.bool:
        dtype, sent = "bool", tensor.to(torch.uint8)
    elif tensor.dtype == torch.float64:
        dtype, sent = "float64", tensor
    else:
        dtype, sent = "float32", tensor.to(torch.float32)
    return {"dtype": dtype, "shape": list(tensor.shape), "data": sent.detach().contiguous().numpy().tobytes()}
