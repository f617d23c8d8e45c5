"""Any number explains itself on its page: formula, operands, line, gradient; mistakes are found by eye."""

import re
from collections.abc import Iterator
from itertools import pairwise
from typing import Any
from xml.etree import ElementTree

import pytest
from playwright.sync_api import Browser, Locator, expect

from attnlab.widgets import AttentionExplorable
from helpers.explorable_page import ExplorablePage
from helpers.front_end import FrontEnd, receive
from helpers.look import audit, fits, picture, theme
from helpers.servers import Server
from helpers.visits import Opened, Visits

# The cells of the table in their order on the screen, for three keys and two columns of V.
ROW = ("row_scores", "row_scaled", "row_masked", "row_weights")
TABLE = [
    *(
        cell
        for key in range(3)
        for cell in [
            *((stage, [key]) for stage in ROW),
            ("row_weighted", [key, 0]),
            ("row_weighted", [key, 1]),
        ]
    ),
    *(("weight_sum", []), ("row_output", [0]), ("row_output", [1])),
]
GRIDS = {"q": 2, "k": 2, "v": 2, "scores": 3, "scaled": 3, "masked": 3, "weights": 3, "output": 2}

_MARKED = """(root, marked) => [...root.querySelectorAll(".attnlab-stage")].flatMap((figure) =>
  [...figure.querySelectorAll(".attnlab-cell")].flatMap((cell, i) =>
    cell.classList.contains(marked) ? [[figure.dataset.stage ?? "table", i]] : []))"""
# Operands are told from linked cells by a frame of their own.
_FRAMES = """(root) => [...root.querySelectorAll(".attnlab-operand")].map((cell) => {
  const { outlineStyle, boxShadow } = getComputedStyle(cell);
  return `${outlineStyle} ${boxShadow}`;
})"""
_GRADIENTS = """(figure) => [...figure.querySelectorAll(".attnlab-cell")].map((cell) =>
  [getComputedStyle(cell, "::after").content, cell.getAttribute("aria-label")])"""


class Panel:
    """What the panel of an explorable shows."""

    def __init__(self, explorable: ExplorablePage) -> None:
        self.explorable = explorable
        self.root = explorable.root
        self.title = self.root.locator(".attnlab-this .attnlab-this-title")
        self.math = self.root.locator(".attnlab-formula math")
        self.note = self.root.locator(".attnlab-this-note")
        self.source = self.root.locator(".attnlab-source")
        self.file = self.root.locator(".attnlab-file")
        self.ran = self.root.locator(".attnlab-code .attnlab-ran")

    def words(self) -> str:
        """The formula as it is read aloud."""
        return self.math.get_attribute("aria-label") or ""

    def marked(self, name: str) -> list[list[Any]]:
        """(stage, cell) of all cells with this mark; those of the table are counted in it."""
        found: list[list[Any]] = self.root.evaluate(_MARKED, f"attnlab-{name}")
        return found

    def gradients(self, stage: Locator) -> list[str]:
        """What is drawn below the cells of a stage."""
        self.explorable.written()
        return [drawn.strip('"').removeprefix("∂ ") for drawn, _ in stage.evaluate(_GRADIENTS)]

    def spoken(self, stage: Locator) -> list[str | None]:
        """What is read aloud of the cells of a stage, where it isn't just the number."""
        self.explorable.written()
        return [label for _, label in stage.evaluate(_GRADIENTS)]


@pytest.fixture
def panel(page_explorable: ExplorablePage) -> Panel:
    return Panel(page_explorable)


@pytest.fixture
def python() -> Iterator[FrontEnd]:
    """The same explorable here: what it says is right is tested elsewhere."""
    explorable = AttentionExplorable()
    yield FrontEnd(explorable)
    explorable.close()


def explanation(python: FrontEnd, stage: str, index: list[int]) -> dict[str, Any]:
    receive(python.explorable.view, selected={"stage": stage, "index": index})
    found: dict[str, Any] = python.answer["explanation"]
    return found


def on_screen(stage: str, index: list[int]) -> list[list[Any]]:
    """Where a cell is seen: in its grid, or in the table."""
    if stage in GRIDS:
        return [[stage, index[0] * GRIDS[stage] + index[1]]]
    return [["table", place] for place, cell in enumerate(TABLE) if cell == (stage, index)]


