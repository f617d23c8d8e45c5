"""ProjectionExplorable: Q, K and V from X, heads, and the way back through the output projection."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import Any

import torch
import traitlets as t
from torch import Tensor

from attnlab.engine import Check, Stage
from attnlab.engine.packing import LAYOUTS, pack, unpack
from attnlab.engine.projection_checks import by_linear, check_projection, linear_weight, untransposed
from attnlab.engine.projections import ProjectionTrace, multi_head_projection, parameter_count, tile_heads
from attnlab.widgets.control_bar import Control, Select, Stepper, Toggle
from attnlab.widgets.explorable import Explorable
from attnlab.widgets.matrix import Matrix
from attnlab.widgets.result import Result

__all__ = ["ProjectionExplorable"]

_HEADS, _PACKING, _LINEAR = "heads", "packing", "nn.Linear"
LOOKS = (_HEADS, _PACKING, _LINEAR)

_FULL: dict[str, Any] = {
    "x": [[1, 0, 2, -1], [0, 2, 1, 1], [2, 1, 0, 1]],
    "w_q": [[1, 0, 1, 0], [0, 1, 0, 1], [1, 1, 0, 0], [0, 0, 1, 1]],
    "w_k": [[0, 1, 1, 0], [1, 0, 0, 1], [1, 1, 0, 0], [0, 0, 1, 1]],
    "w_v": [[1, 0, 0, 1], [0, 1, 1, 0], [2, 0, 1, 0], [0, 1, 0, 2]],
    "w_o": [[1, 0, 0, 1], [0, 1, 1, 0], [1, 0, 1, 0], [0, 1, 0, 1]],
}
# Heads of width 1 that can be followed by eye.
_NARROW: dict[str, Any] = {"x": [[1]], "w_o": [[1, 0], [0, 1]]}

PRESETS: dict[str, dict[str, Any]] = {
    "two heads of width 2": _FULL,
    "four heads share two keys and values": {
        "x": [[1]],
        "w_q": [[1, 1, 1, 1]],
        "w_k": [[1, 1]],
        "w_v": [[5, 9]],
        "w_o": [[1, 0, 0, 0], [0, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1]],
        "heads": 4,
        "kv_heads": 2,
    },
    "packed, two heads of width 1": _NARROW
    | {"w_q": [[0, 1]], "w_k": [[2, 3]], "w_v": [[4, 5]], "look": _PACKING},
    "the layout of nn.Linear": _FULL | {"look": _LINEAR},
    "without output projection": _FULL | {"output_projection": False},
}


class ProjectionExplorable(Explorable):
    """X · W_Q, X · W_K, X · W_V, split into heads, attended, merged and projected once more.

    - `x` (`time × d_in`), `w_q` (`d_in × width`), `w_k` and `w_v` (`d_in × kv_width`), `w_o`
      (`width × d_out`): up to 8 × 8, entries −100 to 100
    - `heads`, 1 to 4, must divide the width; `kv_heads`, at most `heads`, must divide them
    - `causal`, `output_projection`: on or off
    - `look`: what is told beside the trace, one of heads, packing, nn.Linear; `packing`: blocks or
      per head; `mistake`: the mistake of that topic beside the right way
    - `chosen`, `gradient`, `decimals`, `preset` as everywhere

    `trace` holds the intermediates of the last good result.
    """

    presets = PRESETS
    cover = ("output",)

    x = Matrix(label="X", axes=("time", "d_in"), max_size=8)
    w_q = Matrix(label="W_Q", axes=("d_in", "width"), role="query", max_size=8)
    w_k = Matrix(label="W_K", axes=("d_in", "kv_width"), role="key", max_size=8)
    w_v = Matrix(label="W_V", axes=("d_in", "kv_width"), role="value", max_size=8)
    w_o = Matrix(label="W_O", axes=("width", "d_out"), max_size=8)
    heads = t.Int(2, min=1, max=4).tag(state="input")
    kv_heads = t.Int(2, min=1, max=4).tag(state="input")
    causal = t.Bool(False).tag(state="input")
    output_projection = t.Bool(True).tag(state="input")
    look = t.Enum(LOOKS, _HEADS).tag(state="input")
    packing = t.Enum(LAYOUTS, LAYOUTS[0]).tag(state="input")
    mistake = t.Bool(False).tag(state="input")
    gradient = t.Bool(False).tag(state="view")
    decimals = t.Int(4, min=2, max=8).tag(state="view")
    preset = t.Enum(list(PRESETS), next(iter(PRESETS)))
    trace = t.Instance(ProjectionTrace, read_only=True)

    def controls(self) -> list[list[Control]]:
        return [
            [
                self.preset_control(),
                Stepper("heads", "heads", less="fewer heads", more="more heads", minimum=1),
                Stepper(
                    "kv_heads",
                    "key/value heads",
                    less="fewer key/value heads",
                    more="more key/value heads",
                    minimum=1,
                ),
                Toggle("causal", "causal mask"),
                Toggle("output_projection", "output projection"),
                *self.common_controls(),
            ],
            [
                Select("look", "look at", [(name, name) for name in LOOKS]),
                Select("packing", "packed", [(name, name) for name in LAYOUTS]),
                Toggle("mistake", "its mistake"),
                *self.number_controls(),
            ],
        ]

    def stages(self) -> dict[str, dict[str, Any]]:
        signed = {"ramp": "signed", "group": "numbers"}
        inputs = self.input_stages()
        for name in inputs:
            inputs[name] |= {"ramp": "signed", "group": "weights of the model" if name != "x" else "x"}
        scores = {"axes": ["head", "query", "key"]}
        masked = {"masked": "allowed"}

        def heads(title: str, role: str, head: str, time: str, width: str) -> dict[str, Any]:
            return {"title": title, "role": role, "axes": [head, time, width]} | signed

        return inputs | {
            "q": {"title": "Q", "axes": ["time", "width"], "role": "query"} | signed,
            "k": {"title": "K", "axes": ["time", "kv_width"], "role": "key"} | signed,
            "v": {"title": "V", "axes": ["time", "kv_width"], "role": "value"} | signed,
            "q_heads": heads("Q of each head", "query", "head", "query", "d_k"),
            "k_heads": heads("K of each head", "key", "kv_head", "key", "d_k"),
            "v_heads": heads("V of each head", "value", "kv_head", "key", "d_v"),
            "k_shared": heads("K as each head reads it", "key", "head", "key", "d_k"),
            "v_shared": heads("V as each head reads it", "value", "head", "key", "d_v"),
            "v_tiled": heads("V, repeated as a whole", "value", "head", "key", "d_v"),
            "masked": scores | masked | {"title": "scaled and masked", "ramp": "signed", "group": "scores"},
            "weights": scores | masked | {"ramp": "unit", "group": "weights", "bar": True},
            "head_output": heads("output of each head", "value", "head", "query", "d_v"),
            "concat": {"title": "heads side by side", "axes": ["time", "width"]} | signed,
            "output": {"axes": ["time", "d_out"], "bar": True} | signed,
            "wrong_output": {"title": "output, with the mistake", "axes": ["time", "d_out"]} | signed,
            "packed": {"title": "W_Q, W_K and W_V packed", "axes": ["d_in", "packed"], "tint": "tint_packed"},
            **{
                f"un{n}": {"title": f"{n.upper()} read from it", "axes": ["d_in", "width"], "role": role}
                for n, role in (("q", "query"), ("k", "key"), ("v", "value"))
            },
            "linear_weight": {"title": "weight of the nn.Linear for Q", "axes": ["d_out_linear", "d_in"]}
            | signed,
            "linear_q": {"title": "Q by nn.Linear", "axes": ["time", "width"], "role": "query"} | signed,
            "untransposed": {"title": "Q, weight not transposed", "axes": ["time", "width"], "role": "query"}
            | signed,
        }

    def layout_blocks(self) -> list[dict[str, Any]]:
        return []  # they follow what is looked at: see `compute`

    def compute(self) -> Result:
        given = self.matrices()
        trace = multi_head_projection(
            given["x"],
            given["w_q"],
            given["w_k"],
            given["w_v"],
            given["w_o"] if self.output_projection else None,
            heads=self.heads,
            kv_heads=self.kv_heads,
            causal=self.causal,
        )
        width = trace.q.shape[1]
        used = ["w_q", "w_k", "w_v", *(["w_o"] if self.output_projection else [])]
        shared = trace.v_shared is not None
        names = ["q", "k", "v", "q_heads", "k_heads", "v_heads", "masked", "weights", "head_output", "concat"]
        names += ["k_shared", "v_shared"] if shared else []
        result = Result(
            tensors={name: getattr(trace, name) for name in [*names, "output", "allowed"]},
            published={"trace": trace},
            checks=[(check, 0) for check in check_projection(trace)],
            texts={
                "project": "X · W",
                "split": "split",
                "share": "share",
                "mask": f"÷ √{trace.q_heads.shape[-1]}, mask"
                if self.causal
                else f"÷ √{trace.q_heads.shape[-1]}",
                "softmax": "softmax",
                "mix": "weights · V",
                "merge": "merge",
                "out": "· W_O" if self.output_projection else "no W_O",
                "parameters": _parameters(
                    width,
                    self.heads,
                    self.kv_heads,
                    sum(given[n].numel() for n in used),
                    f"{', '.join(n.upper() for n in used[:-1])} and {used[-1].upper()}",
                ),
                "topic": "",
            },
            limits={"heads": 4, "kv_heads": self.heads, "decimals": 8},
            disabled=self._without_effect(),
        )
        result = {_HEADS: self._shared, _PACKING: self._packed, _LINEAR: self._linear}[self.look](
            result, trace
        )
        stages = self.stages()
        if not self.causal:
            stages["masked"]["title"] = "scaled"
        blocks = self._blocks(shared, list(result.tensors))
        return replace(result, stages=stages, layout_blocks=blocks)

    def _without_effect(self) -> list[str]:
        """Controls that would change nothing of what is looked at."""
        shows_mistake = self.look != _HEADS or self.kv_heads < self.heads
        return [*([] if self.look == _PACKING else ["packing"]), *([] if shows_mistake else ["mistake"])]

    def _blocks(self, shared: bool, stages: Sequence[str]) -> list[dict[str, Any]]:
        topic = [n for n in _TOPIC if n in stages]
        weights = [{"stage": n} for n in ("w_q", "w_k", "w_v")]
        split = [{"stage": "q_heads", "operation": "split"}, {"stage": "k_heads"}, {"stage": "v_heads"}]
        read = [{"stage": "k_shared", "operation": "share"}, {"stage": "v_shared"}]
        return [
            {"kind": "sizes", "axes": ["time", "d_in"]},
            {"kind": "grids", "items": [{"stage": "x"}, *weights]},
            {"kind": "message"},
            {
                "kind": "grids",
                "items": [{"stage": "q", "operation": "project"}, {"stage": "k"}, {"stage": "v"}],
            },
            {"kind": "text", "text": "topic"},
            *([{"kind": "grids", "items": [{"stage": n} for n in topic]}] if topic else []),
            {"kind": "grids", "items": split},
            *([{"kind": "grids", "items": read}] if shared else []),
            {
                "kind": "grids",
                "items": [
                    {"stage": "masked", "operation": "mask"},
                    {"stage": "weights", "operation": "softmax"},
                    {"stage": "head_output", "operation": "mix"},
                ],
            },
            {
                "kind": "grids",
                "items": [
                    {"stage": "concat", "operation": "merge"},
                    *([{"stage": "w_o"}] if self.output_projection else []),
                    {"stage": "output", "operation": "out"},
                    *([{"stage": "wrong_output"}] if "wrong_output" in stages else []),
                ],
            },
            {"kind": "text", "text": "parameters"},
            {"kind": "readout"},
            {"kind": "explanation"},
            {"kind": "checks"},
        ]

    # ------------------------------------------------------------ what is looked at

    def _shared(self, result: Result, trace: ProjectionTrace) -> Result:
        if self.kv_heads == self.heads:
            told = "Every query head has its own keys and values. Choose fewer key/value heads to share them."
            return _extended(result, {}, told)
        told = (
            f"{self.heads} query heads share {self.kv_heads} key/value heads; neighbours share one."
            if self.kv_heads > 1
            else f"{self.heads} query heads share a single key/value head."
        )
        if not self.mistake or trace.v_shared is None:
            return _extended(result, {}, told)
        tiled = tile_heads(trace.v_heads, self.heads)
        told += " Mistake: the heads repeated as a whole, so that a query head reads what isn't its own."
        error = float((tiled - trace.v_shared).abs().max())
        check = Check(
            "mistake: each head reads its own values", error, 0.0, "V repeated as a whole against V shared"
        )
        return _extended(result, {"v_tiled": tiled}, told, check)

    def _packed(self, result: Result, trace: ProjectionTrace) -> Result:
        if self.kv_heads != self.heads:
            raise ValueError(
                f"packing: expected as many key/value heads as heads, {self.heads}, got {self.kv_heads}"
            )
        packed = pack(trace.w_q, trace.w_k, trace.w_v, self.heads, self.packing)
        other = LAYOUTS[1 - LAYOUTS.index(self.packing)]
        layout = other if self.mistake else self.packing
        parts = unpack(packed, self.heads, layout)
        told = f"Packed {_HOW[self.packing]}, read {_HOW[layout]}."
        pairs = ((parts.q, trace.w_q), (parts.k, trace.w_k), (parts.v, trace.w_v))
        error = max(float((read - right).abs().max()) for read, right in pairs)
        name = f"{'mistake: ' if self.mistake else ''}what is read is what was packed"
        check = Check(name, error, 0.0, "W_Q, W_K and W_V packed and unpacked again, against themselves")
        columns, tints = _columns(trace.w_q.shape[1], self.heads, self.packing)
        tensors = {
            "packed": packed,
            "unq": parts.q,
            "unk": parts.k,
            "unv": parts.v,
            "tint_packed": tints.expand(packed.shape).clone(),
        }
        checks = [check]
        if self.mistake:
            tensors["wrong_output"], far = self._output_of(trace, parts.q, parts.k, parts.v)
            checks.append(far)
        return replace(_extended(result, tensors, told, *checks), labels={"packed": columns})

    def _output_of(
        self, trace: ProjectionTrace, w_q: Tensor, w_k: Tensor, w_v: Tensor
    ) -> tuple[Tensor, Check]:
        """The output of all that follows, when these are taken for the right matrices; how far it is off."""
        w_o = self.matrices()["w_o"] if self.output_projection else None
        wrong = multi_head_projection(
            trace.x, w_q, w_k, w_v, w_o, heads=self.heads, kv_heads=self.kv_heads, causal=self.causal
        )
        error = float((wrong.output - trace.output).abs().max())
        how = "output with the wrong matrices against output"
        return wrong.output, Check("mistake: the output is the same", error, 0.0, how)

    def _linear(self, result: Result, trace: ProjectionTrace) -> Result:
        weight = linear_weight(trace.w_q)
        told = (
            f"nn.Linear({trace.w_q.shape[0]}, {trace.w_q.shape[1]}) stores out × in, the transpose of W_Q, "
            "and multiplies with its transpose."
        )
        tensors = {"linear_weight": weight, "linear_q": by_linear(trace.x, weight)}
        if not self.mistake:
            return _extended(result, tensors, told)
        wrong = untransposed(trace.x, trace.w_q)
        told += " Mistake: W_Q given to it as it is. A square matrix lets it pass."
        error = float((wrong - trace.q).abs().max())
        check = Check(
            "mistake: nn.Linear with W_Q as it is gives Q", error, 0.0, "F.linear(X, W_Q) against X · W_Q"
        )
        output, far = self._output_of(trace, trace.w_q.mT.contiguous(), trace.w_k, trace.w_v)
        return _extended(result, tensors | {"untransposed": wrong, "wrong_output": output}, told, check, far)

    # ------------------------------------------------------------ what must follow

    def _apply(self, values: Mapping[str, Any]) -> None:
        super()._apply(values)
        if not {"w_q", "w_k", "w_v"} & values.keys():
            self.follow("kv_heads" if "kv_heads" in values else "heads" if "heads" in values else "")

    def follow(self, name: str) -> None:
        """Keys and values are as wide as their heads: columns go, or come back from the preset."""
        width = self.w_q.shape[1]
        if name == "heads" and (self.kv_heads > self.heads or self.w_k.shape[1] == width):
            self.kv_heads = self.heads  # each head keeps its own keys and values
        if name not in ("heads", "kv_heads") or width % self.heads:
            return
        columns = self.kv_heads * width // self.heads
        for n in ("w_k", "w_v"):
            matrix = getattr(self, n).clone()
            now = matrix.shape[1]
            if now >= columns:
                setattr(self, n, matrix[:, :columns])
                continue
            preset = self.traits()[n].validate(self, PRESETS[self.preset][n]).clone()
            fits = preset.shape[0] == matrix.shape[0] and preset.shape[1] >= columns
            more = preset[:, now:columns] if fits else torch.zeros(matrix.shape[0], columns - now)
            setattr(self, n, torch.cat([matrix, more.double()], dim=1))

    def still_stages(self) -> Iterator[Stage]:
        yield from (stage for stage in self.trace.stages() if stage.name != "allowed")


_TOPIC = ("v_tiled", "packed", "unq", "unk", "unv", "linear_weight", "linear_q", "untransposed")
_HOW = {"blocks": "by blocks (Q Q K K V V)", "per head": "per head (Q K V Q K V)"}


def _extended(result: Result, tensors: dict[str, Tensor], told: str, *checks: Check) -> Result:
    return replace(
        result,
        tensors={**result.tensors, **tensors},
        texts={**result.texts, "topic": told},
        checks=[*result.checks, *((check, 0) for check in checks)],
    )


def _columns(width: int, heads: int, layout: str) -> tuple[list[str], Tensor]:
    """What each column of a packed matrix is, found by packing the columns' own numbers."""
    numbers = torch.arange(3 * width, dtype=torch.float64).reshape(3, 1, width)
    order = pack(numbers[0], numbers[1], numbers[2], heads, layout)[0].long()
    names = [f"{'QKV'[n // width]} {n % width}" for n in order.tolist()]
    return names, (order // width).double()


@cache
def _parameters(width: int, heads: int, kv_heads: int, here: int, matrices: str) -> str:
    """Parameters of the page's own matrices, of modules of their width, and of a model that is known."""
    module = parameter_count(width, heads, kv_heads=kv_heads)
    counts = [n for n in range(1, 5) if width % n == 0]
    same = ", ".join(f"{n}: {parameter_count(width, n):,}" for n in counts)
    gpt = parameter_count(768, 12, qkv_bias=False), parameter_count(768, 12)
    return (
        f"Parameters here, in {matrices}: {here:,}. Counted from modules of width {width}, with biases and "
        f"an output projection: {module:,}; by number of heads, each with its own keys and values, {same}. "
        f"GPT-2 small (width 768, 12 heads): {gpt[0]:,} without biases of Q, K and V, {gpt[1]:,} with all."
    )
