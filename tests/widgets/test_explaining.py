"""The panel of one number: every cell of every stage has one, with operands on the screen and its line."""

import importlib.util
import itertools
import json
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any
from xml.etree import ElementTree

import pytest
import torch
from torch import Tensor

import attnlab.engine
import attnlab.widgets
from attnlab.engine import attend, bidirectional, causal, record
from attnlab.widgets import AttentionExplorable
from attnlab.widgets.explaining import explain_cell
from helpers.front_end import FrontEnd, assert_strict_json, receive, same_numbers
from helpers.programs_on_screen import source_is_private

OpenPage = Callable[..., FrontEnd]

ENGINE = Path(attnlab.engine.__file__).parent
INPUTS = ("q", "k", "v")
_SCRIPT = (Path(attnlab.widgets.__file__).parent / "explanation.js").read_text()
TAGS = set(re.search(r'TAGS = new Set\("([\w ]+)"', _SCRIPT)[1].split())  # type: ignore[index]


def shown_stages(page: FrontEnd) -> list[str]:
    return [name for name in page.explorable.view.stages if name in page.answer["arrays"]]


def cells(page: FrontEnd, stage: str) -> Iterator[list[int]]:
    return map(list, itertools.product(*map(range, page.answer["arrays"][stage]["shape"])))


def line_of(stage: str) -> tuple[str, int]:
    """File and line of the assignment of a stage, looked up in the files as they are."""
    for file in ("attention.py", "row.py"):
        for number, text in enumerate((ENGINE / file).read_text().splitlines(), 1):
            if re.match(rf"\s+{stage} ?= ?", text):
                return f"attnlab/engine/{file}", number
    raise AssertionError(f"{stage} is not assigned")


def assert_well_formed(mathml: str, value: float) -> None:
    """MathML of the tags that the script lets through, whose words end with the number itself."""
    root = ElementTree.fromstring(mathml)
    assert root.tag == "math"
    assert {element.tag for element in root.iter()} <= TAGS
    words = root.get("aria-label") or ""
    last = words.rsplit("= ", 1)[-1].replace("−", "-").replace("∞", "inf")
    assert float(last) == pytest.approx(value, rel=1e-3, nan_ok=True), words


def explanations(page: FrontEnd) -> Iterator[tuple[str, list[int], dict[str, Any]]]:
    """The panel of every cell; the first of each stage is chosen as a reader does."""
    explorable = page.explorable
    for stage in shown_stages(page):
        for place in cells(page, stage):
            if not any(place):
                found = page.select(stage, place)
                last = explorable._last
                shown = {**last.tensors, **explorable.matrices()}
                versions = {n: last.tape.version(x) for n, x in shown.items() if n in explorable.view.stages}
            else:
                found = explain_cell(last.tape, versions, stage, place)
            assert found is not None, (stage, place)
            yield stage, place, found


@pytest.mark.parametrize(
    ("preset", "dtype"),
    [*((preset, "float64") for preset in AttentionExplorable.presets), ("cross lengths", "float16")],
)
def test_every_cell_of_every_stage_explains_itself(preset: str, dtype: str, open_page: OpenPage) -> None:
    page = open_page(preset=preset, dtype=dtype)
    numbers = page.numbers
    for stage, place, found in explanations(page):
        assert (found["stage"], found["index"]) == (stage, place)
        if stage in INPUTS:
            assert found["note"] == "an input: nothing computed it"
            assert (found["mathml"], found["operands"], found["source"]) == ("", [], None)
            continue
        assert found["note"] == ""
        assert found["inputs"] == []
        assert_well_formed(found["mathml"], numbers[stage][tuple(place)].item())
        # What the mask has set came from no number on the screen.
        if stage != "masked" or numbers[stage][tuple(place)].isfinite():
            assert found["operands"], (stage, place)
        for name, index in found["operands"]:
            assert name in shown_stages(page)
            assert index in list(cells(page, name)), (stage, place, name, index)
        file, line = line_of(stage)
        source = found["source"]
        assert (source["file"], source["line"]) == (file, line), stage
        written = (ENGINE / Path(file).name).read_text().splitlines()
        marked = [text for number, text in source["lines"] if number == line]
        assert [written[line - 1].strip()] == [text.strip() for text in marked]
        for number, text in source["lines"]:
            assert text.strip() == written[number - 1].strip()
        source_is_private(source)


