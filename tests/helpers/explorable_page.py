"""One explorable in a browser, as its reader uses it: reads what is on the screen, does what hands do.

Whatever waits here waits for a condition on the screen, with a deadline.
"""

import json
import math
from collections.abc import Callable, Sequence
from typing import Any

from playwright.sync_api import Locator, Page, expect

from attnlab.widgets import AttentionExplorable

__all__ = ["DEFAULT_PRESET", "SECONDS", "ExplorablePage", "close", "number"]

DEFAULT_PRESET = "three positions, causal"
SECONDS = 15
"""How long anything may take, on a machine that is busy with other things."""

_READ = """(root, stage) =>
  [...root.querySelectorAll(`.attnlab-stage[data-stage="${stage}"] .attnlab-grid tbody tr`)].map((row) =>
    [...row.querySelectorAll(".attnlab-cell")].map((cell) => [cell.textContent, cell.dataset.look]))"""
_LINKED = """(root) => {
  const linked = {};
  for (const figure of root.querySelectorAll(".attnlab-stage")) {
    const cells = [...figure.querySelectorAll(".attnlab-cell")];
    const marked = cells.flatMap((cell, i) => (cell.classList.contains("attnlab-linked") ? [i] : []));
    if (marked.length) linked[figure.dataset.stage ?? "table"] = marked;
  }
  return linked;
}"""
_PASTE = """(root, [stage, flat, text]) => {
  // Found here and not before: a grid that is built anew meanwhile would leave a cell of the old one.
  const cell = root.querySelectorAll(`.attnlab-stage[data-stage="${stage}"] .attnlab-cell`)[flat];
  const data = new DataTransfer();
  data.setData("text/plain", text);
  cell.dispatchEvent(new ClipboardEvent("paste", { clipboardData: data, bubbles: true, cancelable: true }));
}"""
_COPIED = """async (patience) => {
  const end = performance.now() + patience;
  while ((await navigator.clipboard.readText()) === "nothing yet") {
    if (performance.now() > end) throw new Error("nothing was copied");
    await new Promise(requestAnimationFrame);
  }
}"""
_BOXES = """(root) => [...root.querySelectorAll(".attnlab-grid")].map((grid) => {
  const { x, y, width, height } = grid.getBoundingClientRect();
  return [x + scrollX, y + scrollY, width, height].map(Math.round);
})"""


def number(text: str) -> float | None:
    """The number that a cell shows; None for one that isn't computed yet."""
    plain = text.replace("\N{MINUS SIGN}", "-").replace("∞", "inf")
    return None if plain == "·" else float(plain)


