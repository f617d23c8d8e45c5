"""Every way to change a number, under both hosts: typed, dragged, stepped, pasted, resized, taken back."""

import re

import pytest
from playwright.sync_api import expect

from helpers.explorable_page import ExplorablePage

Q = [["1.0000", "0"], ["0", "1.0000"], ["1.0000", "1.0000"]]
SCORES = [["1.0000", "0", "1.0000"], ["0", "1.0000", "1.0000"], ["1.0000", "1.0000", "2.0000"]]
WEIGHTS = [["1.0000", "0", "0"], ["0.3302", "0.6698", "0"], ["0.2483", "0.2483", "0.5035"]]
OPEN = [["0.4011", "0.1978", "0.4011"], ["0.1978", "0.4011", "0.4011"], ["0.2483", "0.2483", "0.5035"]]
"""The weights of the first preset with the mask off: e^{1/√2} = 2.0281 against 1."""


def test_typed_number_is_kept_as_typed_and_everything_follows(explorable: ExplorablePage) -> None:
    explorable.type_into("q", 1, "7.77")
    explorable.shows("q", [["1.0000", "7.7700"], *Q[1:]])
    explorable.shows("scores", [["1.0000", "7.7700", "8.7700"], *SCORES[1:]])
    assert explorable.exact("q", 1) == "7.77"
    expect(explorable.cell("q", 1)).to_be_focused()
    expect(explorable.root.locator(".attnlab-input")).to_have_count(0)


def test_typing_begins_over_a_focused_cell_and_tab_goes_on_to_the_next(explorable: ExplorablePage) -> None:
    explorable.focus("k", 2)
    explorable.page.keyboard.type("-2")
    explorable.page.keyboard.press("Tab")
    explorable.shows_cell("k", 2, "−2.0000")
    expect(explorable.cell("k", 3)).to_be_focused()
    explorable.page.keyboard.press("Delete")
    expect(explorable.root.locator(".attnlab-input")).to_have_value("")
    explorable.page.keyboard.type("3e-1")
    explorable.page.keyboard.press("Shift+Tab")
    explorable.shows_cell("k", 3, "0.3000")
    expect(explorable.cell("k", 2)).to_be_focused()
    explorable.shows(
        "scores",
        [["1.0000", "−2.0000", "1.0000"], ["0", "0.3000", "1.0000"], ["1.0000", "−1.7000", "2.0000"]],
    )


def test_escape_gives_typing_up(explorable: ExplorablePage) -> None:
    explorable.focus("q", 0)
    explorable.page.keyboard.press("F2")
    editor = explorable.root.locator(".attnlab-input")
    expect(editor).to_have_value("1")
    explorable.page.keyboard.type("99")
    explorable.page.keyboard.press("Escape")
    expect(editor).to_have_count(0)
    expect(explorable.cell("q", 0)).to_be_focused()
    assert explorable.texts("q") == Q
    explorable.page.keyboard.press("Enter")
    expect(editor).to_be_focused()
    explorable.page.keyboard.press("Escape")
    expect(explorable.cell("q", 0)).to_be_focused()


def test_dragging_scrubs_a_number(explorable: ExplorablePage) -> None:
    explorable.scrub("k", 0, 40)
    explorable.shows_cell("k", 0, "2.0000")
    explorable.shows("scores", [["2.0000", "0", "1.0000"], SCORES[1], ["2.0000", "1.0000", "2.0000"]])
    explorable.scrub("k", 0, -60)
    explorable.shows_cell("k", 0, "0.5000")
    explorable.shows_cell("scores", 0, "0.5000")  # what is dragged shows at once, before Python has it
    explorable.press("undo")
    explorable.shows_cell("k", 0, "2.0000")
    explorable.press("undo")
    explorable.shows("scores", SCORES)


def test_click_without_movement_changes_nothing(explorable: ExplorablePage) -> None:
    explorable.focus("v", 3)
    expect(explorable.cell("v", 3)).to_have_attribute("aria-selected", "true")
    expect(explorable.told(chosen=True)).to_contain_text("V[key 1, dᵥ 1] = 1")
    expect(explorable.cell("v", 3)).to_have_text("1.0000")