OPERANDS: dict[str, Callable[[int, int], list[list[Any]]]] = {
    "scores": lambda i, j: [["q", [i, d]] for d in range(2)] + [["k", [j, d]] for d in range(2)],
    "scaled": lambda i, j: [["scores", [i, j]]],
    "masked": lambda i, j: [["scaled", [i, j]]],
    "weights": lambda i, j: [["masked", [i, key]] for key in range(5)],
    "output": lambda i, d: (
        [["weights", [i, key]] for key in range(5)] + [["v", [key, d]] for key in range(5)]
    ),
}


@pytest.mark.parametrize("stage", OPERANDS)
def test_operands_are_the_cells_of_the_formula(stage: str, open_page: OpenPage) -> None:
    page = open_page(preset="cross lengths")
    for place in cells(page, stage):
        found = page.select(stage, place)
        assert found is not None
        assert sorted(found["operands"]) == sorted(OPERANDS[stage](*place))


def test_rows_of_the_table_come_from_the_row_of_the_grids(page: FrontEnd) -> None:
    for stage in ("scores", "scaled", "masked"):
        assert page.select(f"row_{stage}", [2])["operands"] == [[stage, [1, 2]]]
    assert page.select("row_weighted", [2, 1])["operands"] == [["row_weights", [2]], ["v", [2, 1]]]
    assert page.select("weight_sum", [])["operands"] == [["row_weights", [i]] for i in range(3)]
    assert page.select("row_output", [0])["operands"] == [["row_weighted", [i, 0]] for i in range(3)]


def test_a_formula_with_its_own_numbers(page: FrontEnd) -> None:
    found = page.select("weights", [1, 1])
    label = ElementTree.fromstring(found["mathml"]).get("aria-label")
    assert label.endswith("= 0.6698")
    assert "0.7071" in label
    masked = page.select("masked", [0, 2])
    assert ElementTree.fromstring(masked["mathml"]).get("aria-label").endswith("−∞")


class TestThePanelFollows:
    def test_an_edit(self, page: FrontEnd) -> None:
        before = page.select("scores", [0, 1])
        assert page.answer["explanation"] == before
        page.value("k", [1, 0], 7)
        after = page.answer["explanation"]
        assert (after["stage"], after["index"]) == ("scores", [0, 1])
        assert_well_formed(after["mathml"], 7)
        assert after["source"] == before["source"]
        page.command("undo")
        assert page.answer["explanation"] == before

    @pytest.mark.parametrize(
        ("control", "value", "stage", "end"),
        [
            ("scale", False, "scaled", "= 1"),
            ("causal", False, "weights", "= 0.4011"),
            ("query", 2, "row_scores", "1"),
            ("preset", "plain dot product", "weights", "= 0.4223"),
        ],
    )
    def test_a_switch(self, control: str, value: Any, stage: str, end: str, page: FrontEnd) -> None:
        page.select(stage, [1, 2] if stage in ("scaled", "weights") else [0])
        page.control(control, value)
        label = ElementTree.fromstring(page.answer["explanation"]["mathml"]).get("aria-label")
        assert label.endswith(end)

    def test_a_refused_input_shows_no_panel_and_the_next_good_one_does(self, page: FrontEnd) -> None:
        before = page.select("scores", [0, 1])
        page.text("q", "nan", [0, 0])
        assert page.answer["state"] == "invalid"
        assert page.answer["explanation"] is None
        page.command("revert")
        assert page.answer["explanation"] == before

    def test_giving_the_choice_up(self, page: FrontEnd) -> None:
        page.select("scores", [0, 1])
        receive(page.explorable.view, selected=None)
        assert page.answer["explanation"] is None
        assert page.answer["state"] == "ready"

    def test_a_cell_that_is_gone_and_comes_back(self, page: FrontEnd) -> None:
        before = page.select("weights", [2, 2])
        page.control("gradient", True)
        page.resize("query", -1)
        assert page.answer["state"] == "ready"
        assert page.answer["explanation"] is None
        assert page.answer["gradients"] == {}
        page.command("undo")
        assert page.answer["explanation"] == before
        assert page.answer["gradients"]


