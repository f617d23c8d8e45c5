"""The numbers on the screen are the right ones, exactly, and each kind of number has its own look."""

from math import inf, log, nan

import pytest
import torch
from playwright.sync_api import expect

from attnlab.widgets import AttentionExplorable
from helpers.attention_facts import PRESETS, PRINTED, Matrix, Preset, by_name
from helpers.explorable_page import ExplorablePage, close, number

SHOWN = 0.5e-8 + 1e-12  # the screen rounds to eight digits


def show(explorable: ExplorablePage, preset: Preset) -> None:
    """Brings a preset onto the screen: by its name where the page has it, by hand where not."""
    named = preset.name if preset.name in AttentionExplorable.presets else preset.name.split(",")[0]
    explorable.choose_preset(named)
    for name in ("q", "k", "v"):
        wanted = getattr(preset, name)
        if explorable.numbers(name) != [list(row) for row in wanted]:
            explorable.paste(name, repr([list(row) for row in wanted]))
    explorable.set_switch("scale", preset.scale)
    explorable.set_switch("causal", preset.causal)
    explorable.move("query", preset.query)


def right(preset: Preset) -> dict[str, list[list[float]]]:
    """All stages, computed here without the engine."""
    q, k, v = (torch.tensor(m, dtype=torch.float64) for m in (preset.q, preset.k, preset.v))
    scores = q @ k.T
    scaled = scores / q.shape[1] ** 0.5 if preset.scale else scores
    future = torch.ones(scores.shape, dtype=torch.bool).triu(1 + k.shape[0] - q.shape[0])
    masked = scaled.masked_fill(future, -inf) if preset.causal else scaled
    powers = masked.exp()
    weights = powers / powers.sum(-1, keepdim=True)
    stages = {
        "q": q,
        "k": k,
        "v": v,
        "scores": scores,
        "scaled": scaled,
        "masked": masked,
        "weights": weights,
    }
    return {name: tensor.tolist() for name, tensor in {**stages, "output": weights @ v}.items()}


@pytest.mark.parametrize("preset", PRESETS, ids=lambda preset: preset.name)
def test_preset_shows_the_right_values(page_explorable: ExplorablePage, preset: Preset) -> None:
    page_explorable.move("decimals", 8)
    show(page_explorable, preset)
    stages = right(preset)
    expected = [[rounded(x) for x in row] for row in stages["output"]]
    page_explorable.shows("output", expected)
    page_explorable.is_ready()
    for name, rows in stages.items():
        shown = page_explorable.numbers(name)
        for shown_row, row in zip(shown, rows, strict=True):
            for value, wanted in zip(shown_row, row, strict=True):
                assert close(value, wanted, SHOWN), (name, shown, rows)
    for name, known in preset.expected.items():
        shown = page_explorable.numbers(name)
        for i, row in known.items():
            assert all(close(value, wanted, PRINTED) for value, wanted in zip(shown[i], row, strict=True))
    last = len(stages["output"]) - 1
    digits = page_explorable.exact_row("output", last)
    for text, wanted in zip(digits, stages["output"][last], strict=True):
        assert number(text) == pytest.approx(wanted, rel=1e-15, abs=1e-17)


def rounded(x: float) -> str:
    """A number as the screen writes it, with eight digits."""
    if x == 0:
        return "0"
    fixed = f"{x:.8f}"
    text = f"{x:.1e}".replace("e-0", "e-") if float(fixed) == 0 else fixed
    return text.replace("-", "\N{MINUS SIGN}")


@pytest.mark.parametrize("opened", ["lab"], indirect=True)
def test_default_shows_the_right_values_in_a_notebook(explorable: ExplorablePage) -> None:
    preset = by_name("three positions, causal")
    for name, known in preset.expected.items():
        shown = explorable.numbers(name)
        for i, row in known.items():
            assert all(close(value, wanted, PRINTED) for value, wanted in zip(shown[i], row, strict=True)), (
                name
            )


def test_future_keys_and_values_do_not_move_a_bit_of_earlier_outputs(explorable: ExplorablePage) -> None:
    explorable.paste("v", "[[0.1, -0.7], [1.3, 0.3], [1, 1]]")
    explorable.shows_cell("output", 0, "0.1000")
    before = explorable.exact_row("output", 0) + explorable.exact_row("output", 1)
    assert "0.1" in before
    last = explorable.texts("output")[2]
    for name, text in (("k", "1 0; 0 1; -97.3 88.1"), ("v", "0.1 -0.7; 1.3 0.3; 99.9 -100")):
        explorable.paste(name, text)
    explorable.shows_cell("v", 5, "−100.0000")
    explorable.shows_cell("k", 4, "−97.3000")
    assert explorable.texts("output")[2] != last
    assert explorable.exact_row("output", 0) + explorable.exact_row("output", 1) == before
    explorable.set_switch("causal", False)
    expect(explorable.cell("output", 0)).not_to_have_text("0.1000")
    assert explorable.exact_row("output", 0) + explorable.exact_row("output", 1) != before


