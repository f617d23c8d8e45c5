"""However fast a reader drags, the last number arrives, and Python is never asked twice at once."""

from helpers.explorable_page import ExplorablePage, number
from helpers.visits import Opened

DRAG_SECONDS = 5
MOVES = 200  # on a slow machine the drag lasts until there were so many

# A hand on a fast machine: each move another number, whatever the distance between test and browser.
_DRAG = """async (cell, [x, y, seconds, least]) => {
  const end = performance.now() + 1000 * seconds;
  let moves = 0;
  while (performance.now() < end || moves < least) {
    moves += 1;
    const clientX = x + 4 * (((moves * 7) % 101) - 50);
    cell.dispatchEvent(new PointerEvent("pointermove", { clientX, clientY: y, pointerId: 1, bubbles: true }));
    await new Promise((resolve) => setTimeout(resolve, 4));
  }
  return moves;
}"""


def test_last_value_of_a_long_quick_drag_is_the_one_that_python_computed(
    opened_page: Opened, page_explorable: ExplorablePage
) -> None:
    page_explorable.move("decimals", 8)
    # Python's digits, not the stepper's: the bar has a queue of its own, which is none of the drag's.
    page_explorable.shows_cell("k", 0, "1.00000000")
    opened_page.wire.clear()
    x, y = page_explorable.grab("k", 0)
    moves = page_explorable.cell("k", 0).evaluate(_DRAG, [x, y, DRAG_SECONDS, MOVES])
    page_explorable.page.mouse.move(x + 4 * 37, y)
    page_explorable.page.mouse.up()
    assert moves >= MOVES
    page_explorable.shows_cell("k", 0, "4.70000000")
    page_explorable.shows_cell("scores", 0, "4.70000000")  # q = (1, 0), so the score is the number itself
    page_explorable.shows_cell("scores", 6, "4.70000000")
    page_explorable.is_ready()
    assert number(page_explorable.exact("k", 0)) == number(page_explorable.exact("scores", 0)) == 4.7
    wire = opened_page.wire
    assert wire.most_in_flight == 1
    assert 1 < wire.log.count("request") < moves
    assert wire.log.count("answer") >= wire.log.count("request")
    page_explorable.press("undo")  # all of it was one gesture
    page_explorable.shows_cell("k", 0, "1.00000000")
    page_explorable.shows_cell("scores", 0, "1.00000000")
