"""DropoutExplorable: one mask, all masks, drawn masks, the place in attention, and four mistakes."""

import itertools
import math
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

from attnlab.widgets import DropoutExplorable
from attnlab.widgets.draws import MAX_DRAWS, as_masks
from attnlab.widgets.dropout import MISTAKES, PRESETS
from attnlab.widgets.explaining import explain_cell
from helpers.front_end import FrontEnd, receive, same_numbers
from helpers.recomputed import examined
from helpers.refusals import refused

Open = Callable[..., FrontEnd]
NONE, FACTOR, BEFORE, NO_GRAD, LEFT_ON = MISTAKES
ULP = 1e-15


@pytest.fixture
def open_dropout() -> Open:
    return lambda **arguments: FrontEnd(DropoutExplorable(**arguments))


@pytest.fixture
def dropout(open_dropout: Open) -> FrontEnd:
    return open_dropout()


def checks(page: FrontEnd) -> dict[str, bool]:
    return {check["name"]: check["holds"] for check in page.answer["checks"]}


def shown(page: FrontEnd) -> list[str]:
    """The stages that stand in the view, in order."""
    blocks = page.explorable.view.layout_blocks
    return [item["stage"] for b in blocks for item in (b.get("items") or b.get("columns") or ())]


FACTS = [
    # keep, p, sum of the row, probability
    ("101", 0.5, 1.4, 0.125),
    ("010", 0.5, 0.6, 0.125),
    ("001", 0.5, 1.0, 0.125),
    ("110", 0.5, 1.0, 0.125),
    ("000", 0.5, 0.0, 0.125),
    ("111", 0.5, 2.0, 0.125),
    ("111", 0.2, 1.25, 0.512),
    ("011", 0.2, 1.0, 0.128),
    ("101", 0.2, 0.875, 0.128),
    ("000", 0.2, 0.0, 0.008),
]


@pytest.mark.parametrize(("keep", "p", "total", "probability"), FACTS)
def test_the_numbers_of_the_facts(keep: str, p: float, total: float, probability: float, dropout) -> None:
    dropout.text("keep", " ".join(keep))
    dropout.control("p", p)
    numbers = dropout.numbers
    assert numbers["row_sum"].item() == pytest.approx(total, abs=ULP)
    assert numbers["probability"].item() == pytest.approx(probability, abs=ULP)
    kept = [int(bit) * a / (1 - p) for bit, a in zip(keep, (0.2, 0.3, 0.5), strict=True)]
    assert numbers["dropped"].tolist() == pytest.approx(kept, abs=ULP)
    assert numbers["expected"].tolist() == pytest.approx([0.2, 0.3, 0.5], abs=ULP)
    row = int(keep, 2)  # the same mask in the table
    assert numbers["table_keep"][row].tolist() == [bit == "1" for bit in keep]
    assert numbers["table_sum"][row].item() == pytest.approx(total, abs=ULP)
    assert numbers["table_probability"][row].item() == pytest.approx(probability, abs=ULP)
    assert numbers["table_probability"].sum().item() == pytest.approx(1, abs=ULP)
    assert dropout.explorable.view.tracked == {"mask": row}
    assert dropout.explorable.view.labels["mask"][row] == keep


@pytest.mark.parametrize(("p", "each", "total"), [(0.5, 0.5, 1.5), (0.1, 0.25 / 0.9, 0.75 / 0.9)])
def test_four_equal_weights(p: float, each: float, total: float, open_dropout: Open) -> None:
    page = open_dropout(preset="four equal weights", p=p)
    assert page.numbers["dropped"].tolist() == pytest.approx([each] * 3 + [0])
    assert page.numbers["row_sum"].item() == pytest.approx(total)


@pytest.mark.parametrize("name", PRESETS)
def test_every_preset_is_ready_and_holds(name: str, open_dropout: Open) -> None:
    page = open_dropout(preset=name)
    assert (page.answer["state"], page.answer["message"]) == ("ready", "")
    assert all(checks(page).values())
    assert set(shown(page)) <= page.numbers.keys()
    for bits in ("keep", "attention_keep"):
        assert page.numbers[bits].tolist() == torch.tensor(PRESETS[name][bits]).bool().tolist()