def assert_explains(panel: Panel, python: FrontEnd, stage: str, index: list[int]) -> None:
    """The panel, the marks and the line are those of the explanation."""
    right = explanation(python, stage, index)
    if not right["mathml"]:
        expect(panel.note).to_have_text("an input: nothing computed it")
        expect(panel.math).to_have_count(0)
        expect(panel.source).to_be_hidden()
    else:
        words = ElementTree.fromstring(right["mathml"]).get("aria-label")
        expect(panel.math).to_have_attribute("aria-label", words or "")
        assert panel.math.evaluate("(math) => math instanceof MathMLElement && math.offsetHeight !== 0")
        source = right["source"]
        expect(panel.file).to_have_text(f"{source['file']}:{source['line']}")
        text = dict(map(tuple, source["lines"]))[source["line"]]
        expect(panel.ran).to_have_text(f"{source['line']}{text}\n")
    expected = [place for name, at in right["operands"] for place in on_screen(name, at)]
    assert sorted(panel.marked("operand")) == sorted(expected)
    assert panel.marked("selected") == on_screen(stage, index)
    assert set(panel.root.evaluate(_FRAMES)) <= {"dashed none"}


def has_gradient(cell: Locator, wanted: str | None) -> None:
    """Waits until this gradient, or none, is drawn below a cell."""
    if wanted is None:
        expect(cell).not_to_have_attribute("data-gradient", re.compile(""))
    else:
        expect(cell).to_have_attribute("data-gradient", wanted)


def title(stage: str, flat: int) -> re.Pattern[str]:
    rows, columns = {
        "q": ("query", "dₖ"),
        "k": ("key", "dₖ"),
        "v": ("key", "dᵥ"),
        "output": ("query", "dᵥ"),
    }.get(stage, ("query", "key"))
    name = stage.upper() if stage in "qkv" else stage
    i, j = divmod(flat, GRIDS[stage])
    return re.compile(rf"^This number: {name}\[{rows} {i}, {columns} {j}\] = \S+$")


def test_click_and_space_in_every_stage(panel: Panel, python: FrontEnd) -> None:
    keyboard = panel.explorable.page.keyboard
    expect(panel.note).to_contain_text("Choose a number")
    for stage, columns in GRIDS.items():
        panel.explorable.cell(stage, columns).click()  # second row, first column
        expect(panel.title).to_have_text(title(stage, columns))
        assert_explains(panel, python, stage, [1, 0])
        keyboard.press("ArrowRight")
        keyboard.press("ArrowDown")
        assert panel.marked("selected") == [[stage, columns]]  # walking is not choosing
        keyboard.press("Space")
        flat = 2 * columns + 1
        expect(panel.title).to_have_text(title(stage, flat))
        assert_explains(panel, python, stage, [2, 1])
    keyboard.press("Escape")
    expect(panel.note).to_contain_text("Choose a number")
    expect(panel.math).to_have_count(0)
    assert panel.marked("selected") == panel.marked("operand") == []


def test_click_and_space_in_the_table(panel: Panel, python: FrontEnd) -> None:
    cells = panel.root.locator(".attnlab-terms .attnlab-cell")
    expect(cells).to_have_count(len(TABLE))
    for place in (0, 7, 14, 9, 17, 18, 19):
        stage, index = TABLE[place]
        cells.nth(place).click()
        expect(cells.nth(place)).to_have_class(re.compile("attnlab-selected"))
        assert_explains(panel, python, stage, index)
    panel.explorable.page.keyboard.press("ArrowRight")
    panel.explorable.page.keyboard.press("Space")
    assert_explains(panel, python, "row_output", [1])


def test_formula_is_laid_out_as_mathematics(panel: Panel) -> None:
    panel.explorable.cell("weights", 4).click()
    expect(panel.math.locator("mfrac").first).to_be_visible()
    for fraction in panel.math.locator("mfrac").all():
        above, below = (fraction.locator("> *").nth(i).bounding_box() for i in (0, 1))
        assert above
        assert below
        assert above["y"] + above["height"] <= below["y"] + 1
    assert panel.words().endswith("= 0.6698")
    assert panel.root.locator(".attnlab-formula").get_attribute("aria-label")


