"""HeadSplitExplorable: follow one element through the split into heads and back."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
import traitlets as t
from torch import Tensor

from attnlab.engine import Check, Stage
from attnlab.engine.checks import sums_to_one
from attnlab.engine.heads import (
    MAX_BATCH,
    MAX_HEADS,
    MAX_TIME,
    MAX_WIDTH,
    HeadTrace,
    WrongRoutes,
    arithmetic,
    follow,
    landing,
    misplaced,
    split_and_merge,
    wrong_routes,
)
from attnlab.engine.multi_head import MultiHeadTrace, multi_head
from attnlab.widgets.chosen import cell_of, word_of
from attnlab.widgets.control_bar import Command, Control, Select, Stepper, Steps, Toggle
from attnlab.widgets.explorable import Explorable
from attnlab.widgets.matrix import Matrix
from attnlab.widgets.read_only import plain
from attnlab.widgets.result import Result

__all__ = ["HeadSplitExplorable"]

_NONE = "none"
_MERGE = "merge without transposing back"
_SPLIT = "split by reshape alone"
MISTAKES = (_NONE, _MERGE, _SPLIT)
COLOURS = ("head", "time", "none")

_X = {"x": [[[1, 0, 2, -1], [0, 2, 1, 1], [2, 1, 0, 1]]]}
# Two sequences of five positions and 24 features, for heads of width 8: neighbours are equal one by one in
# head 0, in twos in head 1, in threes in head 2, and equal rows read each other most.
_X_OF_24 = [
    [[3 * ((time + batch) // (head + 1) == r) for head in range(3) for r in range(8)] for time in range(5)]
    for batch in range(2)
]
PRESETS: dict[str, dict[str, Any]] = {
    "3 positions, 2 heads": {"element": 2},
    "2 sequences, 4 heads": {"batch": 2, "width": 8, "heads": 4, "element": 45},
    "as many heads as positions": {"time": 2, "element": 2, "mistake": _MERGE},
    "one head: the mistake hides": {"heads": 1, "element": 2, "mistake": _MERGE},
    "one position: it hides too": {"time": 1, "element": 2, "mistake": _MERGE},
    "with attention in between": {"attention": True, "mistake": _MERGE, "element": 2},
    "attention, 3 heads of width 8": {"attention": True, "x": _X_OF_24, "heads": 3},
}
PRESETS = {name: _X | values for name, values in PRESETS.items()}

STEPS = ((1, "projected"), (2, "grouped"), (3, "heads"), (4, "back"), (5, "merged"))
_ROUTE = tuple(name for _, name in STEPS)
_IDS = (*_ROUTE, "wrong_heads", "wrong_merged")
_X_AXES = ("batch", "time", "width")
_SIZES = (*_X_AXES, "heads")
_LIMITS = {"batch": MAX_BATCH, "time": MAX_TIME, "width": MAX_WIDTH, "heads": MAX_HEADS, "decimals": 8}
_LAST = MAX_BATCH * MAX_TIME * MAX_WIDTH - 1
"""The last id of the largest tensor."""


class HeadSplitExplorable(Explorable):
    """Elements with an id each, through reshape and transpose into heads and back again.

    - `batch` 1 to 4, `time` 1 to 8, `width` 1 to 24, `heads` 1 to 8; heads must divide the width
    - `element`: the id that is followed; `other`: a second one, or −1
    - `mistake`: one of `MISTAKES`; `colour`: cells by head or by position (`time`)
    - `attention`: real attention of `x` (up to 4 × 8 × 24, with sizes of its own) in place of the ids
    - `step`: how far the five stages are shown, `decimals`, `chosen`, `gradient`, `preset` as everywhere

    `trace` holds the stages of the last good result, `wrong` the two mistakes, `attended` the attention.
    """

    presets = PRESETS
    cover = ("merged", "output")

    x = Matrix(label="X", axes=_X_AXES, max_size=(MAX_BATCH, MAX_TIME, MAX_WIDTH))
    batch = t.Int(1, min=1, max=MAX_BATCH).tag(state="input")
    time = t.Int(3, min=1, max=MAX_TIME).tag(state="input")
    width = t.Int(4, min=1, max=MAX_WIDTH).tag(state="input")
    heads = t.Int(2, min=1, max=MAX_HEADS).tag(state="input")
    mistake = t.Enum(MISTAKES, _NONE).tag(state="input")
    attention = t.Bool(False).tag(state="input")
    element = t.Int(0, min=0, max=_LAST).tag(state="input")
    other = t.Int(-1, min=-1, max=_LAST).tag(state="view")
    colour = t.Enum(COLOURS, "head").tag(state="view")
    step = t.Int(5, min=1, max=5).tag(state="view")
    decimals = t.Int(4, min=2, max=8).tag(state="view")
    gradient = t.Bool(False).tag(state="view")
    preset = t.Enum(list(PRESETS), next(iter(PRESETS)))

    trace = t.Instance(HeadTrace, read_only=True)
    wrong = t.Instance(WrongRoutes, read_only=True)
    attended = t.Instance(MultiHeadTrace, read_only=True)

    def controls(self) -> list[list[Control]]:
        sizes = [
            Stepper(size, size, less=f"one {one} less", more=f"one {one} more", minimum=1)
            for size, one in zip(_SIZES, ("sequence", "position", "feature", "head"), strict=True)
        ]
        return [
            [
                self.preset_control(),
                *sizes,
                *self.common_controls(),
            ],
            [Steps("step", "Stages", STEPS)],
            [
                Stepper("element", "element", less="element before", more="next element"),
                Command("pin", "compare with this one", end=False),
                Command("unpin", "no comparison", end=False),
                Select("mistake", "mistake", [(name, name) for name in MISTAKES]),
                Select("colour", "colour by", [(name, name) for name in COLOURS]),
                Toggle("attention", "with attention in between"),
                *self.number_controls(),
            ],
        ]

    def stages(self) -> dict[str, dict[str, Any]]:
        rows = ["batch", "time", "width"]
        split = ["batch", "head", "time", "d_head"]
        grouped = ["batch", "time", "head", "d_head"]
        ids = {
            "projected": rows,
            "grouped": grouped,
            "heads": split,
            "back": grouped,
            "merged": rows,
        }
        stages: dict[str, dict[str, Any]] = {
            name: {"axes": axes, "whole": True, "tint": f"tint_{name}", "step": step}
            for step, (name, axes) in enumerate(ids.items(), 1)
        }
        for name, axes, title in (
            ("wrong_heads", split, "heads, by reshape alone"),
            ("wrong_merged", rows, "merged, not transposed back"),
        ):
            stages[name] = {"axes": axes, "title": title, "whole": True, "tint": f"tint_{name}"}
        inputs = self.input_stages()
        inputs["x"] |= {"ramp": "signed", "group": "x"}
        head = {"ramp": "signed", "group": "output"}
        query = ["batch", "head", "query", "key"]
        return (
            inputs
            | stages
            | {
                "q_heads": {
                    "title": "q, k and v of each head",
                    "axes": ["batch", "head", "query", "d_k"],
                    "ramp": "signed",
                    "group": "x",
                },
                "masked": {"axes": query, "ramp": "signed", "group": "scores", "masked": "allowed"},
                "weights": {
                    "axes": query,
                    "ramp": "unit",
                    "group": "weights",
                    "masked": "allowed",
                    "bar": True,
                },
                "head_output": head
                | {"title": "output of each head", "axes": ["batch", "head", "query", "d_v"]},
                "output": head
                | {"title": "output, merged", "axes": ["batch", "query", "width"], "bar": True},
                "wrong_output": head
                | {"title": "output, not transposed back", "axes": ["batch", "query", "width"], "bar": True},
            }
        )

    def layout_blocks(self) -> list[dict[str, Any]]:
        return []  # with or without attention: see `compute`

    def compute(self) -> Result:
        return self._attended() if self.attention else self._followed()

    # ------------------------------------------------------------ ids

    def _followed(self) -> Result:
        trace = split_and_merge(self.batch, self.time, self.width, self.heads)
        wrong = wrong_routes(trace)
        last = trace.projected.numel() - 1
        for name in ("element", "other"):
            if getattr(self, name) > last:
                raise ValueError(f"{name}: expected 0 to {last}, got {getattr(self, name)}")
        shown = {stage.name: stage.tensor for stage in (*trace.stages(), *wrong.stages())}
        tints = {} if self.colour == "none" else {f"tint_{n}": self._tint(ids) for n, ids in shown.items()}
        texts, checks = self._told(trace, wrong)
        return Result(
            tensors=shown | tints,
            published={"trace": trace, "wrong": wrong},
            checks=checks,
            texts=texts,
            tags=list(self._tags(trace, wrong)),
            layout_blocks=self._blocks(),
            limits=_LIMITS | {"element": last},
            disabled=["unpin"] if self.other < 0 else [],
        )

    def _tint(self, ids: Tensor) -> Tensor:
        """The head, or the position, that each element belongs to: it keeps its colour on every way."""
        whole = ids.long()
        if self.colour == "head":
            return (whole % self.width // (self.width // self.heads)).double()
        return (whole // self.width % self.time).double()

    def _told(self, trace: HeadTrace, wrong: WrongRoutes) -> tuple[dict[str, str], list[tuple[Check, int]]]:
        d_head = self.width // self.heads
        texts = {
            "group": "reshape",
            "transpose": "transpose(1, 2)",
            "merge": "reshape",
            "way": _way(trace, self.element, d_head),
            "other": _way(trace, self.other, d_head) if self.other >= 0 else "",
            "mistake": "",
        }
        back = misplaced(trace.projected, trace.merged)
        count = trace.projected.numel()
        checks = [(_places("merged back, every element is in its place", back, count), 5)]
        for mistake, right, name in (
            (_MERGE, trace.merged, "wrong_merged"),
            (_SPLIT, trace.heads, "wrong_heads"),
        ):
            if self.mistake != mistake:
                continue
            found = getattr(wrong, name)
            landed = landing(right, found, self.element)
            where = f"{self.element} lands at {landed.wrong}"
            taken = f"{landed.intruder} sits in its place {landed.right}"
            gone = misplaced(right, found)
            hides = " Here the mistake hides: nothing is misplaced." if not gone else ""
            stays = f"{self.element} stays at {landed.right}."
            texts["mistake"] = (
                f"{mistake}: {where}, and {taken}." if landed.is_misplaced else f"{mistake}: {stays}"
            )
            texts["mistake"] += hides
            checks.append((_places(f"{mistake}: every element in its place", gone, count), 0))
        return texts, checks

    def _tags(self, trace: HeadTrace, wrong: WrongRoutes) -> Iterator[dict[str, Any]]:
        for tag, element in (("first", self.element), ("second", self.other)):
            if element < 0:
                continue
            places = follow(trace, element)
            yield {"tag": tag, "cells": [[name, list(places[name])] for name in _ROUTE[: self.step]]}
        if self.mistake == _NONE:
            return
        places, lost = follow(trace, self.element), follow(wrong, self.element)
        before, after = ("heads", "wrong_merged") if self.mistake == _MERGE else ("projected", "wrong_heads")
        yield {"tag": "wrong", "cells": [[before, list(places[before])], [after, list(lost[after])]]}

    def _blocks(self) -> list[dict[str, Any]]:
        wrong = {_NONE: [], _MERGE: ["wrong_merged"], _SPLIT: ["wrong_heads"]}[self.mistake]
        mistake: list[dict[str, Any]] = [
            {"kind": "text", "text": "mistake"},
            {"kind": "grids", "items": [{"stage": stage} for stage in wrong]},
        ]
        return [
            {"kind": "text", "text": "way"},
            *([{"kind": "text", "text": "other"}] if self.other >= 0 else []),
            {"kind": "message"},
            {
                "kind": "grids",
                "items": [
                    {"stage": "projected"},
                    {"stage": "grouped", "operation": "group"},
                    {"stage": "heads", "operation": "transpose"},
                    {"stage": "back", "operation": "transpose"},
                    {"stage": "merged", "operation": "merge"},
                ],
            },
            *(mistake if wrong else []),
            {"kind": "readout"},
            {"kind": "explanation"},
            {"kind": "checks"},
        ]

    # ------------------------------------------------------------ attention in between

    def _attended(self) -> Result:
        trace = multi_head(self.matrices()["x"], self.heads, causal=True, merge="reshape alone")
        wrong = trace.wrong_output
        assert wrong is not None  # asked for above
        error = float((wrong - trace.output).abs().max())
        how = "the outputs of the heads, merged with and without transposing back"
        summed = "sum of each row of weights over key"
        checks = [(sums_to_one(trace.weights, "row sums 1 in each head", summed), 0)]
        if self.mistake == _MERGE:
            checks.append((Check(f"{_MERGE}: the output is the same", error, 0.0, how), 0))
        names = ["q_heads", "masked", "weights", "head_output", "output"]
        outputs = [{"stage": "head_output", "operation": "mix"}, {"stage": "output", "operation": "merge"}]
        if self.mistake == _MERGE:
            names.append("wrong_output")
            outputs.append({"stage": "wrong_output"})
        elsewhere = f"The mistake {_SPLIT} is shown on the numbers of the elements, without attention."
        return Result(
            tensors={name: getattr(trace, name) for name in [*names, "allowed"]},
            published={"attended": trace},
            checks=checks,
            texts={
                "split": "split",
                "softmax": "softmax",
                "mix": "weights · v",
                "merge": "merge",
                "mask": f"÷ √{trace.q_heads.shape[-1]}, mask",
            },
            message=elsewhere if self.mistake == _SPLIT else "",
            layout_blocks=[
                {"kind": "sizes", "axes": list(_X_AXES)},
                {
                    "kind": "grids",
                    "items": [{"stage": "x"}, {"stage": "q_heads", "operation": "split"}],
                },
                {"kind": "message"},
                {
                    "kind": "grids",
                    "items": [
                        {"stage": "masked", "operation": "mask"},
                        {"stage": "weights", "operation": "softmax"},
                    ],
                },
                {"kind": "grids", "items": outputs},
                {"kind": "readout"},
                {"kind": "explanation"},
                {"kind": "checks"},
            ],
            limits=_LIMITS | {"element": self.element},
            # X has sizes of its own here, and its numbers are no ids; the stages are others.
            disabled=["pin", "unpin", "element", "colour", "step", *_X_AXES],
        )

    # ------------------------------------------------------------ what the reader does

    def commands(self) -> dict[str, Callable[[], None]]:
        return {
            "pin": lambda: self.set_trait("other", self.element),
            "unpin": lambda: self.set_trait("other", -1),
        }

    def follow(self, name: str) -> None:
        if name == "attention" and self.attention:
            self._widen_x()
        if name in _SIZES:
            self._stay_within()
        if name in (*_SIZES, "element"):
            self._move_chosen()
        if name == "chosen":
            self._follow_chosen()

    def _apply(self, values: Mapping[str, Any]) -> None:
        super()._apply(values)
        self._stay_within(*(n for n in ("element", "other") if n in values))
        self._move_chosen()

    def _widen_x(self) -> None:
        """Features of 0 where the heads that the ids have would not divide the width of X."""
        missing = -self.x.shape[-1] % self.heads
        if missing:
            self.x = torch.nn.functional.pad(plain(self.x), (0, missing))

    def _stay_within(self, *given: str) -> None:
        """Fewer elements than before: the last one is followed instead of one that is gone."""
        last = self.batch * self.time * self.width - 1
        for name in {"element", "other"}.difference(given):
            setattr(self, name, min(getattr(self, name), last))

    def _move_chosen(self) -> None:
        """The chosen number is that of the element that is followed, wherever that is now."""
        chosen = cell_of(self.chosen)
        if chosen is None or chosen["stage"] not in _IDS or self.attention:
            return
        try:
            trace = split_and_merge(self.batch, self.time, self.width, self.heads)
            places = {**follow(trace, self.element), **follow(wrong_routes(trace), self.element)}
        except ValueError:
            return  # no such sizes, or no such element: `compute` says so
        self.chosen = word_of({**chosen, "index": places[chosen["stage"]]})

    def _follow_chosen(self) -> None:
        """Choosing a number on any stage follows its element."""
        chosen = cell_of(self.chosen)
        number = self._number_at(chosen)
        if chosen and chosen["stage"] in _IDS and not self.attention and number is not None:
            self.element = int(number)

    def still_stages(self) -> Iterator[Stage]:
        shown = "attended" if self._last and "attended" in self._last.published else "trace"
        yield from getattr(self, shown).stages()


def _way(trace: HeadTrace, element: int, d_head: int) -> str:
    """The places of an element, by axis names, and the arithmetic of its column."""
    places = follow(trace, element)
    axes = {stage.name: stage.axes for stage in trace.stages()}
    told = " → ".join(f"{name} ({_place(axes[name], places[name])})" for name in _ROUTE)
    column = places["projected"][-1]
    head, r = arithmetic(column, d_head)
    return (
        f"Element {element}, column c = {column}: head ⌊{column} ÷ {d_head}⌋ = {head}, "
        f"r = {column} mod {d_head} = {r}. {told}."
    )


def _place(axes: Sequence[str], index: Sequence[int]) -> str:
    """As r = column mod d_head is called in the arithmetic, so is the position along d_head."""
    return ", ".join(f"{'r' if axis == 'd_head' else axis} {i}" for axis, i in zip(axes, index, strict=True))


def _places(name: str, gone: int, count: int) -> Check:
    return Check(name, float(gone), 0.0, f"of {count} elements", counted=f"of {count} elements misplaced")