class TestEvaluation:
    def test_nothing_is_dropped(self, open_dropout: Open) -> None:
        page = open_dropout(training=False, keep=[0, 0, 0], p=0.3)
        numbers = page.numbers
        assert same_numbers(numbers["dropped"], numbers["weights"])
        assert numbers["row_sum"].item() == 1
        assert numbers["probability"].item() == 1
        assert numbers["keep"].tolist() == [False] * 3  # the mask waits for training
        assert checks(page)["all runs give the same numbers"]
        page.control("training", True)
        assert page.numbers["row_sum"].item() == 0

    def test_what_draws_is_switched_off(self, dropout: FrontEnd) -> None:
        dropout.control("training", False)
        assert {"draw_1", "draw_10000", "next_mask"} <= set(dropout.explorable.bar.disabled)
        dropout.control("training", True)
        assert not {"draw_1", "next_mask"} & set(dropout.explorable.bar.disabled)

    def test_what_is_switched_off_does_nothing(self, dropout: FrontEnd) -> None:
        """The page sends it all the same: what it shows may be an answer behind."""
        dropout.control("training", False)
        before = dropout.explorable.code()
        for name in dropout.explorable.bar.disabled:
            dropout.control(name)
            assert dropout.explorable.code() == before, name

    def test_draws_come_back_with_training(self, dropout: FrontEnd) -> None:
        dropout.control("draw_10")
        draws = dropout.explorable.draws
        dropout.control("training", False)
        assert dropout.explorable.sample is None
        assert "mean" not in dropout.numbers
        dropout.control("training", True)
        assert dropout.explorable.draws == draws
        assert "mean" in dropout.numbers


class TestRefusals:
    @pytest.mark.parametrize("value", [1, "1", 1.0])
    def test_p_of_one_with_the_reason_and_the_last_result_kept(self, value: Any, dropout: FrontEnd) -> None:
        before = dropout.numbers
        dropout.control("p", value)
        assert dropout.answer["state"] == "invalid"
        assert "1/(1 − 1) has no value" in dropout.answer["message"]
        assert "PyTorch itself accepts p = 1" in dropout.answer["message"]
        assert dropout.explorable.p == 0.5
        assert before.keys() == dropout.numbers.keys()
        assert all(same_numbers(tensor, before[name]) for name, tensor in dropout.numbers.items())
        dropout.control("p", 0.25)
        assert dropout.answer["state"] == "ready"

    @pytest.mark.parametrize("value", [-0.1, 1.5, "x", "nan", "", None, True, [], 10**400])
    def test_what_is_no_probability(self, value: Any, dropout: FrontEnd) -> None:
        dropout.control("p", value)
        assert dropout.answer["state"] == "invalid"
        assert dropout.answer["message"].startswith("p: expected a number")
        assert dropout.explorable.code() == "DropoutExplorable()"

    @pytest.mark.parametrize(
        ("weights", "words"),
        [
            ("0.2 0.3 0.6", ("sum of 1", "got 1.1", "not renormalised")),
            ("0.2 0.3 0.4", ("sum of 1", "got 0.9")),
            ("0.2 0.3 0.50001", ("got 1.00001",)),
            ("0 0 0", ("got 0",)),
            ("-0.2 0.7 0.5", ("from 0 to 1", "−0.2", "key 0")),
            ("0 1.2 −0.2", ("from 0 to 1", "1.2", "key 1")),
            ("", ("empty",)),
            ("1 0 0 0 0 0 0", ("1 to 6 columns", "1 × 7")),
            ("nan 1 0", ("'nan'",)),
        ],
    )
    def test_rows_that_are_no_weights(self, weights: str, words: tuple[str, ...], dropout: FrontEnd) -> None:
        before = dropout.numbers["dropped"]
        dropout.text("weights", weights)
        assert dropout.answer["state"] == "invalid"
        assert all(word in dropout.answer["message"] for word in words), dropout.answer["message"]
        assert same_numbers(dropout.numbers["dropped"], before)

    @pytest.mark.parametrize("weights", [[1 / 6] * 6, [0.1, 0.2, 0.7], [1.0], [0.5, 0.5 + 9e-10]])
    def test_sums_that_are_one_but_for_rounding(self, weights: list[float], open_dropout: Open) -> None:
        page = open_dropout(weights=weights, keep=[1] * len(weights))
        assert page.answer["state"] == "ready"
        assert all(checks(page).values())
        assert page.numbers["weights"].tolist() == weights

    @pytest.mark.parametrize(
        ("arguments", "words"),
        [
            ({"weights": []}, "1 × 0"),
            ({"weights": [1] + [0] * 6}, "1 × 7"),
            ({"weights": [0.2, 0.9]}, "got 1.1"),
            ({"keep": [1, 1]}, "shape"),
            ({"keep": [1, 0.5, 1]}, "0 and 1"),
            ({"p": 1}, "has no value"),
            ({"draws": "Z"}, "masks over 3 keys"),
            ({"q": [[1, 2]]}, "3 × 2"),
            ({"mistake": "none such"}, "mistake"),
        ],
    )
    def test_as_arguments(self, arguments: dict[str, Any], words: str) -> None:
        with pytest.raises(ValueError, match=words):
            DropoutExplorable(**arguments)

    def test_an_unknown_argument(self) -> None:
        with refused("has no argument 'weight'", "weights", "training", "draws", error=TypeError):
            DropoutExplorable(weight=[1])

    def test_normalise_divides_by_the_sum(self, dropout: FrontEnd) -> None:
        dropout.text("weights", "1 3 4")
        assert dropout.answer["state"] == "invalid"
        dropout.control("normalise")
        assert dropout.answer["state"] == "ready"
        assert dropout.explorable.weights.tolist() == [0.125, 0.375, 0.5]
        dropout.text("weights", "0 0 0")
        dropout.control("normalise")  # there is nothing to divide by
        assert "got 0" in dropout.answer["message"]


