"""Explaining one number: the formula that made it, with its own numbers and the cells it came from."""

import html
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from attnlab.engine.call import Call, Version
from attnlab.engine.formula import Apply, Because, Cell, Formula, Named, Product, Quotient, Sum, atom
from attnlab.engine.layer_rules import RULES
from attnlab.engine.recorder import Tape
from attnlab.engine.rules import cell_of

__all__ = ["Explanation", "Operand", "explain"]


@dataclass(frozen=True)
class Operand:
    """A cell that a number came from.

    `coefficient` is what it is multiplied by, where the formula is linear in it, else None.
    """

    version: Version
    stage: str
    index: tuple[int, ...]
    value: float
    coefficient: float | None


@dataclass(frozen=True)
class Explanation:
    """Where one number came from. `formula` is None for an input, and where there is no rule yet."""

    version: Version
    index: tuple[int, ...]
    value: float
    note: str
    formula: Formula | None
    operands: tuple[Operand, ...]

    @property
    def mathml(self) -> str:
        """Symbols = numbers = value, as one `<math>` element with the words as its accessible text."""
        if self.formula is None:
            return ""
        own = Cell(stage_name(self.version), self.index, self.value)
        sides = [
            own.mathml(numbers=False),
            self.formula.mathml(numbers=False),
            self.formula.mathml(numbers=True),
        ]
        sides.append(own.mathml(numbers=True))
        # x = x says nothing twice: sides that look alike are shown once.
        shown = [side for i, side in enumerate(sides) if i == 0 or side != sides[i - 1]]
        # Each side is a row of its own: where there is little room, a line ends before an equals sign.
        rows = "".join(f"<mrow>{'<mo>=</mo>' if i else ''}{side}</mrow>" for i, side in enumerate(shown))
        return f'<math display="block" aria-label="{html.escape(self.text)}">{rows}</math>'

    @property
    def text(self) -> str:
        """The formula with its numbers as plain text."""
        if self.formula is None:
            return self.note
        own = Cell("", (), self.value).words()
        words = self.formula.words()
        if isinstance(self.formula, Cell):
            # An element that was only moved: what there is to tell is where from.
            place = f"[{', '.join(map(str, self.formula.index))}]" if self.formula.index else ""
            return f"{atom(self.formula.stage) if place else self.formula.stage}{place} = {own}"
        return own if words == own else f"{words} = {own}"


def explain(tape: Tape, tensor: Tensor | Version, index: Sequence[int] = ()) -> Explanation:
    """How the element of `tensor` at `index` was made.

    `tensor` is any tensor that the tape has seen, or one of its versions. Raises `KeyError` for one it has
    not seen and `IndexError` for a place that there isn't.
    """
    # While the tape still records, looking things up is no call of the program.
    with torch._C.DisableTorchFunction():
        tape.settle()
        version = tensor if isinstance(tensor, Version) else tape.version(tensor)
        return _explained(version, version.place(index))


def _explained(version: Version, place: tuple[int, ...]) -> Explanation:
    call = version.call
    if any(v.values.is_complex() for v in (version, *(call.inputs if call else ()))):
        value = math.nan if version.values.is_complex() else version.number(place)
        return Explanation(version, place, value, "complex numbers: no rule yet", None, _inputs(call))
    value = version.number(place)
    changed = next(filter(None, (v.note for v in (version, *(call.inputs if call else ())))), "")
    if changed:
        return Explanation(version, place, value, changed, None, _inputs(call))
    if call is None:
        note = version.unrecorded or "an input: nothing computed it"
        return Explanation(version, place, value, note, None, ())
    rule = RULES.get(call.name)
    formula = rule(call, version, place) if rule is not None else None
    if formula is not None:
        changed = next(filter(None, (origin.note for origin in _origins(formula))), "")
        if changed:
            return Explanation(version, place, value, changed, None, _inputs(call))
    if formula is None or _contradicts(formula, value, version.values.dtype):
        return Explanation(version, place, value, _unexplained(call), None, _inputs(call))
    return Explanation(version, place, value, f"made by {call.name}", formula, tuple(_operands(formula)))


