"""LayoutExplorable: the same tensor as a grid and as the strip of memory behind it."""

from collections.abc import Iterator, Mapping
from typing import Any

import torch
import traitlets as t

from attnlab.engine import Check, Stage
from attnlab.engine.chain import MAX_ELEMENTS, READY_CHAINS, ChainResult, changed_by_writing, run_chain
from attnlab.engine.chain_text import MAX_OPERATIONS, parse_chain
from attnlab.engine.layout import Layout, offset_of, storage_strip
from attnlab.widgets.chosen import cell_of, word_of
from attnlab.widgets.control_bar import Chain, Control, Stepper, Text, Toggle
from attnlab.widgets.explorable import Explorable
from attnlab.widgets.result import Result
from attnlab.widgets.shapes import ChainText, Shape

__all__ = ["LayoutExplorable"]


def _ready() -> Iterator[tuple[str, dict[str, Any]]]:
    for ready in READY_CHAINS:
        # The element's number is its place in the start, in the order of memory.
        element = 0
        for size, place in zip(ready.start, ready.index, strict=True):
            element = element * size + place
        yield ready.name, {"start": ",".join(map(str, ready.start)), "chain": ready.text, "element": element}


PRESETS: dict[str, dict[str, Any]] = dict(_ready())

_CHOICES = (
    "reshape(1,3,2,2)",
    "view(1,3,4)",
    "transpose(1,2)",
    "permute(0,2,1)",
    "contiguous()",
    "flatten()",
)
_STRIP = 16


class LayoutExplorable(Explorable):
    """A chain of view, reshape, transpose, permute, contiguous and flatten, with torch's real outcome.

    - `start`: sizes of the first tensor, `"1,3,4"`, 1 to 5 axes and at most 96 elements
    - `chain`: the operations, `"reshape(1,3,2,2) | transpose(1,2)"`, at most 8
    - `element`: the number that is followed through grids and memory
    - `write`: try what changes when the element is written into stage `into`
    - `decimals`, `chosen`, `gradient`, `preset` as everywhere

    `result` holds the last good chain with its tensors.
    """

    presets = PRESETS
    cover = ("start",)

    start = Shape().tag(state="input")
    chain = ChainText().tag(state="input")
    element = t.Int(0, min=0, max=MAX_ELEMENTS - 1).tag(state="input")
    write = t.Bool(False).tag(state="view")
    into = t.Int(0, min=0, max=MAX_OPERATIONS).tag(state="view")
    gradient = t.Bool(False).tag(state="view")
    preset = t.Enum(list(PRESETS), next(iter(PRESETS)))
    result = t.Instance(ChainResult, read_only=True)

    def controls(self) -> list[list[Control]]:
        return [
            [
                self.preset_control(),
                Text("start", "start"),
                Stepper("element", "element", less="element before", more="next element"),
                *self.common_controls(),
            ],
            [Chain("chain", "operations", _CHOICES)],
            [
                Toggle("write", "write into the element"),
                Stepper("into", "of stage", less="stage before", more="next stage"),
                self.gradient_control(),
            ],
        ]

    def stages(self) -> dict[str, dict[str, Any]]:
        return {}

    def layout_blocks(self) -> list[dict[str, Any]]:
        return []  # a block for each operation: see `compute`

    def compute(self) -> Result:
        shape = _sizes(self.start)
        operations = parse_chain(self.chain)
        result = run_chain(shape, operations)
        last = result.tensors()[0].numel() - 1
        if self.element > last:
            raise ValueError(f"element: expected 0 to {last}, got {self.element}")
        grids = list(result.stages())
        strips = {
            f"strip{number}": storage_strip(step.tensor)
            for number, step in enumerate(result.steps)
            if step.tensor is not None and not step.shares_with
        }
        places = {
            stage.name: tuple(int(i) for i in (stage.tensor == self.element).nonzero()[0]) for stage in grids
        }
        texts, blocks = self._told(result, places)
        stages: dict[str, dict[str, Any]] = {
            stage.name: {
                "title": _name(number),
                "axes": list(stage.axes),
                "whole": True,
            }
            for number, stage in enumerate(grids)
        }
        for name in strips:
            stages[name] = {"title": "memory", "axes": ["offset"], "whole": True, "wrap": _STRIP}
        into = min(self.into, len(grids) - 1)
        tags = [self._tag(result, places)]
        if self.write:
            tags.append(self._written(shape, into, places, texts))
        return Result(
            tensors={stage.name: stage.tensor for stage in grids} | strips,
            published={"result": result},
            checks=[(check, 0) for check in _checks(result)],
            texts=texts,
            message=f"Operation {len(result.steps) - 1} stops; what PyTorch says stands below."
            if result.error
            else "",
            stages=stages,
            layout_blocks=blocks,
            tags=tags,
            limits={"element": last, "into": len(grids) - 1},
        )

    def _told(
        self, result: ChainResult, places: Mapping[str, tuple[int, ...]]
    ) -> tuple[dict[str, str], list[dict[str, Any]]]:
        """What torch says about each stage, and where it stands."""
        texts: dict[str, str] = {"written": ""}
        blocks: list[dict[str, Any]] = [{"kind": "message"}, {"kind": "text", "text": "written"}]
        for number, step in enumerate(result.steps):
            texts[f"told{number}"] = _outcome(number, result)
            blocks.append({"kind": "text", "text": f"told{number}"})
            if step.tensor is None or step.layout is None:
                continue
            offset = offset_of(step.tensor, places[step.name])
            texts[f"told{number}"] += (
                f"\n{_facts(step.layout)}\nelement {self.element} lies at offset {offset.text}"
            )
            items = [{"stage": step.name}]
            if not step.shares_with:
                items.append({"stage": f"strip{number}"})
            blocks.append({"kind": "grids", "items": items})
        return texts, [*blocks, {"kind": "readout"}, {"kind": "explanation"}, {"kind": "checks"}]

    def _tag(self, result: ChainResult, places: Mapping[str, tuple[int, ...]]) -> dict[str, Any]:
        """The element in every grid, and in every strip of memory."""
        cells: list[list[Any]] = []
        for number, step in enumerate(result.steps):
            if step.tensor is None:
                continue
            place = places[step.name]
            cells.append([step.name, list(place)])
            if not step.shares_with:
                cells.append([f"strip{number}", [offset_of(step.tensor, place).total]])
        return {"tag": "first", "cells": cells}

    def _written(
        self, shape: tuple[int, ...], into: int, places: Mapping[str, tuple[int, ...]], texts: dict[str, str]
    ) -> dict[str, Any]:
        names = list(places)
        changed = changed_by_writing(shape, parse_chain(self.chain), into, places[names[into]])
        hit = [i for i, found in enumerate(changed) if found]
        kept = [i for i, found in enumerate(changed) if not found]
        texts["written"] = (
            f"Writing into element {self.element} of {_name(into)} changes {_listed(hit)}"
            f"{', and not ' + _listed(kept) if kept else ''}."
        )
        cells = [[names[i], list(place)] for i, found in enumerate(changed) for place in found]
        return {"tag": "changed", "alone": True, "cells": cells}

    def follow(self, name: str) -> None:
        if name in ("start", "chain"):
            self._stay_within()
        if name == "element":
            self._move_chosen()
        if name == "chosen":
            self._follow_chosen()

    def _move_chosen(self) -> None:
        """The chosen number is that of the element that is followed, wherever that is now."""
        chosen = cell_of(self.chosen)
        numbers = self._last.tensors.get(chosen["stage"]) if chosen and self._last else None
        place = (numbers == self.element).nonzero().tolist() if numbers is not None else []
        if chosen and place:
            self.chosen = word_of({**chosen, "index": place[0]})

    def _apply(self, values: Mapping[str, Any]) -> None:
        super()._apply(values)
        self._stay_within(*values)

    def _stay_within(self, *given: str) -> None:
        """Fewer elements or stages than before: the last one instead of one that is gone."""
        try:
            made = run_chain(_sizes(self.start), parse_chain(self.chain)).tensors()
        except ValueError:
            return  # `compute` says so
        for name, count in (("element", made[0].numel()), ("into", len(made))):
            if name not in given:
                setattr(self, name, min(getattr(self, name), count - 1))

    def _follow_chosen(self) -> None:
        """Choosing a number anywhere follows it; in a grid it is also where to write."""
        chosen = cell_of(self.chosen)
        number = self._number_at(chosen)
        if chosen is None or number is None:
            return
        self.element = int(number)
        names = [step.name for step in self.result.steps]
        if chosen["stage"] in names:
            self.into = names.index(chosen["stage"])

    def _recorded(self) -> Result:
        """The stages are called in formulas as on the screen: the code has one name for all of them."""
        result = super()._recorded()
        if result.tape is not None:
            for number, step in enumerate(result.published["result"].steps):
                if step.tensor is not None and not step.is_same_tensor:
                    result.tape.name(step.tensor, _name(number))
                strip = result.tensors.get(f"strip{number}")
                if strip is not None:
                    result.tape.name(strip, f"memory of {_name(number)}")
        return result

    def still_stages(self) -> Iterator[Stage]:
        yield from self.result.stages()


