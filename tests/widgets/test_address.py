"""The state in the address: exact, one name for each explorable, and safe against any link."""

from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, quote

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from attnlab.widgets import AttentionExplorable
from attnlab.widgets.address import MAX_LENGTH
from attnlab.widgets.attention import DTYPES, PRESETS
from helpers.front_end import FrontEnd, same_numbers

OpenPage = Callable[..., FrontEnd]

numbers = st.floats(-100, 100) | st.sampled_from([0.0, -0.0, 1.0, 5e-324, -2.2e-308, 0.1, -100.0, 1 / 3])


@st.composite
def arguments(draw: st.DrawFn) -> dict[str, Any]:
    """Arguments of an explorable whose matrices fit."""
    sizes = st.integers(1, 4) | st.just(16)
    queries, keys, d_k, d_v = (draw(sizes) for _ in range(4))
    shapes = {"q": (queries, d_k), "k": (keys, d_k), "v": (keys, d_v)}

    def matrix(shape: tuple[int, int]) -> list[list[float]]:
        some = draw(st.lists(numbers, min_size=1, max_size=8))
        return [[some[(i * shape[1] + j) % len(some)] for j in range(shape[1])] for i in range(shape[0])]

    return {name: matrix(shape) for name, shape in shapes.items()} | {
        "preset": draw(st.sampled_from(list(PRESETS))),
        "scale": draw(st.booleans()),
        "causal": draw(st.booleans()),
        "dtype": draw(st.sampled_from(list(DTYPES))),
        "query": draw(st.integers(0, queries - 1)),
        "step": draw(st.integers(1, 5)),
        "decimals": draw(st.integers(2, 8)),
        "name": draw(st.sampled_from(["", "left", "b2"])),
    }


def assert_equal_state(a: AttentionExplorable, b: AttentionExplorable) -> None:
    assert (a.preset, a.scale, a.causal, a.dtype) == (b.preset, b.scale, b.causal, b.dtype)
    assert (a.query, a.step, a.decimals) == (b.query, b.step, b.decimals)
    for name in "qkv":
        assert same_numbers(getattr(a, name), getattr(b, name)), name
    for one, other in zip(a.trace.stages(), b.trace.stages(), strict=True):
        assert same_numbers(one.tensor, other.tensor), one.name


@settings(max_examples=25)
@given(arguments())
@example({"q": [[1, -0.0], [0, 1], [1, 1]]})  # equal to the default, but not bit for bit
@example({"preset": "two keys", "q": [[1, 0]], "query": 0})
def test_there_and_back(given_: dict[str, Any]) -> None:
    made = AttentionExplorable(**given_)
    search = "?" + made.address
    assert len(search) < MAX_LENGTH
    assert search.isascii()
    assert not set(search) & set(" <>\"'`\\")
    opened = FrontEnd(AttentionExplorable(name=made.name))
    opened.open(search)
    assert opened.answer["state"] == "ready"
    assert_equal_state(opened.explorable, made)
    assert opened.explorable.address == made.address == made.bar.address
    for stage, tensor in FrontEnd(made).numbers.items():
        assert same_numbers(opened.numbers[stage], tensor)
    made.close()
    opened.explorable.close()


def test_the_longest_state_fits() -> None:
    matrix = torch.linspace(-99.9, 99.9, 256, dtype=torch.float64).reshape(16, 16) / 3 * 1e-200
    made = AttentionExplorable(q=matrix, k=matrix, v=matrix)
    page = FrontEnd(AttentionExplorable())
    page.open("?" + made.address)
    assert_equal_state(page.explorable, made)


def test_readable_and_short(page: FrontEnd) -> None:
    assert page.explorable.address == ""
    page.control("causal", False)
    page.value("q", [0, 1], 0.5)
    page.control("preset", "two keys")
    page.text("v", "5; -6.5")
    page.control("scale", False)
    assert page.explorable.address == "preset=two%20keys&v=5;-6.5&scale=0"
    assert page.explorable.bar.address == page.explorable.address


