"""Every explorable, on its page and in a notebook: it explains, undoes, refuses, links, fits every width."""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from playwright.sync_api import Browser, expect

from helpers.explorable_page import ExplorablePage
from helpers.look import audit, fits, picture, theme
from helpers.servers import Server
from helpers.visits import Opened, Visits, run_notebook

WIDTHS = (360, 800, 1440)
MOST_STOPS = 120


@dataclass(frozen=True)
class Page:
    """How one page is tried: a number to choose, an edit, and what the edit shows."""

    file: str
    number: tuple[str, int]
    edit: Callable[[ExplorablePage], None]
    shows: tuple[str, int, str]
    before: str
    wrong: Callable[[ExplorablePage], None]
    message: str


PAGES = {
    "scaling": Page(
        "02-scaling.ipynb",
        ("weights_by_head", 0),
        lambda e: e.choose("heads", "1"),
        ("weights_by_head", 0, "0.7311"),
        "0.8808",
        lambda e: e.paste("raw", "8, nan"),
        "Raw scores",
    ),
    "dropout": Page(
        "03-dropout.ipynb",
        ("dropped", 2),
        lambda e: e.cell("keep", 1).click(),
        ("row_sum", 0, "2.0000"),
        "1.4000",
        lambda e: e.type_into("weights", 0, "0.3"),
        "expected a sum of 1",
    ),
    "projections": Page(
        "04-projections.ipynb",
        ("output", 3),
        lambda e: e.paste("w_o", "1 0 0 0; 0 1 0 0; 0 0 1 0; 0 0 0 2"),
        ("w_o", 15, "2.0000"),
        "1.0000",
        lambda e: e.press("heads-more"),
        "Width 4 cannot be split into 3 equal heads",
    ),
    "heads": Page(
        "05-heads.ipynb",
        ("heads", 6),
        lambda e: e.press("heads-less"),
        ("heads", 2, "2"),
        "4",
        lambda e: e.press("width-more"),
        "Width 5 cannot be split into 2 equal heads",
    ),
    "memory": Page(
        "06-memory.ipynb",
        ("step2", 2),
        lambda e: e.enter("chain-2", "flatten()"),
        ("step3", 1, "1"),
        "",
        lambda e: e.enter("chain-1", "exec(1)"),
        "Operation 2",
    ),
}


def stages(explorable: ExplorablePage) -> dict[str, Any]:
    """Every number on the screen."""
    names = explorable.root.locator(".attnlab-stage[data-stage]").evaluate_all(
        "(figures) => figures.map((figure) => figure.dataset.stage)"
    )
    return {name: explorable.texts(name) for name in names}


@dataclass
class Open:
    """A page that is open, with what belongs to it."""

    page: Page
    explorable: ExplorablePage
    visit: Opened
    host: str


@pytest.fixture(scope="module", params=[(n, host) for host in ("voila", "lab") for n in PAGES], ids="-".join)
def shared(request: pytest.FixtureRequest, browser: Browser) -> Iterator[Open]:
    """Each page once under each host; the tests of one page follow each other on it."""
    name, host = request.param
    page = PAGES[name]
    visits = Visits(browser)
    server: Server = request.getfixturevalue("pages" if host == "voila" else "lab")
    visit = visits.open(server.url + (name if host == "voila" else f"lab/workspaces/{name}/tree/{page.file}"))
    if host == "lab":
        run_notebook(visit.page)
    yield Open(page, ExplorablePage(visit.page, host).wait_drawn(), visit, host)
    faults = visit.watch.take()
    visits.close()
    assert not faults


@pytest.fixture
def opened(shared: Open) -> Open:
    """In the state of a page just opened, as far as a reader can."""
    if shared.explorable.root.locator(".attnlab-selected").count():
        shared.explorable.root.locator(".attnlab-selected").first.focus()
        shared.visit.page.keyboard.press("Escape")
    shared.explorable.press("reset")
    expect(shared.explorable.note()).to_have_text("")  # comes with the answer, unlike the state
    shared.explorable.is_ready()
    return shared