@pytest.mark.parametrize("keys", [1, 3, 6])
def test_walking_through_all_masks_and_round_again(keys: int, open_dropout: Open) -> None:
    page = open_dropout(weights=[1 / keys] * keys, keep=[0] * keys)
    seen = []
    for _ in range(2**keys):
        seen.append(tuple(page.explorable.keep.tolist()))
        page.control("next_mask")
    assert seen == list(itertools.product((False, True), repeat=keys))
    assert page.explorable.keep.tolist() == [False] * keys
    page.control("previous_mask")
    assert page.explorable.keep.tolist() == [True] * keys


class TestDraws:
    @pytest.mark.parametrize("n", [1, 10, 100, 1_000, 10_000])
    def test_as_many_as_asked_and_the_last_is_shown(self, n: int, dropout: FrontEnd) -> None:
        dropout.control(f"draw_{n}")
        explorable = dropout.explorable
        masks = as_masks(explorable.draws, 3)
        assert masks.shape == (n, 3)
        assert dropout.numbers["keep"].tolist() == masks[-1].tolist()
        values = masks.double() * torch.tensor([0.2, 0.3, 0.5], dtype=torch.float64) / 0.5
        torch.testing.assert_close(dropout.numbers["mean"], values.mean(dim=0), rtol=0, atol=1e-12)
        if n == 1:
            assert dropout.numbers["standard_error"].isnan().all()
        else:
            error = values.std(dim=0) / math.sqrt(n)
            torch.testing.assert_close(dropout.numbers["standard_error"], error, rtol=1e-9, atol=1e-15)
        assert dropout.answer["texts"]["sampled"] == f"{n:,} drawn"

    def test_they_add_up_and_one_step_takes_each_back(self, dropout: FrontEnd) -> None:
        explorable = dropout.explorable
        dropout.control("draw_10")
        first = explorable.draws, explorable.keep.tolist()
        dropout.control("draw_100")
        second = explorable.draws, explorable.keep.tolist()
        assert len(second[0]) == 110
        assert second[0].startswith(first[0])
        dropout.control("undo")
        assert (explorable.draws, explorable.keep.tolist()) == first
        dropout.control("undo")
        assert (explorable.draws, explorable.keep.tolist()) == ("", [True, False, True])
        dropout.control("redo")
        dropout.control("redo")
        assert (explorable.draws, explorable.keep.tolist()) == second

    def test_the_address_carries_the_masks(self, dropout: FrontEnd, open_dropout: Open) -> None:
        dropout.control("draw_1000")
        opened = open_dropout()
        opened.open("?" + dropout.explorable.address)
        assert opened.answer["state"] == "ready"
        for name, tensor in dropout.numbers.items():
            assert same_numbers(opened.numbers[name], tensor), name

    def test_there_is_an_end(self, open_dropout: Open) -> None:
        page = open_dropout(draws="H" * (MAX_DRAWS - 9))
        page.control("draw_10")
        assert page.answer["state"] == "invalid"
        assert "forget them first" in page.answer["message"]
        assert len(page.explorable.draws) == MAX_DRAWS - 9
        page.control("forget")
        assert (page.answer["state"], page.explorable.draws) == ("ready", "")

    def test_what_they_were_drawn_for_takes_them_along(self, open_dropout: Open) -> None:
        changes: dict[str, Callable[[FrontEnd], Any]] = {
            "p by its control": lambda page: page.control("p", 0.25),
            "p by its trait": lambda page: setattr(page.explorable, "p", 0.25),
            "p with others": lambda page: page.explorable.assign(p=0.25, decimals=6),
            "one weight more": lambda page: page.resize("key", 1),
            "one weight less": lambda page: page.resize("key", -1),
            "a longer row": lambda page: page.text("weights", ".5 .2 .2 .1"),
            "both rows": lambda page: page.explorable.assign(weights=[0.5] * 2, keep=[1, 0]),
            "a preset": lambda page: page.control("preset", "a smaller p"),
        }
        for name, change in changes.items():
            page = open_dropout(draws="BFFG")
            change(page)
            assert page.explorable.draws == "", name
            page.control("undo")
            assert page.explorable.draws == "BFFG", name

    def test_other_changes_leave_them(self, open_dropout: Open) -> None:
        page = open_dropout(draws="BFFG")
        page.text("weights", "0.1 0.2 0.7")
        page.value("keep", [0], 0)
        page.control("training", False)
        page.control("inside", True)
        page.explorable.assign(p=0.25, draws="AH")
        assert page.explorable.draws == "AH"

    def test_the_mean_is_checked_by_the_exact_error(self, open_dropout: Open) -> None:
        """Nine of ten kept at p = .5: by the spread of the ten that were 4 standard errors, and is 2.5."""
        page = open_dropout(draws="H" * 9 + "A")
        (check,) = [c for c in page.answer["checks"] if "near" in c["name"]]
        assert check["holds"]
        assert check["text"].startswith("2.53")
        assert not checks(open_dropout(draws="H" * 17))["mean of the draws near the expectation"]