class TestOpening:
    def test_a_link_replaces_everything(self, open_page: OpenPage) -> None:
        """Also on a warm kernel, which may have been used before: what the link leaves out is the default."""
        page = open_page(preset="two keys", causal=True, dtype="float16", query=0)
        page.value("v", [0, 0], 5)
        page.open("?scale=0")
        assert page.explorable.preset == "three positions, causal"
        assert page.explorable.scale is False
        assert page.explorable.dtype == "float64"
        assert page.explorable.v.tolist() == [[1, 0], [0, 1], [1, 1]]

    def test_undo_ends_at_the_link(self, page: FrontEnd) -> None:
        page.value("q", [0, 0], 3)
        page.open("?causal=0")
        assert page.explorable.bar.disabled == ["undo", "redo"]
        page.value("q", [0, 0], 4)
        page.command("undo")
        page.command("undo")
        assert page.explorable.address == "causal=0"

    def test_the_tracked_query_belongs_to_the_new_sizes(self, page: FrontEnd) -> None:
        page.open("?query=4&q=1,2;3,4;5,6;7,8;9,0&causal=0")
        assert page.answer["state"] == "ready"
        assert page.explorable.query == 4

    def test_parameters_of_others_are_left_alone(self, page: FrontEnd) -> None:
        page.open("?embed=1&token=abc&other.q=1&Q=5&step=2")
        assert page.explorable.address == "step=2"
        assert page.answer["message"] == ""

    def test_matrices_that_do_not_fit_are_told_and_kept(self, page: FrontEnd) -> None:
        before = page.numbers
        page.open("?k=1,2,3;4,5,6;7,8,9")
        assert page.answer["state"] == "invalid"
        assert page.answer["stale"] is True
        assert page.answer["message"].startswith("Q and K: ")
        assert page.numbers["k"].shape == (3, 3)
        assert same_numbers(page.numbers["weights"], before["weights"])
        page.text("q", "1 2 3")
        assert page.answer["state"] == "ready"


