"""Formulas: one tree gives value, MathML and words; what is shown is what was computed."""

import math
import xml.etree.ElementTree as ET
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from attnlab.engine import Tape, explain, record
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
    format_short,
)
from helpers.recomputed import places


def cells(*numbers: float, stage: str = "x") -> tuple[Cell, ...]:
    return tuple(Cell(stage, (i,), number) for i, number in enumerate(numbers))


def same(a: float, b: float) -> bool:
    return a == b or (math.isnan(a) and math.isnan(b))


X, Y = cells(3.0, -2.0)


@pytest.mark.parametrize(
    ("formula", "value", "words"),
    [
        (Sum((X, Y)), 1.0, "3 + (−2)"),
        (Sum((X, Apply("negative", Y, lambda x: -x))), 5.0, "3 − (−2)"),
        (Sum((Y, Apply("negative", Named("μ", X), lambda x: -x))), -5.0, "(−2) − 3"),
        (Sum((Apply("negative", X, lambda x: -x), X)), 0.0, "−(3) + 3"),
        (Sum(()), 0.0, "0"),
        (Product((X, Y, Constant(0.5))), -3.0, "3 · (−2) · 0.5000"),
        (Product((Sum((X, Y)), X)), 3.0, "(3 + (−2)) · 3"),
        (Quotient(X, Y), -1.5, "3 ÷ (−2)"),
        (Quotient(X, Quotient(X, Y)), -2.0, "3 ÷ (3 ÷ (−2))"),
        (Power(Y, Constant(2.0)), 4.0, "(−2) to the power 2"),
        (Apply("exp", X, math.exp), math.exp(3), "e^(3)"),
        (Apply("sqrt", X, math.sqrt), math.sqrt(3), "√(3)"),
        (Apply("negative", Y, lambda x: -x), 2.0, "−(−2)"),
        (Apply("gelu", X, lambda x: 7.0), 7.0, "gelu(3)"),
        (Largest((X, Y)), 3.0, "max(3, −2)"),
        (Largest((X, Y), "min"), -2.0, "min(3, −2)"),
        (Named("μ", Sum((X, Y))), 1.0, "1"),
        (Because(Constant(-math.inf), Cell("m", (0,), 1.0)), -math.inf, "−∞, because the condition is True"),
        (Because(X, Cell("m", (0,), 0.0)), 3.0, "3, because the condition is False"),
        (Compare("<", X, Y, lambda a, b: a < b), 0.0, "3 < −2"),
        (Softmax((X, Y), 1), math.exp(-5) / (1 + math.exp(-5)), "e^(−2) ÷ (e^(3) + e^(−2))"),
        (LogSoftmax((X, Y), 0), -math.log1p(math.exp(-5)), "log(e^(3) ÷ (e^(3) + e^(−2)))"),
    ],
    ids=lambda x: x if isinstance(x, str) else "",
)
def test_value_and_words(formula: Formula, value: float, words: str) -> None:
    assert formula.value() == pytest.approx(value, rel=1e-15)
    assert formula.words() == words
    for numbers in (True, False):
        ET.fromstring(formula.mathml(numbers=numbers))


@pytest.mark.parametrize("a", [0.0, -0.0, 1.0, -3.0, 0.5, math.inf, -math.inf, math.nan, 1e200, -1e200])
@pytest.mark.parametrize("b", [0.0, -0.0, 2.0, 3.0, -1.0, -2.0, 0.25, 1.5, math.inf, -math.inf, math.nan])
def test_arithmetic_at_its_edges_is_that_of_torch(a: float, b: float) -> None:
    x, y = (torch.tensor(number, dtype=torch.float64) for number in (a, b))
    one, two = cells(a, b)
    assert same(Quotient(one, two).value(), (x / y).item())
    assert same(Power(one, two).value(), pytest.approx((x**y).item(), rel=1e-15, nan_ok=True))
    assert same(Sum((one, two)).value(), (x + y).item())
    assert same(Product((one, two)).value(), (x * y).item())
    assert same(Largest((one, two)).value(), torch.maximum(x, y).item())
    assert same(Largest((one, two), "min").value(), torch.minimum(x, y).item())


