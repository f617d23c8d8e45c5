"""Splitting a width into heads and merging them again: where does each element go?

Every element of the first stage is its own id, so a stage can be asked where an element is. Nothing here
knows a formula for that: the ids were moved by the same torch calls that move real numbers.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from attnlab.engine.sizes import head_width, require_whole
from attnlab.engine.trace import Trace, note

__all__ = [
    "HeadTrace",
    "Landing",
    "WrongRoutes",
    "arithmetic",
    "follow",
    "landing",
    "misplaced",
    "split_and_merge",
    "wrong_routes",
]

MAX_BATCH = 4
MAX_TIME = 8
MAX_WIDTH = 24
MAX_HEADS = 8


@dataclass(frozen=True, eq=False)
class HeadTrace(Trace):
    """The five stages from a projection to heads and back. Each number is the id of an element."""

    projected: Float[Tensor, "batch time width"] = note("ids in the order of memory")
    grouped: Float[Tensor, "batch time head d_head"] = note("reshape: width → head × d_head")
    heads: Float[Tensor, "batch head time d_head"] = note("transpose(1, 2)")
    back: Float[Tensor, "batch time head d_head"] = note("transpose(1, 2) again")
    merged: Float[Tensor, "batch time width"] = note("reshape: head × d_head → width")


@dataclass(frozen=True, eq=False)
class WrongRoutes(Trace):
    """The two famous mistakes on the ids of a `HeadTrace`: right shapes, elements in wrong places."""

    wrong_heads: Float[Tensor, "batch head time d_head"] = note("projected, reshaped without transpose")
    wrong_merged: Float[Tensor, "batch time width"] = note("heads, reshaped without transposing back")


@dataclass(frozen=True)
class Landing:
    """Where a wrong route takes one element.

    `right` and `wrong` are its places, `intruder` is the element that sits in its right place instead.
    """

    element: int
    right: tuple[int, ...]
    wrong: tuple[int, ...]
    intruder: int

    @property
    def is_misplaced(self) -> bool:
        return self.right != self.wrong


def split_and_merge(batch: int, time: int, width: int, heads: int) -> HeadTrace:
    """projected `[B, T, D]` → grouped `[B, T, H, d]` → heads `[B, H, T, d]` → back → merged `[B, T, D]`.

    The elements are 0 … B·T·D − 1 (float64, so that they are drawn and recorded like any other numbers).
    Limits: 1 ≤ B ≤ 4, 1 ≤ T ≤ 8, 1 ≤ D ≤ 24, 1 ≤ H ≤ 8, and H divides D, as d = D ÷ H.

    Raises `ValueError` with the limits and what came, or with both numbers where H doesn't divide D.
    Source: Vaswani et al. 2017, section 3.2.2 (there h heads of d_k each).
    """
    require_whole(batch, "batch", 1, MAX_BATCH)
    require_whole(time, "time", 1, MAX_TIME)
    require_whole(width, "width", 1, MAX_WIDTH)
    require_whole(heads, "heads", 1, MAX_HEADS)
    d_head = head_width(width, heads)
    return _there_and_back(batch, time, heads, d_head)


def _there_and_back(batch: int, time: int, head_count: int, d_head: int) -> HeadTrace:
    width = head_count * d_head
    # Each stage is cloned, so that none shares memory with another one on the screen. clone() keeps the
    # strides: a transposed stage is still laid out as transpose left it.
    projected = torch.arange(batch * time * width, dtype=torch.float64).reshape(batch, time, width)
    grouped = projected.reshape(batch, time, head_count, d_head).clone()
    heads = grouped.transpose(1, 2).clone()
    back = heads.transpose(1, 2).clone()
    merged = back.reshape(batch, time, width).clone()
    return HeadTrace(projected, grouped, heads, back, merged)


def wrong_routes(trace: HeadTrace) -> WrongRoutes:
    """Both mistakes on the stages of `trace`: split, and merged, by reshape alone.

    Split so, head 0 gets the first positions, whole, and not a slice of each position. Merged so, without
    transposing back, a row of the result holds several positions of one head. The shapes are right.
    """
    projected, heads = trace.projected, trace.heads
    wrong_heads = projected.reshape(heads.shape).clone()
    wrong_merged = heads.reshape(projected.shape).clone()
    return WrongRoutes(wrong_heads, wrong_merged)


def follow(trace: Trace, element: int) -> Mapping[str, tuple[int, ...]]:
    """Stage name → where the element with this id is, looked up in the stages themselves.

    Raises `ValueError` where there is no such element.
    """
    return {stage.name: _place_of(stage.tensor, element) for stage in trace.stages()}


def arithmetic(column: int, d_head: int) -> tuple[int, int]:
    """(head, r) of a column c of the width: head = ⌊c ÷ d_head⌋, r = c mod d_head."""
    require_whole(d_head, "d_head", 1, MAX_WIDTH)
    require_whole(column, "column", 0, MAX_WIDTH - 1)
    return divmod(column, d_head)


def landing(right: Tensor, wrong: Tensor, element: int) -> Landing:
    """Where `element` is in two stages of one shape, and which element took its right place."""
    _require_same_shape(right, wrong)
    place = _place_of(right, element)
    return Landing(element, place, _place_of(wrong, element), int(wrong[place].item()))


def misplaced(right: Tensor, wrong: Tensor) -> int:
    """How many elements are in another place than they should be.

    0 where a mistake hides: with one head, or one position, both routes may do the same.
    """
    _require_same_shape(right, wrong)
    return int((right != wrong).sum().item())


def _place_of(tensor: Tensor, element: int) -> tuple[int, ...]:
    require_whole(element, "element", 0, tensor.numel() - 1)
    found = (tensor == element).nonzero().tolist()
    if len(found) != 1:
        raise ValueError(f"expected a stage with each id once, got element {element} in {len(found)} places")
    return tuple(found[0])


def _require_same_shape(right: Tensor, wrong: Tensor) -> None:
    if right.shape != wrong.shape:
        raise ValueError(
            f"expected two stages of one shape, got {tuple(right.shape)} and {tuple(wrong.shape)}"
        )
