"""From a recorded computation to what the panel of one number shows."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeGuard

from torch import Tensor

from attnlab.engine import Explanation, Tape, Version, explain, gradient
from attnlab.engine.index_maps import is_move, origin
from attnlab.engine.source import Spot
from attnlab.widgets.words import sentence

__all__ = ["explain_cell", "gradients", "is_place", "panel"]

# How many operands of cells that aren't shown are looked at, on the way to such as are.
_MAX_OPERANDS = 1024
_PACKAGE = Path(__file__).parent.parent
_OURS = ("engine", "widgets", "explorables")


def panel(
    tape: Tape, versions: Mapping[str, Version], chosen: Mapping[str, Any], *, slopes: bool
) -> dict[str, Any]:
    """What an answer says of the chosen number; with `slopes`, the gradients of that number too."""
    stage, index = chosen["stage"], chosen["index"]
    explanation = explain_cell(tape, versions, stage, index)
    said: dict[str, Any] = {"explanation": explanation}
    if explanation is not None and slopes and versions[stage].values.is_floating_point():
        try:
            said["gradients"] = gradients(tape, versions, stage, index)
        except ValueError as error:  # a call can't be run again: what was recorded is still true
            explanation["note"] = " ".join(filter(None, [explanation["note"], sentence(str(error))]))
    return said


def explain_cell(
    tape: Tape, versions: Mapping[str, Version], stage: str, index: Sequence[int]
) -> dict[str, Any] | None:
    """The panel of `stage` at `index`: formula, note, source line, and the operands by stage and place.

    None when there is no such cell (any more).
    """
    if stage not in versions or not is_place(index, versions[stage].shape):
        return None
    found = explain(tape, versions[stage], index)
    return {
        "stage": stage,
        "index": list(found.index),
        "mathml": found.mathml,
        "note": "" if found.formula is not None else found.note,
        "inputs": _inputs(found) if found.formula is None else [],
        "source": _source(found.version),
        "operands": [
            [name, list(place)] for name, place in dict.fromkeys(_cells(tape, found, _stages(versions)))
        ],
    }


def gradients(
    tape: Tape, versions: Mapping[str, Version], stage: str, index: Sequence[int]
) -> dict[str, Tensor]:
    """∂ stage[index] / ∂ every stage that came before it, by stage name."""
    found = gradient(tape, versions[stage], index)
    stages = _stages(versions)
    return {stages[version]: slope for version, slope in found.items() if version in stages}


def is_place(index: Any, shape: Sequence[int]) -> TypeGuard[Sequence[int]]:
    """Is there such a cell? What a page sends may be anything."""
    return (
        isinstance(index, list | tuple)
        and len(index) == len(shape)
        and all(isinstance(i, int) and 0 <= i < n for i, n in zip(index, shape, strict=True))
    )


def _stages(versions: Mapping[str, Version]) -> dict[Version, str]:
    """Which version is shown as which stage."""
    return {version: name for name, version in versions.items()}


def _cells(
    tape: Tape, found: Explanation, stages: Mapping[Version, str], left: list[int] | None = None
) -> Iterator[tuple[str, tuple[int, ...]]]:
    """The operands as cells on the screen.

    What isn't shown itself is followed to where it was moved from, or to what it was computed from:
    the product in `q @ k.mT / 2`, or a variable that a page leaves out. Not for ever: `left` says
    how many operands may still be looked at.
    """
    left = [_MAX_OPERANDS] if left is None else left
    for operand in found.operands:
        version, index = operand.version, operand.index
        while version not in stages and version.call is not None and is_move(version.call, version.output):
            before = origin(version.call, version.output, index)
            if before is None:
                break
            version, index = before
        if len(index) != len(version.shape):
            continue
        if version in stages:
            yield stages[version], index
        elif version.call is not None and left[0] > 0:
            made = explain(tape, version, index)
            left[0] -= len(made.operands) + 1
            yield from _cells(tape, made, stages, left)


def _inputs(found: Explanation) -> list[str]:
    """What went into a call without a rule: names and shapes, nothing invented."""
    return [f"{operand.stage} ({' × '.join(map(str, operand.version.shape))})" for operand in found.operands]


def _source(version: Version) -> dict[str, Any] | None:
    if version.call is None:
        return None
    spot = version.call.spot
    if Path(spot.file).parent == Path(__file__).parent:
        return None  # a module of torch's own, called by us: no line of the reader's
    lines = spot.context(before=4, after=3)
    while lines and not lines[0][1].strip():
        lines.pop(0)
    while lines and not lines[-1][1].strip():
        lines.pop()
    if not lines:
        return None
    return {"file": _shown_file(spot), "line": spot.line, "lines": [list(line) for line in _dedented(lines)]}


def _shown_file(spot: Spot) -> str:
    """A file of ours by its place in the package, any other by its name: paths are nobody's business."""
    path = Path(spot.file)
    # In a checkout other people's files may lie beside ours.
    if path.is_relative_to(_PACKAGE) and path.relative_to(_PACKAGE).parts[0] in _OURS:
        return f"attnlab/{path.relative_to(_PACKAGE).as_posix()}"
    return path.name


def _dedented(lines: list[tuple[int, str]]) -> list[tuple[int, str]]:
    common = min((len(text) - len(text.lstrip()) for _, text in lines if text.strip()), default=0)
    return [(number, text[common:]) for number, text in lines]
