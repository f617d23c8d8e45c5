"""The numbers that each page must teach, read back from its screen."""

import re
from collections.abc import Iterator

import pytest
import torch
import torch.nn.functional as F
from playwright.sync_api import Browser, expect

from helpers.explorable_page import ExplorablePage
from helpers.servers import Server
from helpers.visits import Visits


@pytest.fixture(scope="module")
def _visits(browser: Browser) -> Iterator[Visits]:
    visits = Visits(browser)
    yield visits
    faults = [fault for visit in visits.opened for fault in visit.watch.take()]
    visits.close()
    assert not faults


@pytest.fixture(scope="module")
def at(pages: Server, _visits: Visits) -> "At":
    return At(pages, _visits)


class At:
    """Opens each page once."""

    def __init__(self, pages: Server, visits: Visits) -> None:
        self._pages, self._visits = pages, visits
        self._open: dict[str, ExplorablePage] = {}

    def __call__(self, name: str) -> ExplorablePage:
        if name not in self._open:
            page = self._visits.open(self._pages.url + name).page
            self._open[name] = ExplorablePage(page, "voila").wait_drawn()
        return self._open[name]


def choose(explorable: ExplorablePage, preset: str) -> ExplorablePage:
    explorable.choose("preset", preset)
    expect(explorable.control("preset")).to_have_value(preset)
    expect(explorable.note()).to_have_text("")
    explorable.is_ready()
    return explorable


def checks(explorable: ExplorablePage, holds: bool) -> list[str]:
    return explorable.root.locator(f'.attnlab-check[data-holds="{str(holds).lower()}"]').all_inner_texts()


def table(explorable: ExplorablePage) -> dict[str, list[str]]:
    """Rows of the table by their label."""
    rows = explorable.written().root.locator(".attnlab-terms tbody tr").all()
    found = {}
    for row in rows:
        label = row.locator("th").inner_text().strip("▸ \n")
        found[label] = row.locator("td").all_inner_texts()
    return found


# ---------------------------------------------------------------- attention


def test_softmax_over_columns(at: At) -> None:
    attention = at("attention?q=1,0;0,1&k=1,3;2,4&v=1,0;0,1&scale=0&causal=0&columns=1")
    attention.shows("scores", [["1.0000", "2.0000"], ["3.0000", "4.0000"]])
    attention.shows("weights", [["0.2689", "0.7311"]] * 2)
    attention.shows("column_weights", [["0.1192"] * 2, ["0.8808"] * 2])
    assert checks(attention, False)[0].startswith("✗ fails mistake, softmax over columns: row sums 1")


# ---------------------------------------------------------------- dropout


def test_all_masks_of_the_default_row(at: At) -> None:
    dropout = choose(at("dropout"), "two, three and five tenths")
    rows = table(dropout)
    assert list(rows) == ["000", "001", "010", "011", "100", "101", "110", "111"]
    sums = {mask: float(cells[-1]) for mask, cells in rows.items()}
    assert sums == {"000": 0, "001": 1, "010": 0.6, "011": 1.6, "100": 0.4, "101": 1.4, "110": 1, "111": 2}
    assert {cells[3] for cells in rows.values()} == {"0.1250"}
    dropout.shows("row_sum", [["1.4000"]])
    dropout.shows("expected", [["0.2000", "0.3000", "0.5000"]])


def test_masks_at_a_smaller_p(at: At) -> None:
    dropout = choose(at("dropout"), "two, three and five tenths")
    dropout.scrub("weights", 2, 200)  # by hand no further than a weight can be
    dropout.shows_cell("weights", 2, "1.0000")
    dropout.is_invalid("expected a sum of 1", "“divide by the sum” makes it 1.")
    dropout.press("normalise")
    dropout.shows_cell("weights", 2, "0.6667")
    dropout.set_switch("training", False)
    dropout.shows("keep_used", [["1", "1", "1"]])
    dropout = choose(at("dropout"), "a smaller p")
    dropout.shows("row_sum", [["1.2500"]])
    dropout.shows("probability", [["0.5120"]])
    rows = table(dropout)
    assert (float(rows["011"][-1]), rows["011"][3]) == (1.0, "0.1280")
    assert float(rows["101"][-1]) == 0.875
    assert (rows["000"][-1], rows["000"][3]) == ("0", "0.0080")


