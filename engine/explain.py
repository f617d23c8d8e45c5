"""Explaining one number: the formula that made it, with its own numbers and the cells it came from."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from torch import Tensor

from attnlab.engine.formula import Cell, Constant, Formula, Product, Quotient, Sum
from attnlab.engine.recorder import Call, Tape, Version
from attnlab.engine.rules import RULES, cell_of

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
        words = f"{self.text}".replace("&", "&amp;").replace('"', "&quot;").replace("<", "&lt;")
        return f'<math display="block" aria-label="{words}"><mrow>{"<mo>=</mo>".join(shown)}</mrow></math>'

    @property
    def text(self) -> str:
        """The formula with its numbers as plain text."""
        if self.formula is None:
            return self.note
        own = Cell("", (), self.value).words()
        words = self.formula.words()
        return own if words == own else f"{words} = {own}"


def explain(tape: Tape, tensor: Tensor | Version, index: Sequence[int] = ()) -> Explanation:
    """How the element of `tensor` at `index` was made.

    `tensor` is any tensor that the tape has seen, or one of its versions. Raises `KeyError` for one it has
    not seen and `IndexError` for a place that there isn't.
    """
    version = tensor if isinstance(tensor, Version) else tape.version(tensor)
    place = _checked(index, version)
    value = float(version.values[place])
    call = version.call
    if call is None:
        return Explanation(version, place, value, "an input: nothing computed it", None, ())
    rule = RULES.get(call.name)
    formula = rule(call, version, place) if rule is not None else None
    if formula is None:
        inputs = tuple(Operand(v, stage_name(v), (), float("nan"), None) for v in call.inputs)
        return Explanation(version, place, value, _unexplained(call), None, inputs)
    return Explanation(version, place, value, f"made by {call.name}", formula, tuple(_operands(formula)))


def stage_name(version: Version) -> str:
    """What the program calls a tensor: its variable, or the expression that made it."""
    return cell_of(version, (), 0.0).stage


def _checked(index: Sequence[int], version: Version) -> tuple[int, ...]:
    place = tuple(int(i) for i in index)
    if len(place) != len(version.shape) or any(
        not 0 <= i < n for i, n in zip(place, version.shape, strict=True)
    ):
        raise IndexError(
            f"expected a place in {' × '.join(map(str, version.shape)) or 'a single number'}, got {place}"
        )
    return place


def _unexplained(call: Call) -> str:
    if not call.inputs:
        return f"made by torch.{call.name}, from no other tensor"
    return f"made by torch.{call.name}; no rule yet"


def _operands(formula: Formula) -> Iterator[Operand]:
    """Each cell once, with its coefficient when it has one."""
    coefficients = dict[Cell, float | None]()
    for cell, coefficient in _linear(formula, 1.0):
        known = coefficients.get(cell, 0.0)
        coefficients[cell] = None if coefficient is None or known is None else known + coefficient
    for cell, coefficient in coefficients.items():
        assert isinstance(cell.origin, Version)
        yield Operand(cell.origin, cell.stage, cell.index, cell.number, coefficient)


def _linear(formula: Formula, factor: float) -> Iterator[tuple[Cell, float | None]]:
    """(cell, what it is multiplied by) through sums, products and quotients; None through anything else."""
    if isinstance(formula, Cell):
        yield formula, factor
    elif isinstance(formula, Sum):
        for term in formula.terms:
            yield from _linear(term, factor)
    elif isinstance(formula, Product):
        for i, part in enumerate(formula.factors):
            others = Product(formula.factors[:i] + formula.factors[i + 1 :]).value()
            yield from _linear(part, factor * others)
    elif isinstance(formula, Quotient) and isinstance(formula.below, Constant) and formula.below.number:
        yield from _linear(formula.above, factor / formula.below.number)
    else:
        for cell in formula.cells():
            yield cell, None
