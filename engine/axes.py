"""Axis names of recorded tensors: given by somebody, carried through calls, or else numbered."""

from collections.abc import Sequence

import torch

from attnlab.engine.index_maps import CASTS, MOVES, traced
from attnlab.engine.recorder import Call, Version
from attnlab.engine.rules import argument

__all__ = ["axes_of", "is_unnamed"]

_REDUCTIONS = frozenset(
    "sum mean var std max min amax amin argmax argmin prod norm logsumexp any all".split()
)


def is_unnamed(axis: str) -> bool:
    """Is this a numbered axis? Such names say nothing: equal ones don't belong together."""
    return axis.startswith("axis") and axis[4:].isdigit()


def axes_of(version: Version) -> tuple[str, ...]:
    """One name for each axis. Names within a tensor differ: a second `time` is `time′`."""
    if version.given_axes:
        return version.given_axes
    known: tuple[str, ...] | None = getattr(version, "_axes", None)
    if known is None:
        names = list(_carried(version)) if version.call is not None else []
        if len(names) != len(version.shape):
            names = [""] * len(version.shape)
        known = _distinct(names)
        version._axes = known  # type: ignore[attr-defined]
    return known


def _distinct(names: Sequence[str]) -> tuple[str, ...]:
    found: list[str] = []
    for position, name in enumerate(names):
        name = f"axis{position}" if not name or is_unnamed(name) else name
        while name in found:
            name += "′"
        found.append(name)
    return tuple(found)


def _carried(version: Version) -> Sequence[str]:
    call = version.call
    assert call is not None
    if call.name in CASTS:
        return axes_of(call.inputs[0])
    if call.name in MOVES and call.name not in ("tril", "triu", "setitem", "shared storage"):
        return _moved(call, version)
    if call.name in ("matmul", "rmatmul"):
        left, right = call.inputs[:2] if call.name == "matmul" else call.inputs[1::-1]
        return _product(left, right)
    if call.name == "linear":
        weight = argument(call, 1, "weight")
        return (*axes_of(argument(call, 0, "input"))[:-1], axes_of(weight)[0])
    if call.name == "embedding":
        return (*axes_of(argument(call, 0, "input")), axes_of(argument(call, 1, "weight"))[-1])
    if call.name == "einsum":
        return _einsum(call)
    if call.name in _REDUCTIONS and len(call.inputs) == 1:
        return _reduced(call, version)
    return _broadcast(call, version)


def _broadcast(call: Call, version: Version) -> list[str]:
    """Element by element: each axis is called as in the first input that has it in full size."""
    names = [""] * len(version.shape)
    for source in call.inputs:
        own = axes_of(source)
        for back in range(1, min(len(own), len(names)) + 1):
            if (
                source.shape[-back] == version.shape[-back]
                and not names[-back]
                and not is_unnamed(own[-back])
            ):
                names[-back] = own[-back]
    return names


def _product(left: Version, right: Version) -> list[str]:
    a, b = axes_of(left), axes_of(right)
    rows, columns = a[-2:-1] if len(a) > 1 else (), b[-1:] if len(b) > 1 else ()
    leading = a[:-2] if len(a) >= len(b) else b[:-2]
    return [*leading, *rows, *columns]


def _reduced(call: Call, version: Version) -> list[str]:
    source = call.inputs[0]
    dim = argument(call, 1, "dim")
    if dim is None:
        return []
    axes = len(source.shape)
    over = {d % axes for d in ([dim] if isinstance(dim, int) else dim)}
    keep = len(version.shape) == axes
    return [name for i, name in enumerate(axes_of(source)) if keep or i not in over]


def _einsum(call: Call) -> list[str]:
    equation = call.args[0]
    if not isinstance(equation, str) or "->" not in equation or "." in equation:
        return []
    left, right = equation.replace(" ", "").split("->")
    names: dict[str, str] = {}
    for term, source in zip(left.split(","), call.inputs, strict=True):
        for letter, name in zip(term, axes_of(source), strict=True):
            if not is_unnamed(name):
                names.setdefault(letter, name)
    return [names.get(letter, "") for letter in right]


def _moved(call: Call, version: Version) -> list[str]:
    """An axis keeps its name when it is one whole axis of the source: same steps, same size."""
    if version.values.numel() == 0:
        return []
    sources, outputs = traced(call)
    positions = outputs[version.output] - 1
    source = sources[0]
    sizes = source.shape
    own = axes_of(source)
    steps = [
        int(torch.tensor(sizes[axis + 1 :]).prod()) if sizes[axis + 1 :] else 1 for axis in range(len(sizes))
    ]
    begin = int(positions.flatten()[0])
    names = []
    for axis, size in enumerate(version.shape):
        if size == 1:
            # No step to tell by; an axis of one that stands where one stood is taken for the same.
            names.append(own[axis] if len(sizes) > axis and sizes[axis] == 1 else "")
            continue
        step = int(positions.select(axis, 1).flatten()[0]) - begin
        match = [
            i
            for i, (full, stride) in enumerate(zip(sizes, steps, strict=True))
            if step == stride and size == full and begin // stride % full == 0
        ]
        names.append(own[match[-1]] if match else "")
    return names
