"""AttentionExplorable: scaled dot-product attention in five steps, every number editable."""

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import torch
import traitlets as t
from torch import Tensor

from attnlab.engine import (
    AttentionTrace,
    Stage,
    attend,
    attention_row,
    bidirectional,
    causal,
    causal_alignment,
    check_attention,
    softmax_over_columns,
)
from attnlab.widgets.control_bar import Control, Select, Stepper, Steps, Toggle
from attnlab.widgets.explorable import Explorable
from attnlab.widgets.matrix import Matrix
from attnlab.widgets.result import Result

if TYPE_CHECKING:
    from attnlab.widgets.figure import StageFigure

__all__ = ["AttentionExplorable"]

DTYPES = {
    "float64": torch.float64,
    "float32": torch.float32,
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
}

_THREE = [[1, 0], [0, 1], [1, 1]]

PRESETS: dict[str, dict[str, Any]] = {
    "three positions, causal": {"q": _THREE, "k": _THREE, "v": _THREE, "query": 1},
    "plain dot product": {"q": _THREE, "k": _THREE, "v": _THREE, "scale": False, "causal": False, "query": 1},
    "two keys": {"q": [[1, 0]], "k": [[1, 0], [0, 1]], "v": [[10], [20]], "causal": False, "query": 0},
    "all scores zero": {"q": [[0, 0]] * 3, "k": _THREE, "v": _THREE, "query": 2},
    "a huge future score": {
        "q": [[0], [1], [1]],
        "k": [[0], [math.log(2)], [100]],
        "v": [[1, 0, 0], [0, 1, 0], [0, 0, 1]],
        "scale": False,
        "query": 1,
    },
    "cross lengths": {
        "q": [[1, 0], [0, 1]],
        "k": [[1, 0], [0, 1], [1, 1], [-1, 0], [0.5, -0.5]],
        "v": [[1, 0, 0], [0, 1, 0], [0, 0, 1], [1, 1, 0], [0, 1, 1]],
        "causal": False,
        "query": 0,
    },
}

STEPS = ((1, "score"), (2, "scale"), (3, "mask"), (4, "softmax"), (5, "mix values"))


