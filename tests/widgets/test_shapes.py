"""The traits of the memory page: a shape and a chain are read or refused, and never evaluated."""

from pathlib import Path
from typing import Any

import pytest
import torch
import traitlets
from hypothesis import example, given
from hypothesis import strategies as st

from attnlab.engine import MatrixError
from attnlab.engine.chain_text import OPERATIONS, parse_chain
from attnlab.widgets.shapes import ChainText, Shape

sizes = st.lists(st.integers(0, 9999), min_size=1, max_size=6)
spaces = st.text(" ", max_size=2)


class Holder(traitlets.HasTraits):
    """Something with both traits."""

    start = Shape()
    chain = ChainText()


def _refusal(holder: Holder, name: str, value: Any) -> str:
    """The message of the refusal, empty when the value was taken."""
    try:
        setattr(holder, name, value)
    except MatrixError as error:
        return str(error)
    return ""


@st.composite
def written_shapes(draw: st.DrawFn) -> tuple[str, list[int]]:
    """A shape as people write it, and its sizes."""
    numbers = draw(sizes)
    separator = draw(st.sampled_from([",", ", ", " , ", " × ", "×", " x ", "x", " ", "  "]))
    inner = separator.join(map(str, numbers))
    around = draw(st.sampled_from(["{}", "({})", "( {} )", "({},)", " {} "]))
    return around.format(inner), numbers


@st.composite
def chains(draw: st.DrawFn) -> tuple[str, list[tuple[str, list[int]]]]:
    """A chain with spaces anywhere, and what it says."""
    steps = []
    for name in draw(st.lists(st.sampled_from(list(OPERATIONS)), max_size=8)):
        fewest, most = OPERATIONS[name]
        steps.append((name, draw(st.lists(st.integers(-99, 99), min_size=fewest, max_size=most))))

    def spaced(text: str) -> str:
        return f"{draw(spaces)}{text}{draw(spaces)}"

    texts = [f"{spaced(name)}({','.join(spaced(str(n)) for n in numbers)})" for name, numbers in steps]
    return "|".join(map(spaced, texts)), steps


class TestShape:
    def test_default(self) -> None:
        assert Holder().start == "1,3,4"

    @given(written_shapes())
    @example(("1 \t, 3", [1, 3]))
    @example(("1 ,\n3", [1, 3]))
    def test_as_people_write_it(self, drawn: tuple[str, list[int]]) -> None:
        text, numbers = drawn
        read = Holder(start=text).start
        assert read == ",".join(map(str, numbers))
        assert Holder(start=read).start == read

    @given(sizes)
    def test_as_numbers(self, numbers: list[int]) -> None:
        text = ",".join(map(str, numbers))
        for given_ in (numbers, tuple(numbers), torch.Size(numbers)):
            assert Holder(start=given_).start == text

    @given(st.text(max_size=80) | st.text("0123456789,×x ()\t\n-.", max_size=80))
    @example("1 \t 3")
    @example("1\n 3")
    @example("1" + " " * 58 + "!")
    @example("1,,2")
    def test_any_text_is_read_or_refused(self, text: str) -> None:
        holder = Holder(start="2,3")
        refusal = _refusal(holder, "start", text)
        if refusal:
            assert refusal.startswith("start: expected sizes as 1,3,4, got ")
            assert len(refusal) < 180
            assert holder.start == "2,3"
        else:
            assert all(len(size) <= 4 and str(int(size)) == size for size in holder.start.split(","))
            digits = "".join(c if c in "0123456789" else " " for c in text)
            assert [int(n) for n in digits.split()] == [int(n) for n in holder.start.split(",")]

    @pytest.mark.parametrize(
        "value",
        [
            *(None, 5, 2.0, True, b"12", {1: 2}, {3, 4}, range(3), torch.tensor([1, 2])),
            *([2.0, 3], [True], [-1], [None], [[1, 2]], [12345], [1, 10**5000], [], (), [1] * 31),
            *("", " ", "()", "1,,2", "-1", "1.5", "1e3", "12345", "1;2", "[1,2]", "1,2)(", "1\u0664"),
            *("1" * 61, "__import__('os')", "<img src=x>", "1,2 #"),
        ],
        ids=lambda value: type(value).__name__,
    )
    def test_refused(self, value: Any) -> None:
        holder = Holder(start="2,3")
        with pytest.raises(MatrixError, match=r"^start: expected sizes as 1,3,4, got ") as caught:
            holder.start = value
        assert len(str(caught.value)) < 180
        assert holder.start == "2,3"

    def test_a_value_of_another_kind_is_named(self) -> None:
        for value, name in ((None, "NoneType"), (5, "int"), (b"12", "bytes")):
            with pytest.raises(MatrixError, match=f"got {name}$"):
                Holder(start=value)


class TestChainText:
    def test_default(self) -> None:
        assert Holder().chain == ""

    @given(chains())
    def test_written_in_one_way(self, drawn: tuple[str, list[tuple[str, list[int]]]]) -> None:
        text, steps = drawn
        read = Holder(chain=text).chain
        assert read == " | ".join(f"{name}({','.join(map(str, numbers))})" for name, numbers in steps)
        assert Holder(chain=read).chain == read
        assert [(o.name, list(o.arguments)) for o in parse_chain(read)] == steps

    @given(st.text(max_size=60) | st.text("reshapviwtnocgufl(),| -0123456789_", max_size=60))
    @example("view(1)|")
    @example("view(\u0661)")
    @example("view(1)\x00")
    def test_any_text_is_read_or_refused(self, text: str) -> None:
        holder = Holder(chain="flatten()")
        refusal = _refusal(holder, "chain", text)
        if refusal:
            assert refusal.startswith(("operation ", "chain: "))
            assert holder.chain == "flatten()"
        else:
            assert all(o.name in OPERATIONS for o in parse_chain(holder.chain))

    @pytest.mark.parametrize(
        ("value", "words"),
        [
            (None, "chain: expected text, got NoneType"),
            (b"view(1)", "chain: expected text, got bytes"),
            (["view(1)"], "chain: expected text, got list"),
            ("view(1) | exec(1)", "operation 2: expected one of reshape, view, transpose"),
            ("view(1) | transpose(0,1) | permute()", "operation 3: permute takes 1 to 5 numbers, got 0"),
            ("view(1).sum()", "operation 1: expected a name and its numbers"),
            ("|", "operation 1 is empty"),
            ("view(x=1)", "operation 1: expected a whole number"),
            ("|".join(["flatten()"] * 9), "chain: expected at most 8 operations, got 9"),
            ("x" * 10_000, "chain: expected at most 400 characters, got 10,000"),
        ],
        ids=lambda value: repr(value)[:30],
    )
    def test_refused(self, value: Any, words: str) -> None:
        holder = Holder(chain="flatten()")
        with pytest.raises(MatrixError, match=f"^{words}"):
            holder.chain = value
        assert holder.chain == "flatten()"

    def test_nothing_is_evaluated(self, tmp_path: Path) -> None:
        trace = tmp_path / "evaluated"
        call = f"open({str(trace)!r}, 'w')"
        for text in (call, f"view({call})", f"view(1) | {call}", f"({call}, 3)"):
            for name in ("chain", "start"):
                with pytest.raises(MatrixError):
                    Holder(**{name: text})
        assert not trace.exists()