@pytest.mark.parametrize(("width", "lines"), [(1440, 1), (360, 2)])
def test_formula_that_does_not_fit_is_broken_before_an_equals_sign(
    width: int, lines: int, panel: Panel
) -> None:
    page = panel.explorable.page
    panel.explorable.cell("weights", 4).click()
    expect(panel.math).to_be_visible()
    before = page.viewport_size
    assert before
    page.set_viewport_size({"width": width, "height": before["height"]})
    try:
        page.wait_for_function("(width) => innerWidth === width", arg=width)
        sides, box = panel.math.locator("> mrow"), panel.root.locator(".attnlab-formula").bounding_box()
        assert box
        starts = []
        for side in sides.all():
            place = side.bounding_box()
            assert place
            assert place["x"] + place["width"] <= box["x"] + box["width"]
            starts.append(place["x"])
        # A line begins further left than the side before it.
        assert 1 + sum(after < earlier for earlier, after in pairwise(starts)) == lines
        expect(sides.nth(1).locator("> mo").first).to_have_text("=")
    finally:
        page.set_viewport_size(before)


def test_the_panel_does_not_lie_over_what_was_chosen(panel: Panel) -> None:
    explorable, page = panel.explorable, panel.explorable.page
    cell = explorable.cell("output", 5)
    cell.evaluate("(cell) => cell.scrollIntoView({block: 'end'})")
    cell.click()
    expect(panel.math).to_be_visible()
    hit = "(cell) => {const {x, y, width, height} = cell.getBoundingClientRect();"
    hit += "return document.elementFromPoint(x + width / 2, y + height / 2) === cell}"
    page.wait_for_function(f"(cell) => ({hit})(cell)", arg=cell.element_handle())
    page.keyboard.press("Escape")
    expect(panel.math).to_be_hidden()


def test_what_is_not_computed_yet_is_not_told(panel: Panel) -> None:
    explorable = panel.explorable
    explorable.set_switch("gradient", True)
    explorable.cell("output", 2).click()
    has_gradient(explorable.cell("v", 0), "0.330")
    explorable.step(1)
    has_gradient(explorable.cell("v", 0), None)
    expect(panel.root.locator(".attnlab-this-title").first).to_contain_text("not computed yet")
    expect(panel.math).to_be_hidden()
    explorable.step(5)
    has_gradient(explorable.cell("v", 0), "0.330")
    expect(panel.math).to_be_visible()


@pytest.mark.parametrize("opened", ["lab"], indirect=True)
def test_in_a_notebook(explorable: ExplorablePage, python: FrontEnd) -> None:
    panel = Panel(explorable)
    explorable.cell("weights", 4).click()
    assert_explains(panel, python, "weights", [1, 1])
    explorable.page.keyboard.press("ArrowLeft")
    explorable.page.keyboard.press("Space")
    assert_explains(panel, python, "weights", [1, 0])
    explorable.set_switch("gradient", True)
    has_gradient(explorable.cell("weights", 3), "1.000")
    assert panel.gradients(explorable.stage("k"))[4:] == ["0", "0"]
    audit(explorable.page, ".attnlab-explorable")


class TestThePanelFollows:
    def test_a_drag(self, panel: Panel) -> None:
        panel.explorable.cell("q", 0).click()
        expect(panel.title).to_have_text("This number: Q[query 0, dₖ 0] = 1")
        panel.explorable.scrub("q", 0, 40)
        expect(panel.title).not_to_have_text("This number: Q[query 0, dₖ 0] = 1")
        assert panel.marked("selected") == [["q", 0]]

    def test_keys_that_change_an_input_while_another_number_is_chosen(
        self, panel: Panel, python: FrontEnd
    ) -> None:
        panel.explorable.cell("scores", 1).click()
        assert_explains(panel, python, "scores", [0, 1])
        panel.explorable.cell("k", 3).focus()
        for press in range(1, 4):
            panel.explorable.page.keyboard.press("Alt+ArrowRight")
            python.value("k", [1, 1], 1 + press / 10)
        assert_explains(panel, python, "scores", [0, 1])
        panel.explorable.cell("k", 2).focus()
        panel.explorable.page.keyboard.press("Alt+ArrowRight")
        python.value("k", [1, 0], 0.1)
        assert_explains(panel, python, "scores", [0, 1])
        assert panel.words().endswith("= 0.1000")

    def test_undo_presets_and_switches(self, panel: Panel, python: FrontEnd) -> None:
        panel.explorable.cell("weights", 5).click()
        for name, value in (("causal", False), ("scale", False)):
            panel.explorable.set_switch(name, value)
            python.control(name, value)
            assert_explains(panel, python, "weights", [1, 2])
        panel.explorable.press("undo")
        python.control("undo")
        assert_explains(panel, python, "weights", [1, 2])

    def test_a_cell_that_is_gone(self, panel: Panel, python: FrontEnd) -> None:
        panel.explorable.cell("weights", 8).click()
        assert_explains(panel, python, "weights", [2, 2])
        panel.explorable.resize("query", -1)
        expect(panel.note).to_contain_text("Choose a number")
        expect(panel.math).to_have_count(0)
        assert panel.marked("operand") == panel.marked("selected") == []
        panel.explorable.resize("query", 1)
        expect(panel.math).to_be_visible()