def _sizes(start: str) -> tuple[int, ...]:
    return tuple(int(size) for size in start.split(","))


def _name(number: int) -> str:
    return f"stage {number}"


def _outcome(number: int, result: ChainResult) -> str:
    step = result.steps[number]
    if step.operation is None:
        return f"{_name(0)} · the numbers in the order of memory"
    if step.error:
        return f"{step.operation} · refused by PyTorch: {step.error}"
    if step.is_same_tensor:
        made = "the very same tensor"
    elif step.outcome == "view":
        made = f"a view, in the memory of {_name(step.shares_with[0])}"
    else:
        made = "a copy, in memory of its own"
    return f"{_name(number)} · {step.operation} · {made}"


def _facts(layout: Layout) -> str:
    return (
        f"shape {layout.shape} · stride {layout.stride} · storage offset {layout.storage_offset} · "
        f"{'contiguous' if layout.contiguous else 'not contiguous'}"
    )


def _listed(numbers: list[int]) -> str:
    names = [_name(number) for number in numbers]
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def _checks(result: ChainResult) -> list[Check]:
    """The formula of the offset against the memory itself, for every element of every stage."""
    wrong = 0
    count = 0
    for step in result.steps:
        if step.tensor is None:
            continue
        index = step.tensor.isfinite().nonzero()
        start = int(step.tensor.storage_offset())
        offsets = start + (index * torch.tensor(step.tensor.stride())).sum(dim=1)
        count += offsets.shape[0]
        wrong += int((storage_strip(step.tensor)[offsets] != step.tensor.flatten()).sum())
    how = "the number at offset + Σ index · stride in memory, against the element of the grid"
    return [
        Check(
            "offset + Σ index · stride finds every element",
            float(wrong),
            0.0,
            how,
            counted=f"of {count} elements elsewhere",
        )
    ]