def _origins(formula: Formula) -> Iterator[Version]:
    """What the cells of a formula are of. A part that stands in many terms, such as a mean, is read once."""
    seen: dict[int, Formula] = {}  # the parts too, so that no number is given to another one meanwhile
    waiting = [formula]
    while waiting:
        part = waiting.pop()
        if id(part) in seen:
            continue
        seen[id(part)] = part
        if isinstance(part, Cell):
            assert isinstance(part.origin, Version)
            yield part.origin
        waiting += part.parts()


def _inputs(call: Call | None) -> tuple[Operand, ...]:
    """What went in, whole: for calls of which no more can be said."""
    inputs = call.inputs if call else ()
    return tuple(Operand(v, stage_name(v), (), math.nan, None) for v in inputs)


def _contradicts(formula: Formula, value: float, dtype: torch.dtype) -> bool:
    """Did torch count another way than the formula, where nothing is rounded? Integers wrap, or are cut."""
    if dtype.is_floating_point:
        return False
    number = formula.value()
    # Beyond 2⁵³ our float can't tell integers apart.
    return number != value or abs(number) > 2**53


def stage_name(version: Version) -> str:
    """What the program calls a tensor: its variable, or the expression that made it."""
    return cell_of(version, (), 0.0).stage


def _unexplained(call: Call) -> str:
    if not call.inputs:
        return f"made by torch.{call.name}, from no other tensor"
    return f"made by torch.{call.name}; no rule yet"


def _operands(formula: Formula) -> Iterator[Operand]:
    """Each cell once, with its coefficient when it has one."""
    # By version, not by name: two stages may have the same.
    cells: dict[tuple[object, tuple[int, ...]], Cell] = {}
    coefficients: dict[tuple[object, tuple[int, ...]], float | None] = {}
    for cell, coefficient in _linear(formula, 1.0, set()):
        key = (cell.origin, cell.index)
        known = coefficients.get(key, 0.0)
        cells[key] = cell
        coefficients[key] = None if coefficient is None or known is None else known + coefficient
    for key, cell in cells.items():
        assert isinstance(cell.origin, Version)
        yield Operand(cell.origin, cell.stage, cell.index, cell.number, coefficients[key])


def _linear(formula: Formula, factor: float, seen: set[int]) -> Iterator[tuple[Cell, float | None]]:
    """(cell, what it is multiplied by) through sums, products and quotients; None through anything else.

    `seen` are the named parts met in anything else: the mean stands in each term of a variance.
    """
    if isinstance(formula, Cell):
        yield formula, factor
    elif isinstance(formula, Sum):
        for term in formula.terms:
            yield from _linear(term, factor, seen)
    elif isinstance(formula, Named):
        yield from _linear(formula.of, factor, seen)
    elif isinstance(formula, Because):
        yield from _linear(formula.taken, factor, seen)
        yield from _nonlinear(formula.condition, seen)
    elif isinstance(formula, Apply) and formula.name == "negative":
        yield from _linear(formula.of, -factor, seen)
    elif isinstance(formula, Product):
        for i, part in enumerate(formula.factors):
            others = Product(formula.factors[:i] + formula.factors[i + 1 :])
            yield from _beside(others, part, factor * others.value(), seen)
    elif isinstance(formula, Quotient) and formula.below.value():
        yield from _beside(formula.below, formula.above, factor / formula.below.value(), seen)
        yield from _nonlinear(formula.below, seen)
    else:
        yield from _nonlinear(formula, seen)


def _beside(
    others: Formula, part: Formula, factor: float, seen: set[int]
) -> Iterator[tuple[Cell, float | None]]:
    """The cells of one part of a product or quotient: x · x isn't linear in x."""
    elsewhere = {(cell.origin, cell.index) for cell in others.cells()}
    for cell, coefficient in _linear(part, factor, seen):
        yield cell, None if (cell.origin, cell.index) in elsewhere else coefficient


def _nonlinear(formula: Formula, seen: set[int]) -> Iterator[tuple[Cell, None]]:
    if isinstance(formula, Cell):
        yield formula, None
        return
    if isinstance(formula, Named):
        if id(formula) in seen:
            return
        seen.add(id(formula))
    for part in formula.parts():
        yield from _nonlinear(part, seen)
