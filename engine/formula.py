"""Formulas that know their numbers: one tree gives the symbols, the numbers, the words and the value.

MathML is built here as text because a formula and its value must come from the same tree: what is
shown can then not differ from what was computed.
"""

import ast
import html
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property

__all__ = [
    "Apply",
    "Because",
    "Cell",
    "Compare",
    "Constant",
    "Formula",
    "Largest",
    "LogSoftmax",
    "Named",
    "Power",
    "Product",
    "Quotient",
    "Softmax",
    "Sum",
    "atom",
    "format_short",
]

# A sum shows this many of its terms; the others are counted, not shown, and take part in the value.
SHOWN_TERMS = 4


class Formula:
    """Base of all nodes. `value` recomputes in float64 from the values of the cells."""

    def value(self) -> float:
        """The number, recomputed from the cells."""
        raise NotImplementedError

    def parts(self) -> Sequence["Formula"]:
        return ()

    def mathml(self, *, numbers: bool) -> str:
        """Presentation MathML of this node: symbols, or the same with numbers."""
        raise NotImplementedError

    def words(self) -> str:
        """The formula with its numbers as plain text, for screen readers and copies."""
        raise NotImplementedError

    def cells(self) -> Iterator["Cell"]:
        """Every cell of the tree, also those of terms that are not shown."""
        for part in self.parts():
            yield from part.cells()


@dataclass(frozen=True)
class Cell(Formula):
    """One element of one stage."""

    stage: str
    index: tuple[int, ...]
    number: float
    origin: object = field(default=None, compare=False)
    """The recorded version that the stage stands for."""

    def value(self) -> float:
        return self.number

    def mathml(self, *, numbers: bool) -> str:
        return _number(self.number) if numbers else _symbol(self.stage, self.index)

    def words(self) -> str:
        return format_short(self.number)

    def cells(self) -> Iterator["Cell"]:
        yield self


@dataclass(frozen=True)
class Constant(Formula):
    """A number of the code. `symbol` is MathML for the formula in symbols, where it has one (√2)."""

    number: float
    symbol: str = ""

    def value(self) -> float:
        return self.number

    def mathml(self, *, numbers: bool) -> str:
        return self.symbol or _number(self.number)

    def words(self) -> str:
        return format_short(self.number)


@dataclass(frozen=True)
class Sum(Formula):
    """Terms added up. Long sums show the largest terms and how many are left out."""

    terms: tuple[Formula, ...]

    def value(self) -> float:
        return _sum(term.value() for term in self.terms)

    def parts(self) -> Sequence[Formula]:
        return self.terms

    def shown(self) -> tuple[tuple[Formula, ...], int]:
        """The terms that are shown, in order, and how many are not."""
        if len(self.terms) <= SHOWN_TERMS:
            return self.terms, 0
        sizes = [abs(term.value()) for term in self.terms]
        largest = sorted(
            range(len(sizes)), key=lambda i: (-sizes[i] if sizes[i] == sizes[i] else -math.inf, i)
        )
        kept = sorted(largest[:SHOWN_TERMS])
        return tuple(self.terms[i] for i in kept), len(self.terms) - SHOWN_TERMS

    def mathml(self, *, numbers: bool) -> str:
        terms, left_out = self.shown()
        running = None if numbers or not left_out else _running(self.terms)
        if running:
            return _row(f"<munder><mo>∑</mo><mi>j</mi></munder>{running}")
        shown = [
            f"<mo>{sign}</mo>" * bool(sign) + _grouped(term, numbers=numbers, inside=(Sum,))
            for sign, term in _signed(terms)
        ]
        if left_out:
            shown.append(f"<mo>+</mo><mtext>{left_out} more</mtext>")
        return _row("".join(shown)) if shown else _number(0.0)

    def words(self) -> str:
        terms, left_out = self.shown()
        shown = [f" {sign} " * bool(sign) + _worded(term, (Sum,)) for sign, term in _signed(terms)]
        return "".join([*shown, *([f" + {left_out} more"] if left_out else [])]) or "0"


@dataclass(frozen=True)
class Product(Formula):
    """Factors multiplied."""

    factors: tuple[Formula, ...]

    def value(self) -> float:
        return math.prod(factor.value() for factor in self.factors)

    def parts(self) -> Sequence[Formula]:
        return self.factors

    def mathml(self, *, numbers: bool) -> str:
        shown = [_grouped(factor, numbers=numbers, inside=(Sum, Product)) for factor in self.factors]
        return _row("<mo>·</mo>".join(shown))

    def words(self) -> str:
        return " · ".join(_worded(factor, (Sum, Product)) for factor in self.factors)