def test_copied_numbers_are_those_on_the_screen(open_dropout: Open) -> None:
    for arguments in ({}, {"inside": True}, {"mistake": BEFORE}):
        page = open_dropout(**arguments)
        page.control("export", "numbers")
        copied = [block.split(" · ")[0] for block in page.explorable.bar.clipboard["text"].split("\n\n")]
        titles = [page.explorable.view.stages[name].get("title", name) for name in shown(page)]
        assert sorted(copied) == sorted(titles)


class TestInsideAttention:
    def test_zeros_stay_and_sums_are_not_one(self, open_dropout: Open) -> None:
        page = open_dropout(inside=True)
        numbers = page.numbers
        masked = ~torch.ones(3, 3, dtype=torch.bool).tril()
        assert numbers["attention_dropped"][masked].count_nonzero() == 0
        keep = numbers["attention_keep"]
        expected = numbers["attention_weights"] * keep / 0.5
        assert same_numbers(numbers["attention_dropped"], expected)
        assert numbers["attention_sum"].tolist() == pytest.approx(expected.sum(dim=1).tolist())
        assert (numbers["attention_sum"] != 1).all()
        assert numbers["attention_weights"].sum(dim=1).tolist() == pytest.approx([1] * 3)
        assert not torch.equal(numbers["output"], numbers["output_without"])
        assert all(checks(page).values())

    def test_in_evaluation_nothing_moves(self, open_dropout: Open) -> None:
        page = open_dropout(inside=True, training=False)
        assert same_numbers(page.numbers["output"], page.numbers["output_without"])
        (check,) = [c for c in page.answer["checks"] if c["name"] == "all runs give the same numbers"]
        assert check["holds"]
        assert "20 runs" in check["how"]

    @pytest.mark.parametrize("arguments", [{"inside": True}, {"mistake": BEFORE}])
    def test_one_mask_is_drawn_where_it_is_seen(self, arguments: dict, open_dropout: Open) -> None:
        page = open_dropout(**arguments, p=0.5)
        row = page.explorable.keep
        seen = set()
        for _ in range(20):  # 2⁻⁹ for one to be like the one before
            page.control("draw_1")
            seen.add(tuple(page.explorable.attention_keep.flatten().tolist()))
        assert len(seen) > 1
        assert page.explorable.draws == ""
        assert same_numbers(page.explorable.keep, row)
        assert {"draw_10", "next_mask"} <= set(page.explorable.bar.disabled)
        assert "draw_1" not in page.explorable.bar.disabled


