"""Everything can be reached and done with the keyboard, and no key does anything else besides."""

import pytest
from playwright.sync_api import Page, expect

from helpers.explorable_page import ExplorablePage

# The name under which each stop of the Tab key is told below.
_WHERE = """() => {
  const at = document.activeElement;
  if (!at.closest(".attnlab-explorable")) return null;
  const stage = at.closest(".attnlab-stage")?.dataset.stage ?? "table";
  if (at.matches(".attnlab-cell")) return `grid ${stage}`;
  if (at.matches("summary")) return at.closest(".attnlab-stage") ? `text ${stage}` : "export";
  if (at.matches(".attnlab-formula, .attnlab-code")) return at.className;
  if (at.dataset.axis) return `${at.dataset.axis} ${at.dataset.by}`;
  return at.dataset.name ?? (at.type === "radio" ? "steps" : at.outerHTML);
}"""

# What a key of JupyterLab would change: number and kinds of the cells, the active one, its mode.
_CELLS = """(notebook) => [notebook.classList.contains("jp-mod-editMode"),
  ...[...notebook.querySelectorAll(".jp-Cell")].map((cell) =>
    [cell.classList.contains("jp-MarkdownCell"), cell.classList.contains("jp-mod-active")])]"""

STOPS = [
    *("preset", "scale", "causal", "query-less", "query-more"),
    *("undo", "redo", "reset", "link", "export"),
    "steps",
    *("columns", "dtype", "decimals-less", "decimals-more", "gradient"),
    *("query -1", "query 1", "key -1", "key 1", "d_k -1", "d_k 1", "d_v -1", "d_v 1"),
    *("grid q", "text q", "grid k", "text k", "grid v", "text v"),
    *("grid scores", "grid scaled", "grid masked", "grid weights", "grid output", "grid table"),
    *("attnlab-formula", "let-go", "attnlab-code"),  # formula and code may scroll
]


def where(page: Page) -> str | None:
    found: str | None = page.evaluate(_WHERE)
    return found


def test_tab_reaches_every_control_and_each_grid_once(explorable: ExplorablePage) -> None:
    page = explorable.page
    explorable.focus("weights", 3)  # a chosen number explains itself
    expect(explorable.root.locator(".attnlab-formula math")).to_be_visible()
    explorable.control("preset").focus()
    stops = [where(page)]
    for _ in range(len(STOPS) + 5):
        page.keyboard.press("Tab")
        if (stop := where(page)) is None:
            break
        stops.append(stop)
    assert stops == STOPS


def test_arrows_walk_in_a_grid_and_tab_comes_back_to_where_they_left(explorable: ExplorablePage) -> None:
    page = explorable.page
    explorable.focus("weights", 0)
    page.mouse.move(0, 0)
    for key, flat in (
        ("ArrowRight", 1),
        ("ArrowDown", 4),
        ("End", 5),
        ("ArrowRight", 5),
        ("Home", 3),
        ("ArrowUp", 0),
        ("ArrowLeft", 0),
        ("Control+End", 8),
        ("Control+Home", 0),
        ("ArrowDown", 3),
    ):
        page.keyboard.press(key)
        expect(explorable.cell("weights", flat)).to_be_focused()
    expect(explorable.readout).to_contain_text("weights[query 1, key 0] = 0.3302")
    page.keyboard.press("Tab")
    expect(explorable.cell("output", 0)).to_be_focused()
    page.keyboard.press("Shift+Tab")
    expect(explorable.cell("weights", 3)).to_be_focused()
    page.keyboard.type("5")
    expect(explorable.root.locator(".attnlab-input")).to_have_count(0)  # what is computed can't be typed


def test_menu_and_switches_work_by_keys(explorable: ExplorablePage) -> None:
    page = explorable.page
    menu = explorable.root.locator(".attnlab-menu")
    menu.locator("summary").focus()
    page.keyboard.press("Enter")
    expect(explorable.control("export-python")).to_be_visible()
    page.keyboard.press("Escape")
    expect(explorable.control("export-python")).to_be_hidden()
    expect(menu.locator("summary")).to_be_focused()
    explorable.control("causal").focus()
    page.keyboard.press("Space")
    explorable.shows_cell("weights", 5, "0.4011")
    expect(explorable.control("causal")).to_be_focused()
    explorable.control("query-more").focus()
    page.keyboard.press("Enter")
    expect(explorable.control("query")).to_have_text("2")
    expect(explorable.control("query-more")).to_be_focused()


@pytest.mark.parametrize("opened", ["lab"], indirect=True)
def test_keys_do_not_leak_into_the_notebook(explorable: ExplorablePage) -> None:
    page = explorable.page
    notebook = page.locator(".jp-Notebook")
    explorable.focus("q", 0)
    before = notebook.evaluate(_CELLS)
    keys = [
        "a",
        "b",
        "d",
        "d",
        "x",
        "v",
        "m",
        "y",
        "j",
        "k",
        "0",
        "Escape",
        "ArrowDown",
        "ArrowDown",
        "ArrowUp",
    ]
    for stop in (explorable.cell("q", 0), explorable.cell("weights", 0), explorable.control("undo")):
        stop.focus()
        for key in keys:
            page.keyboard.press(key)
    explorable.control("scale").focus()
    for key in ("a", "b", "d", "d"):
        page.keyboard.press(key)
    explorable.text_box("v").focus()
    page.keyboard.type("abdd")
    page.keyboard.press("Escape")
    # A key that acts on the notebook does so at once; a round trip through Python comes after all of them.
    explorable.set_switch("causal", False)
    explorable.shows_cell("weights", 5, "0.4011")
    assert notebook.evaluate(_CELLS) == before
    assert explorable.texts("q")[0] == ["1.0000", "0"]