@dataclass(frozen=True)
class Quotient(Formula):
    """One formula over another, with IEEE division: x ÷ 0 is ±∞ or NaN."""

    above: Formula
    below: Formula

    def value(self) -> float:
        return _divide(self.above.value(), self.below.value())

    def parts(self) -> Sequence[Formula]:
        return (self.above, self.below)

    def mathml(self, *, numbers: bool) -> str:
        above, below = (_row(part.mathml(numbers=numbers)) for part in self.parts())
        return f"<mfrac>{above}{below}</mfrac>"

    def words(self) -> str:
        return f"{_worded(self.above, (Sum, Product))} ÷ {_worded(self.below, (Sum, Product, Quotient))}"


@dataclass(frozen=True)
class Power(Formula):
    """A base to an exponent."""

    base: Formula
    exponent: Formula

    def value(self) -> float:
        return _power(self.base.value(), self.exponent.value())

    def parts(self) -> Sequence[Formula]:
        return (self.base, self.exponent)

    def mathml(self, *, numbers: bool) -> str:
        base = _grouped(self.base, numbers=numbers, inside=(Sum, Product, Quotient, Power))
        return f"<msup>{base}{_row(self.exponent.mathml(numbers=numbers))}</msup>"

    def words(self) -> str:
        return f"{_worded(self.base, (Sum, Product, Quotient))} to the power {self.exponent.words()}"


@dataclass(frozen=True)
class Softmax(Formula):
    """e to one cell over the sum of e to each of a row; `chosen` is a position in `row`."""

    row: tuple[Formula, ...]
    chosen: int

    def value(self) -> float:
        numbers = [cell.value() for cell in self.row]
        largest = max(numbers, key=lambda x: (x == x, x))
        # As PyTorch does: shifting by the largest changes nothing but keeps e^x finite.
        shifted = [_exp(x - largest) for x in numbers]
        return _divide(shifted[self.chosen], _sum(shifted))

    def parts(self) -> Sequence[Formula]:
        return self.row

    def mathml(self, *, numbers: bool) -> str:
        above = _power_of_e(self.row[self.chosen], numbers=numbers)
        if numbers:
            below = Sum(tuple(Apply("exp", cell, _exp) for cell in self.row)).mathml(numbers=True)
        else:
            term = _running(self.row)
            below = (
                f"<munder><mo>∑</mo><mi>j</mi></munder>{_power_of_e_of(term)}"
                if term
                else Sum(tuple(Apply("exp", cell, _exp) for cell in self.row)).mathml(numbers=False)
            )
        return f"<mfrac>{_row(above)}{_row(below)}</mfrac>"

    def words(self) -> str:
        below = Sum(tuple(Apply("exp", cell, _exp) for cell in self.row)).words()
        return f"e^({self.row[self.chosen].words()}) ÷ ({below})"


@dataclass(frozen=True)
class LogSoftmax(Softmax):
    """The logarithm of a softmax, without ever taking the logarithm of 0."""

    def value(self) -> float:
        numbers = [cell.value() for cell in self.row]
        largest = max(numbers, key=lambda x: (x == x, x))
        return numbers[self.chosen] - largest - math.log(_sum(_exp(x - largest) for x in numbers))

    def mathml(self, *, numbers: bool) -> str:
        return _row(f"<mi>log</mi>{super().mathml(numbers=numbers)}")

    def words(self) -> str:
        return f"log({super().words()})"


@dataclass(frozen=True)
class Named(Formula):
    """A part with a name of its own, such as μ: the symbols show the name, the numbers its value."""

    symbol: str
    of: Formula

    # Computed once: the mean of a variance stands in each of its terms.
    @cached_property
    def _value(self) -> float:
        return self.of.value()

    def value(self) -> float:
        return self._value

    def parts(self) -> Sequence[Formula]:
        return (self.of,)

    def mathml(self, *, numbers: bool) -> str:
        return _number(self.value()) if numbers else f"<mi>{html.escape(self.symbol)}</mi>"

    def words(self) -> str:
        return format_short(self.value())


@dataclass(frozen=True)
class Because(Formula):
    """A value that was chosen by a condition: `taken`, because `condition` (a cell) is true or false."""

    taken: Formula
    condition: Formula

    def value(self) -> float:
        return self.taken.value()

    def parts(self) -> Sequence[Formula]:
        return (self.taken, self.condition)

    def mathml(self, *, numbers: bool) -> str:
        truth = "True" if self.condition.value() else "False"
        condition = self.condition.mathml(numbers=False)
        reason = f"<mtext>&#x2003;because&#xa0;</mtext>{condition}<mtext>&#xa0;is {truth}</mtext>"
        return _row(self.taken.mathml(numbers=numbers) + reason)

    def words(self) -> str:
        return f"{self.taken.words()}, because the condition is {bool(self.condition.value())}"