class ExplorablePage:
    """The `nth` explorable of a page."""

    def __init__(self, page: Page, host: str, nth: int = 0) -> None:
        self.page = page
        self.host = host
        self.root: Locator = page.locator(".attnlab-explorable").nth(nth)
        self.view = self.root.locator(".attnlab-view")
        self.message = self.root.locator(".attnlab-message")
        self.readout = self.root.locator(".attnlab-readout")

    # ------------------------------------------------------------ reading

    def wait_drawn(self, seconds: float = 60) -> "ExplorablePage":
        """Until the first numbers are there."""
        self.root.locator(".attnlab-cell").first.wait_for(timeout=1000 * seconds)
        return self

    def stage(self, name: str) -> Locator:
        """The figure of a stage."""
        return self.root.locator(f'.attnlab-stage[data-stage="{name}"]')

    def cell(self, stage: str, flat: int) -> Locator:
        """A cell of a stage, counted row by row."""
        return self.stage(stage).locator(".attnlab-cell").nth(flat)

    def written(self) -> "ExplorablePage":
        """When all numbers are written: those that can't be seen come a moment after the others."""
        expect(self.root.locator(".attnlab-view[data-behind]")).to_have_count(0)
        return self

    def texts(self, stage: str) -> list[list[str]]:
        """What the cells of a stage show."""
        self.written()
        return [[text for text, _ in row] for row in self.root.evaluate(_READ, stage)]

    def looks(self, stage: str) -> list[list[str]]:
        """The looks of the cells of a stage."""
        self.written()
        return [[look for _, look in row] for row in self.root.evaluate(_READ, stage)]

    def numbers(self, stage: str) -> list[list[float | None]]:
        """The numbers of a stage as they are shown, that is rounded."""
        return [[number(text) for text in row] for row in self.texts(stage)]

    def exact(self, stage: str, flat: int) -> str:
        """All digits of a cell, as they are told when one points at it, or of the chosen one always."""
        cell = self.cell(stage, flat)
        cell.hover()
        expect(cell).to_contain_class("attnlab-linked")
        chosen = cell.get_attribute("aria-selected") == "true"
        return self.told(chosen=chosen).locator(".attnlab-readout-value").inner_text()

    def told(self, *, chosen: bool = False) -> Locator:
        """Where a number is told with all its digits: the chosen one stands apart."""
        return self.root.locator(".attnlab-this-title").first if chosen else self.readout

    def exact_row(self, stage: str, row: int) -> list[str]:
        """All digits of a row."""
        width = len(self.texts(stage)[0])
        return [self.exact(stage, row * width + j) for j in range(width)]

    def everything(self) -> dict[str, Any]:
        """All that the explorable shows of its state: numbers, switches, steps."""
        self.written()
        stages = self.root.locator(".attnlab-stage[data-stage]").evaluate_all(
            "(figures) => figures.map((figure) => figure.dataset.stage)"
        )
        table = self.root.locator(".attnlab-terms").all_inner_texts()
        return {
            "stages": {name: self.texts(name) for name in stages},
            "table": table,
            "preset": self.control("preset").input_value(),
            "scale": self.control("scale").is_checked(),
            "causal": self.control("causal").is_checked(),
            "query": self.control("query").inner_text(),
            "step": self.step_input().get_attribute("value"),
            "dtype": self.control("dtype").input_value(),
            "decimals": self.control("decimals").inner_text(),
            "gradient": self.control("gradient").is_checked(),
            "chosen": self.root.locator(".attnlab-panel").all_inner_texts(),
        }

    def linked(self) -> dict[str, list[int]]:
        """Stage → cells that are lit up; the row table is called `table`."""
        found: dict[str, list[int]] = self.root.evaluate(_LINKED)
        return found

    def boxes(self) -> list[list[int]]:
        """Where each grid stands on the page, and how large it is."""
        found: list[list[int]] = self.written().root.evaluate(_BOXES)
        return found

    # ------------------------------------------------------------ waiting

    def shows(self, stage: str, rows: Sequence[Sequence[str]]) -> None:
        """Waits until a stage shows exactly these texts."""
        self._wait(
            f"(root) => JSON.stringify(({_READ})(root, {json.dumps(stage)}).map((r) => r.map((c) => c[0])))",
            json.dumps([list(row) for row in rows], ensure_ascii=False, separators=(",", ":")),
            lambda: self.texts(stage),
        )

    def shows_cell(self, stage: str, flat: int, text: str) -> None:
        """Waits until a cell shows this text."""
        expect(self.cell(stage, flat)).to_have_text(text)

    def is_ready(self) -> None:
        """Waits until all that was pressed is done and the result belongs to the inputs."""
        expect(self.root.locator(".attnlab-controls[data-busy]")).to_have_count(0)
        expect(self.view).to_have_attribute("data-state", "ready")

    def is_invalid(self, *words: str) -> None:
        """Waits until the message names what is wrong with the input."""
        expect(self.view).to_have_attribute("data-state", "invalid")
        for word in words:
            expect(self.message).to_contain_text(word)

    def _wait(self, script: str, wanted: str, now: Any) -> None:
        try:
            self.page.wait_for_function(
                f"([root, wanted]) => ({script})(root) === wanted",
                arg=[self.root.element_handle(), wanted],
                timeout=1000 * SECONDS,
            )
        except Exception as error:
            raise AssertionError(f"expected {wanted}, shown is {now()}") from error

    # ------------------------------------------------------------ hands on the grids

    def type_into(self, stage: str, flat: int, text: str, key: str = "Enter") -> None:
        """Double-clicks a cell, types, and leaves it by `key`."""
        self.cell(stage, flat).dblclick()
        self.page.keyboard.type(text)
        self.page.keyboard.press(key)

    def focus(self, stage: str, flat: int = 0) -> Locator:
        """Clicks a cell: it has the keyboard then."""
        cell = self.cell(stage, flat)
        cell.click()
        expect(cell).to_be_focused()
        return cell

    def grab(self, stage: str, flat: int) -> tuple[float, float]:
        """Presses the mouse on a cell; returns where."""
        cell = self.cell(stage, flat)
        cell.scroll_into_view_if_needed()
        box = cell.bounding_box()
        assert box
        x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
        self.page.mouse.move(x, y)
        self.page.mouse.down()
        return x, y

    def scrub(self, stage: str, flat: int, pixels: int) -> None:
        """Drags a cell sideways, as a hand does: in several moves."""
        x, y = self.grab(stage, flat)
        for part in range(1, 9):
            self.page.mouse.move(x + pixels * part / 8, y)
        self.page.mouse.up()

    def paste(self, stage: str, text: str, flat: int = 0) -> None:
        """Pastes text into a cell of a grid."""
        self.root.evaluate(_PASTE, [stage, flat, text])

    def text_box(self, stage: str) -> Locator:
        """The matrix as text, opened."""
        box = self.stage(stage).locator("textarea")
        if not box.is_visible():
            self.stage(stage).locator("summary").click()
        return box

    def apply_text(self, stage: str, text: str) -> None:
        """Writes a whole matrix as text and applies it."""
        self.text_box(stage).fill(text)
        self.stage(stage).get_by_role("button", name="Apply").click()

    def size_button(self, axis: str, by: int) -> Locator:
        """− or + of a size."""
        return self.root.locator(f'.attnlab-sizes button[data-axis="{axis}"][data-by="{by}"]')

    def resize(self, axis: str, by: int) -> Locator:
        """Presses − or + of a size."""
        button = self.size_button(axis, by)
        button.click(force=True)  # also one that does nothing now
        return button

    # ------------------------------------------------------------ hands on the controls

    def control(self, name: str) -> Locator:
        """The element of a control: a select, a check box, a button, or the number of a stepper."""
        return self.root.locator(f'.attnlab-controls [data-name="{name}"]')

    def press(self, name: str) -> None:
        """Presses a button, also one that does nothing now."""
        self.control(name).click(force=True)

    def enter(self, name: str, text: str) -> None:
        """Writes into a field of the control bar and leaves it by Enter."""
        self.control(name).fill(text)
        self.control(name).press("Enter")

    def choose(self, name: str, value: str) -> None:
        """Chooses an option."""
        self.control(name).select_option(value)

    def choose_preset(self, name: str) -> None:
        """Chooses a preset and waits until its switches and sizes are those on the screen."""
        values = AttentionExplorable.presets[name]
        self.choose("preset", name)
        for switch in ("scale", "causal"):
            expect(self.control(switch)).to_be_checked(checked=values.get(switch, True))
        expect(self.control("query")).to_have_text(str(values["query"]))
        for matrix in ("q", "k", "v"):
            count = sum(map(len, values[matrix]))
            expect(self.stage(matrix).locator(".attnlab-cell")).to_have_count(count)
        expect(self.note()).to_have_text("")

    def set_switch(self, name: str, on: bool) -> None:
        """Switches on or off."""
        self.control(name).set_checked(on)

    def step_input(self, value: int | None = None) -> Locator:
        """The radio button of a step, or the chosen one."""
        which = ":checked" if value is None else f'[value="{value}"]'
        return self.root.locator(f".attnlab-steps input{which}")

    def step(self, value: int) -> None:
        """Clicks on a step."""
        self.root.locator(".attnlab-step", has=self.page.locator(f'input[value="{value}"]')).click()
        expect(self.step_input(value)).to_be_checked()

    def move(self, name: str, to: int) -> None:
        """Presses a stepper until it shows `to`."""
        shown = self.control(name)
        while (now := int(shown.inner_text())) != to:
            self.press(f"{name}-{'more' if now < to else 'less'}")
            expect(shown).not_to_have_text(str(now))

    def export(self, choice: str) -> None:
        """Chooses from the menu of exports."""
        self.root.locator(".attnlab-menu summary").click()
        self.press(f"export-{choice}")

    def clipboard(self) -> str:
        """What was copied last."""
        text: str = self.page.evaluate("navigator.clipboard.readText()")
        return text

    def note(self) -> Locator:
        """The word beside the preset."""
        return self.root.locator('.attnlab-controls [data-name="preset"] + .attnlab-control-note')

    def copied(self, press: Callable[[], None]) -> str:
        """What `press` puts on the clipboard."""
        self.page.evaluate("navigator.clipboard.writeText('nothing yet')")
        press()
        self.page.evaluate(_COPIED, 1000 * SECONDS)
        return self.clipboard()

    # ------------------------------------------------------------ between tests

    def fresh(self) -> "ExplorablePage":
        """Back to the state of a page just opened, as far as a reader can: only the history stays."""
        self.page.mouse.up()
        self.page.mouse.move(0, 0)
        self.page.keyboard.press("Escape")
        self.root.evaluate(
            "(root) => root.querySelectorAll('details[open] > summary').forEach((s) => s.click())"
        )
        if self.root.locator(".attnlab-selected").count():
            self.root.locator(".attnlab-selected").first.focus()
            self.page.keyboard.press("Escape")
            expect(self.root.locator(".attnlab-selected")).to_have_count(0)
        # Another one first: choosing what is chosen already does nothing.
        self.choose_preset("two keys")
        self.choose_preset(DEFAULT_PRESET)
        self.step(5)
        self.move("decimals", 4)
        self.set_switch("gradient", False)
        self.shows("q", [["1.0000", "0"], ["0", "1.0000"], ["1.0000", "1.0000"]])
        self.shows(
            "weights", [["1.0000", "0", "0"], ["0.3302", "0.6698", "0"], ["0.2483", "0.2483", "0.5035"]]
        )
        expect(self.control("dtype")).to_have_value("float64")
        expect(self.control("query")).to_have_text("1")
        self.is_ready()
        return self


def close(shown: float | None, right: float, tolerance: float) -> bool:
    """Is a number on the screen the right one, within what rounding may take?"""
    if shown is None or math.isnan(shown) or math.isinf(right):
        return shown == right
    return abs(shown - right) <= tolerance
