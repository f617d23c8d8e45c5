"""Checks of anybody's attention code, by what was recorded: no names, no conventions, only calls and numbers.

They find the matrix product whose left side comes from a softmax, the weights, and look from there
backwards to the scores and forwards to the merged heads. What isn't found isn't checked.
"""

import math
from collections.abc import Iterator

import torch

from attnlab.engine.call import Call, Version
from attnlab.engine.checks import Check, sums_to_one
from attnlab.engine.formula import format_short
from attnlab.engine.index_maps import CASTS, MOVES, is_move, traced
from attnlab.engine.recorder import Tape
from attnlab.engine.rules import argument

__all__ = ["check_code"]

_ELEMENTWISE = frozenset("masked_fill mul div add sub where dropout to clamp".split()) | MOVES


def check_code(tape: Tape) -> list[Check]:
    """The checks that apply to a recorded computation; none where no attention is found."""
    found: list[Check] = []
    for mix in tape.calls:
        softmax = _softmax_behind(mix)
        if softmax is None:
            continue
        weights = mix.inputs[0]
        scores = _scores_behind(softmax)
        scale = _scale(scores, softmax) if scores is not None else None
        attends = scores is not None and (
            _multiplies_keys(scores) or _is_masked(softmax) or (scale is not None and scale.holds)
        )
        sums = _row_sums(weights, softmax)
        if attends or sums.holds:  # what only looks like attention may have other sums by design
            found.append(sums)
        if scale is not None and attends:
            found.append(scale)
        merged = _merged_after(tape, mix)
        stay = _positions_stay(merged, mix.outputs[0]) if merged is not None else None
        if stay is not None:
            found.append(stay)
    return found


def _softmax_behind(mix: Call) -> Call | None:
    """The softmax that the left factor of a matrix product comes from, element by element."""
    if mix.name != "matmul" or len(mix.inputs) < 2:
        return None
    return next((call for call in _chain(mix.inputs[0]) if call.name == "softmax"), None)


def _scores_behind(softmax: Call) -> Call | None:
    """The matrix product that the input of a softmax comes from, element by element."""
    return next((call for call in _chain(softmax.inputs[0]) if call.name == "matmul"), None)


def _chain(version: Version) -> Iterator[Call]:
    """The calls that made a tensor, newest first, as long as each works element by element."""
    call = version.call
    while call is not None:
        yield call
        if call.name not in _ELEMENTWISE or not call.inputs:
            return
        call = _main(call).call


def _main(call: Call) -> Version:
    """The input of full size: masks and numbers are broadcast onto it."""
    return max(call.inputs, key=lambda v: (v.values.is_floating_point(), v.values.numel()))


def _multiplies_keys(scores: Call) -> bool:
    """Is this surely a product of queries with keys, and not with a matrix of weights, as in a router?

    Keys are transposed for it, h @ gate isn't. A transposed weight (`h @ gate.T`) looks the same, but has no
    leading axes, or other ones than the left side, and comes from no product itself.
    """
    left, right = scores.inputs[:2]
    if sum(_swaps(call) for call in _chain(right)) % 2 == 0:
        return False
    leading = list(zip(reversed(left.shape[:-2]), reversed(right.shape[:-2]), strict=False))
    batched = any(keys > 1 or queries == keys for queries, keys in leading)
    own = all(keys in (1, queries) for queries, keys in leading) and batched
    return own or _root(left) is _root(right) or _comes_from_a_product(right)


def _is_masked(softmax: Call) -> bool:
    """Is something set to −∞ on the way from the product to the softmax?"""
    for call in _chain(softmax.inputs[0]):
        if call.name == "matmul":
            return False
        if call.name in ("masked_fill", "where") and bool(call.outputs[0].values.isneginf().any()):
            return True
    return False


def _swaps(call: Call) -> bool:
    """Does a call exchange the last two axes?"""
    shape = call.outputs[0].shape if call.outputs else ()
    if len(shape) < 2 or call.name in CASTS or not is_move(call, 0):
        return False
    if call.name in ("mT", "mH"):
        return True
    if call.name == "transpose":
        axes = {argument(call, i, f"dim{i - 1}", -i) % len(shape) for i in (1, 2)}
        return axes == {len(shape) - 2, len(shape) - 1}
    if min(shape[-2:]) < 2:  # an axis of one has no step to tell it by
        return False
    positions = traced(call)[1][0]
    if positions.shape != shape:
        return False
    first = positions[(0,) * len(shape[:-2])]
    return bool(abs(first[1, 0] - first[0, 0]) < abs(first[0, 1] - first[0, 0]))


def _root(version: Version) -> Version:
    """The tensor that another one is, only moved, cast or changed element by element."""
    for call in _chain(version):
        if call.name in _ELEMENTWISE:
            version = _main(call)
    return version


_PRODUCTS = frozenset("matmul linear einsum addmm baddbmm embedding conv1d conv2d".split())