def test_tiny_weight_is_not_zero_and_a_masked_one_is(explorable: ExplorablePage) -> None:
    explorable.paste("q", "[[40], [0], [0]]")
    explorable.paste("k", "[[0], [1], [0]]")
    explorable.set_switch("causal", False)
    explorable.shows("weights", [["4.2e−18", "1.0000", "4.2e−18"], *[["0.3333"] * 3] * 2])
    assert explorable.looks("weights")[0][0] == "number"
    assert number(explorable.exact("weights", 0)) == pytest.approx(4.248354255291589e-18, rel=1e-14)
    assert number(explorable.exact("weights", 3)) == pytest.approx(1 / 3, rel=1e-15)
    explorable.set_switch("causal", True)
    explorable.shows("weights", [["1.0000", "0", "0"], ["0.5000", "0.5000", "0"], ["0.3333"] * 3])
    assert explorable.looks("weights")[0] == ["number", "masked", "masked"]
    assert explorable.exact("weights", 1) == "0"


def _appearance(explorable: ExplorablePage, stage: str, flat: int) -> tuple[object, ...]:
    """What tells a cell from others without colour: its kind of text and its drawing."""
    explorable.page.mouse.move(0, 0)
    explorable.written()
    drawn = explorable.cell(stage, flat).evaluate(
        """(cell) => { const s = getComputedStyle(cell);
        return [s.backgroundImage.split("(")[0], s.borderTopStyle, s.borderTopWidth, s.fontStyle,
                s.fontWeight, s.textDecorationLine, cell.getAttribute("aria-label")]; }"""
    )
    text = explorable.cell(stage, flat).inner_text()
    return ("number" if text[:1].isdigit() and text != "0" else text, *drawn)


def test_six_kinds_of_numbers_have_six_looks(page_explorable: ExplorablePage) -> None:
    explorable = page_explorable
    looks: dict[str, tuple[object, ...]] = {}

    def note(kind: str, stage: str, flat: int) -> None:
        shown = [look for row in explorable.looks(stage) for look in row]
        assert shown[flat] == kind, (kind, stage, shown)
        looks[f"{kind} {stage}"] = _appearance(explorable, stage, flat)

    note("number", "weights", 0)
    note("masked", "weights", 1)
    note("masked", "masked", 1)
    note("zero", "scores", 1)
    explorable.step(3)
    explorable.shows_cell("weights", 0, "·")
    note("unreached", "weights", 0)
    explorable.step(5)
    explorable.paste("q", " ".join(["100"] * 7))
    explorable.paste("k", " ".join(["100"] * 7))
    explorable.paste("v", "1 2")
    explorable.choose("dtype", "float16")
    explorable.shows("scores", [["∞"]])
    note("infinite", "scores", 0)
    explorable.shows("weights", [["NaN"]])
    note("nan", "weights", 0)
    assert explorable.exact("scores", 0) == "∞"
    assert len(set(looks.values())) == len(looks), looks


def test_query_without_a_key_is_named_and_the_other_rows_stay_clean(explorable: ExplorablePage) -> None:
    explorable.paste("k", "[[1, 0], [0, 1]]")
    explorable.paste("v", "[[1, 0], [0, 1]]")
    explorable.shows("weights", [["NaN", "NaN"], ["1.0000", "0"], ["0.5000", "0.5000"]])
    explorable.is_ready()
    assert explorable.looks("weights")[0] == ["nan", "nan"]
    for stage in ("masked", "weights", "output"):
        expect(explorable.stage(stage).locator(".attnlab-flag")).to_have_text("no key allowed")
        expect(explorable.stage(stage).locator("tbody tr").first.locator(".attnlab-flag")).to_be_visible()
    expect(explorable.message).to_contain_text("Causal mask with")
    assert explorable.numbers("output")[1] == [1, 0]


def test_facts_are_finite() -> None:
    """The helper that compares would take anything for a NaN; none is expected here."""
    numbers = [x for preset in PRESETS for matrix in _matrices(preset) for row in matrix for x in row]
    assert nan not in numbers
    assert log(2) in numbers


def _matrices(preset: Preset) -> list[Matrix]:
    return [preset.q, preset.k, preset.v]
