"""The chosen number is a part of the state: in the address, in the code, as a trait."""

from collections.abc import Callable
from typing import Any

import pytest
import traitlets as t
from hypothesis import given
from hypothesis import strategies as st

from attnlab.widgets import AttentionExplorable, explore
from attnlab.widgets.chosen import cell_of, word_of
from helpers.front_end import FrontEnd, receive

OpenPage = Callable[..., FrontEnd]

names = st.from_regex(r"[a-z(][a-z_#0-9(), \[\]]*[a-z\]]", fullmatch=True)


@given(names, st.lists(st.integers(0, 999_999), max_size=5))
def test_there_and_back(stage: str, index: list[int]) -> None:
    cell = {"stage": stage, "index": index}
    assert cell_of(word_of(cell)) == cell


@pytest.mark.parametrize(
    "cell",
    [
        None,
        {},
        {"stage": 5, "index": [0]},
        {"stage": "weights"},
        {"stage": "weights", "index": 0},
        {"stage": "", "index": [0]},
        {"stage": "weights", "index": [-1]},
        {"stage": "weights", "index": [0.5]},
        {"stage": "weights", "index": ["0"]},
        {"stage": "weights,1", "index": [0]},
    ],
)
def test_what_is_no_cell(cell: Any) -> None:
    assert word_of(cell) == ""


def test_none() -> None:
    assert cell_of("") is None


def test_chosen_on_the_page(page: FrontEnd) -> None:
    page.select("weights", [1, 0])
    assert page.explorable.chosen == "weights,1,0"
    assert page.explorable.address == page.explorable.bar.address == "chosen=weights,1,0"
    assert page.explorable.code() == "AttentionExplorable(chosen='weights,1,0')"
    assert page.explorable.bar.notes == {"preset": ""}  # nothing is edited by looking at it
    assert "undo" in page.explorable.bar.disabled
    receive(page.explorable.view, selected=None)
    assert (page.explorable.chosen, page.explorable.bar.address) == ("", "")


def test_chosen_in_python(open_page: OpenPage) -> None:
    page = open_page(chosen="weights,1,0", gradient=True)
    assert page.explorable.view.selected == {"stage": "weights", "index": [1, 0]}
    panel = page.answer["explanation"]
    assert (panel["stage"], panel["index"]) == ("weights", [1, 0])
    assert page.answer["gradients"]
    page.explorable.chosen = "scores,2,1"
    assert page.answer["explanation"]["stage"] == "scores"
    page.explorable.chosen = ""
    assert page.explorable.view.selected is None
    assert not page.answer["explanation"]


def test_a_link_brings_it_along(page: FrontEnd, open_page: OpenPage) -> None:
    made = open_page(preset="two keys")
    made.select("output", [0, 0])
    page.select("q", [0, 0])
    page.open("?" + made.explorable.address)
    assert page.answer["state"] == "ready"
    assert page.answer["explanation"] == made.answer["explanation"]
    assert page.explorable.view.selected == {"stage": "output", "index": [0, 0]}
    page.open("?causal=0")
    assert page.explorable.view.selected is None


@pytest.mark.parametrize(
    "word",
    ["nothing,0,0", "weights", "weights,3,0", "weights,0", "weights,0,0,0", "allowed,0,0", "__class__"],
)
def test_a_link_to_a_number_that_there_is_not(word: str, page: FrontEnd) -> None:
    page.open(f"?scale=0&chosen={word}")
    assert page.answer["message"] == f"The link's chosen number was not found: {word!r}."
    assert page.answer["stale"] is False
    assert page.explorable.address == "scale=0"
    assert page.value("q", [0, 0], 1)["state"] == "ready"


def test_a_word_that_is_none(page: FrontEnd) -> None:
    page.open("?chosen=,1&causal=0")
    assert "The link's chosen was not used: expected a stage and a place" in page.answer["message"]
    assert page.explorable.address == "causal=0"
    with pytest.raises(t.TraitError, match="such as weights,1,2"):
        page.explorable.chosen = ",1"
    with pytest.raises(ValueError, match="such as weights,1,2"):
        AttentionExplorable(chosen=",")


def test_in_code_of_ones_own() -> None:
    explorable = explore(lambda x: (x.sum(), x.softmax(-1)), [[1.0, 2.0]], chosen="x,0,1")
    assert FrontEnd(explorable).answer["explanation"]["stage"] == "x"
    page = FrontEnd(explorable)
    stage = next(key for key in explorable.view.stages if explorable.view.stages[key]["axes"] == [])
    page.select(stage, [])
    assert explorable.chosen == stage
    page.open("?" + explorable.address)
    assert page.answer["explanation"]["index"] == []