@dataclass(frozen=True)
class Compare(Formula):
    """Two sides compared: 1 where it holds, 0 where it doesn't."""

    sign: str
    left: Formula
    right: Formula
    holds: Callable[[float, float], bool] = field(compare=False)

    def value(self) -> float:
        return float(self.holds(self.left.value(), self.right.value()))

    def parts(self) -> Sequence[Formula]:
        return (self.left, self.right)

    def mathml(self, *, numbers: bool) -> str:
        sign = f"<mo>{html.escape(self.sign)}</mo>"
        return _row(f"{self.left.mathml(numbers=numbers)}{sign}{self.right.mathml(numbers=numbers)}")

    def words(self) -> str:
        return f"{self.left.words()} {self.sign} {self.right.words()}"


@dataclass(frozen=True)
class Largest(Formula):
    """The largest of several (`max`, and `any` of truths), or the smallest (`min`, `all`)."""

    of: tuple[Formula, ...]
    name: str = "max"

    def value(self) -> float:
        numbers = [part.value() for part in self.of]
        if any(x != x for x in numbers):
            return math.nan
        return max(numbers) if self.name in ("max", "any") else min(numbers)

    def parts(self) -> Sequence[Formula]:
        return self.of

    def mathml(self, *, numbers: bool) -> str:
        shown = "<mo>,</mo>".join(part.mathml(numbers=numbers) for part in self.of[: 2 * SHOWN_TERMS])
        more = (
            f"<mo>,</mo><mtext>{len(self.of) - 2 * SHOWN_TERMS} more</mtext>"
            if len(self.of) > 2 * SHOWN_TERMS
            else ""
        )
        return _row(f"<mi>{self.name}</mi><mo>(</mo>{shown}{more}<mo>)</mo>")

    def words(self) -> str:
        return f"{self.name}({', '.join(part.words() for part in self.of)})"


@dataclass(frozen=True)
class Apply(Formula):
    """A named function of one formula: exp, √, relu, gelu …"""

    name: str
    of: Formula
    function: Callable[[float], float] = field(compare=False)

    def value(self) -> float:
        return self.function(self.of.value())

    def parts(self) -> Sequence[Formula]:
        return (self.of,)

    def mathml(self, *, numbers: bool) -> str:
        inner = self.of.mathml(numbers=numbers)
        if self.name == "exp":
            return _power_of_e_of(inner)
        if self.name == "sqrt":
            return f"<msqrt>{inner}</msqrt>"
        if self.name == "negative":
            return _row(f"<mo>−</mo>{_grouped(self.of, numbers=numbers, inside=(Sum,))}")
        return _row(f"<mi>{html.escape(self.name)}</mi><mo>(</mo>{inner}<mo>)</mo>")

    def words(self) -> str:
        if self.name == "exp":
            return f"e^({self.of.words()})"
        if self.name == "negative":
            return f"−({self.of.words()})"
        return f"{'√' if self.name == 'sqrt' else self.name}({self.of.words()})"


_LOOSE = (ast.BinOp, ast.UnaryOp, ast.BoolOp, ast.Compare, ast.IfExp, ast.Lambda, ast.NamedExpr, ast.Await)


@cache
def atom(stage: str) -> str:
    """The name of a stage, in parentheses where an index behind it would belong to a part: (y * 2)[0]."""
    try:
        loose = isinstance(ast.parse(stage, mode="eval").body, _LOOSE)
    except SyntaxError:
        return stage
    return f"({stage})" if loose else stage


def format_short(x: float) -> str:
    """A number of a formula: at most four digits after the point, and never 0 for what isn't zero."""
    if math.isnan(x):
        return "NaN"
    if math.isinf(x):
        return "∞" if x > 0 else "−∞"
    if x == int(x) and abs(x) < 1e6:
        return str(int(x)).replace("-", "−")
    text = f"{x:.4f}" if 5e-5 <= abs(x) < 1e6 else f"{x:.1e}"
    return text.replace("-", "−")


def _number(x: float) -> str:
    text = format_short(x)
    if text.startswith("−"):
        return f"<mrow><mo>−</mo><mn>{text[1:]}</mn></mrow>"
    return f"<mn>{text}</mn>"


