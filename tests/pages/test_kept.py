"""What stays the same on a page stays the same element; what can't be seen is written after what can."""

import re
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import expect

import attnlab.widgets
from helpers.explorable_page import ExplorablePage
from helpers.servers import Server
from helpers.visits import Visits

# In the order in which their numbers are written, after one step of the slider.
_WRITTEN = """async (root, [slider, to, stages]) => {
  const written = [];
  const observers = stages.map((stage) => {
    const observer = new MutationObserver(() => written.includes(stage) || written.push(stage));
    const grid = root.querySelector(`[data-stage="${stage}"] .attnlab-grid`);
    observer.observe(grid, { characterData: true, subtree: true });
    return observer;
  });
  const range = root.querySelector(`input[data-name="${slider}"]`);
  range.value = to;
  range.dispatchEvent(new Event("input", { bubbles: true }));
  while (written.length < stages.length) await new Promise(requestAnimationFrame);
  for (const observer of observers) observer.disconnect();
  return [written, root.querySelector(".attnlab-view").hasAttribute("data-behind")];
}"""
# The timer that waits for the hand to rest never rings.
_RESTLESS = """(rest) => {
  const { setTimeout } = window;
  window.setTimeout = (act, ms, ...more) => (ms === rest ? 0 : setTimeout(act, ms, ...more));
}"""
_MARK = "(element) => { element.marked = true; }"
_MARKED = "(elements) => elements.map((element) => element.marked === true)"


@pytest.fixture
def scaling(pages: Server, visits: Visits) -> ExplorablePage:
    """The scaling explorable in a low window: the slider and the first grids are seen, the Jacobian isn't."""
    return ExplorablePage(visits.open(f"{pages.url}scaling", height=600).page, "voila").wait_drawn()


_REFERENCES = """() => {
  const wrong = [];
  const named = [...document.querySelectorAll(".attnlab-plot [id]")];
  const ids = new Set(named.map(({ id }) => id));
  if (ids.size < named.length) wrong.push(`${named.length - ids.size} names come twice`);
  let found = 0;
  for (const svg of document.querySelectorAll(".attnlab-plot > svg"))
    for (const element of svg.querySelectorAll("[clip-path], use")) {
      const reference = element.getAttribute("clip-path") ?? element.getAttribute("href");
      const name = reference.replace(/^url\\(|\\)$/g, "");
      found += 1;
      if (!svg.querySelector(name)) wrong.push(name);
    }
  return [wrong, found];
}"""


def marked(explorable: ExplorablePage, selector: str) -> list[bool]:
    found: list[bool] = explorable.root.locator(selector).evaluate_all(_MARKED)
    return found


def test_a_size_builds_only_the_grids_that_have_it(page_explorable: ExplorablePage) -> None:
    page_explorable.cell("v", 3).click()
    for stage in ("q", "k", "v", "scores", "output"):
        page_explorable.stage(stage).evaluate(_MARK)
    page_explorable.resize("query", -1)
    page_explorable.shows("scores", [["1.0000", "0", "1.0000"], ["0", "1.0000", "1.0000"]])
    for stage, kept in {"q": False, "k": True, "v": True, "scores": False, "output": False}.items():
        assert marked(page_explorable, f'.attnlab-stage[data-stage="{stage}"]') == [kept], stage
    # Nothing of what was kept is out of date.
    page_explorable.shows("k", [["1.0000", "0"], ["0", "1.0000"], ["1.0000", "1.0000"]])
    page_explorable.press("undo")
    page_explorable.shows_cell("scores", 8, "2.0000")
    assert marked(page_explorable, '.attnlab-stage[data-stage="k"]') == [True]


def test_typing_goes_on_while_other_grids_are_built_anew(page_explorable: ExplorablePage) -> None:
    page_explorable.focus("k", 2)
    page_explorable.page.keyboard.press("F2")
    editor = page_explorable.root.locator(".attnlab-input")
    editor.evaluate(_MARK)
    page_explorable.page.keyboard.type("-0.2")
    less = page_explorable.size_button("query", -1)
    less.evaluate("(button) => button.click()")  # without taking the keyboard
    expect(page_explorable.root.locator('[data-stage="q"] tbody tr')).to_have_count(2)
    assert marked(page_explorable, ".attnlab-input") == [True]
    expect(editor).to_be_focused()
    page_explorable.page.keyboard.type("5")
    page_explorable.page.keyboard.press("Enter")
    page_explorable.shows("k", [["1.0000", "0"], ["−0.2500", "1.0000"], ["1.0000", "1.0000"]])


