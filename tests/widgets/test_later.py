"""What is done a moment later: once, not after it was called off, and at once where there is no later."""

import asyncio

from attnlab.widgets import AttentionExplorable
from attnlab.widgets.later import Later
from helpers.front_end import FrontEnd


async def later_than(seconds: float) -> None:
    """Until every timer of fewer seconds has been dealt with: a loop takes them in order."""
    done = asyncio.Event()
    asyncio.get_running_loop().call_later(2 * seconds, done.set)
    await done.wait()


def test_once_for_all_that_asked() -> None:
    acted: list[str] = []
    later = Later(lambda: acted.append("acted"), 0.01)

    async def ask() -> None:
        for _ in range(3):
            later.ask()
        assert acted == []
        await later_than(0.01)
        assert acted == ["acted"]
        later.ask()
        later.stop()
        later.stop()
        await later_than(0.01)

    asyncio.run(ask())
    assert acted == ["acted"]


def test_at_once_without_an_event_loop() -> None:
    acted: list[str] = []
    Later(lambda: acted.append("acted"), 60).ask()
    assert acted == ["acted"]


def test_a_closed_explorable_sends_nothing_more() -> None:
    page = FrontEnd(AttentionExplorable(q=[[2, 0], [0, 1], [1, 1]]))
    page.value("q", [0, 0], 0.5)
    before = page.explorable.bar.address

    async def drag_and_close() -> None:
        page.value("q", [0, 0], 0.75)
        page.explorable.close()
        await later_than(page.explorable._address_later._seconds)

    asyncio.run(drag_and_close())
    assert page.explorable.bar.address == before
