"""Explorables come and go: two hundred of them leave nothing behind."""

import gc
import weakref
from collections.abc import Iterator

import pytest
from ipywidgets.widgets.widget import _instances

from attnlab.widgets import AttentionExplorable
from helpers.front_end import FrontEnd


@pytest.fixture(autouse=True)
def _collect_only_what_is_new() -> Iterator[None]:
    """Of all that was imported before nothing is freed; to look through it each time would take long."""
    gc.freeze()
    yield
    gc.unfreeze()


def test_two_hundred_are_freed() -> None:
    before = set(_instances)
    seen: list[weakref.ref] = []
    for _ in range(200):
        explorable = AttentionExplorable()
        parts = (explorable, explorable.view, explorable.bar, explorable.layout, explorable.trace)
        seen += map(weakref.ref, parts)
        explorable.close()
    del explorable, parts
    assert set(_instances) == before
    gc.collect()
    assert [ref() for ref in seen if ref() is not None] == []


def test_used_ones_are_freed_too() -> None:
    before = set(_instances)
    page = FrontEnd(AttentionExplorable())
    page.value("q", [0, 0], 0.5)
    page.text("q", "x")
    page.control("export", "python")
    page.explorable.figure()
    page.explorable.observe(print, "q")
    seen = weakref.ref(page.explorable)
    page.explorable.close()
    del page
    gc.collect()
    assert seen() is None
    assert set(_instances) == before


def test_closing_twice() -> None:
    explorable = AttentionExplorable()
    explorable.close()
    explorable.close()
    assert explorable.comm is None


def test_each_part_is_closed() -> None:
    explorable = AttentionExplorable()
    explorable.close()
    assert [part.comm for part in (explorable.view, explorable.bar)] == [None, None]


def test_a_refused_one_is_freed() -> None:
    """Its constructor raises, so nobody can close it."""
    before = set(_instances)
    for arguments in ({"q": "x"}, {"bogus": 1}, {"query": 99}, {"preset": "none"}):
        with pytest.raises((ValueError, TypeError)):
            AttentionExplorable(**arguments)
    gc.collect()
    assert set(_instances) == before


def test_two_of_them_share_nothing() -> None:
    a, b = FrontEnd(AttentionExplorable()), FrontEnd(AttentionExplorable())
    a.value("q", [0, 0], 5)
    a.control("preset", "two keys")
    a.control("decimals", 8)
    assert b.explorable.code() == "AttentionExplorable()"
    assert b.explorable.bar.disabled == ["undo", "redo"]
    assert AttentionExplorable().code() == "AttentionExplorable()"