@pytest.mark.parametrize(
    ("stage", "index"),
    [
        ("nothing", [0, 0]),
        ("", []),
        ("allowed", [0, 0]),  # computed, but not shown
        ("q", [0]),
        ("q", [0, 0, 0]),
        ("q", [3, 0]),
        ("q", [0, 2]),
        ("q", [-1, 0]),
        ("q", [0.5, 0]),
        ("q", ["0", "0"]),
        ("weight_sum", [0]),
    ],
)
@pytest.mark.parametrize("gradient", [False, True])
def test_no_such_cell(stage: str, index: list[Any], gradient: bool, open_page: OpenPage) -> None:
    page = open_page(gradient=gradient)
    assert page.select(stage, index) is None
    assert page.answer["state"] == "ready"
    assert page.answer["gradients"] == {}
    assert page.select("q", [0, 0]) is not None


def test_without_a_chosen_number_nothing_is_recorded(page: FrontEnd) -> None:
    page.value("q", [0, 0], 3)
    assert page.answer["explanation"] is None
    assert page.explorable._last.tape is None


def test_the_panel_is_json(page: FrontEnd) -> None:
    page.control("causal", True)
    page.control("gradient", True)
    page.select("masked", [0, 2])  # −∞ inside
    assert_strict_json(page.answer)
    assert json.dumps(page.answer["explanation"], allow_nan=False)


# ---------------------------------------------------------------- gradients


def direct(page: FrontEnd, stage: str, index: list[int]) -> dict[str, Tensor]:
    """The gradients by autograd, of the engine run once more."""
    explorable = page.explorable
    q, k, v = (getattr(explorable, name).clone().requires_grad_() for name in INPUTS)
    mask = (causal if explorable.causal else bidirectional)(q.shape[0], k.shape[0])
    trace = attend(q, k, v, scale=explorable.scale, allowed=mask)
    stages = {"scores": trace.scores, "scaled": trace.scaled, "masked": trace.masked}
    stages |= {"weights": trace.weights, "output": trace.output}
    before = list(stages)[: list(stages).index(stage) + 1]
    tensors = {"q": q, "k": k, "v": v} | {name: stages[name] for name in before}
    found = torch.autograd.grad(stages[stage][tuple(index)], list(tensors.values()), allow_unused=True)
    return {
        name: torch.zeros_like(tensor) if slope is None else slope
        for (name, tensor), slope in zip(tensors.items(), found, strict=True)
    }


def slopes(page: FrontEnd) -> dict[str, Tensor]:
    return FrontEnd.numbers.fget(_Answer(page.answer["gradients"]))  # type: ignore[attr-defined]


class _Answer:
    """Gradients travel as arrays do."""

    def __init__(self, arrays: Any) -> None:
        self.answer = {"arrays": arrays}


@pytest.mark.parametrize("stage", ["scores", "scaled", "masked", "weights", "output"])
@pytest.mark.parametrize("preset", ["three positions, causal", "cross lengths"])
def test_gradients_are_those_of_autograd(preset: str, stage: str, open_page: OpenPage) -> None:
    page = open_page(preset=preset, gradient=True)
    *_, last = cells(page, stage)
    for place in ([0, 0], last):
        page.select(stage, place)
        found = slopes(page)
        for name, slope in direct(page, stage, place).items():
            assert found[name].shape == slope.shape
            torch.testing.assert_close(found[name], slope, rtol=1e-12, atol=1e-15)
        own = found[stage]
        assert own[tuple(place)] == 1
        assert own.count_nonzero() == 1


