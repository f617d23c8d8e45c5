"""However fast a reader drags, the last number arrives, and Python is never asked twice at once."""

import time

from helpers.explorable_page import ExplorablePage, number

DRAG_SECONDS = 5


def test_last_value_of_a_long_quick_drag_is_the_one_that_python_computed(
    opened_page, page_explorable: ExplorablePage
) -> None:
    page_explorable.move("decimals", 8)
    opened_page.wire.clear()
    x, y = page_explorable.grab("k", 0)
    moves, end = 0, time.monotonic() + DRAG_SECONDS
    while time.monotonic() < end:
        moves += 1
        # Back and forth, each move another number.
        page_explorable.page.mouse.move(x + 4 * ((moves * 7) % 101 - 50), y)
    page_explorable.page.mouse.move(x + 4 * 37, y)
    page_explorable.page.mouse.up()
    assert moves > 100
    page_explorable.shows_cell("k", 0, "4.70000000")
    page_explorable.shows_cell("scores", 0, "4.70000000")  # q = (1, 0), so the score is the number itself
    page_explorable.shows_cell("scores", 6, "4.70000000")
    page_explorable.is_ready()
    assert number(page_explorable.exact("k", 0)) == number(page_explorable.exact("scores", 0)) == 4.7
    wire = opened_page.wire
    assert wire.most_in_flight == 1
    assert wire.log.count("request") < moves
    assert wire.log.count("answer") == wire.log.count("request")
    page_explorable.press("undo")  # all of it was one gesture
    page_explorable.shows_cell("k", 0, "1.00000000")
    page_explorable.shows_cell("scores", 0, "1.00000000")