def test_masks_are_walked_sorted_and_clicked(at: At) -> None:
    dropout = choose(at("dropout"), "two, three and five tenths")
    dropout.press("next_mask")
    dropout.shows("keep", [["1", "1", "0"]])
    dropout.shows("row_sum", [["1.0000"]])
    dropout.cell("keep", 2).focus()
    dropout.page.keyboard.press("Space")
    dropout.shows("row_sum", [["2.0000"]])
    dropout.root.get_by_role("button", name="row sum").click()
    assert next(iter(table(dropout))) == "111"
    dropout.root.get_by_role("button", name="row sum").click()
    assert next(iter(table(dropout))) == "000"
    expect(dropout.root.locator('[aria-sort="ascending"]')).to_have_text("row sum")
    # The order follows the numbers, and the keyboard stays on its number.
    masks = dropout.root.locator(".attnlab-terms tbody th")
    expect(masks.nth(1)).to_contain_text("100")
    dropout.paste("weights", "0.5 0.3 0.2")
    expect(masks.nth(1)).to_contain_text("001")
    dropout.root.locator(".attnlab-terms tbody tr").nth(1).locator("td").last.focus()
    dropout.page.keyboard.press("Control+z")
    expect(masks.nth(1)).to_contain_text("100")
    held = dropout.page.evaluate("document.activeElement.closest('tr').querySelector('th').innerText")
    assert "001" in held
    dropout.root.get_by_role("button", name="keep 0").click()


def test_many_draws_close_in_on_the_expectation(at: At) -> None:
    dropout = choose(at("dropout"), "two, three and five tenths")
    dropout.press("draw_10000")
    expect(dropout.root.locator(".attnlab-operation", has_text="10,000 drawn")).to_be_visible()
    assert not checks(dropout, False)
    assert any("standard errors away" in text for text in checks(dropout, True))
    means = dropout.numbers("mean")[0]
    assert all(abs((m or 0) - w) < 0.05 for m, w in zip(means, (0.2, 0.3, 0.5), strict=True))
    expect(dropout.root.locator('[data-plot="means"] [role="img"]:visible')).to_have_attribute(
        "aria-label", re.compile("10,000")
    )
    dropout.press("undo")
    expect(dropout.root.locator('[data-plot="means"]')).to_have_count(0)


def test_p_of_one_is_refused_with_the_reason(at: At) -> None:
    dropout = choose(at("dropout"), "two, three and five tenths")
    dropout.enter("p-shown", "1")
    dropout.is_invalid("1 − p", "has no value", "PyTorch itself accepts")
    dropout.shows("row_sum", [["1.4000"]])
    dropout.press("reset")
    dropout.is_ready()


def test_evaluation_moves_nothing(at: At) -> None:
    dropout = choose(at("dropout"), "two, three and five tenths")
    dropout.set_switch("training", False)
    dropout.shows("dropped", [["0.2000", "0.3000", "0.5000"]])
    assert any("all runs give the same numbers" in text for text in checks(dropout, True))
    assert not checks(dropout, False)
    dropout.press("reset")


@pytest.mark.parametrize(
    ("mistake", "p", "claim"),
    [
        ("1/p instead of 1/(1 − p)", "0.2", "expectation is the row itself"),
        ("dropout before softmax", "0.5", "dropped and masked weights exactly 0"),
        ("no_grad instead of eval()", "0.5", "all runs give the same numbers"),
        ("p left on in evaluation", "0.5", "all runs give the same numbers"),
    ],
)
def test_mistakes_of_dropout_fail_their_check(mistake: str, p: str, claim: str, at: At) -> None:
    dropout = choose(at("dropout"), "two, three and five tenths")
    dropout.enter("p-shown", p)
    dropout.choose("mistake", mistake)
    expect(dropout.root.locator('.attnlab-check[data-holds="false"]')).to_contain_text([f"mistake: {claim}"])
    assert any(f"right way: {claim}" in text for text in checks(dropout, True))
    dropout.press("reset")
    dropout.is_ready()


def test_inside_attention_masked_weights_stay_zero(at: At) -> None:
    dropout = choose(at("dropout"), "inside attention")
    expect(dropout.stage("attention_dropped").locator(".attnlab-cell")).to_have_count(9)
    for _ in range(3):
        dropout.press("draw_1")
        dropout.is_ready()
        weights = dropout.texts("attention_dropped")
        assert [weights[0][1], weights[0][2], weights[1][2]] == ["0"] * 3
    assert any("weights of 0 stay 0" in text for text in checks(dropout, True))
    dropout.set_switch("training", False)
    dropout.shows("output", dropout.texts("output_without"))
    dropout.press("reset")


# ---------------------------------------------------------------- scaling