def test_the_future_has_a_gradient_of_exactly_zero(open_page: OpenPage) -> None:
    generator = torch.Generator().manual_seed(0)
    q, k, v = (torch.randn(4, 4, generator=generator).double().tolist() for _ in range(3))
    page = open_page(q=q, k=k, v=v, gradient=True, causal=True)
    for query in range(4):
        page.select("output", [query, 1])
        found = slopes(page)
        for name in ("k", "v"):
            assert found[name][query + 1 :].count_nonzero() == 0
        assert found["v"][: query + 1, 1].count_nonzero() == query + 1
        # The first query reads one key only, with weight 1 whatever the key is.
        assert (found["k"].count_nonzero() == 0) == (query == 0)
        others = [i for i in range(4) if i != query]
        assert found["q"][others].count_nonzero() == 0
    page.control("causal", False)
    assert slopes(page)["v"][:, 1].count_nonzero() == 4


def test_gradients_only_when_asked_for(page: FrontEnd) -> None:
    page.select("output", [1, 0])
    assert page.answer["gradients"] == {}
    page.control("gradient", True)
    assert {"q", "k", "v", "scores", "scaled", "masked", "weights", "output"} <= page.answer[
        "gradients"
    ].keys()
    assert "row_output" not in page.answer["gradients"]  # came later
    page.control("gradient", False)
    assert page.answer["gradients"] == {}


def test_numbers_stay_what_they_are_while_explained(open_page: OpenPage) -> None:
    plain, chosen = open_page(), open_page(gradient=True)
    chosen.select("output", [2, 1])
    for name, tensor in plain.numbers.items():
        assert same_numbers(chosen.numbers[name], tensor), name


# ---------------------------------------------------------------- the line is read from the file that ran


@pytest.fixture
def copy_of_attention(tmp_path: Path) -> Iterator[Callable[[str], ModuleType]]:
    """Writes a copy of engine/attention.py with another text and imports it."""
    made: list[str] = []

    def write(text: str) -> ModuleType:
        name = f"attention_copy_{len(made)}"
        path = tmp_path / f"{name}.py"
        path.write_text(text)
        spec = importlib.util.spec_from_file_location(name, path)
        assert spec
        assert spec.loader
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        made.append(name)
        spec.loader.exec_module(module)
        return module

    yield write
    for name in made:
        del sys.modules[name]


def weights_panel(module: ModuleType) -> dict[str, Any]:
    x = torch.tensor([[1.0, 0.0], [0.0, 1.0]])
    with record() as tape:
        trace = module.attend(x, x, x)
    found = explain_cell(tape, {"weights": tape.version(trace.weights)}, "weights", [0, 1])
    assert found is not None
    return found


def test_the_line_shown_is_the_line_that_ran(copy_of_attention: Callable[[str], ModuleType]) -> None:
    text = (ENGINE / "attention.py").read_text()
    line = "    weights = masked.softmax(dim=-1)\n"
    assert text.count(line) == 1
    number = text[: text.index(line)].count("\n") + 1
    first = weights_panel(copy_of_attention(text))
    assert (first["source"]["file"], first["source"]["line"]) == ("attention_copy_0.py", number)

    other = "    weights = torch.exp(masked) / torch.exp(masked).sum(dim=-1, keepdim=True)\n"
    moved = text.replace(line, f"    # A line above it.\n\n{other}")
    second = weights_panel(copy_of_attention(moved))
    assert (second["source"]["file"], second["source"]["line"]) == ("attention_copy_1.py", number + 2)
    assert [number + 2, other.strip()] in second["source"]["lines"]
    for panel in (first, second):
        source_is_private(panel["source"])


def test_a_file_beside_ours_goes_by_its_name_only() -> None:
    from helpers import hand_written

    x = torch.ones(3, 2)
    with record() as tape:
        out = hand_written.in_place_twin(x, x, x, torch.zeros(3, 3))
    found = explain_cell(tape, {"out": tape.version(out)}, "out", [0, 0])
    assert found is not None
    assert found["source"]["file"] == "hand_written.py"