def _comes_from_a_product(version: Version) -> bool:
    waiting, seen = [version], set()
    while waiting:
        call = waiting.pop().call
        if call is None or id(call) in seen:
            continue
        if call.name in _PRODUCTS:
            return True
        seen.add(id(call))
        waiting += call.inputs
    return False


def _row_sums(weights: Version, softmax: Call) -> Check:
    """Σ over the axis that is multiplied with the values, 1 in every row that has a key."""
    drops = [c for c in _chain(weights) if c.name == "dropout" and argument(c, 2, "training", True)]
    # Dropout changes sums by design: what counts is what it was given.
    shown = _main(drops[-1]) if drops else weights
    without_key = shown.values.double().sum(dim=-1).isnan()
    shares = softmax.outputs[0].values
    if shares.shape == shown.shape:  # a row of NaN had no key, also when it was set to 0 afterwards
        without_key = without_key | shares.sum(dim=-1).isnan()
    where = softmax.spot.line
    # Rounded once, numbers stay so: the softmax may have had fewer digits than what is made of it.
    kept = [shown, *(call.outputs[0] for call in _chain(shown))]
    kept = kept[: next((i for i, v in enumerate(kept) if v.call is softmax), 0) + 1]
    eps = max(torch.finfo(v.values.dtype).eps for v in kept if v.values.is_floating_point())
    how = f"sums of the weights along the axis that meets the values; the softmax is in line {where}"
    return sums_to_one(shown.values, "each query's weights sum to 1", how, ~without_key, eps=eps)


def _scale(scores: Call, softmax: Call) -> Check | None:
    """The factor between product and softmax against 1/√d, d = numbers in one dot product.

    It may stand after the product or on either side of it. None where it isn't one number for all scores.
    """
    after = [call for call in _chain(softmax.inputs[0]) if call is not scores]
    before = [call for side in scores.inputs[:2] for call in _chain(side) if call.name in _ELEMENTWISE]
    factors = [_factor(call) for call in after + before if call.name in ("mul", "div", "rdiv")]
    if None in factors:
        return None
    factor = math.prod(f for f in factors if f is not None)
    width = scores.inputs[0].shape[-1]
    dtype = scores.outputs[0].values.dtype
    told = f"1/√{width} = {format_short(1 / math.sqrt(width))}"
    return Check(
        f"scores are scaled by 1/√{width}",
        abs(factor * math.sqrt(width) - 1),
        1e-6 if dtype == torch.float64 else 1e-2,
        f"each score is a dot product of {width} numbers, so the factor should be {told}; "
        f"measured: {format_short(factor)}",
    )


def _factor(call: Call) -> float | None:
    """The number by which a call multiplies or divides all elements; None for anything else."""
    by = [value for value in call.args if value is not _main(call)] + list(call.kwargs.values())
    if len(by) != 1 or call.name == "rdiv":
        return None
    number = by[0]
    if isinstance(number, Version):
        if number.values.numel() != 1:
            return None
        number = number.values.item()
    if not isinstance(number, int | float) or not number:
        return None
    return 1 / number if call.name == "div" else float(number)


def _merged_after(tape: Tape, mix: Call) -> list[Call] | None:
    """The calls from the mixed values to the tensor in which the heads are merged, only moved on the way.

    That is the first with an axis of positions: what is done to it later, such as putting windows back
    together, is no part of the merge.
    """
    last: Version = mix.outputs[0]
    heads = last.shape
    moves: list[Call] = []

    def merged() -> bool:
        # Merged heads stand side by side in a row; where rows are as long as before, other axes were merged.
        return 2 <= len(last.shape) < len(heads) and last.shape[-1] > heads[-1]

    for call in tape.calls[tape.calls.index(mix) + 1 :]:
        moved = call.inputs[:1] == [last] and len(call.inputs) == 1 and is_move(call, 0)
        if moved and call.outputs[0].values.numel() == last.values.numel():
            last = call.outputs[0]
            moves.append(call)
            if merged() and heads[-2] in last.shape[:-1]:
                break
    return moves if merged() else None


def _positions_stay(moves: list[Call], heads: Version) -> Check | None:
    """How many numbers of the merged heads come from another position: 0. None if no axis is the position."""
    positions = heads.shape[-2]
    places = torch.arange(positions)[:, None].expand(heads.shape).flatten()
    for call in moves:
        if call.name not in CASTS:
            came_from = traced(call)[1][0].flatten().long() - 1
            places = places[came_from]
    merged = moves[-1].outputs[0]
    places = places.reshape(merged.shape)
    # The usual order is batch, time, width; other people put time first.
    misplaced = [
        int((places.movedim(axis, -1) != torch.arange(positions)).sum())
        for axis, size in enumerate(merged.shape[:-1])
        if size == positions
    ]
    if not misplaced:
        return None
    return Check(
        "merged heads keep each position",
        float(min(misplaced)),
        0.0,
        f"numbers in row t of the merged heads that come from another position than t, of {places.numel()}",
        counted=f"of {places.numel()} numbers from another position",
    )
