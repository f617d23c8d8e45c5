"""The pictures of the gallery: made by each notebook, kept when others fail, tried again when late."""

import asyncio
import time
from pathlib import Path

import pytest

from attnlab.explorables import thumbnails
from attnlab.explorables.catalogue import Catalogue
from attnlab.explorables.thumbnails import Thumbnails
from helpers.loops import in_a_loop
from helpers.own_notebooks import write

DRAW = """
class Drawn:
    def figure(self): return self
    def svg(self): return "<svg/>"
Drawn()
"""
"""An explorable that needs no PyTorch."""


async def pictures(made: Thumbnails, *slugs: str) -> list[str | None]:
    return await asyncio.gather(*map(made.svg, slugs))


def waiting_for(gate: Path) -> str:
    return f"import pathlib, time\nwhile not pathlib.Path({str(gate)!r}).exists(): time.sleep(0.02)"


def test_a_notebook_that_prints_has_a_picture_and_one_that_fails_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def refused(*_: object, **__: object) -> None:
        raise NotImplementedError("as in the event loop of Voilà on Windows")

    write(tmp_path, "fails", "Fails", "import os\nos.write(1, b'printed')\n1 / 0")
    write(tmp_path, "prints more", "Prints", "print('[1')\nimport os\nos.write(1, b'[2')", DRAW)
    (tmp_path / "ast.py").write_text("raise SystemExit('a module of the folder we are started in')")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(asyncio, "create_subprocess_exec", refused)
    made = Thumbnails(Catalogue.of(tmp_path))
    assert in_a_loop(pictures(made, "fails", "prints more")) == [None, "<svg/>"]
    assert "fails: ZeroDivisionError" in caplog.text


def test_what_was_late_is_tried_again_and_what_was_finished_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    gate = tmp_path / "gate"
    write(tmp_path, "1-quick", "Quick", DRAW)
    write(tmp_path, "2-slow", "Slow", waiting_for(gate), DRAW)
    write(tmp_path, "3-next", "Next", DRAW)
    made = Thumbnails(Catalogue.of(tmp_path))
    monkeypatch.setattr(thumbnails, "_SECONDS", 5)
    assert in_a_loop(pictures(made, "quick", "slow", "next")) == ["<svg/>", None, None]
    assert "not ready after 5 seconds" in caplog.text
    # Not for each visitor: that would keep the processor busy for nothing.
    began = time.monotonic()
    assert in_a_loop(pictures(made, "quick", "slow")) == ["<svg/>", None]
    assert time.monotonic() - began < 2

    async def one_after_the_other() -> list[str | None]:
        following = await made.svg("next")
        gate.touch()
        return [following, await made.svg("slow")]

    monkeypatch.setattr(thumbnails, "_PAUSE", 0)
    assert in_a_loop(one_after_the_other()) == ["<svg/>", "<svg/>"]


def test_a_picture_does_not_wait_for_the_others(tmp_path: Path) -> None:
    async def in_turn() -> list[str | None]:
        made = Thumbnails(Catalogue.of(tmp_path))
        slow = asyncio.ensure_future(made.svg("slow"))
        leaves = asyncio.ensure_future(made.svg("quick"))
        await asyncio.sleep(0)
        leaves.cancel()  # a visitor who closes the page takes the picture from nobody
        quick = await made.svg("quick")
        assert not slow.done()
        gate.touch()
        return [quick, await slow]

    gate = tmp_path / "gate"
    write(tmp_path, "1-quick", "Quick", DRAW)
    write(tmp_path, "2-slow", "Slow", waiting_for(gate), DRAW)
    assert in_a_loop(in_turn()) == ["<svg/>", "<svg/>"]


def test_a_server_that_ends_does_not_wait_for_pictures(tmp_path: Path) -> None:
    async def closed() -> str | None:
        made = Thumbnails(Catalogue.of(tmp_path))
        picture = asyncio.ensure_future(made.svg("slow"))
        while made._program is None:
            await asyncio.sleep(0.01)
        made.close()
        return await picture

    write(tmp_path, "slow", "Slow", waiting_for(tmp_path / "never"), DRAW)
    began = time.monotonic()
    assert in_a_loop(closed()) is None
    assert time.monotonic() - began < 20