class TestHostileLinks:
    @pytest.mark.parametrize(
        ("search", "words"),
        [
            ("?q=nan,1;0,1;1,1", ("The link's q was not used", "'nan'")),
            ("?q=inf,1;0,1;1,1", ("The link's q", "'inf'")),
            ("?q=1e400,0", ("The link's q", "'1e400'")),
            ("?q=101,0", ("The link's q", "−100 to 100")),
            ("?q=1,2;3", ("The link's q", "row 2 has 1 number")),
            ("?q=", ("The link's q", "empty")),
            ("?q=" + ";".join(["1"] * 17), ("The link's q", "got 17 × 1")),
            ("?q=" + "9" * 10_000, ("The link's q", "10,000 characters")),
            ("?q=__import__('os').system('touch%20pwned')", ("The link's q",)),
            ("?q=%3Cimg%20src=x%20onerror=alert(1)%3E", ("The link's q",)),
            ("?q=%ff%fe%00", ("The link's q",)),
            ("?preset=none%20such", ("The link's preset was not used", "'none such'")),
            ("?preset=" + "x" * 5000, ("The link's preset",)),
            ("?dtype=float8", ("The link's dtype", "float64, float32, bfloat16, float16")),
            ("?causal=true", ("The link's causal", "0 or 1", "'true'")),
            ("?scale=", ("The link's scale", "0 or 1")),
            ("?query=3", ("The link's query", "0 to 2, got 3")),
            ("?query=-1", ("The link's query", "whole number")),
            ("?query=1.0", ("The link's query", "whole number")),
            ("?query=" + "9" * 4000, ("The link's query", "whole number")),
            ("?query=%D9%A1", ("The link's query",)),
            ("?step=9", ("The link's step",)),
            ("?decimals=1", ("The link's decimals",)),
            ("?" + "q=1&" * 20_000, ("This link is too long", "40,000 characters", "got 80,001")),
        ],
        ids=lambda value: str(value)[:24],
    )  # fmt: skip
    def test_a_message_and_the_default(self, search: str, words: tuple[str, ...], page: FrontEnd) -> None:
        page.open(search)
        answer = page.answer
        assert answer["state"] == page.explorable.state == "invalid"
        assert answer["stale"] is False  # what is shown is what could be used of the link
        assert all(word in answer["message"] for word in words), answer["message"]
        assert len(answer["message"]) < 400
        assert ".." not in answer["message"]
        assert page.explorable.code() == "AttentionExplorable()"
        assert page.value("q", [0, 0], 1)["state"] == "ready"

    @pytest.mark.parametrize(
        "search",
        [
            "",
            "?",
            "&&&",
            "?=&==&q",
            "?%",
            "?%zz=%zz",
            "?q%00=1",
            "#?q=1",
            "?__class__=1&trace=1&children=1&presets=1",
        ],
    )
    def test_garbage_is_no_state(self, search: str, page: FrontEnd) -> None:
        page.open("?causal=0")
        page.open(search)
        if page.answer["state"] == "ready":
            assert page.explorable.address == "causal=0"  # as it was: nothing in it is meant for us
        else:
            assert page.explorable.address == ""
            assert "The link's q was not used" in page.answer["message"]

    def test_parameters_of_others_leave_what_the_notebook_says(self, open_page: OpenPage) -> None:
        page = open_page(preset="two keys", causal=True, step=3, name="left")
        for search in ("?embed=1", "?token=abc&reset", "?q=1,2;3,4&causal=0"):
            page.open(search)
            assert page.explorable.address == "left.preset=two%20keys&left.causal=1&left.step=3"
            assert page.answer["state"] == "ready"

    def test_the_good_parts_are_used(self, page: FrontEnd) -> None:
        page.open("?q=x&causal=0&query=77&step=3&v=1;2;3")
        assert page.explorable.address == "v=1;2;3&causal=0&step=3"
        assert "The link's q was not used" in page.answer["message"]
        assert "The link's query was not used" in page.answer["message"]

    @given(st.text(max_size=60) | st.text("q=k&v;,.0123456789e-+%[]() nainfscalepretqury", max_size=60))
    @example("q=1;2&q=3&k=1&k=")
    def test_no_link_raises(self, text: str) -> None:
        explorable = AttentionExplorable()
        explorable.bar.search = "?" + text
        assert explorable.state in ("ready", "invalid")
        assert explorable.view.answer["state"] == explorable.state
        explorable.close()

    def test_nothing_is_evaluated(self, page: FrontEnd, tmp_path: Path) -> None:
        trace = tmp_path / "evaluated"
        for name in [*page.explorable.bar.address_names, "weights"]:
            page.open(f"?{name}=" + quote(f"__import__('pathlib').Path({str(trace)!r}).touch()"))
            assert page.explorable.state in ("ready", "invalid")
        assert not trace.exists()


class TestTwoOnOnePage:
    def test_each_takes_its_own(self, open_page: OpenPage) -> None:
        one = open_page(name="one", q=[[1, 2], [3, 4], [5, 6]], causal=False)
        two = open_page(name="two", preset="two keys", query=0, step=2)
        plain = open_page(decimals=6)
        search = "?" + "&".join(page.explorable.address for page in (one, two, plain))
        assert [name for name, _ in parse_qsl(search[1:])] == [
            "one.q",
            "one.causal",
            "two.preset",
            "two.step",
            "decimals",
        ]
        for page, name in ((one, "one"), (two, "two"), (plain, "")):
            opened = open_page(name=name)
            opened.open(search)
            assert_equal_state(opened.explorable, page.explorable)

    def test_the_bars_know_their_own_parameters(self, open_page: OpenPage) -> None:
        bars = [open_page(name=name).explorable.bar for name in ("", "one", "two")]
        names = [name for bar in bars for name in bar.address_names]
        assert len(set(names)) == len(names)
        assert {"preset", "one.preset", "two.q"} <= set(names)
        for bar in bars:
            assert {name.split(".")[-1] for name in bar.address_names} == {*bar.values, "q", "k", "v"}