class AttentionExplorable(Explorable):
    """Scaled dot-product attention, step by step, on matrices that can be edited.

    - `q` (`query × d_k`), `k` (`key × d_k`), `v` (`key × d_v`): up to 16 × 16, entries −100 to 100
    - `scale`: divide the scores by √d_k; `causal`: query i reads keys j ≤ i + (keys − queries)
    - `columns`: the mistake beside the right way, softmax over the columns
    - `query`: the row that is told in detail; `step`: how far the computation is shown, 1 to 5
    - `chosen`: the number that is explained, `"weights,1,2"` for the stage and a place in it
    - `gradient`: lay ∂ chosen number / ∂ cell over every cell
    - `dtype`: float64, float32, bfloat16 or float16; `decimals`: digits shown, 2 to 8
    - `preset`: one of `AttentionExplorable.presets`, before all others

    Each is a constructor argument and a trait to be read, set, observed and linked. `trace` holds
    the intermediates of the last good result as read-only tensors: `explorable.trace.weights`.

    Raises `ValueError` when the matrices don't fit, `TypeError` for an unknown argument.
    """

    presets = PRESETS
    cover = ("weights",)

    q = Matrix(label="Q", axes=("query", "d_k"), role="query")
    k = Matrix(label="K", axes=("key", "d_k"), role="key")
    v = Matrix(label="V", axes=("key", "d_v"), role="value")
    scale = t.Bool(True).tag(state="input")
    causal = t.Bool(True).tag(state="input")
    columns = t.Bool(False).tag(state="input")
    dtype = t.Enum(list(DTYPES), "float64").tag(state="input")
    query = t.Int(0).tag(state="view")
    step = t.Int(5, min=1, max=5).tag(state="view")
    decimals = t.Int(4, min=2, max=8).tag(state="view")
    gradient = t.Bool(False).tag(state="view")
    preset = t.Enum(list(PRESETS), next(iter(PRESETS)))
    trace = t.Instance(AttentionTrace, read_only=True)

    def controls(self) -> list[list[Control]]:
        return [
            [
                self.preset_control(),
                Toggle("scale", "divide by √dₖ"),
                Toggle("causal", "causal mask"),
                Stepper("query", "query", less="previous query", more="next query"),
                *self.common_controls(),
            ],
            [Steps("step", "Steps of attention", STEPS)],
            [
                Toggle("columns", "mistake: softmax over columns"),
                Select("dtype", "numbers", [(name, name) for name in DTYPES]),
                *self.number_controls(),
            ],
        ]

    def stages(self) -> dict[str, dict[str, Any]]:
        grid = {"axes": ["query", "key"], "ramp": "signed", "group": "scores"}
        masked = {"masked": "allowed", "flag": "empty_rows"}
        return self.input_stages() | {
            "scores": grid | {"step": 1},
            "scaled": grid | {"step": 2},
            "masked": grid | masked | {"step": 3, "bar": True},
            "weights": grid | masked | {"step": 4, "ramp": "unit", "group": "weights", "bar": True},
            "output": {
                "axes": ["query", "d_v"],
                "ramp": "signed",
                "group": "output",
                "step": 5,
                "flag": "empty_rows",
                "role": "value",
                "bar": True,
            },
            "column_weights": grid
            | {
                "title": "weights, softmax over columns",
                "masked": "allowed",
                "step": 4,
                "ramp": "unit",
                "group": "weights",
                "bar": True,
            },
            "column_output": {
                "title": "output of these weights",
                "axes": ["query", "d_v"],
                "ramp": "signed",
                "group": "output",
                "step": 5,
                "role": "value",
                "bar": True,
            },
            "row_scores": {"title": "q·k", "axes": ["key"], "of": ["query"], "step": 1},
            "row_scaled": {"title": "scaled", "axes": ["key"], "of": ["query"], "step": 2},
            "row_masked": {
                "title": "masked",
                "axes": ["key"],
                "of": ["query"],
                "step": 3,
                "masked": "row_allowed",
            },
            "row_weights": {
                "title": "weight",
                "axes": ["key"],
                "of": ["query"],
                "step": 4,
                "masked": "row_allowed",
            },
            "row_weighted": {"title": "weight × value", "axes": ["key", "d_v"], "of": ["query"], "step": 5},
            "weight_sum": {"title": "sum of the weights", "axes": [], "of": ["query"], "step": 4},
            "row_output": {"title": "output row", "axes": ["d_v"], "of": ["query"], "step": 5},
        }

    def layout_blocks(self) -> list[dict[str, Any]]:
        return [
            # Above the grids, which change their height under these buttons.
            {"kind": "sizes", "axes": ["query", "key", "d_k", "d_v"]},
            {"kind": "grids", "items": [{"stage": "q"}, {"stage": "k"}, {"stage": "v"}]},
            {"kind": "message"},
            {
                "kind": "grids",
                "items": [
                    {"stage": "scores"},
                    {"stage": "scaled", "operation": "scale"},
                    {"stage": "masked", "operation": "mask"},
                    {"stage": "weights", "operation": "softmax"},
                ],
            },
            {
                "kind": "grids",
                "items": [
                    {"stage": "output", "operation": "mix"},
                    {
                        "kind": "table",
                        "axis": "key",
                        "title": "table",
                        "columns": [
                            {"stage": "row_scores", "title": "q·k"},
                            {"stage": "row_scaled", "title": "scaled"},
                            {"stage": "row_masked", "title": "masked"},
                            {"stage": "row_weights", "title": "weight", "total": "weight_sum"},
                            {"stage": "row_weighted", "title": "weight × value", "total": "row_output"},
                        ],
                    },
                ],
            },
            *self._mistake_blocks(),
            {"kind": "readout"},
            {"kind": "explanation"},
            {"kind": "checks"},
        ]

    def _mistake_blocks(self) -> list[dict[str, Any]]:
        if not self.columns:
            return []
        items = [
            {"stage": "column_weights", "operation": "columns"},
            {"stage": "column_output", "operation": "mix"},
        ]
        return [{"kind": "text", "text": "mistake"}, {"kind": "grids", "items": items}]

    def _recorded(self) -> Result:
        """The mixing step reads weights, by the name that is on the screen: nothing is dropped here."""
        result = super()._recorded()
        if result.tape is not None:
            result.tape.name(result.published["trace"].dropped, "weights")
        return result

    def compute(self) -> Result:
        dtype = DTYPES[self.dtype]
        q = self.matrices()["q"].to(dtype)
        k = self.matrices()["k"].to(dtype)
        v = self.matrices()["v"].to(dtype)
        queries, keys = q.shape[0], k.shape[0]
        allowed = causal(queries, keys) if self.causal else bidirectional(queries, keys)
        trace = attend(q, k, v, scale=self.scale, allowed=allowed)
        row = attention_row(trace, self.query)
        tensors = {stage.name: stage.tensor for stage in (*trace.stages(), *row.stages())}
        wrong = softmax_over_columns(trace) if self.columns else None
        if wrong is not None:
            tensors |= {stage.name: stage.tensor for stage in wrong.stages()}
        tensors["row_allowed"] = trace.allowed[self.query]
        return Result(
            tensors=tensors,
            published={"trace": trace},
            make_checks=lambda: [
                (check, self.view.stages[check.stage]["step"])
                for check in (*check_attention(trace), *([wrong.check] if wrong is not None else []))
            ],
            texts={
                "scale": f"÷ √{q.shape[1]}" if self.scale else "× 1",
                "mask": "mask" if self.causal else "no mask",
                "softmax": "softmax",
                "mix": "weights · V",
                "columns": "softmax over columns",
                "mistake": "Mistake: the softmax along the columns. The shape is right, but the columns sum "
                "to 1 and not the rows: keys divide themselves among queries.",
                "table": f"Query {self.query}, term by term",
            },
            layout_blocks=self.layout_blocks(),
            message=_alignment(queries, keys) if self.causal else "",
            limits={"query": queries - 1, "decimals": 8},
            tracked={"query": self.query},
        )

    @property
    def weights(self) -> Tensor:
        """The weights of the last good result, read-only."""
        return self.trace.weights

    @property
    def output(self) -> Tensor:
        """The output of the last good result, read-only."""
        return self.trace.output

    def still_stages(self) -> Iterator[Stage]:
        yield from (self.trace.stage(name) for name in ("q", "k", "v", "weights", "output"))

    def figure(self, stage: str = "") -> "StageFigure":
        from attnlab.widgets.figure import stage_figure  # matplotlib is slow to load, and needed only here

        stage = stage or self.cover[0]
        return stage_figure(
            self.trace.stage(stage),
            allowed=self.trace.allowed if stage in ("masked", "weights", "dropped") else None,
            unit=stage in ("weights", "dropped"),
            decimals=self.decimals,
        )

    def all_stages(self) -> Iterator[Stage]:
        # Nothing is dropped here, and the masks are no numbers.
        yield from (s for s in self.trace.stages() if s.tensor.is_floating_point() and s.name != "dropped")

    @t.validate("query")
    def _check_query(self, proposal: Any) -> int:
        query, queries = proposal["value"], self.q.shape[0]
        if not 0 <= query < queries:
            raise t.TraitError(f"query: expected 0 to {queries - 1}, got {query}")
        return int(query)

    @t.observe("q")
    def _keep_query(self, change: Any) -> None:
        # Fewer queries than before: the last one is told instead of one that is gone.
        if self.query >= self.q.shape[0]:
            self.query = self.q.shape[0] - 1


def _alignment(queries: int, keys: int) -> str:
    told = causal_alignment(queries, keys)
    return f"Causal mask with {told}." if told else ""