class TestMistakes:
    @pytest.mark.parametrize(
        ("mistake", "inside", "training"),
        [(FACTOR, False, True), (BEFORE, True, True), (NO_GRAD, False, False), (LEFT_ON, True, False)],
    )
    def test_the_controls_say_where_it_is_made(
        self, mistake: str, inside: bool, training: bool, open_dropout: Open
    ) -> None:
        page = open_dropout(inside=not inside, training=not training)
        page.control("mistake", mistake)
        values = page.explorable.bar.values
        assert (values["inside"], values["training"]) == (inside, training)
        page.command("undo")
        assert (page.explorable.inside, page.explorable.training) == (not inside, not training)

    def test_without_a_mistake_the_page_is_where_its_preset_is(self, open_dropout: Open) -> None:
        for preset, inside in (("two, three and five tenths", False), ("inside attention", True)):
            page = open_dropout(preset=preset)
            page.control("mistake", LEFT_ON)
            assert (page.explorable.inside, page.explorable.training) == (True, False)
            page.control("mistake", NONE)
            assert (page.explorable.inside, page.explorable.training) == (inside, True)
            assert page.explorable.address == open_dropout(preset=preset).explorable.address

    def test_evaluation_claims_no_mask(self, open_dropout: Open) -> None:
        page = open_dropout(keep=[0, 1, 0])
        page.control("training", False)
        assert page.answer["texts"]["drop"] == "evaluation: as they are"
        shown = {
            item["stage"] for block in page.explorable.view.layout_blocks for item in block.get("items", ())
        }
        assert "probability" not in shown

    @pytest.mark.parametrize("mistake", [FACTOR, BEFORE, NO_GRAD, LEFT_ON])
    @pytest.mark.parametrize("p", [0.2, 0.75])
    def test_the_claim_fails_for_the_mistake_and_holds_for_the_right_way(
        self, mistake: str, p: float, open_dropout: Open
    ) -> None:
        page = open_dropout(mistake=mistake, p=p)
        found = checks(page)
        assert [holds for name, holds in found.items() if name.startswith("mistake: ")] == [False]
        assert [holds for name, holds in found.items() if name.startswith("right way: ")] == [True]
        assert page.answer["texts"]["mistake"].startswith("Mistake: ")
        assert set(shown(page)) <= page.numbers.keys()

    def test_one_over_p(self, open_dropout: Open) -> None:
        page = open_dropout(mistake=FACTOR, p=0.2)
        assert page.numbers["wrong"].tolist() == pytest.approx([1, 0, 2.5])
        assert page.numbers["wrong_expected"].tolist() == pytest.approx([0.8, 1.2, 2.0])
        page.control("p", 0.5)  # where it hides
        assert same_numbers(page.numbers["wrong"], page.numbers["dropped"])
        assert all(checks(page).values())
        page.control("p", 0)
        assert page.answer["state"] == "invalid"
        assert "1/p has no value at 0" in page.answer["message"]

    def test_before_softmax(self, open_dropout: Open) -> None:
        page = open_dropout(mistake=BEFORE, attention_keep=[[1, 1, 0], [0, 1, 1], [1, 0, 1]])
        wrong = page.numbers["wrong_weights"]
        assert wrong[0].isnan().all()  # −∞ · 0 takes its row along
        assert (wrong[1:].sum(dim=1) - 1).abs().max() < 1e-15
        assert wrong[2, 1] > 0  # dropped, and has a share

    @pytest.mark.parametrize("mistake", [FACTOR, NO_GRAD])
    def test_mistakes_of_a_row_leave_nothing_empty_inside(self, mistake: str, open_dropout: Open) -> None:
        page = open_dropout(mistake=mistake, inside=True)
        assert set(shown(page)) <= page.numbers.keys()
        texts = [b["text"] for b in page.explorable.view.layout_blocks if b["kind"] == "text"]
        assert set(texts) <= page.answer["texts"].keys()


