"""Light and dark, phone and projector: nothing runs off the page, nothing jumps, an audit finds nothing.

Pictures of it all are left in artifacts/screenshots to be looked at.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import expect

from helpers.explorable_page import ExplorablePage
from helpers.look import audit, fits, picture, theme
from helpers.servers import Server
from helpers.visits import Visits

PICTURES = Path(__file__).parents[2] / "artifacts" / "screenshots"
WIDTHS = (360, 800, 1440)
HEIGHT = 1000


@pytest.fixture
def sized(page_explorable: ExplorablePage) -> Iterator[ExplorablePage]:
    """The shared page, whose size and theme a test may change."""
    yield page_explorable
    page_explorable.page.set_viewport_size({"width": 1440, "height": HEIGHT})
    page_explorable.page.emulate_media(color_scheme="light")


def resize(explorable: ExplorablePage, width: int) -> None:
    explorable.page.set_viewport_size({"width": width, "height": HEIGHT})
    explorable.page.wait_for_function("(width) => innerWidth === width", arg=width)


def invalid(explorable: ExplorablePage) -> None:
    explorable.apply_text("q", "1 2\n3 4 5\n6 7")
    explorable.is_invalid("Q row 2")


def stepped(explorable: ExplorablePage) -> None:
    explorable.step(2)
    explorable.shows_cell("weights", 0, "·")


def chosen(explorable: ExplorablePage) -> None:
    explorable.focus("weights", 3)
    expect(explorable.root.locator(".attnlab-formula math")).to_be_visible()
    explorable.set_switch("gradient", True)
    expect(explorable.cell("weights", 3)).to_have_attribute("data-gradient", "1.000")


def empty_row(explorable: ExplorablePage) -> None:
    explorable.paste("k", "[[1, 0], [0, 1]]")
    explorable.paste("v", "[[1, 0], [0, 1]]")
    explorable.shows_cell("weights", 0, "NaN")


def overflowing(explorable: ExplorablePage) -> None:
    explorable.paste("q", " ".join(["100"] * 7) + ";" + " ".join(["-1"] * 7))
    explorable.paste("k", " ".join(["100"] * 7) + ";" + " ".join(["0"] * 7))
    explorable.paste("v", "1; 2")
    explorable.choose("dtype", "float16")
    explorable.shows_cell("scores", 0, "∞")


def largest(explorable: ExplorablePage) -> None:
    rows = [[round(((i * 7 + j * 13) % 200 - 100) / 1.0, 1) for j in range(16)] for i in range(16)]
    for name in ("q", "k", "v"):
        explorable.paste(name, repr(rows))
    expect(explorable.stage("weights").locator(".attnlab-cell")).to_have_count(256, timeout=15_000)
    explorable.is_ready()


STATES = {
    "default": lambda explorable: None,
    "invalid": invalid,
    "stepped": stepped,
    "chosen": chosen,
    "empty row": empty_row,
    "overflow": overflowing,
}


# The looks whose colours differ most in the dark.
DARK = ("default", "invalid", "chosen")


@pytest.mark.parametrize("state", STATES)
def test_state_passes_the_audit_and_fits_every_width(sized: ExplorablePage, state: str) -> None:
    STATES[state](sized)
    for name in ("dark", "light") if state in DARK else ("light",):
        theme(sized.page, name)
        audit(sized.page)
        for width in WIDTHS if name == "light" else (1440,):
            resize(sized, width)
            fits(sized.page)
            whole = state == "default"  # the prose is the same for all
            picture(sized.page if whole else sized.root, f"{state.replace(' ', '-')}-{name}-{width}")
        resize(sized, 1440)


def test_largest_matrices_scroll_inside_themselves(sized: ExplorablePage) -> None:
    largest(sized)
    for width in WIDTHS:
        resize(sized, width)
        fits(sized.page)
        boxes = sized.root.locator(".attnlab-scroll").evaluate_all(
            "(all) => all.map((one) => one.getBoundingClientRect()).map(({ left, right }) => [left, right])"
        )
        assert all(left >= 0 and right <= width for left, right in boxes)
        picture(sized.root, f"largest-light-{width}")


def test_open_text_and_menu_fit_a_phone(sized: ExplorablePage) -> None:
    resize(sized, 360)
    for name in ("q", "k", "v"):
        sized.text_box(name)
    sized.root.locator(".attnlab-menu summary").click()
    expect(sized.control("export-svg")).to_be_in_viewport(ratio=1)
    fits(sized.page)
    picture(sized.root, "open-light-360")
    audit(sized.page)
    sized.page.keyboard.press("Escape")


def test_gallery_and_missing_page_pass_the_audit_and_fit_every_width(visits: Visits, pages: Server) -> None:
    visit = visits.open()
    page = visit.page
    for name, address in (("gallery", pages.url), ("missing", pages.url + "nothing-here")):
        if name == "missing":
            visit.watch.expect("404")
        page.goto(address)
        # The pictures come later than the words; a missing page has none.
        drawn = "[...document.images].every((image) => image.complete && image.naturalWidth)"
        page.wait_for_function(drawn, timeout=90_000)
        assert page.locator(".attnlab-gallery img").count() == (7 if name == "gallery" else 0)
        for scheme in ("light", "dark"):
            page.emulate_media(color_scheme=scheme)
            audit(page)
            for width in WIDTHS:
                page.set_viewport_size({"width": width, "height": HEIGHT})
                fits(page)
                picture(page, f"{name}-{scheme}-{width}")
    expect(page.get_by_role("heading", level=1)).to_have_text("There is no page here")
    page.get_by_role("main").get_by_role("link").first.click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Attention, number by number")
    expect(page.get_by_role("main").get_by_role("link", name="Attention")).to_be_visible()


@pytest.mark.parametrize("opened", ["lab"], indirect=True)
def test_explorable_in_a_notebook_passes_the_audit(explorable: ExplorablePage) -> None:
    chosen(explorable)
    audit(explorable.page, ".attnlab-explorable")
    explorable.root.scroll_into_view_if_needed()
    picture(explorable.page, "lab-light-1440")


def test_chosen_theme_stays(visits: Visits, pages: Server) -> None:
    page = visits.open(pages.url, dark=True).page
    expect(page.locator("html")).to_have_attribute("data-attnlab-theme", "dark")
    button = page.get_by_role("button", name="Dark theme")
    expect(button).to_have_attribute("aria-pressed", "true")
    button.click()
    expect(page.locator("html")).to_have_attribute("data-attnlab-theme", "light")
    page.reload()
    expect(page.locator("html")).to_have_attribute("data-attnlab-theme", "light")


def test_lecture_size_enlarges_everything_and_stays(visits: Visits, pages: Server) -> None:
    page = visits.open(f"{pages.url}heads").page
    explorable = ExplorablePage(page, "voila").wait_drawn()
    heights = """() => ["h1", ".attnlab-select", ".attnlab-cell"].map(
      (part) => document.querySelector(part).getBoundingClientRect().height)"""
    before = page.evaluate(heights)
    button = page.get_by_role("button", name="Lecture size")
    button.press("Enter")
    expect(button).to_have_attribute("aria-pressed", "true")
    for small, large in zip(before, page.evaluate(heights), strict=True):
        assert large / small > 1.3
    fits(page)
    audit(page)
    # A curve still ends at its cell.
    page.wait_for_function("""() => {
      const paths = [...document.querySelectorAll(".attnlab-trail path")];
      const cells = [...document.querySelectorAll('[data-tag="first"]')];
      if (paths.length !== cells.length - 1) return false;
      const [path] = paths;
      const end = path.getPointAtLength(path.getTotalLength()).matrixTransform(path.getScreenCTM());
      const box = cells[1].getBoundingClientRect();
      const inside = (at, from, to) => at >= from - 3 && at <= to + 3;
      return inside(end.x, box.left, box.right) && inside(end.y, box.top, box.bottom);
    }""")
    picture(page, "heads-lecture")
    page.reload()
    explorable.wait_drawn()
    expect(page.locator("html")).to_have_attribute("data-attnlab-size", "lecture")


def test_page_does_not_jump(explorable: ExplorablePage) -> None:
    explorable.focus("v", 0)  # what explains itself comes and goes with the choice, below the grids
    before, scrolled = explorable.boxes(), explorable.page.evaluate("scrollY")
    explorable.type_into("q", 1, "-0.7")
    explorable.shows_cell("scores", 1, "−0.7000")
    assert explorable.boxes() == before
    explorable.scrub("v", 0, -80)
    explorable.shows_cell("v", 0, "−1.0000")
    assert explorable.boxes() == before
    explorable.step(1)
    explorable.shows_cell("weights", 0, "·")
    assert explorable.boxes() == before
    explorable.step(5)
    explorable.type_into("q", 0, "nan")
    explorable.is_invalid("'nan'")
    assert explorable.boxes() == before
    explorable.page.keyboard.press("Escape")
    explorable.is_ready()
    assert explorable.boxes() == before
    assert explorable.page.evaluate("scrollY") == scrolled