def test_finger_scrubs_a_number(page_explorable: ExplorablePage) -> None:
    cell = page_explorable.cell("q", 0)
    cell.scroll_into_view_if_needed()
    box = cell.bounding_box()
    assert box
    session = page_explorable.page.context.new_cdp_session(page_explorable.page)
    session.send("Emulation.setTouchEmulationEnabled", {"enabled": True})
    x, y = box["x"] + 20, box["y"] + 10
    session.send("Input.dispatchTouchEvent", {"type": "touchStart", "touchPoints": [{"x": x, "y": y}]})
    for moved in (8, 20, 32):
        session.send(
            "Input.dispatchTouchEvent", {"type": "touchMove", "touchPoints": [{"x": x + moved, "y": y}]}
        )
    session.send("Input.dispatchTouchEvent", {"type": "touchEnd", "touchPoints": []})
    session.send("Emulation.setTouchEmulationEnabled", {"enabled": False})
    session.detach()
    page_explorable.shows_cell("q", 0, "1.8000")
    page_explorable.shows_cell("scores", 0, "1.8000")


def test_alt_and_arrows_step_a_number(explorable: ExplorablePage) -> None:
    explorable.focus("v", 0)
    for key, shown in (
        ("Alt+ArrowUp", "1.1000"),
        ("Alt+ArrowRight", "1.2000"),
        ("Alt+Shift+ArrowUp", "2.2000"),
        ("Alt+ArrowDown", "2.1000"),
        ("Alt+ArrowLeft", "2.0000"),
        ("PageUp", "3.0000"),
        ("PageDown", "2.0000"),
    ):
        explorable.page.keyboard.press(key)
        explorable.shows_cell("v", 0, shown)
    explorable.shows_cell("output", 0, "2.0000")
    assert explorable.exact("v", 0) == "2"  # no dust of binary fractions


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("2\t-1\n0.5\t3\n1e-8\t4", [["2.0000", "−1.0000"], ["0.5000", "3.0000"], ["1.0e−8", "4.0000"]]),
        ("[[1, 0], [0, 2.5],\n [7, 8]]", [["1.0000", "0"], ["0", "2.5000"], ["7.0000", "8.0000"]]),
    ],
    ids=["spreadsheet", "python"],
)
def test_matrix_is_pasted_over_a_grid(explorable: ExplorablePage, text: str, shown: list[list[str]]) -> None:
    explorable.focus("k", 0)
    explorable.page.evaluate("(text) => navigator.clipboard.writeText(text)", text)
    explorable.page.keyboard.press("Control+v")
    explorable.shows("k", shown)
    explorable.is_ready()
    explorable.shows(
        "scores", [[row[0] for row in shown], [row[1] for row in shown], explorable.texts("scores")[2]]
    )
    explorable.page.keyboard.press("Control+z")
    explorable.shows("k", Q)


def test_one_number_is_pasted_into_one_cell(explorable: ExplorablePage) -> None:
    explorable.focus("k", 3)
    explorable.paste("k", "−0.25", 3)
    explorable.shows("k", [Q[0], ["0", "−0.2500"], Q[2]])
    copied = explorable.copied(lambda: explorable.page.keyboard.press("Control+c"))
    assert copied == "-0.25"


def test_whole_matrix_is_written_as_text(explorable: ExplorablePage) -> None:
    box = explorable.text_box("v")
    expect(box).to_have_value("1 0\n0 1\n1 1")
    box.fill("1 2 3; 4 5 6; 7 8 9")
    box.press("Control+Enter")
    explorable.shows("v", [[f"{3 * i + j}.0000" for j in (1, 2, 3)] for i in range(3)])
    explorable.shows_cell("output", 2, "3.0000")
    expect(explorable.text_box("v")).to_have_value("1 2 3\n4 5 6\n7 8 9")


def test_scale_and_mask_are_switches(explorable: ExplorablePage) -> None:
    explorable.set_switch("causal", False)
    explorable.shows("weights", OPEN)
    explorable.set_switch("scale", False)
    explorable.shows_cell("weights", 3, "0.1554")
    explorable.shows("scaled", SCORES)
    expect(explorable.root.locator('.attnlab-operation[data-text="scale"]')).to_have_text("× 1")
    explorable.set_switch("causal", True)
    explorable.set_switch("scale", True)
    explorable.shows("weights", WEIGHTS)


def test_steps_hide_what_is_not_computed_yet(explorable: ExplorablePage) -> None:
    explorable.step(2)
    explorable.shows("weights", [["·"] * 3] * 3)
    assert explorable.looks("output") == [["unreached"] * 2] * 3
    assert explorable.texts("scaled")[0] == ["0.7071", "0", "0.7071"]
    assert explorable.cell("weights", 0).get_attribute("aria-label") == "not computed yet"
    expect(explorable.root.locator(".attnlab-check").first).to_have_attribute("data-holds", "unreached")
    explorable.step_input(2).press("ArrowRight")
    expect(explorable.step_input(3)).to_be_checked()
    explorable.shows(
        "masked", [["0.7071", "−∞", "−∞"], ["0", "0.7071", "−∞"], ["0.7071", "0.7071", "1.4142"]]
    )
    explorable.step(5)
    explorable.shows("weights", WEIGHTS)
    expect(explorable.root.locator('.attnlab-check[data-holds="true"]')).to_have_count(3)