@pytest.mark.parametrize(("d_k", "low", "high"), [(4, 3, 5), (64, 52, 76), (1024, 800, 1250)])
def test_variance_is_the_width_and_one_when_scaled(d_k: int, low: float, high: float, at: At) -> None:
    scaling = choose(at("scaling"), "a head of 64")
    slider = scaling.control("d_k")
    slider.focus()
    slider.press("Home")
    for _ in range(d_k.bit_length() - 1):
        slider.press("ArrowRight")
    expect(scaling.control("d_k-shown")).to_have_text(str(d_k))
    expect(slider).to_have_attribute("aria-valuetext", str(d_k))
    expect(scaling.root.locator('[data-plot="scores"] [role="img"]:visible')).to_have_attribute(
        "aria-label", re.compile(f"width {d_k}:"), timeout=15_000
    )
    raw, scaled = scaling.numbers("variance_raw")[0][0], scaling.numbers("variance_scaled")[0][0]
    assert raw
    assert scaled
    assert low < raw < high
    assert 0.8 < scaled < 1.25
    assert not checks(scaling, False)


def test_the_head_s_width_belongs_under_the_root(at: At) -> None:
    scaling = choose(at("scaling"), "a head of 64")
    scaling.shows("weights_by_head", [["0.8808", "0.1192"]])
    scaling.shows("weights_by_model", [["0.7311", "0.2689"]])
    scaling.set_switch("model_width", True)
    expect(scaling.root.locator('.attnlab-check[data-holds="false"]')).to_contain_text(["scaled scores is 1"])
    scaling.press("reset")


def test_correlated_components_break_the_claim(at: At) -> None:
    scaling = choose(at("scaling"), "components that agree")
    expect(scaling.root.locator('.attnlab-check[data-holds="false"]')).to_have_count(2)
    assert any("(dₖ − 1)ρ²" in text for text in checks(scaling, True))


# ---------------------------------------------------------------- heads


def tagged(explorable: ExplorablePage, tag: str = "first") -> dict[str, int]:
    """Stage → place of the cell with this tag, counted over all facets."""
    found: dict[str, int] = explorable.root.evaluate(
        """(root, tag) => Object.fromEntries([...root.querySelectorAll(".attnlab-stage")].flatMap((stage) =>
          [...stage.querySelectorAll(".attnlab-cell")].flatMap((cell, i) =>
            (cell.dataset.tag ?? "").split(" ").includes(tag) ? [[stage.dataset.stage, i]] : [])))""",
        tag,
    )
    return found


def test_element_2_goes_its_way(at: At) -> None:
    heads = choose(at("heads"), "3 positions, 2 heads")
    expect(heads.cell("projected", 2)).to_have_attribute("data-tag", "first")
    assert tagged(heads) == {"projected": 2, "grouped": 2, "heads": 6, "back": 2, "merged": 2}
    expect(heads.root.locator(".attnlab-trail path")).to_have_count(4)  # drawn with the next frame
    heads.choose("mistake", "merge without transposing back")
    expect(heads.root.locator('[data-text="mistake"]')).to_contain_text("2 lands at (0, 1, 2)")
    heads.move("element", 6)
    expect(heads.root.locator('[data-text="mistake"]')).to_contain_text("6 lands at (0, 2, 0)")
    assert tagged(heads, "wrong")["wrong_merged"] == 8
    heads.press("reset")


def test_element_45_of_four_heads(at: At) -> None:
    heads = choose(at("heads"), "2 sequences, 4 heads")
    way = heads.root.locator('[data-text="way"]')
    expect(way).to_contain_text("heads (batch 1, head 2, time 2, r 1)")
    heads.choose("mistake", "split by reshape alone")
    expect(heads.root.locator('[data-text="mistake"]')).to_contain_text("45 lands at (1, 3, 1, 1)")
    heads.press("reset")


def test_shapes_of_three_heads(visits: Visits, pages: Server) -> None:
    address = f"{pages.url}heads?batch=2&time=5&width=24&heads=3"
    heads = ExplorablePage(visits.open(address).page, "voila").wait_drawn()
    for stage, shape in {
        "projected": "batch 2 × time 5 × width 24",
        "grouped": "batch 2 × time 5 × head 3 × d_head 8",
        "heads": "batch 2 × head 3 × time 5 × d_head 8",
        "merged": "batch 2 × time 5 × width 24",
    }.items():
        expect(heads.stage(stage).locator(".attnlab-shape")).to_have_text(shape)
    heads.is_ready()