def test_gradient_shows_that_the_future_has_no_influence(panel: Panel) -> None:
    explorable = panel.explorable
    explorable.set_switch("gradient", True)
    explorable.cell("output", 2).click()  # query 1, column 0
    has_gradient(explorable.cell("output", 2), "1.000")
    assert panel.gradients(explorable.stage("v")) == ["0.330", "0", "0.670", "0", "0", "0"]
    assert panel.gradients(explorable.stage("k"))[4:] == ["0", "0"]
    assert panel.gradients(explorable.stage("weights")) == [*["0"] * 3, "1.000", "0", "1.000", *["0"] * 3]
    assert (
        panel.gradients(explorable.stage("q"))[:2] == panel.gradients(explorable.stage("q"))[4:] == ["0", "0"]
    )
    explorable.set_switch("causal", False)
    has_gradient(explorable.cell("v", 4), "0.401")
    explorable.set_switch("gradient", False)
    has_gradient(explorable.cell("v", 4), None)


def test_gradient_is_read_aloud(panel: Panel) -> None:
    explorable = panel.explorable
    explorable.set_switch("gradient", True)
    explorable.cell("output", 2).click()
    has_gradient(explorable.cell("v", 0), "0.330")
    explorable.move("decimals", 5)
    explorable.shows_cell("v", 0, "1.00000")  # painted a second time
    for stage in ("v", "k", "q", "weights"):
        for drawn, said in zip(
            panel.gradients(explorable.stage(stage)), panel.spoken(explorable.stage(stage)), strict=True
        ):
            assert said
            assert said.endswith(f"gradient of the chosen number {drawn}")


# ---------------------------------------------------------------- the page of mistakes


@pytest.fixture(scope="module")
def _your_code(browser: Browser, pages: Server) -> Iterator[Opened]:
    visits = Visits(browser)
    visit = visits.open(f"{pages.url}your-code")
    ExplorablePage(visit.page, "voila").wait_drawn()
    yield visit
    visits.close()


@pytest.fixture
def your_code(_your_code: Opened) -> Iterator[Panel]:
    explorable = ExplorablePage(_your_code.page, "voila")
    explorable.choose("function", "mystery 1")
    explorable.set_switch("gradient", False)
    explorable.is_ready()
    yield Panel(explorable)
    _your_code.page.set_viewport_size({"width": 1440, "height": 1000})
    _your_code.page.emulate_media(color_scheme="light")
    assert not _your_code.watch.take()


def named(panel: Panel, title: str) -> Locator:
    """The last stage of this name."""
    return panel.root.locator(f'.attnlab-stage[data-stage^="{title}#"]').last


MYSTERIES = {
    # mystery: (the check that fails, a variable near it, its cell, what the marked line says)
    "mystery 1": ("each query's weights sum to 1", "weights", 1, "weights = shares.masked_fill(future, 0.0)"),
    "mystery 2": (
        "merged heads keep each position",
        "merged",
        4,
        "merged = heads.reshape(batch, time, width)",
    ),
    "mystery 3": (
        "scores are scaled by 1/√2",
        "scores",
        0,
        "scores = q @ k.transpose(-2, -1) / math.sqrt(width)",
    ),
    "mystery 4": ("each query's weights sum to 1", "weights", 3, "weights = masked.softmax(dim=-2)"),
}