def test_tracked_query_chooses_the_row_that_is_told_and_changes_no_number(explorable: ExplorablePage) -> None:
    table = explorable.root.locator(".attnlab-terms")
    before = explorable.everything()["stages"]
    explorable.press("query-more")
    expect(table.locator(".attnlab-name")).to_have_text("Query 2, term by term")
    expect(explorable.control("query")).to_have_text("2")
    expect(table.locator(".attnlab-total .attnlab-cell")).to_have_text(["1.0000", "0.7517", "0.7517"])
    assert explorable.everything()["stages"] == before
    expect(explorable.control("query-more")).to_have_attribute("aria-disabled", "true")
    explorable.press("query-more")
    explorable.press("query-less")
    expect(table.locator(".attnlab-name")).to_have_text("Query 1, term by term")
    tracked = explorable.stage("weights").locator("tr.attnlab-tracked th")
    expect(tracked).to_have_text("1")


def test_escape_takes_a_drag_back(explorable: ExplorablePage) -> None:
    explorable.type_into("q", 0, "5")
    explorable.shows_cell("scores", 0, "5.0000")
    x, y = explorable.grab("k", 0)
    explorable.page.mouse.move(x + 40, y)
    explorable.shows_cell("scores", 0, "10.0000")
    explorable.page.keyboard.press("Escape")
    explorable.shows_cell("scores", 0, "5.0000")
    explorable.page.mouse.move(x + 80, y)
    explorable.page.mouse.up()
    explorable.press("undo")  # the step before the drag, which left none
    explorable.shows("scores", SCORES)


def test_sizes_grow_and_shrink_together(explorable: ExplorablePage) -> None:
    explorable.resize("d_k", 1)
    explorable.shows("q", [["1.0000", "0", "0"], ["0", "1.0000", "0"], ["1.0000", "1.0000", "0"]])
    assert explorable.texts("k") == explorable.texts("q")
    expect(explorable.root.locator('.attnlab-operation[data-text="scale"]')).to_have_text("÷ √3")
    explorable.resize("key", 1)
    explorable.shows("v", [*Q, ["0", "0"]])
    expect(explorable.message).to_contain_text("3 queries, 4 keys, offset 1")
    explorable.resize("key", -1)
    explorable.resize("d_k", -1)
    explorable.shows("weights", WEIGHTS)
    explorable.resize("query", -1)
    explorable.shows("q", Q[:2])
    explorable.resize("query", -1)
    explorable.shows("q", Q[:1])
    expect(explorable.resize("query", -1)).to_have_attribute("aria-disabled", "true")
    expect(explorable.control("query")).to_have_text("0")


def test_press_on_a_size_outlives_grids_that_are_built_anew(explorable: ExplorablePage) -> None:
    keys, queries = (explorable.stage(name).locator(".attnlab-cell") for name in ("k", "q"))
    explorable.size_button("key", 1).hover()
    explorable.page.mouse.down()
    explorable.size_button("query", -1).evaluate("(button) => button.click()")
    expect(queries).to_have_count(2 * 2)
    explorable.page.mouse.up()
    expect(keys).to_have_count(2 * 4)


def test_keyboard_stays_on_a_size(explorable: ExplorablePage) -> None:
    keys = explorable.stage("k").locator(".attnlab-cell")
    more = explorable.size_button("key", 1)
    more.focus()
    for count in (4, 5, 6):
        explorable.page.keyboard.press("Enter")
        expect(keys).to_have_count(2 * count)
    expect(more).to_be_focused()


def test_undo_and_redo_by_button_and_by_key(explorable: ExplorablePage) -> None:
    explorable.type_into("q", 0, "5")
    explorable.shows_cell("scores", 0, "5.0000")
    explorable.set_switch("causal", False)
    explorable.shows_cell("weights", 5, "0.4011")
    explorable.press("undo")
    explorable.shows_cell("weights", 5, "0")
    explorable.press("undo")
    explorable.shows("scores", SCORES)
    explorable.press("redo")
    explorable.shows_cell("scores", 0, "5.0000")
    explorable.focus("q", 0)
    explorable.page.keyboard.press("Control+z")
    explorable.shows("scores", SCORES)
    explorable.page.keyboard.press("Control+Shift+z")
    explorable.shows_cell("scores", 0, "5.0000")
    explorable.page.keyboard.press("Control+y")
    explorable.shows_cell("weights", 5, "0.4011")
    expect(explorable.cell("q", 0)).to_be_focused()