class TestControls:
    def test_every_control_is_a_trait_and_an_argument(self, dropout: FrontEnd) -> None:
        values = {"training": False, "p": 0.3, "inside": True, "mistake": NO_GRAD, "decimals": 6}
        values |= {"gradient": True, "preset": "a smaller p"}
        kinds = ("select", "toggle", "stepper", "slider")
        named = {c["name"] for row in dropout.explorable.bar.controls for c in row if c["kind"] in kinds}
        assert named == values.keys()
        for name, value in values.items():
            made, moved, put = DropoutExplorable(**{name: value}), DropoutExplorable(), DropoutExplorable()
            FrontEnd(moved).control(name, value)
            setattr(put, name, value)
            assert made.code() == moved.code() == put.code() != "DropoutExplorable()"
            assert made.bar.values[name] == moved.bar.values[name] == value

    def test_every_command_is_known(self, dropout: FrontEnd) -> None:
        kinds = {c["name"] for row in dropout.explorable.bar.controls for c in row if c["kind"] == "command"}
        assert kinds - {"undo", "redo", "reset"} == dropout.explorable.commands().keys()

    def test_a_drag_of_p_is_one_step(self, dropout: FrontEnd) -> None:
        for n, (p, gesture) in enumerate([(0.45, 0), (0.4, 0), (0.1, 0), (0.2, 1), (0.25, 1)], 1):
            edit = {"name": "p", "value": p, "gesture": gesture}
            receive(dropout.explorable.bar, request={"id": n, "nonce": "page", "edits": [edit]})
        steps = [dropout.explorable.p]
        while "undo" not in dropout.explorable.bar.disabled:
            dropout.control("undo")
            steps.append(dropout.explorable.p)
        assert steps == [0.25, 0.1, 0.5]

    def test_results_not_made_yet_are_none(self) -> None:
        row, inside = DropoutExplorable(), DropoutExplorable(inside=True)
        assert (row.attention, inside.trace, inside.table, row.sample) == (None,) * 4
        assert row.trace is not None
        assert inside.attention is not None


def cells(page: FrontEnd) -> Iterator[tuple[str, tuple[int, ...]]]:
    for stage in shown(page):
        for place in itertools.product(*map(range, page.answer["arrays"][stage]["shape"])):
            yield stage, place


@pytest.mark.parametrize(
    "arguments",
    [
        {"draws": "BDDC"},
        {"training": False},
        {"inside": True},
        {"mistake": FACTOR, "p": 0.25},
        {"mistake": BEFORE},
        {"mistake": NO_GRAD},
        {"mistake": LEFT_ON},
    ],
    ids=str,
)
def test_every_number_explains_itself(arguments: dict[str, Any], open_dropout: Open) -> None:
    page = open_dropout(weights=[0.3, 0.7], keep=[1, 0], **arguments)
    receive(page.explorable.view, selected={"stage": shown(page)[0], "index": [0] * 2})
    last, given = page.explorable._last, page.explorable.matrices()
    tensors = {**last.tensors, **given}
    versions = {name: last.tape.version(tensors[name]) for name in shown(page)}
    for stage, place in cells(page):
        found = explain_cell(last.tape, versions, stage, place)
        assert found is not None, (stage, place)
        made = stage not in given
        assert bool(found["mathml"]) == made, (stage, place, found["note"])
        assert (found["note"] == "") == made
    faults, _ = examined(last.tape)
    assert faults == []