def test_attention_in_three_heads(at: At) -> None:
    heads = choose(at("heads"), "attention, 3 heads of width 8")
    for stage, shape in {
        "x": "batch 2 × time 5 × width 24",
        "q_heads": "batch 2 × head 3 × query 5 × dₖ 8",
        "weights": "batch 2 × head 3 × query 5 × key 5",
        "output": "batch 2 × query 5 × width 24",
    }.items():
        expect(heads.stage(stage).locator(".attnlab-shape")).to_have_text(shape)
    heads.is_ready()
    x = torch.tensor(heads.numbers("x"), dtype=torch.float64).reshape(2, 5, 24)
    split = x.reshape(2, 5, 3, 8).transpose(1, 2)
    own = F.scaled_dot_product_attention(split, split, split, is_causal=True)
    shown = torch.tensor(heads.numbers("output"), dtype=torch.float64).reshape(2, 5, 24)
    torch.testing.assert_close(shown, own.transpose(1, 2).reshape(2, 5, 24), rtol=0, atol=5.001e-5)


@pytest.mark.parametrize("preset", ["one head: the mistake hides", "one position: it hides too"])
def test_the_mistake_hides(preset: str, at: At) -> None:
    heads = choose(at("heads"), preset)
    expect(heads.root.locator('[data-text="mistake"]')).to_contain_text("nothing is misplaced")
    assert not checks(heads, False)


def test_curves_follow_the_window(at: At) -> None:
    heads = choose(at("heads"), "2 sequences, 4 heads")
    try:
        for width in (360, 800, 1440):
            heads.page.set_viewport_size({"width": width, "height": 1000})
            heads.page.wait_for_function(
                """([root]) => {
                  const box = (e) => e.getBoundingClientRect();
                  const cells = [...root.querySelectorAll('[data-tag="first"]')].filter((c) => {
                    const frame = box(c.closest(".attnlab-scroll"));
                    return box(c).right > frame.left + 1 && box(c).left < frame.right - 1;
                  });
                  const paths = [...root.querySelectorAll(".attnlab-trail path")];
                  if (paths.length !== cells.length - 1) return false;
                  const at = root.querySelector(".attnlab-view").getBoundingClientRect();
                  return paths.every((path, i) => {
                    const end = path.getPointAtLength(path.getTotalLength());
                    const to = box(cells[i + 1]);
                    const x = end.x + at.x, y = end.y + at.y;
                    return x >= to.left - 2 && x <= to.right + 2 && y >= to.top - 2 && y <= to.bottom + 2;
                  });
                }""",
                arg=[heads.root.element_handle()],
            )
    finally:
        heads.page.set_viewport_size({"width": 1440, "height": 1000})


def test_any_number_of_any_stage_can_be_followed(at: At) -> None:
    heads = choose(at("heads"), "3 positions, 2 heads")
    for stage, flat in (("projected", 11), ("grouped", 5), ("heads", 0), ("back", 9), ("merged", 4)):
        cell = heads.cell(stage, flat)
        number = cell.inner_text()
        cell.click()
        expect(heads.control("element")).to_have_text(number)
        expect(cell).to_have_attribute("data-tag", "first")
    heads.press("element-more")
    expect(heads.cell("merged", 5)).to_have_attribute("data-tag", "first")
    expect(heads.cell("merged", 5)).to_have_attribute("aria-selected", "true")


# ---------------------------------------------------------------- memory


def test_operations_are_seen_whole(at: At) -> None:
    memory = choose(at("memory"), "view of transposed heads")
    fields = memory.root.locator(".attnlab-chain-item input")
    expect(fields).to_have_count(3)
    for field in fields.all():
        assert field.evaluate("(input) => input.scrollWidth <= input.clientWidth"), field.input_value()


@pytest.mark.parametrize(
    ("preset", "told"),
    [
        ("view of transposed heads", "refused by PyTorch: view size is not compatible"),
        ("reshape copies", "stage 3 · reshape(1,3,4) · a copy, in memory of its own"),
        ("one head", "view(1,3,2) · a view, in the memory of stage 0"),
        ("one position", "view(1,1,4) · a view, in the memory of stage 0"),
        ("heads of 2 · 3 · 2", "refused by PyTorch: view size is not compatible"),
        ("four heads, strides", "element 45 lies at offset 0 + 1·24 + 2·2 + 2·8 + 1·1 = 45"),
    ],
)
def test_torch_s_own_outcome(preset: str, told: str, at: At) -> None:
    memory = choose(at("memory"), preset)
    expect(memory.root.locator(".attnlab-told", has_text=told)).to_be_visible()
    if preset == "four heads, strides":
        expect(memory.root.locator(".attnlab-told", has_text="= 41")).to_be_visible()
    assert not checks(memory, False)