def test_a_number_explains_itself_by_mouse_and_keyboard(opened: Open) -> None:
    explorable, keyboard = opened.explorable, opened.visit.page.keyboard
    stage, flat = opened.page.number
    explorable.cell(stage, flat).click()
    expect(explorable.root.locator(".attnlab-formula math")).to_be_visible()
    expect(explorable.root.locator(".attnlab-formula math")).to_have_attribute("aria-label", re.compile("."))
    expect(explorable.root.locator(".attnlab-code .attnlab-ran")).to_be_visible()
    expect(explorable.root.locator(".attnlab-file")).to_contain_text("attnlab/engine/")
    assert explorable.root.locator(".attnlab-operand").count() > 0
    keyboard.press("Escape")
    expect(explorable.root.locator(".attnlab-formula math")).to_have_count(0)
    explorable.cell(stage, flat).focus()
    keyboard.press("Space")
    expect(explorable.root.locator(".attnlab-formula math")).to_be_visible()


def test_an_edit_follows_and_is_undone(opened: Open) -> None:
    explorable = opened.explorable
    stage, flat, text = opened.page.shows
    before = stages(explorable)
    opened.page.edit(explorable)
    explorable.shows_cell(stage, flat, text)
    explorable.is_ready()
    after = stages(explorable)
    assert after != before
    explorable.press("undo")
    expect(explorable.root).to_be_visible()
    if opened.page.before:
        explorable.shows_cell(stage, flat, opened.page.before)
    else:
        expect(explorable.cell(stage, flat)).to_have_count(0)
    assert stages(explorable) == before
    explorable.press("redo")
    explorable.shows_cell(stage, flat, text)
    assert stages(explorable) == after


def test_bad_input_is_told_and_the_last_result_stays(opened: Open) -> None:
    explorable = opened.explorable
    before = stages(explorable)
    opened.page.wrong(explorable)
    explorable.is_invalid(opened.page.message)
    expect(explorable.message).to_contain_text("last good result")
    kept = stages(explorable)
    changed = [name for name in before if kept.get(name) != before[name]]
    assert changed in ([], ["weights"])  # only the input itself shows what was typed
    opened.visit.page.keyboard.press("Escape")
    explorable.press("reset")
    explorable.is_ready()
    assert stages(explorable) == before


def test_a_copied_link_restores_everything(opened: Open, visits: Visits) -> None:
    if opened.host == "lab":
        pytest.skip("a notebook has no link of its own")
    explorable = opened.explorable
    opened.page.edit(explorable)
    explorable.shows_cell(*opened.page.shows)
    expect(explorable.note()).to_have_text("edited")  # comes with the address, a moment after the numbers
    link = explorable.copied(lambda: explorable.press("link"))
    other = ExplorablePage(visits.open(link).page, "voila").wait_drawn()
    other.shows_cell(*opened.page.shows)
    assert stages(other) == stages(explorable)


def test_tab_goes_through_the_page_and_is_never_lost(opened: Open) -> None:
    if opened.host == "lab":
        pytest.skip("what follows in a notebook is the notebook's")
    explorable, page = opened.explorable, opened.visit.page
    explorable.root.locator("select").first.focus()
    for _ in range(MOST_STOPS):
        page.keyboard.press("Tab")
        active = page.locator("*:focus")
        expect(active).to_have_count(1)  # not the body: that is where a lost keyboard ends
        if active.evaluate("(element) => Boolean(element.closest('footer'))"):
            return
    raise AssertionError(f"the end of the page was not reached in {MOST_STOPS} stops")


def test_it_fits_and_passes_the_audit(opened: Open) -> None:
    explorable, page = opened.explorable, opened.visit.page
    explorable.cell(*opened.page.number).click()
    expect(explorable.root.locator(".attnlab-formula math")).to_be_visible()
    page.mouse.move(0, 0)
    name = opened.page.file.split(".")[0]
    if opened.host == "lab":
        audit(page, ".attnlab-explorable")
        explorable.root.scroll_into_view_if_needed()
        picture(page, f"{name}-lab")
        return
    try:
        for scheme in ("dark", "light"):
            theme(page, scheme)
            audit(page)
            for width in WIDTHS if scheme == "light" else (1440,):
                page.set_viewport_size({"width": width, "height": 1000})
                page.wait_for_function("(width) => innerWidth === width", arg=width)
                fits(page)
                picture(page, f"{name}-{scheme}-{width}")
    finally:
        page.set_viewport_size({"width": 1440, "height": 1000})
        page.emulate_media(color_scheme="light")