@pytest.mark.parametrize(
    "row",
    [
        (0.0, 1.0, -1.0),
        (1000.0, 999.0, -1000.0),
        (-math.inf, 0.0, 1.0),
        (-math.inf, -math.inf),
        (math.inf, 0.0),
        (math.nan, 0.0),
        (0.0, math.nan, 1e308),
        (5.0,),
    ],
)
def test_softmax_of_any_row(row: tuple[float, ...]) -> None:
    tensor = torch.tensor(row, dtype=torch.float64)
    for i in range(len(row)):
        for kind, expected in ((Softmax, tensor.softmax(0)), (LogSoftmax, tensor.log_softmax(0))):
            value = kind(cells(*row), i).value()
            assert value == pytest.approx(expected[i].item(), rel=1e-14, nan_ok=True)


def test_sums_beyond_the_largest_number() -> None:
    assert Sum(cells(1e308, 1e308, -1e308)).value() == math.inf
    assert Sum(cells(math.inf, -math.inf)).value() != Sum(cells(math.inf)).value()


def test_sums_keep_every_digit() -> None:
    assert Sum(cells(1e16, 1.0, -1e16)).value() == 1.0


# ---------------------------------------------------------------- long sums


def test_a_long_sum_shows_its_largest_terms_and_computes_with_all() -> None:
    numbers = [0.5, -9.0, 1.0, 8.0, 0.25, 7.0, -6.0, 2.0]
    long = Sum(cells(*numbers))
    assert long.words() == "(−9) + 8 + 7 + (−6) + 4 more"
    assert long.value() == sum(numbers)
    assert len(list(long.cells())) == 8
    shown = ET.fromstring(long.mathml(numbers=True))
    assert [node.text for node in shown.iter("mn")] == ["9", "8", "7", "6"]
    assert [node.text for node in shown.iter("mtext")] == ["4 more"]


def test_nan_terms_are_the_last_to_be_left_out_of_the_value() -> None:
    long = Sum(cells(math.nan, 1.0, 2.0, 3.0, 4.0, 5.0))
    assert math.isnan(long.value())
    assert "more" in long.words()


@pytest.mark.parametrize("length", [4, 5])
def test_how_long_is_long(length: int) -> None:
    assert ("more" in Sum(cells(*range(length))).words()) == (length > 4)


def symbols(made: Callable[[], Tensor], *place: int, **names: Tensor) -> str:
    """The formula in symbols, without its MathML: as it reads."""
    with record() as tape:
        for name, tensor in names.items():
            tape.name(tensor, name)
        tensor = made()
    formula = explain(tape, tensor, place).formula
    assert formula is not None
    return "".join(ET.fromstring(formula.mathml(numbers=False)).itertext())


LONG = torch.arange(1.0, 43.0).reshape(6, 7)


@pytest.mark.parametrize(
    ("made", "place", "expected"),
    [
        (lambda: LONG.sum(1), (2,), "∑jx2,j"),
        (lambda: LONG.sum(0), (2,), "∑jxj,2"),
        (lambda: LONG @ LONG.T, (1, 3), "∑jx1,j·x3,j"),
        (lambda: LONG.square().sum(0), (4,), "∑j(LONG.square())j,4"),
        (lambda: LONG.softmax(1), (2, 5), "ex2,5∑jex2,j"),
        (lambda: torch.einsum("ij,ij->j", LONG, LONG), (3,), "∑jxj,3·xj,3"),
    ],
)
def test_a_running_index(made: Callable[[], Tensor], place: tuple[int, ...], expected: str) -> None:
    assert symbols(made, *place, x=LONG).replace("(", "").replace(")", "") == expected.replace(
        "(", ""
    ).replace(")", "")


@pytest.mark.parametrize(
    "made",
    [
        lambda: LONG.sum(),
        lambda: torch.einsum("ij,k->", LONG, LONG[0]),
        lambda: torch.einsum("i,k->", LONG[0], LONG[1]),
        lambda: torch.einsum("i,i->", LONG[0], LONG[0].flip(0)),
        lambda: LONG.flatten()[[0, 8, 16, 1, 2, 3]].sum(),
    ],
)
def test_one_running_index_is_not_claimed_for_more(made: Callable[[], Tensor]) -> None:
    text = symbols(made, x=LONG)
    assert "∑" not in text or "flatten" in text or "LONG[0]" in text
    if "∑" in text:
        assert text.count("j") <= 3


def test_a_double_sum_is_not_written_as_a_diagonal() -> None:
    x, y = LONG[0].clone(), LONG[1].clone()
    assert "∑" not in symbols(lambda: torch.einsum("i,k->", x, y), x=x, y=y)
    assert "∑" not in symbols(lambda: torch.einsum("i,i->", x.flip(0), y), x=x, y=y)
    assert "more" in symbols(lambda: LONG.sum(), x=LONG)


