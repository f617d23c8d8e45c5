"""The state of an explorable travels: in the address, by a link, as Python, as numbers, as a picture."""

import re
from collections.abc import Callable
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest
import torch
from playwright.sync_api import expect

from attnlab.widgets import AttentionExplorable
from helpers.explorable_page import ExplorablePage, number
from helpers.servers import Server
from helpers.visits import Visits


def change_everything(explorable: ExplorablePage) -> dict[str, object]:
    """A state in which nothing is as it was first; returns what it shows."""
    explorable.choose_preset("plain dot product")
    explorable.paste("v", "[[0.1, -2, 3], [1e-9, 5, 6], [7, 8, -0.125]]")
    explorable.type_into("q", 2, "-0.3")
    explorable.set_switch("scale", True)
    explorable.press("query-more")
    explorable.choose("dtype", "float32")
    explorable.move("decimals", 6)
    explorable.step(4)
    explorable.shows_cell("output", 0, "·")
    expect(explorable.root.locator(".attnlab-terms .attnlab-name")).to_have_text("Query 2, term by term")
    explorable.shows_cell("q", 2, "−0.300000")
    explorable.shows_cell("scaled", 3, "−0.212132")
    explorable.cell("scaled", 3).click()
    expect(explorable.root.locator(".attnlab-formula")).to_be_visible()
    return explorable.everything()


def shows(explorable: ExplorablePage, state: dict[str, object]) -> None:
    """Waits until an explorable shows exactly this state."""
    expect(explorable.control("decimals")).to_have_text(str(state["decimals"]))
    expect(explorable.control("dtype")).to_have_value(str(state["dtype"]))
    assert explorable.everything() == state


def test_copied_link_opens_the_same_state_for_somebody_else(
    page_explorable: ExplorablePage, visits: Visits, pages: Server
) -> None:
    state = change_everything(page_explorable)
    link = page_explorable.copied(lambda: page_explorable.press("link"))
    expect(page_explorable.root.locator(".attnlab-said")).to_have_text("Link copied")
    assert link.startswith(f"{pages.url}attention?")
    assert sorted(parse_qs(urlsplit(link).query)) == sorted(
        ["preset", "q", "v", "scale", "query", "dtype", "decimals", "step", "chosen"]
    )
    expect(page_explorable.page).to_have_url(link)
    other = ExplorablePage(visits.open(link).page, "voila").wait_drawn()
    shows(other, state)
    other.press("undo")  # a link is the beginning of a history, not a step in it
    expect(other.control("undo")).to_have_attribute("aria-disabled", "true")
    shows(other, state)


@pytest.mark.parametrize("opened", ["lab"], indirect=True)
def test_copied_link_of_a_notebook_opens_the_notebook_in_that_state(
    explorable: ExplorablePage, open_notebook: Callable[[str], ExplorablePage], lab: Server
) -> None:
    address = explorable.page.url
    state = change_everything(explorable)
    link = explorable.copied(lambda: explorable.press("link"))
    assert link.startswith(f"{lab.url}lab/tree/01-attention.ipynb?")
    assert explorable.page.url == address  # JupyterLab's address is its own
    explorable.choose_preset("two keys")
    explorable.type_into("q", 0, "7")
    explorable.shows_cell("q", 0, "7.000000")
    kept = explorable.everything()
    # Another window of the same notebook has the same kernel: what runs there is not the link's to change.
    shows(open_notebook(link), state)
    for typed in ("8", "7"):  # answered after whatever the other window has sent
        explorable.type_into("q", 0, typed)
        explorable.shows_cell("q", 0, f"{typed}.000000")
    assert explorable.everything() == kept


def test_copied_python_makes_the_same_explorable(explorable: ExplorablePage) -> None:
    change_everything(explorable)
    code = explorable.copied(lambda: explorable.export("python"))
    made = eval(code, {"AttentionExplorable": AttentionExplorable})
    assert [[number(text) for text in row] for row in explorable.texts("q")] == made.q.tolist()
    assert (made.preset, made.scale, made.causal) == ("plain dot product", True, False)
    assert (made.query, made.step, made.decimals, made.dtype) == (2, 4, 6, "float32")
    assert made.v[1, 0].item() == 1e-9
    made.close()


def test_copied_numbers_have_all_their_digits(explorable: ExplorablePage) -> None:
    text = explorable.copied(lambda: explorable.export("numbers"))
    blocks = dict(block.split("\n", 1) for block in text.split("\n\n"))
    assert list(blocks) == [
        "q · query 3 × d_k 2",
        "k · key 3 × d_k 2",
        "v · key 3 × d_v 2",
        "scores · query 3 × key 3",
        "scaled · query 3 × key 3",
        "masked · query 3 × key 3",
        "weights · query 3 × key 3",
        "output · query 3 × d_v 2",
    ]
    weights = [
        [float(cell) for cell in row.split("\t")] for row in blocks["weights · query 3 × key 3"].split("\n")
    ]
    scores = torch.tensor([[0, 1, -torch.inf]], dtype=torch.float64) / 2**0.5
    assert weights[1] == pytest.approx(scores.softmax(-1)[0].tolist(), rel=1e-15)
    assert weights[1] == [number(text) for text in explorable.exact_row("weights", 1)]


def test_picture_is_saved(explorable: ExplorablePage, tmp_path: Path) -> None:
    with explorable.page.expect_download() as download:
        explorable.export("svg")
    assert download.value.suggested_filename == "attention-weights.svg"
    saved = tmp_path / "weights.svg"
    download.value.save_as(saved)
    svg = saved.read_text(encoding="utf-8")
    assert svg.startswith("<svg")
    assert "0.3302" in svg
    assert not re.search(r"<script|<image", svg)


def test_reloading_twice_keeps_the_state_in_the_address(visits: Visits, pages: Server) -> None:
    page = visits.open(f"{pages.url}attention?preset=two%20keys&v=10;-20").page
    explorable = ExplorablePage(page, "voila").wait_drawn()
    explorable.shows("v", [["10.0000"], ["−20.0000"]])
    explorable.type_into("q", 0, "0.5")
    explorable.shows_cell("scores", 0, "0.5000")
    expect(page).to_have_url(re.compile("q=0.5,0"))
    state, address = explorable.everything(), page.url
    for _ in range(2):
        page.reload()
        explorable.wait_drawn()
        explorable.shows("v", [["10.0000"], ["−20.0000"]])
        shows(explorable, state)
        assert page.url == address


def test_visitors_with_different_links_get_each_their_own_state(visits: Visits, pages: Server) -> None:
    one = ExplorablePage(visits.open(f"{pages.url}attention?preset=two%20keys&scale=0").page, "voila")
    other = ExplorablePage(
        visits.open(f"{pages.url}attention?q=1,nan;0,1;1,1&causal=0&colour=red").page, "voila"
    )
    one.wait_drawn()
    other.wait_drawn()
    one.shows("weights", [["0.7311", "0.2689"]])
    # What can be used of a link is used, and the rest is named.
    other.is_invalid("The link's q was not used", "'nan'")
    expect(other.message).not_to_contain_text("last good result")
    expect(other.view).not_to_contain_class("attnlab-stale")
    other.shows_cell("weights", 5, "0.4011")
    other.type_into("k", 0, "9")
    other.shows_cell("scores", 0, "9.0000")
    other.is_ready()
    assert one.texts("k")[0] == ["1.0000", "0"]
    one.press("reset")
    one.shows("weights", [["0.6698", "0.3302"]])
    assert other.texts("k")[0] == ["9.0000", "0"]
