"""Input that can't be used: the message says what and where, the last good result stays, nothing is lost."""

import pytest
from playwright.sync_api import expect

from helpers.explorable_page import ExplorablePage

COMPUTED = ("scores", "scaled", "masked", "weights", "output")
Q = [["1.0000", "0"], ["0", "1.0000"], ["1.0000", "1.0000"]]

# What is written into the text of Q, and what the message must say of it.
BAD_MATRICES = {
    "ragged rows": ("1 2\n3 4 5\n6 7", ("Q row 2 has 3 numbers", "rows 1 and 3 have 2")),
    "nothing": ("", ("Q is empty",)),
    "a word": ("1 0\n0 zero\n1 1", ("Q row 2, column 2", "'zero'")),
    "not a number": ("1 0\n0 1\nnan 1", ("Q row 3, column 1", "'nan'")),
    "infinity": ("1 0\n-inf 1\n1 1", ("Q row 2, column 1", "'-inf'")),
    "beyond float64": ("1 0\n0 1e400\n1 1", ("Q row 2, column 2", "'1e400'")),
    "10,000 digits": ("1 0\n0 " + "9" * 10_000, ("Q row 2, column 2", "10,000 characters")),
    "beyond the limit": ("1 0\n0 1\n1 100.5", ("Q row 3, column 2", "−100 to 100", "'100.5'")),
    "too many rows": ("1 1\n" * 17, ("Q", "1 to 16 rows", "17")),
    "an empty spreadsheet cell": ("1\t\n0\t1", ("Q row 1, column 2 is empty",)),
    "code": ("__import__('os').getcwd()", ("Q row 1, column 1", "expected a number")),
    "markup": ("<img src=x onerror=alert(1)>", ("Q row 1, column 1", "<img")),
}


def computed(explorable: ExplorablePage) -> dict[str, list[list[str]]]:
    return {name: explorable.texts(name) for name in COMPUTED}


def test_bad_matrix_is_named_and_changes_no_number(explorable: ExplorablePage) -> None:
    before, inputs = computed(explorable), explorable.texts("q")
    box = explorable.text_box("q")
    for what, (text, words) in BAD_MATRICES.items():
        explorable.apply_text("q", text)
        explorable.is_invalid(*words, "last good result")
        assert computed(explorable) == before, what
        assert explorable.texts("q") == inputs, what
        expect(explorable.view).to_contain_class("attnlab-stale")
        expect(box).to_have_value(text)
        expect(box).to_have_attribute("aria-invalid", "true")
        described = box.get_attribute("aria-describedby")
        assert explorable.message.get_attribute("id") == described
        box.focus()
        box.press("Escape")
        explorable.is_ready()
        expect(box).to_have_value("1 0\n0 1\n1 1")
    assert explorable.root.locator("img").count() == 0
    explorable.apply_text("q", "2 0\n0 1\n1 1")
    explorable.shows_cell("scores", 0, "2.0000")


def test_bad_text_can_be_mended_where_it_stands(explorable: ExplorablePage) -> None:
    box = explorable.text_box("v")
    explorable.apply_text("v", "1 2\n3 4\n5")
    explorable.is_invalid("V row 3 has 1 number; rows 1 and 2 have 2")
    box.press("Control+End")
    explorable.page.keyboard.type(" 6")
    box.press("Control+Enter")
    explorable.shows("v", [["1.0000", "2.0000"], ["3.0000", "4.0000"], ["5.0000", "6.0000"]])
    explorable.is_ready()
    expect(box).not_to_have_attribute("aria-invalid", "true")


@pytest.mark.parametrize(
    ("typed", "words"),
    [("1e400", ("Q[query 1, dₖ 0]", "−100 to 100", "'1e400'")), ("", ("Q[query 1, dₖ 0] is empty",))],
    ids=["beyond float64", "cleared"],
)
def test_bad_number_stays_in_its_cell_until_it_is_mended(
    explorable: ExplorablePage, typed: str, words: tuple[str, ...]
) -> None:
    before = computed(explorable)
    cell = explorable.focus("q", 2)
    explorable.page.keyboard.press("Delete")
    explorable.page.keyboard.type(typed)
    explorable.page.keyboard.press("Enter")
    explorable.is_invalid(*words)
    editor = cell.locator("input")
    expect(editor).to_have_value(typed)
    expect(editor).to_have_attribute("aria-invalid", "true")
    expect(editor).to_be_focused()
    assert computed(explorable) == before
    explorable.page.keyboard.press("Control+a")
    explorable.page.keyboard.type("4")
    explorable.page.keyboard.press("Enter")
    explorable.shows_cell("scores", 3, "4.0000")
    explorable.is_ready()
    expect(cell).to_be_focused()


def test_escape_after_a_refusal_gives_it_up(explorable: ExplorablePage) -> None:
    explorable.type_into("q", 2, "nan")
    explorable.is_invalid("'nan'")
    explorable.page.keyboard.press("Escape")
    explorable.is_ready()
    assert explorable.texts("q") == Q
    expect(explorable.cell("q", 2)).to_be_focused()


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("k", "1 2 3\n4 5 6\n7 8 9", ("Q and K", "2 numbers in a row of Q", "3 in a row of K")),
        ("v", "1 2\n3 4", ("K and V", "3", "2")),
    ],
    ids=["width of Q and K", "length of K and V"],
)
def test_matrices_that_do_not_fit_keep_the_last_result(
    explorable: ExplorablePage, name: str, text: str, words: tuple[str, ...]
) -> None:
    before = computed(explorable)
    explorable.paste(name, text)
    explorable.is_invalid(*words, "last good result")
    # The input is what was pasted, as it may be the first of two that change together.
    assert explorable.numbers(name) == [[float(x) for x in row.split()] for row in text.split("\n")]
    assert computed(explorable) == before
    expect(explorable.view).to_contain_class("attnlab-stale")
    expect(explorable.cell(name, 0)).to_contain_class("attnlab-wrong")
    explorable.press("undo")
    explorable.is_ready()
    expect(explorable.view).not_to_contain_class("attnlab-stale")
    assert computed(explorable) == before


def test_causal_mask_of_unequal_lengths_says_its_alignment(explorable: ExplorablePage) -> None:
    explorable.choose_preset("cross lengths")
    explorable.set_switch("causal", True)
    expect(explorable.message).to_have_text(
        "Causal mask with 2 queries, 5 keys, offset 3: "
        "3 keys precede the first query, so query 0 may read keys 0 to 3."
    )
    assert [row.count("masked") for row in explorable.looks("weights")] == [1, 0]
    explorable.set_switch("causal", False)
    expect(explorable.message).to_have_text("")