@pytest.mark.parametrize("mystery", MYSTERIES)
def test_mystery_is_found_from_the_screen_alone(mystery: str, your_code: Panel) -> None:
    check, variable, cell, line = MYSTERIES[mystery]
    your_code.explorable.choose("function", mystery)
    failing = your_code.root.locator('.attnlab-check[data-holds="false"]')
    expect(failing).to_have_text(re.compile(rf"^✗ fails {re.escape(check)} · "))
    named(your_code, variable).locator(".attnlab-cell").nth(cell).click()
    expect(your_code.ran).to_contain_text(line)
    expect(your_code.file).to_have_text(re.compile(r"^attnlab/engine/mistakes\.py:\d+$"))
    expect(your_code.title).to_have_text(re.compile(rf"^This number: {variable}\[batch 0, "))
    assert your_code.words()
    operands = your_code.marked("operand")
    assert operands
    if mystery == "mystery 3":  # two numbers of q and two of k: that is d, and the root is of 4
        assert [stage.split("#")[0] for stage, _ in operands] == ["q", "q", "k", "k"]
    if mystery == "mystery 2":  # row 1 of merged holds numbers of another position
        stage, flat = operands[0]
        assert stage.startswith("heads#")
        assert flat // 2 % 3 != 1


def test_right_one_holds_and_its_first_row_sees_no_future(your_code: Panel) -> None:
    your_code.explorable.choose("function", "the right one")
    expect(your_code.root.locator('.attnlab-check[data-holds="true"]')).to_have_count(3)
    expect(your_code.root.locator('.attnlab-check[data-holds="false"]')).to_have_count(0)
    your_code.explorable.set_switch("gradient", True)
    named(your_code, "merged").locator(".attnlab-cell").nth(1).click()
    x = your_code.explorable.stage("x")
    has_gradient(x.locator(".attnlab-cell").nth(4), "0")
    found = your_code.gradients(x)
    assert found[4:] == ["0"] * 8
    assert any(slope != "0" for slope in found[:4])


def test_an_input_is_edited_and_the_panel_follows(your_code: Panel) -> None:
    named(your_code, "weights").locator(".attnlab-cell").nth(0).click()
    before = your_code.words()
    your_code.explorable.cell("x", 0).focus()
    your_code.explorable.page.keyboard.press("Alt+ArrowRight")
    your_code.explorable.shows_cell("x", 0, "1.1000")
    named(your_code, "qkv").locator(".attnlab-cell").nth(0).click()
    expect(your_code.math).not_to_have_attribute("aria-label", before)
    your_code.explorable.press("undo")
    your_code.explorable.shows_cell("x", 0, "1.0000")


def resize(explorable: ExplorablePage, width: int) -> None:
    explorable.page.set_viewport_size({"width": width, "height": 1000})
    explorable.page.wait_for_function("(width) => innerWidth === width", arg=width)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_look_of_the_page_of_mistakes(scheme: str, your_code: Panel) -> None:
    explorable, page = your_code.explorable, your_code.explorable.page
    explorable.choose("function", "mystery 2")
    merged = named(your_code, "merged").locator(".attnlab-cell").nth(4)
    merged.click()
    expect(your_code.ran).to_contain_text("reshape")
    page.mouse.move(0, 0)
    theme(page, scheme)
    picture(explorable.root, f"your-code-{scheme}-1440")
    explorable.set_switch("gradient", True)
    has_gradient(merged, "1.000")
    audit(page)
    for width in (360, 800, 1440):
        resize(explorable, width)
        fits(page)
        picture(explorable.root, f"your-code-gradient-{scheme}-{width}")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_look_of_the_open_panel(scheme: str, panel: Panel) -> None:
    explorable, page = panel.explorable, panel.explorable.page
    try:
        theme(page, scheme)
        explorable.set_switch("gradient", True)
        for stage, flat in (("q", 0), ("weights", 4)):
            explorable.cell(stage, flat).click()
            expect(panel.title).to_have_text(title(stage, flat))
            has_gradient(explorable.cell(stage, flat), "1.000")
            audit(page)
            page.mouse.move(0, 0)
            for width in (360, 1440):
                resize(explorable, width)
                fits(page)
                picture(explorable.root, f"panel-{stage}-{scheme}-{width}")
    finally:
        resize(explorable, 1440)
        page.emulate_media(color_scheme="light")


def test_link_cannot_run_anything(visits: Visits, pages: Server) -> None:
    page = visits.open(f"{pages.url}your-code?function=__import__('os').system('id')").page
    explorable = ExplorablePage(page, "voila").wait_drawn()
    expect(explorable.message).to_contain_text(
        "The link's function was not used: expected one of the right one"
    )
    expect(explorable.control("function")).to_have_value("mystery 1")