def test_no_press_is_lost_while_its_answer_is_on_its_way(explorable: ExplorablePage) -> None:
    for text in ("5", "6", "7", "8"):
        explorable.type_into("q", 0, text)
        explorable.shows_cell("scores", 0, f"{text}.0000")
    # At once, before anything is answered: redo still looks switched off.
    explorable.root.evaluate(
        """(root) => {
          const press = (name) => root.querySelector(`[data-name=${name}]`).click();
          ["undo", "undo", "undo", "undo", "redo"].forEach(press);
        }"""
    )
    explorable.shows_cell("scores", 0, "5.0000")
    expect(explorable.control("redo")).to_have_attribute("aria-disabled", "false")


def test_keyboard_stays_on_a_button_at_the_end_of_the_history(explorable: ExplorablePage) -> None:
    explorable.type_into("q", 0, "5")
    explorable.shows_cell("scores", 0, "5.0000")
    undo, redo = explorable.control("undo"), explorable.control("redo")
    undo.focus()
    undo.press("Enter")
    explorable.shows("scores", SCORES)
    expect(undo).to_be_focused()
    redo.focus()
    redo.press("Enter")
    explorable.shows_cell("scores", 0, "5.0000")
    expect(redo).to_have_attribute("aria-disabled", "true")
    expect(redo).to_be_focused()
    redo.press("Enter")
    expect(redo).to_be_focused()
    assert explorable.texts("scores")[0][0] == "5.0000"


def test_reset_and_preset(explorable: ExplorablePage) -> None:
    note = explorable.note()
    explorable.set_switch("scale", False)
    explorable.type_into("v", 0, "-3")
    explorable.shows_cell("output", 0, "−3.0000")
    expect(note).to_have_text("edited")
    explorable.press("reset")
    explorable.shows("weights", WEIGHTS)
    explorable.shows("v", Q)
    expect(explorable.control("scale")).to_be_checked()
    expect(note).to_have_text("")
    explorable.choose_preset("plain dot product")
    explorable.shows_cell("weights", 3, "0.1554")
    expect(explorable.control("causal")).not_to_be_checked()
    explorable.press("undo")
    explorable.shows("weights", WEIGHTS)
    expect(explorable.control("preset")).to_have_value("three positions, causal")


def test_digits_and_number_format_are_choices(explorable: ExplorablePage) -> None:
    explorable.move("decimals", 8)
    explorable.shows_cell("weights", 3, "0.33023845")
    explorable.choose("dtype", "bfloat16")
    explorable.shows_cell("weights", 3, "0.33007813")
    explorable.choose("dtype", "float64")
    explorable.move("decimals", 2)
    explorable.shows_cell("weights", 3, "0.33")


def test_pointing_at_a_weight_lights_up_its_query_its_key_and_its_value(explorable: ExplorablePage) -> None:
    explorable.cell("weights", 5).hover()  # query 1, key 2
    expect(explorable.cell("weights", 5)).to_have_class(re.compile("attnlab-linked"))
    linked = explorable.linked()
    table = linked.pop("table")
    assert linked == {
        "q": [2, 3],
        "k": [4, 5],
        "v": [4, 5],
        "scores": [5],
        "scaled": [5],
        "masked": [5],
        "weights": [5],
        "output": [2, 3],
    }
    # The row of key 2 in the table of query 1: q·k, scaled, masked, weight, weight × value 0 and 1;
    # and the sums that it goes into, of the weights and of both columns of the output.
    assert table == [12, 13, 14, 15, 16, 17, 18, 19, 20]
    expect(explorable.readout).to_have_text("weights[query 1, key 2] = 0 · masked")
    explorable.cell("q", 0).hover()  # query 0, d_k 0: every column of query 0, and the keys' column 0
    expect(explorable.cell("scores", 0)).to_have_class(re.compile("attnlab-linked"))
    linked = explorable.linked()
    assert "table" not in linked  # which tells of query 1
    assert linked == {
        "q": [0],
        "k": [0, 2, 4],
        "scores": [0, 1, 2],
        "scaled": [0, 1, 2],
        "masked": [0, 1, 2],
        "weights": [0, 1, 2],
        "output": [0, 1],
    }