def test_writing_changes_those_who_share(at: At) -> None:
    memory = choose(at("memory"), "reshape copies")
    memory.set_switch("write", True)
    expect(memory.root.locator('[data-text="written"]')).to_have_text(
        "Writing into element 2 of stage 0 changes stage 0, stage 1 and stage 2, and not stage 3."
    )
    memory.set_switch("write", False)


def test_a_refused_operation_stays_to_be_mended(at: At) -> None:
    memory = choose(at("memory"), "view of transposed heads")
    field = memory.control("chain-1")
    memory.enter("chain-1", "exec(1)")
    memory.is_invalid("Operation 2", "exec")
    expect(field).to_have_value("exec(1)")
    expect(field).to_have_attribute("aria-invalid", "true")
    expect(memory.control("chain-0")).not_to_have_attribute("aria-invalid", "true")
    memory.enter("chain-1", "permute(0,2,1,3)")
    memory.is_ready()
    expect(field).to_have_value("permute(0,2,1,3)")
    expect(field).not_to_have_attribute("aria-invalid", "true")
    # Or given up: what is in force comes back.
    memory.enter("chain-1", "exec(1)")
    memory.is_invalid("Operation 2", "exec")
    field.press("Escape")
    memory.is_ready()
    expect(field).to_have_value("permute(0,2,1,3)")


def test_refused_sizes_stay_to_be_mended(at: At) -> None:
    memory = choose(at("memory"), "there and back")
    field = memory.control("start")
    memory.enter("start", "1,x,4")
    memory.is_invalid("Start", "1,x,4")
    expect(field).to_have_value("1,x,4")
    expect(field).to_have_attribute("aria-invalid", "true")
    field.press("Escape")
    memory.is_ready()
    expect(field).to_have_value("1,3,4")


def test_operations_are_added_moved_and_removed(at: At) -> None:
    memory = choose(at("memory"), "there and back")
    expect(memory.root.locator(".attnlab-chain-item")).to_have_count(4)
    memory.choose("chain-add", "flatten()")
    expect(memory.root.locator(".attnlab-told", has_text="stage 5 · flatten()")).to_be_visible()
    memory.press("chain-remove-1")
    expect(memory.root.locator(".attnlab-chain-item")).to_have_count(4)
    memory.press("chain-earlier-3")
    expect(memory.control("chain-2")).to_have_value("flatten()")
    memory.press("reset")
    expect(memory.root.locator(".attnlab-chain-item")).to_have_count(4)


# ---------------------------------------------------------------- projections


def test_four_heads_read_two_values(at: At) -> None:
    projections = choose(at("projections"), "four heads share two keys and values")
    projections.shows("v_shared", [["5.0000"], ["5.0000"], ["9.0000"], ["9.0000"]])
    projections.set_switch("mistake", True)
    expect(projections.root.locator('.attnlab-check[data-holds="false"]')).to_contain_text(["its own values"])
    projections.press("reset")


def test_controls_without_effect_are_off(at: At) -> None:
    projections = choose(at("projections"), "two heads of width 2")
    for name in ("packing", "mistake"):
        expect(projections.control(name)).to_be_disabled()
    projections.choose("look", "packing")
    for name in ("packing", "mistake"):
        expect(projections.control(name)).to_be_enabled()
    heads = choose(at("heads"), "3 positions, 2 heads")
    expect(heads.step_input(2)).to_be_enabled()
    heads.set_switch("attention", True)
    expect(heads.step_input(2)).to_be_disabled()
    expect(heads.control("colour")).to_be_disabled()


def test_packed_by_blocks_and_per_head(at: At) -> None:
    projections = choose(at("projections"), "packed, two heads of width 1")
    projections.shows("packed", [["0", "1.0000", "2.0000", "3.0000", "4.0000", "5.0000"]])
    projections.shows("unq", [["0", "1.0000"]])
    projections.set_switch("mistake", True)
    projections.shows("unq", [["0", "3.0000"]])
    projections.shows("unk", [["1.0000", "4.0000"]])
    projections.shows("unv", [["2.0000", "5.0000"]])
    projections.press("reset")


def test_parameters_are_the_same_for_any_number_of_heads(at: At) -> None:
    projections = choose(at("projections"), "two heads of width 2")
    parameters = projections.root.locator('[data-text="parameters"]')
    expect(parameters).to_contain_text("1: 80, 2: 80, 4: 80")
    expect(parameters).to_contain_text("2,360,064")
    expect(parameters).to_contain_text("2,362,368")
    assert len(checks(projections, True)) == 5
    assert not checks(projections, False)
