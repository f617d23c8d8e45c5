"""Checks of anybody's attention code, by what was recorded: no names, no conventions, only calls and numbers.

They find the matrix product whose left side comes from a softmax, the weights, and look from there
backwards to the scores and forwards to the merged heads. What isn't found isn't checked.
"""

import math
from collections.abc import Iterator

import torch
from torch import Tensor

from attnlab.engine.checks import Check
from attnlab.engine.formula import format_short
from attnlab.engine.index_maps import MOVES, origin
from attnlab.engine.recorder import Call, Tape, Version
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
        found.append(_row_sums(weights, softmax))
        scores = _scores_behind(softmax)
        if scores is not None:
            found.append(_scale(scores, softmax))
        merged = _merged_after(tape, mix)
        if merged is not None:
            found.append(_positions_stay(merged, mix.outputs[0]))
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
        # The main input is the one of full size: masks and numbers are broadcast onto it.
        call = max(call.inputs, key=lambda v: (v.values.is_floating_point(), v.values.numel())).call


def _row_sums(weights: Version, softmax: Call) -> Check:
    """Σ over the axis that is multiplied with the values, 1 in every row that has a key."""
    dropping = any(c.name == "dropout" and argument(c, 2, "training", True) for c in _chain(weights))
    shown = softmax.outputs[0] if dropping else weights
    sums = shown.values.double().sum(dim=-1)
    # A row of NaN had no key: it has no sum to be wrong.
    errors = (sums - 1).abs()[~sums.isnan()]
    where = _where(softmax)
    return Check(
        "each query's weights sum to 1",
        _largest(errors),
        shown.shape[-1] * torch.finfo(shown.values.dtype).eps,
        f"sums of the weights along the axis that meets the values; the softmax is in line {where}",
    )


def _scale(scores: Call, softmax: Call) -> Check:
    """The factor between product and softmax against 1/√d, d = numbers in one dot product."""
    product, scaled = scores.outputs[0].values.double(), softmax.inputs[0].values.double()
    width = scores.inputs[0].shape[-1]
    usable = product.isfinite() & scaled.isfinite() & (product.abs() > 1e-6)
    ratios = (scaled / product)[usable] if product.shape == scaled.shape else product.new_empty(0)
    factor = float(ratios.median()) if ratios.numel() else math.nan
    told = f"1/√{width} = {format_short(1 / math.sqrt(width))}"
    return Check(
        f"scores are scaled by 1/√{width}",
        abs(factor * math.sqrt(width) - 1),
        1e-6 if scores.outputs[0].values.dtype == torch.float64 else 1e-2,
        f"each score is a dot product of {width} numbers, so the factor should be {told}; "
        f"measured: {format_short(factor)}",
    )


def _merged_after(tape: Tape, mix: Call) -> Version | None:
    """The last tensor that holds the same numbers as the mixed values, only moved."""
    last: Version = mix.outputs[0]
    for call in tape.calls[tape.calls.index(mix) + 1 :]:
        if call.name in MOVES and call.inputs and call.inputs[0] is last and len(call.inputs) == 1:
            last = call.outputs[0]
    few = len(last.shape) < len(mix.outputs[0].shape) and len(last.shape) >= 2
    return last if few else None


def _positions_stay(merged: Version, heads: Version) -> Check:
    """How many numbers of the merged heads come from another position: 0."""
    misplaced = 0
    *_, positions, _width = merged.shape
    flat = merged.values.reshape(-1, positions, merged.shape[-1])
    for place in torch.cartesian_prod(*(torch.arange(n) for n in merged.shape)).tolist():
        source, index = merged, tuple(place)
        while source is not heads:
            assert source.call is not None
            moved = origin(source.call, source.output, index)
            if moved is None:
                break
            source, index = moved
        misplaced += len(index) >= 2 and index[-2] != place[-2]
    return Check(
        "merged heads keep each position",
        float(misplaced),
        0.0,
        f"numbers in row t of the merged heads that come from another position than t, of {flat.numel()}",
    )


def _where(call: Call) -> int:
    return call.spot.line


def _largest(errors: Tensor) -> float:
    return float(errors.max()) if errors.numel() else 0.0