# ---------------------------------------------------------------- MathML


def many_kinds() -> tuple[Tape, list[Tensor]]:
    x = torch.linspace(-2, 2, 12).reshape(3, 4).double()
    mask = torch.ones(3, 4).triu(1).bool()
    with record() as tape:
        tape.name(x, 'a<b & "c"')
        made = [
            x @ x.T,
            x.masked_fill(mask, -torch.inf),
            x.masked_fill(mask, -torch.inf).softmax(-1),
            x.log_softmax(0),
            F.layer_norm(x, (4,), x[0], x[1]),
            F.rms_norm(x, (4,)),
            F.dropout(x, 0.5),
            F.gelu(x),
            x.exp() / x.sqrt(),
            x**2 - 3 / x,
            x.var(1),
            x.amax(),
            x.clamp(-1, 1),
            x <= 0.5,
            ~mask,
            x.tril(),
            F.cross_entropy(x, torch.tensor([0, 3, -100])),
            x.long(),
        ]
    return tape, made


def test_every_formula_is_well_formed_and_has_a_text() -> None:
    tape, made = many_kinds()
    for tensor in made:
        version = tape.version(tensor)
        for place in places(version)[::3]:
            found = explain(tape, tensor, place)
            root = ET.fromstring(found.mathml)
            assert root.tag == "math"
            assert root.get("display") == "block"
            assert root.get("aria-label") == found.text
            assert found.text.endswith(format_short(found.value))
            for node in root.iter():
                # Leaves hold text, layouts hold children in the number that MathML Core asks for.
                if node.tag in ("mi", "mn", "mo", "mtext"):
                    assert node.text
                    assert len(node) == 0
                else:
                    assert not (node.text or "").strip()
                    assert len(node) == {"mfrac": 2, "msup": 2, "msub": 2, "munder": 2}.get(
                        node.tag, len(node)
                    )
                    assert node.tag in ("math", "mrow", "mfrac", "msup", "msub", "munder", "msqrt")


def test_names_are_escaped() -> None:
    tape, made = many_kinds()
    mathml = explain(tape, made[0], (0, 1)).mathml
    assert "a&lt;b &amp; &quot;c&quot;" in mathml
    assert any(node.text == '(a<b & "c")' for node in ET.fromstring(mathml).iter("mi"))


def test_masked_numbers_say_why() -> None:
    x, mask = torch.ones(2), torch.tensor([True, False])
    with record() as tape:
        tape.name(x, "x")
        tape.name(mask, "future")
        masked = x.masked_fill(mask, -torch.inf)
    hidden, shown = (explain(tape, masked, (i,)) for i in range(2))
    assert hidden.text == "−∞, because the condition is True = −∞"
    assert "is True" in hidden.mathml
    assert "is False" in shown.mathml
    assert "<mo>−</mo><mn>∞</mn>" in hidden.mathml


def test_softmax_over_masked_scores() -> None:
    x = torch.tensor([1.0, -torch.inf, -torch.inf])
    with record() as tape:
        tape.name(x, "x")
        weights = x.softmax(0)
    assert explain(tape, weights, (1,)).text == "e^(−∞) ÷ (e^(1) + e^(−∞) + e^(−∞)) = 0"


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (0.0, "0"),
        (-0.0, "0"),
        (3.0, "3"),
        (-12.0, "−12"),
        (0.5, "0.5000"),
        (-1 / 3, "−0.3333"),
        (999999.0, "999999"),
        (1e6, "1.0e+06"),
        (1234567.5, "1.2e+06"),
        (1e-5, "1.0e−05"),
        (-4.9e-5, "−4.9e−05"),
        (5e-5, "0.0001"),
        (1e300, "1.0e+300"),
        (5e-324, "4.9e−324"),
        (math.inf, "∞"),
        (-math.inf, "−∞"),
        (math.nan, "NaN"),
    ],
)
def test_short_numbers(number: float, text: str) -> None:
    assert format_short(number) == text


def test_what_is_not_zero_is_not_shown_as_zero() -> None:
    for exponent in range(-320, 300, 7):
        number = 10.0**exponent * 1.234
        assert float(format_short(number).replace("−", "-")) != 0
        assert format_short(number) != format_short(-number)