def test_a_formula_keeps_its_elements_while_its_numbers_move(page_explorable: ExplorablePage) -> None:
    page_explorable.cell("scores", 1).click()
    math = page_explorable.root.locator(".attnlab-formula math")
    expect(math).to_be_visible()
    math.evaluate(_MARK)
    before = math.text_content()
    page_explorable.cell("q", 1).focus()  # a click would choose it
    page_explorable.page.keyboard.press("Alt+ArrowUp")
    page_explorable.shows_cell("scores", 1, "0.1000")
    assert marked(page_explorable, ".attnlab-formula math") == [True]
    after = math.text_content()
    assert after != before
    assert "0.1" in after
    assert "0.1" in math.get_attribute("aria-label")


def test_what_is_seen_is_written_first(scaling: ExplorablePage) -> None:
    expect(scaling.stage("scores")).to_be_in_viewport()
    far = scaling.stage("jacobian_raw")
    expect(far).not_to_be_in_viewport()
    order, behind = scaling.root.evaluate(_WRITTEN, ["d_k", 2, ["jacobian_raw", "scores"]])
    assert order == ["scores", "jacobian_raw"]
    assert not behind


def test_what_comes_into_sight_is_written_though_the_hand_never_rests(scaling: ExplorablePage) -> None:
    far = scaling.cell("jacobian_raw", 0)
    before = far.text_content()
    rest = re.search(
        r"REST_MS = (\d+)", (Path(attnlab.widgets.__file__).parent / "trace_view.js").read_text()
    )
    scaling.page.evaluate(_RESTLESS, int(rest[1]))
    scaling.control("d_k").fill("2")
    expect(scaling.control("d_k-shown")).to_have_text("4")
    expect(scaling.root.locator(".attnlab-view[data-behind]")).to_have_count(1)
    expect(far).to_have_text(before)
    far.scroll_into_view_if_needed()
    expect(far).not_to_have_text(before)


def test_a_plot_that_comes_back_to_a_range_isn_t_read_again(scaling: ExplorablePage) -> None:
    plot = '[data-plot="scores"]'
    shown = scaling.root.locator(f'{plot} [role="img"]:visible')

    def slide(to: int, width: int) -> dict[str, Any]:
        scaling.root.locator('input[data-name="d_k"]').fill(str(to))
        expect(shown).to_have_attribute(
            "aria-label", f"Scores, scaled and not, at width {width}: 4,096 samples"
        )
        expect(shown).to_have_count(1)
        marks = scaling.root.locator(f"{plot} svg[aria-hidden] path").evaluate_all(
            "(paths) => paths.map((path) => path.getAttribute('d'))"
        )
        ticks = shown.locator("text").all_text_contents()
        return {"marks": marks, "ticks": ticks}

    narrow = slide(2, 4)
    shown.evaluate(_MARK)
    wide = slide(10, 1024)
    assert wide["ticks"] != narrow["ticks"]
    assert wide["marks"] != narrow["marks"]
    assert len(wide["marks"]) == 4
    assert slide(2, 4) == narrow
    assert shown.evaluate("(element) => element.marked")


def test_a_plot_refers_to_nothing_in_another(scaling: ExplorablePage) -> None:
    """A curve that is cut to the axes of a plot that isn't seen isn't seen either."""
    shown = scaling.root.locator('[data-plot="entropy"] [role="img"]:visible')
    before = shown.evaluate("(plot) => plot.outerHTML")
    scaling.press("n_keys-more")
    expect(scaling.root.locator('[data-plot="entropy"] [role="img"]')).to_have_count(2)
    expect(shown).to_have_count(1)
    assert shown.evaluate("(plot) => plot.outerHTML") != before
    wrong, found = scaling.page.evaluate(_REFERENCES)
    assert not wrong
    assert found > 20
