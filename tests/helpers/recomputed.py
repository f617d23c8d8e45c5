"""Compares every recorded number with its formula, and says how much rounding may take."""

import math
from itertools import product

import torch

from attnlab.engine import Explanation, Tape, Version, explain
from attnlab.engine.formula import (
    Apply,
    Because,
    Cell,
    Compare,
    Constant,
    Formula,
    Largest,
    LogSoftmax,
    Named,
    Power,
    Product,
    Quotient,
    Softmax,
    Sum,
)

__all__ = ["examined", "fault_of", "places", "rounding"]

EXACT = (Cell, Constant)


def places(version: Version) -> list[tuple[int, ...]]:
    """Every place of a version."""
    return list(product(*map(range, version.shape)))


def examined(tape: Tape) -> tuple[list[str], set[str]]:
    """Of every element that any call made: what is wrong with it, and the calls that have no formula.

    Calls that make tensors from nothing need none.
    """
    faults, without = [], set()
    for call in tape.calls:
        for version in call.outputs:
            for place in places(version):
                found = explain(tape, version, place)
                fault = fault_of(found)
                if fault:
                    faults.append(f"{call.name} in line {call.spot.line}, {place}: {fault}")
                if found.formula is None and call.inputs:
                    without.add(call.name)
    return faults, without


def fault_of(found: Explanation) -> str:
    """What is wrong with an explanation: its number, its operands, or its formula; empty if nothing is."""
    recorded = found.version.values[found.index].item()
    if not _equal(found.value, recorded):
        return f"the value is {recorded}, said {found.value}"
    for operand in found.operands:
        if found.formula is None:
            break
        held = operand.version.values[operand.index].item()
        if not _equal(operand.value, held):
            return f"{operand.stage}{operand.index} holds {held}, said {operand.value}"
    if found.formula is None:
        return ""
    value = found.formula.value()
    dtype = found.version.values.dtype
    if not dtype.is_floating_point:
        return "" if value == recorded else f"recomputed {value}, recorded {recorded}"
    precision = torch.finfo(dtype)
    # Beyond the largest number of the dtype rounding makes ∞.
    fits = torch.tensor(value, dtype=torch.float64).to(dtype).item()
    slack = rounding(found.formula, precision.eps) + 1e-12 * abs(value) + precision.smallest_normal
    slack += precision.eps * abs(value)
    if _equal(fits, recorded) or abs(value - recorded) <= slack:
        return ""
    return f"recomputed {value}, recorded {recorded}, rounding takes {slack}"


def _equal(a: float, b: float) -> bool:
    return a == b or (math.isnan(a) and math.isnan(b))


def rounding(formula: Formula, eps: float) -> float:
    """How far a computation of relative precision `eps` may be from `formula.value()`; 0 where infinite."""
    error = _rounding(formula, eps)
    return error if math.isfinite(error) else 0.0


def _rounding(formula: Formula, eps: float) -> float:
    if isinstance(formula, Cell):
        return 0.0
    if isinstance(formula, Constant):
        return eps * abs(formula.number)
    if isinstance(formula, Sum):
        sizes = sum(abs(term.value()) for term in formula.terms)
        return sum(_rounding(term, eps) for term in formula.terms) + len(formula.terms) * eps * sizes
    if isinstance(formula, Product):
        values = [abs(factor.value()) for factor in formula.factors]
        errors = [_rounding(factor, eps) for factor in formula.factors]
        most = math.prod(value + error for value, error in zip(values, errors, strict=True))
        return most - math.prod(values) + len(values) * eps * most
    if isinstance(formula, Quotient):
        below = abs(formula.below.value())
        error = _rounding(formula.below, eps)
        if below <= error:
            return 0.0
        quotient = abs(formula.value())
        return (_rounding(formula.above, eps) + quotient * error) / (below - error) + 4 * eps * quotient
    if isinstance(formula, Power):
        error = _rounding(formula.base, eps)
        base = formula.base.value()
        around = [
            Power(Constant(base + sign * error), formula.exponent).value() - formula.value()
            for sign in (-1, 1)
        ]
        # e^(n·log x) multiplies the error of the logarithm by n.
        grown = 8 * eps * (1 + abs(formula.exponent.value())) * abs(formula.value())
        return max(map(abs, around)) + grown
    if isinstance(formula, Softmax):
        # x − largest is rounded before it is an exponent; a masked −∞ has nothing that could be rounded.
        sizes = max((abs(x) for x in (cell.value() for cell in formula.row) if math.isfinite(x)), default=0.0)
    if isinstance(formula, LogSoftmax):
        return (len(formula.row) + 8) * eps * (1 + 2 * sizes)
    if isinstance(formula, Softmax):
        return (len(formula.row) + 8 + 2 * sizes) * eps * abs(formula.value())
    if isinstance(formula, Apply):
        error = _rounding(formula.of, eps)
        inner = formula.of.value()
        around = [formula.function(inner + sign * error) - formula.value() for sign in (-1, 1)]
        return max(map(abs, around)) + 8 * eps * (
            abs(formula.value()) + (formula.name == "gelu") * abs(inner)
        )
    if isinstance(formula, Named):
        return _rounding(formula.of, eps)
    if isinstance(formula, Because):
        return _rounding(formula.taken, eps)
    if isinstance(formula, Largest):
        return max(_rounding(part, eps) for part in formula.of)
    assert isinstance(formula, Compare), formula
    return 0.0