def _symbol(stage: str, index: tuple[int, ...]) -> str:
    if not index:
        return f"<mi>{html.escape(stage)}</mi>"
    name = f"<mi>{html.escape(atom(stage))}</mi>"
    places = "<mo>,</mo>".join(f"<mn>{i}</mn>" for i in index)
    return f"<msub>{name}<mrow>{places}</mrow></msub>"


def _running(terms: Sequence[Formula]) -> str | None:
    """Any term of a sum in symbols, its running index written j; None where one index doesn't tell all."""
    pattern, runs = _pattern(terms)
    return pattern if runs else None


def _pattern(terms: Sequence[Formula]) -> tuple[str | None, list[int]]:
    """(symbols of every term, the number that j is in each); no numbers where the terms are all alike."""
    first = terms[0]
    if any(type(term) is not type(first) for term in terms):
        return None, []
    if isinstance(first, Cell):
        cells = [term for term in terms if isinstance(term, Cell)]
        if any(c.stage != first.stage or len(c.index) != len(first.index) for c in cells):
            return None, []
        by_axis = [list(places) for places in zip(*(c.index for c in cells), strict=True)]
        varying = [places for places in by_axis if len(set(places)) > 1]
        if any(places != varying[0] for places in varying):
            return None, []
        signs = ["<mi>j</mi>" if p in varying else f"<mn>{p[0]}</mn>" for p in by_axis]
        name = f"<mi>{html.escape(atom(first.stage) if signs else first.stage)}</mi>"
        places = "<mo>,</mo>".join(signs)
        return (f"<msub>{name}{_row(places)}</msub>" if signs else name), varying[0] if varying else []
    if isinstance(first, Constant):
        return (first.mathml(numbers=False) if all(term == first for term in terms) else None), []
    if isinstance(first, Product | Power):
        parts = [_pattern(column) for column in zip(*(term.parts() for term in terms), strict=False)]
        runs = [own for _, own in parts if own]
        if any(text is None for text, _ in parts) or any(own != runs[0] for own in runs):
            return None, []
        shown = [text or "" for text, _ in parts]
        text = (
            _row("<mo>·</mo>".join(shown))
            if isinstance(first, Product)
            else f"<msup>{shown[0]}{_row(shown[1])}</msup>"
        )
        return text, runs[0] if runs else []
    return None, []


def _row(inner: str) -> str:
    return f"<mrow>{inner}</mrow>"


def _power_of_e(formula: Formula, *, numbers: bool) -> str:
    return _power_of_e_of(formula.mathml(numbers=numbers))


def _power_of_e_of(exponent: str) -> str:
    return f"<msup><mi>e</mi>{_row(exponent)}</msup>"


def _signed(terms: Sequence[Formula]) -> Iterator[tuple[str, Formula]]:
    """The terms of a sum, each with the sign before it: a − b instead of a + −b."""
    for position, term in enumerate(terms):
        if position and isinstance(term, Apply) and term.name == "negative":
            yield "−", term.of
        else:
            yield "+" * bool(position), term


def _grouped(formula: Formula, *, numbers: bool, inside: tuple[type, ...]) -> str:
    """In parentheses where the formula around binds more tightly, and around a negative number."""
    text = formula.mathml(numbers=numbers)
    negative = numbers and isinstance(formula, Cell | Constant | Named) and (formula.value() < 0)
    if negative or isinstance(formula, inside):
        return _row(f"<mo>(</mo>{text}<mo>)</mo>")
    return text


def _worded(formula: Formula, inside: tuple[type, ...]) -> str:
    text = formula.words()
    negative = isinstance(formula, Cell | Constant | Named) and formula.value() < 0
    return f"({text})" if negative or isinstance(formula, inside) else text


def _sum(numbers: Sequence[float] | Iterator[float]) -> float:
    listed = list(numbers)
    if all(map(math.isfinite, listed)):
        try:
            return math.fsum(listed)
        except OverflowError:
            pass
    return sum(listed)


def _divide(a: float, b: float) -> float:
    if b == 0:
        if a == 0 or math.isnan(a):
            return math.nan
        return math.copysign(math.inf, a) * math.copysign(1.0, b)
    return a / b


def _exp(x: float) -> float:
    try:
        return math.exp(x)
    except OverflowError:
        return math.inf


def _power(base: float, exponent: float) -> float:
    odd = math.isfinite(exponent) and exponent % 2 == 1
    if base == 0 and exponent < 0:
        return math.copysign(math.inf, base) if odd else math.inf
    try:
        return math.pow(base, exponent)
    except OverflowError:
        return -math.inf if base < 0 and odd else math.inf
    except ValueError:
        return math.nan
