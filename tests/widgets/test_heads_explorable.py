"""HeadSplitExplorable: each element is where torch puts it, is followed, and explains itself."""

import itertools
import math
from collections.abc import Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F
import traitlets
from torch import Tensor

from attnlab.widgets import HeadSplitExplorable
from attnlab.widgets.heads import COLOURS, MISTAKES, PRESETS
from helpers.explained import assert_all_explained
from helpers.front_end import FrontEnd, assert_strict_json, receive, same_numbers

NONE, MERGE, SPLIT = MISTAKES
ROUTE = ("projected", "grouped", "heads", "back", "merged")
WRONG = ("wrong_heads", "wrong_merged")
# Batch, time, width, heads: mutually distinct sizes, then B = H, T = d, T = H, H = 1, T = 1, d = 1.
SIZES = [
    (1, 3, 4, 2),
    (2, 3, 8, 4),
    (2, 5, 6, 3),
    (2, 3, 4, 2),
    (1, 2, 4, 2),
    (3, 4, 12, 3),
    (2, 3, 5, 1),
    (3, 1, 8, 4),
    (1, 1, 1, 1),
    (4, 8, 24, 8),
]


def open_page(**arguments: Any) -> FrontEnd:
    return FrontEnd(HeadSplitExplorable(**arguments))


def sized(batch: int, time: int, width: int, heads: int, **arguments: Any) -> FrontEnd:
    return open_page(**{"element": 0} | arguments, batch=batch, time=time, width=width, heads=heads)


def by_hand(batch: int, time: int, width: int, heads: int) -> dict[str, Tensor]:
    """Every stage element by element, from the arithmetic h = ⌊c ÷ d⌋, r = c mod d."""
    d = width // heads
    stages = {
        "projected": torch.empty(batch, time, width),
        "grouped": torch.empty(batch, time, heads, d),
        "heads": torch.empty(batch, heads, time, d),
        "wrong_heads": torch.empty(batch, heads, time, d),
        "wrong_merged": torch.empty(batch, time, width),
    }
    for element, (b, t, c) in enumerate(itertools.product(range(batch), range(time), range(width))):
        h, r = c // d, c % d
        stages["projected"][b, t, c] = element
        stages["grouped"][b, t, h, r] = element
        stages["heads"][b, h, t, r] = element
        # By reshape alone the numbers stay in line, and are only cut anew.
        in_line = element % (time * width)
        stages["wrong_heads"][b, in_line // (time * d), in_line // d % time, in_line % d] = element
        in_line = (h * time + t) * d + r
        stages["wrong_merged"][b, in_line // width, in_line % width] = element
    stages |= {"back": stages["grouped"], "merged": stages["projected"]}
    return {name: tensor.double() for name, tensor in stages.items()}


def place_of(stage: Tensor, element: int) -> list[int]:
    (found,) = (stage == element).nonzero().tolist()
    return found


def misplaced(batch: int, time: int, width: int, heads: int) -> int:
    """Position t of head h moves from place t·H + h of a sequence to h·T + t."""
    moved = sum(t * heads + h != h * time + t for t in range(time) for h in range(heads))
    return batch * moved * (width // heads)


def tag(page: FrontEnd, name: str) -> dict[str, list[int]]:
    """Stage → place of the elements of one tag."""
    (found,) = [dict(t["cells"]) for t in page.answer["tags"] if t["tag"] == name]
    return found


def tags(page: FrontEnd) -> list[str]:
    return [t["tag"] for t in page.answer["tags"]]


def drawn(page: FrontEnd) -> Iterator[str]:
    for block in page.explorable.view.layout_blocks:
        if block["kind"] == "grids":
            yield from (item["stage"] for item in block["items"])


class TestIds:
    @pytest.mark.parametrize("size", SIZES, ids=str)
    def test_every_stage(self, size: tuple[int, int, int, int]) -> None:
        page = sized(*size)
        shown = page.numbers
        for name, expected in by_hand(*size).items():
            assert same_numbers(shown[name], expected), name
        assert (page.answer["state"], page.answer["message"]) == ("ready", "")
        for stage in page.explorable.trace.stages():
            assert same_numbers(stage.tensor.clone(), shown[stage.name])

    def test_the_default_of_the_facts(self) -> None:
        page = open_page()
        assert page.numbers["projected"].tolist() == [[[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11]]]
        assert page.explorable.element == 2
        assert tag(page, "first") == {
            "projected": [0, 0, 2],
            "grouped": [0, 0, 1, 0],
            "heads": [0, 1, 0, 0],
            "back": [0, 0, 1, 0],
            "merged": [0, 0, 2],
        }
        assert tags(page) == ["first"]
        assert page.answer["texts"]["way"] == (
            "Element 2, column c = 2: head ⌊2 ÷ 2⌋ = 1, r = 2 mod 2 = 0. "
            "projected (batch 0, time 0, width 2) → grouped (batch 0, time 0, head 1, r 0) → "
            "heads (batch 0, head 1, time 0, r 0) → back (batch 0, time 0, head 1, r 0) → "
            "merged (batch 0, time 0, width 2)."
        )

    def test_fuxictr_30(self) -> None:
        page = sized(2, 3, 8, 4, element=45)
        assert tag(page, "first") == {
            "projected": [1, 2, 5],
            "grouped": [1, 2, 2, 1],
            "heads": [1, 2, 2, 1],
            "back": [1, 2, 2, 1],
            "merged": [1, 2, 5],
        }
        assert "heads (batch 1, head 2, time 2, r 1)" in page.answer["texts"]["way"]
        assert "c = 5: head ⌊5 ÷ 2⌋ = 2, r = 5 mod 2 = 1" in page.answer["texts"]["way"]
        page.control("mistake", SPLIT)
        assert tag(page, "wrong") == {"projected": [1, 2, 5], "wrong_heads": [1, 3, 1, 1]}
        assert page.answer["texts"]["mistake"] == (
            "split by reshape alone: 45 lands at (1, 3, 1, 1), and 41 sits in its place (1, 2, 2, 1)."
        )

    def test_transformer_from_scratch_6(self) -> None:
        page = sized(1, 2, 4, 2, mistake=MERGE)
        # The merge of (1,2,2,2) = 0 … 7 is [[0,1,4,5],[2,3,6,7]]; the heads of 0 … 7 are 0 1 4 5 2 3 6 7.
        assert page.numbers["wrong_merged"].tolist() == [[[0, 1, 4, 5], [2, 3, 6, 7]]]
        assert page.numbers["merged"].tolist() == [[[0, 1, 2, 3], [4, 5, 6, 7]]]

    @pytest.mark.parametrize("step", range(1, 6))
    def test_the_step_ends_the_way(self, step: int) -> None:
        page = open_page(step=step, other=7)
        assert list(tag(page, "first")) == list(tag(page, "second")) == list(ROUTE[:step])
        assert page.explorable.view.step == step
        for name in ROUTE:
            assert page.explorable.view.stages[name]["step"] == ROUTE.index(name) + 1


class TestMistakes:
    def test_merge_on_the_default(self) -> None:
        page = open_page(mistake=MERGE)
        assert tag(page, "wrong") == {"heads": [0, 1, 0, 0], "wrong_merged": [0, 1, 2]}
        assert page.answer["texts"]["mistake"] == (
            "merge without transposing back: 2 lands at (0, 1, 2), and 4 sits in its place (0, 0, 2)."
        )
        page.control("element", 6)
        assert page.answer["texts"]["mistake"] == (
            "merge without transposing back: 6 lands at (0, 2, 0), and 2 sits in its place (0, 1, 2)."
        )
        assert tag(page, "wrong")["wrong_merged"] == [0, 2, 0]

    @pytest.mark.parametrize("mistake", [MERGE, SPLIT])
    @pytest.mark.parametrize("size", SIZES, ids=str)
    def test_places_intruders_and_counts(self, size: tuple[int, int, int, int], mistake: str) -> None:
        hand = by_hand(*size)
        right, wrong = {
            MERGE: (hand["merged"], hand["wrong_merged"]),
            SPLIT: (hand["heads"], hand["wrong_heads"]),
        }[mistake]
        count = math.prod(size[:3])
        last = count - 1
        page = sized(*size, mistake=mistake)
        for element in sorted({0, 1 % count, count // 2, last}):
            page.control("element", element)
            place, landed = tuple(place_of(right, element)), tuple(place_of(wrong, element))
            intruder = int(wrong[place])
            text = page.answer["texts"]["mistake"]
            if landed == place:
                assert text.startswith(f"{mistake}: {element} stays at {place}.")
            else:
                where = f"{element} lands at {landed}, and {intruder} sits in its place {place}."
                assert text == f"{mistake}: {where}"
            assert list(tag(page, "wrong").values())[1] == list(landed)
        gone = misplaced(*size)
        assert gone == int((right != wrong).sum())
        back, check = page.answer["checks"]
        assert (back["holds"], back["text"]) == (True, f"0 of {count} elements misplaced")
        assert (check["holds"], check["text"]) == (gone == 0, f"{gone} of {count} elements misplaced")
        assert check["name"] == f"{mistake}: every element in its place"
        assert ("Here the mistake hides" in text) == (gone == 0)

    @pytest.mark.parametrize("mistake", [MERGE, SPLIT])
    @pytest.mark.parametrize(
        ("size", "gone"),
        [
            ((1, 3, 4, 2), 8),
            ((2, 3, 8, 4), 40),
            ((1, 3, 4, 1), 0),
            ((1, 1, 4, 2), 0),
            ((4, 1, 24, 8), 0),
            ((1, 2, 4, 2), 4),
        ],
        ids=str,
    )
    def test_where_it_hides(self, size: tuple[int, int, int, int], gone: int, mistake: str) -> None:
        page = sized(*size, mistake=mistake)
        assert page.answer["checks"][1]["text"] == f"{gone} of {math.prod(size[:3])} elements misplaced"
        if gone == 0:
            assert page.answer["texts"]["mistake"].endswith("Here the mistake hides: nothing is misplaced.")
            right, wrong = {MERGE: ("merged", WRONG[1]), SPLIT: ("heads", WRONG[0])}[mistake]
            assert same_numbers(page.numbers[right], page.numbers[wrong])

    def test_only_the_chosen_mistake_is_drawn(self) -> None:
        page = open_page()
        for mistake, extra in ((NONE, []), (MERGE, ["wrong_merged"]), (SPLIT, ["wrong_heads"]), (NONE, [])):
            page.control("mistake", mistake)
            assert sorted(drawn(page)) == sorted([*ROUTE, *extra])
            assert ("wrong" in tags(page)) == bool(extra)
            assert len(page.answer["checks"]) == 1 + len(extra)
            assert bool(page.answer["texts"]["mistake"]) == bool(extra)


class TestSizes:
    def test_heads_that_do_not_divide_are_refused_and_the_last_result_is_kept(self) -> None:
        page = open_page()
        before, trace = page.numbers, page.explorable.trace
        page.control("width", 5)
        answer = page.answer
        assert answer["state"] == page.explorable.state == "invalid"
        assert answer["message"] == "Width 5 cannot be split into 2 equal heads."
        assert page.explorable.trace is trace
        assert all(same_numbers(tensor, before[name]) for name, tensor in page.numbers.items())
        assert page.explorable.bar.values["width"] == 5
        page.control("width", 6)
        assert page.answer["state"] == "ready"
        assert page.numbers["heads"].shape == (1, 2, 3, 3)

    @pytest.mark.parametrize("size", [(1, 2, 5, 2), (1, 3, 4, 3), (2, 3, 1, 8), (4, 8, 23, 7)], ids=str)
    def test_both_numbers_are_said(self, size: tuple[int, int, int, int]) -> None:
        with pytest.raises(ValueError, match=f"idth {size[2]} cannot be split into {size[3]} equal heads"):
            sized(*size)

    @pytest.mark.parametrize(("name", "most"), [("batch", 4), ("time", 8), ("width", 24), ("heads", 8)])
    def test_limits(self, name: str, most: int) -> None:
        page = sized(1, 1, 24, 1)
        assert page.explorable.bar.limits[name] == most
        page.control(name, most)
        assert page.answer["state"] == "ready"
        for value in (most + 1, 0, -1, 10**30):
            page.control(name, value)
            assert getattr(page.explorable, name) == most
            with pytest.raises(traitlets.TraitError):
                setattr(page.explorable, name, value)
        assert page.answer["state"] == "ready"

    def test_fewer_elements_take_the_followed_one_along(self) -> None:
        page = sized(2, 3, 8, 4, element=45, other=40)
        for name, value, last in (("time", 2, 31), ("batch", 1, 15), ("width", 4, 7)):
            page.control(name, value)
            assert (page.explorable.element, page.explorable.other) == (last, last)
            assert page.answer["state"] == "ready"
            assert page.explorable.bar.limits["element"] == last
        page.explorable.undo()
        assert (page.explorable.width, page.explorable.element) == (8, 15)
        page.control("width", 16)
        assert page.explorable.element == 15

    def test_fewer_elements_from_python(self) -> None:
        page = open_page(time=1, width=2)
        assert page.explorable.element == 1
        page.explorable.assign(batch=3, time=2)
        page.explorable.element = 11
        page.explorable.assign(batch=1, time=1)
        assert (page.explorable.element, page.explorable.state) == (1, "ready")
        page.explorable.time = 2
        page.explorable.element = page.explorable.other = 3
        page.explorable.time = 1
        assert (page.explorable.element, page.explorable.other, page.explorable.state) == (1, 1, "ready")

    @pytest.mark.parametrize("name", ["element", "other"])
    def test_elements_that_there_are_not(self, name: str) -> None:
        with pytest.raises(ValueError, match=f"(?i)^{name}: expected 0 to 11, got 12"):
            open_page(**{name: 12})
        page = open_page()
        before = page.answer["tags"]
        setattr(page.explorable, name, 700)
        assert page.answer["state"] == "invalid"
        assert page.answer["message"].lower() == f"{name}: expected 0 to 11, got 700."
        assert page.answer["tags"] == before
        with pytest.raises(traitlets.TraitError):
            setattr(page.explorable, name, 768)

    def test_the_largest_message_is_small(self) -> None:
        page = sized(4, 8, 24, 8, element=767, other=0, mistake=MERGE)
        assert assert_strict_json(page.answer) < 120_000


class TestSelecting:
    @pytest.mark.parametrize("mistake", MISTAKES)
    @pytest.mark.parametrize("size", SIZES[1:4:2], ids=str)
    def test_any_number_on_any_stage(self, size: tuple[int, int, int, int], mistake: str) -> None:
        page = sized(*size, mistake=mistake)
        hand = by_hand(*size)
        elements = itertools.cycle((math.prod(size[:3]) - 1, 4, 7))
        for stage in list(drawn(page)):
            element = next(elements)
            index = place_of(hand[stage], element)
            panel = page.select(stage, index)
            assert page.explorable.element == element
            assert page.explorable.bar.values["element"] == element
            assert page.explorable.view.selected == {"stage": stage, "index": index}
            assert (panel["stage"], panel["index"]) == (stage, index)
            assert tag(page, "first") == {name: place_of(hand[name], element) for name in ROUTE}

    @pytest.mark.parametrize("stage", [*ROUTE, *WRONG])
    def test_the_stepper_moves_the_selection_along(self, stage: str) -> None:
        page = sized(2, 3, 8, 4, mistake=SPLIT)
        hand = by_hand(2, 3, 8, 4)
        page.select(stage, [0] * hand[stage].ndim)
        for element in (1, 2, 45, 17):
            page.control("element", element)
            assert page.explorable.element == element
            index = place_of(hand[stage], element)
            assert page.explorable.view.selected == {"stage": stage, "index": index}
            assert page.answer["explanation"]["index"] == index

    def test_new_sizes_move_the_selection_along(self) -> None:
        page = open_page()
        page.select("heads", [0, 1, 0, 0])
        page.control("heads", 4)
        assert page.explorable.element == 2
        assert page.explorable.view.selected == {"stage": "heads", "index": [0, 2, 0, 0]}
        page.control("heads", 3)  # refused
        page.control("element", 3)
        assert page.answer["message"] == "Width 4 cannot be split into 3 equal heads."
        page.control("heads", 2)
        assert page.explorable.view.selected == {"stage": "heads", "index": [0, 1, 0, 1]}
        page.explorable.undo()
        page.explorable.undo()
        page.explorable.undo()
        assert (page.explorable.heads, page.explorable.element) == (4, 2)
        assert page.explorable.view.selected == {"stage": "heads", "index": [0, 2, 0, 0]}
        page.control("preset", "2 sequences, 4 heads")
        assert page.explorable.element == 45
        assert page.explorable.view.selected == {"stage": "heads", "index": [1, 2, 2, 1]}
        assert page.answer["explanation"]["index"] == [1, 2, 2, 1]

    def test_an_element_that_there_is_not_leaves_the_selection(self) -> None:
        page = open_page()
        page.select("back", [0, 2, 1, 1])
        page.explorable.element = 99
        assert page.answer["message"] == "Element: expected 0 to 11, got 99."
        assert page.explorable.view.selected == {"stage": "back", "index": [0, 2, 1, 1]}

    @pytest.mark.parametrize(
        "selected",
        [
            {},
            {"stage": "heads"},
            {"stage": "heads", "index": 5},
            {"stage": "heads", "index": [0, 1]},
            {"stage": "heads", "index": [0, 2, 0, 0]},
            {"stage": "heads", "index": [0, -1, 0, 0]},
            {"stage": "heads", "index": [0, 0.5, 0, 0]},
            {"stage": "heads", "index": ["0", "0", "0", "0"]},
            {"stage": "nothing", "index": [0, 0, 0]},
            {"stage": "tint_projected", "index": [0, 0, 3]},
            {"stage": "x", "index": [0, 0, 3]},
            None,
        ],
        ids=str,
    )
    def test_what_follows_nothing(self, selected: Any) -> None:
        page = open_page()
        receive(page.explorable.view, selected=selected)
        assert (page.explorable.element, page.answer["state"]) == (2, "ready")
        assert page.select("heads", [0, 0, 2, 1]) is not None
        assert page.explorable.element == 9


class TestComparing:
    def test_pin_and_unpin(self) -> None:
        page = open_page(element=6)
        assert "unpin" in page.explorable.bar.disabled
        page.control("pin")
        assert page.explorable.other == 6
        assert "unpin" not in page.explorable.bar.disabled
        page.select("merged", [0, 2, 3])
        assert (page.explorable.element, page.explorable.other) == (11, 6)
        assert tag(page, "second")["heads"] == [0, 1, 1, 0]
        assert tag(page, "first")["heads"] == [0, 1, 2, 1]
        assert page.answer["texts"]["other"].startswith("Element 6, column c = 2")
        assert {"kind": "text", "text": "other"} in page.explorable.view.layout_blocks
        page.control("unpin")
        assert page.explorable.other == -1
        assert tags(page) == ["first"]
        assert page.answer["texts"]["other"] == ""
        assert {"kind": "text", "text": "other"} not in page.explorable.view.layout_blocks

    def test_the_second_one_has_the_same_mistake_as_none(self) -> None:
        page = open_page(other=7, mistake=MERGE)
        assert tags(page) == ["first", "second", "wrong"]
        assert "2 lands" in page.answer["texts"]["mistake"]


class TestColours:
    @pytest.mark.parametrize("colour", COLOURS)
    @pytest.mark.parametrize("size", SIZES[:-1], ids=str)
    def test_an_element_keeps_its_colour(self, size: tuple[int, int, int, int], colour: str) -> None:
        page = sized(*size, colour=colour)
        width, heads = size[2:]
        shown = page.numbers
        for stage in (*ROUTE, *WRONG):
            assert page.explorable.view.stages[stage]["tint"] == f"tint_{stage}"
            if colour == "none":
                assert f"tint_{stage}" not in shown
                continue
            tints = shown[f"tint_{stage}"]
            assert tints.shape == shown[stage].shape
            for element, tint in zip(shown[stage].flatten().tolist(), tints.flatten().tolist(), strict=True):
                _, t, c = place_of(shown["projected"], int(element))
                assert tint == (c // (width // heads) if colour == "head" else t)


class TestAttention:
    def test_two_heads_each_with_a_pattern_of_its_own(self) -> None:
        page = open_page(attention=True)
        weights = page.numbers["weights"]
        assert weights.shape == (1, 2, 3, 3)
        assert (weights[0, 0] - weights[0, 1]).abs().max() > 0.1
        x = page.numbers["x"]
        split = x.reshape(1, 3, 2, 2).transpose(1, 2)
        own = F.scaled_dot_product_attention(split, split, split, is_causal=True)
        torch.testing.assert_close(page.numbers["head_output"], own, rtol=0, atol=1e-15)
        merged = own.transpose(1, 2).reshape(1, 3, 4)
        torch.testing.assert_close(page.numbers["output"], merged, rtol=0, atol=1e-15)
        assert page.numbers["allowed"].tolist() == [[i >= j for j in range(3)] for i in range(3)]
        assert weights[0, :, 0].tolist() == [[1, 0, 0]] * 2
        assert sorted(drawn(page)) == ["head_output", "masked", "output", "q_heads", "weights", "x"]
        assert all(check["holds"] for check in page.answer["checks"])

    def test_the_wrong_merge_moves_the_output(self) -> None:
        page = open_page(attention=True, mistake=MERGE)
        shown = page.numbers
        assert same_numbers(shown["wrong_output"], shown["head_output"].reshape(1, 3, 4))
        moved = (shown["wrong_output"] - shown["output"]).abs().max().item()
        assert moved > 0.5
        *good, check = page.answer["checks"]
        assert all(c["holds"] for c in good)
        assert check["name"] == "merge without transposing back: the output is the same"
        assert not check["holds"]
        assert "wrong_output" in drawn(page)
        page.control("mistake", NONE)
        assert "wrong_output" not in page.numbers
        assert all(c["holds"] for c in page.answer["checks"])

    def test_numbers_of_x(self) -> None:
        page = open_page(attention=True)
        page.value("x", [0, 2, 3], 50)
        assert same_numbers(page.numbers["x"], page.explorable.x.clone())
        assert page.explorable.x[0, 2, 3] == 50
        # The last position is read by no earlier one, and only by the second head.
        assert same_numbers(page.numbers["output"][0, :2], open_page(attention=True).numbers["output"][0, :2])
        page.command("undo")
        assert page.explorable.x[0, 2, 3] == 1
        answer = page.text("x", "101", [0, 1, 2])
        assert answer["state"] == "invalid"
        assert all(word in answer["message"] for word in ("X[", "101", "−100 to 100"))
        with pytest.raises(ValueError, match="X: expected batch × time × width, got 2 axes"):
            open_page(x=[[1, 2, 3, 4]] * 3)

    @pytest.mark.parametrize(
        "size",
        [(2, 5, 24, 3), (3, 2, 6, 3), (2, 3, 4, 2), (1, 4, 4, 1), (4, 1, 8, 8), (4, 8, 24, 8)],
        ids=str,
    )
    def test_x_of_any_size_and_number_of_heads(self, size: tuple[int, int, int, int]) -> None:
        batch, time, width, heads = size
        x = torch.randn(batch, time, width, dtype=torch.float64, generator=torch.manual_seed(1)).round(
            decimals=3
        )
        page = open_page(attention=True, x=x, heads=heads)
        split = x.reshape(batch, time, heads, width // heads).transpose(1, 2)
        assert same_numbers(page.numbers["q_heads"], split)
        own = F.scaled_dot_product_attention(split, split, split, is_causal=True)
        merged = own.transpose(1, 2).reshape(batch, time, width)
        torch.testing.assert_close(page.numbers["output"], merged, rtol=0, atol=1e-14)
        assert page.numbers["weights"].shape == (batch, heads, time, time)
        assert page.answer["texts"]["mask"] == f"÷ √{width // heads}, mask"
        assert all(check["holds"] for check in page.answer["checks"])

    def test_example_of_the_facts(self) -> None:
        page = open_page(preset="attention, 3 heads of width 8")
        shapes = {name: tuple(tensor.shape) for name, tensor in page.numbers.items()}
        assert shapes["x"] == (2, 5, 24)
        assert shapes["q_heads"] == (2, 3, 5, 8)
        assert shapes["weights"] == (2, 3, 5, 5)
        assert shapes["output"] == (2, 5, 24)
        for sequence in page.numbers["weights"]:
            for one, other in itertools.combinations(sequence, 2):
                assert (one - other).abs().max() > 0.3

    def test_sizes_of_x(self) -> None:
        page = open_page(attention=True)
        before = page.numbers["x"]
        for axis, shape in {"batch": (2, 3, 4), "time": (2, 4, 4), "width": (2, 4, 5)}.items():
            page.resize(axis, 1)
            assert page.explorable.x.shape == shape
        assert page.answer["message"] == "Width 5 cannot be split into 2 equal heads."
        page.resize("width", 1)
        assert page.answer["state"] == "ready"
        assert same_numbers(page.numbers["x"][:1, :3, :4], before)
        assert not page.numbers["x"][1].any()
        assert set(page.explorable.bar.disabled) >= {"batch", "time", "width"}
        assert "heads" not in page.explorable.bar.disabled
        page.control("heads", 3)
        assert page.numbers["weights"].shape == (2, 3, 4, 4)

    def test_x_is_widened_for_the_heads_that_the_ids_have(self) -> None:
        page = sized(2, 3, 24, 3)
        page.control("attention", True)
        assert page.answer["state"] == "ready"
        assert page.numbers["x"].shape == (1, 3, 6)
        assert same_numbers(page.numbers["x"][..., :4], open_page().explorable.x.clone())
        assert not page.numbers["x"][..., 4:].any()
        page.command("undo")
        assert page.explorable.x.shape == (1, 3, 4)

    def test_the_ids_come_back(self) -> None:
        page = sized(2, 3, 8, 4, element=45)
        before = page.numbers
        page.control("attention", True)
        assert page.answer["tags"] == []
        assert page.select("weights", [0, 1, 2, 0]) is not None
        assert page.explorable.element == 45
        assert {"pin", "unpin"} <= set(page.explorable.bar.disabled)
        page.control("attention", False)
        assert all(same_numbers(tensor, before[name]) for name, tensor in page.numbers.items())
        assert page.explorable.element == 45


CHANGED: dict[str, Any] = {
    "x": [[[0.5, 1, 2, 3, -1, 2]] * 3] * 2,
    "batch": 2,
    "time": 5,
    "width": 6,
    "heads": 3,
    "mistake": SPLIT,
    "attention": True,
    "element": 7,
    "other": 3,
    "colour": "time",
    "step": 2,
    "decimals": 6,
    "gradient": True,
    "chosen": "x,1,2,3",
}


class TestState:
    def test_every_control_is_an_argument_and_a_trait(self) -> None:
        plain = open_page()
        names = {c["name"] for row in plain.explorable.bar.controls for c in row} - {"preset"}
        commands = {"undo", "redo", "reset", "link", "export", "pin", "unpin"}
        assert names - commands == CHANGED.keys() - {"x", "other", "chosen"}
        assert {n.split(".")[-1] for n in plain.explorable.bar.address_names} == {*CHANGED, "preset"}
        for name in names - commands:
            value = {"width": 8, "heads": 4}.get(name, CHANGED[name])
            as_argument, as_trait = open_page(**{name: value}), open_page()
            setattr(as_trait.explorable, name, value)
            plain.control("reset")
            plain.control(name, value)
            for page in (as_argument, as_trait, plain):
                assert getattr(page.explorable, name) == page.explorable.bar.values[name] == value
                assert page.answer["state"] == "ready"
                assert page.answer["tags"] == as_argument.answer["tags"]
                for stage, tensor in as_argument.numbers.items():
                    assert same_numbers(page.numbers[stage], tensor)
            setattr(plain.explorable, name, plain.explorable.traits()[name].default())

    @pytest.mark.parametrize("preset", PRESETS)
    @pytest.mark.parametrize("changed", [{}, CHANGED], ids=["as it is", "changed"])
    def test_address_and_code_there_and_back(self, preset: str, changed: dict[str, Any]) -> None:
        made = HeadSplitExplorable(preset=preset, **changed)
        opened = open_page()
        opened.open("?" + made.address)
        assert opened.answer["state"] == "ready"
        again = eval(made.code(), {"HeadSplitExplorable": HeadSplitExplorable})
        for other in (opened.explorable, again):
            assert other.address == made.address
            for name in (*CHANGED, "preset"):
                one, two = getattr(other, name), getattr(made, name)
                assert same_numbers(one, two) if isinstance(one, Tensor) else one == two, name
        for stage, tensor in FrontEnd(made).numbers.items():
            assert same_numbers(opened.numbers[stage], tensor)

    def test_a_short_address(self) -> None:
        page = open_page()
        assert page.explorable.address == ""
        page.select("projected", [0, 1, 1])
        page.control("mistake", MERGE)
        assert page.explorable.address == (
            "element=5&mistake=merge%20without%20transposing%20back&chosen=projected,0,1,1"
        )

    @pytest.mark.parametrize(
        ("search", "words"),
        [
            ("?width=5", "Width 5 cannot be split into 2 equal heads."),
            ("?batch=5", "The link's batch was not used"),
            ("?element=12", "Element: expected 0 to 11, got 12."),
            ("?mistake=merge", "The link's mistake was not used"),
            (
                "?x=1,2;;3,4;5,6",
                "The link's x was not used: X batch 2: expected 1 × 2 numbers as in batch 1, got 2",
            ),
        ],
    )
    def test_hostile_links(self, search: str, words: str) -> None:
        page = open_page()
        page.open(search)
        assert page.answer["state"] == "invalid"
        assert words in page.answer["message"]

    @pytest.mark.parametrize("name", ["batch", "time", "width", "heads", "mistake", "attention", "element"])
    def test_undo(self, name: str) -> None:
        page = open_page(width=12, time=2, element=20)
        before = page.explorable.code()
        page.control(name, CHANGED[name])
        after = page.explorable.code()
        assert after != before
        page.command("undo")
        assert page.explorable.code() == before
        page.command("redo")
        assert page.explorable.code() == after

    def test_undo_of_a_selection(self) -> None:
        page = open_page()
        page.select("heads", [0, 1, 1, 1])
        assert page.explorable.element == 7
        page.command("undo")
        assert page.explorable.element == 2
        assert page.explorable.view.selected == {"stage": "heads", "index": [0, 1, 0, 0]}

    def test_what_only_tells_is_no_step_of_undo(self) -> None:
        page = open_page()
        for name in ("other", "colour", "step", "decimals", "gradient"):
            page.control(name, CHANGED[name])
        assert {"undo", "redo"} <= set(page.explorable.bar.disabled)

    @pytest.mark.parametrize("attention", [False, True])
    def test_numbers_to_copy(self, attention: bool) -> None:
        page = open_page(attention=attention)
        page.control("export", "numbers")
        blocks = page.explorable.bar.clipboard["text"].split("\n\n")
        stages = page.explorable.attended if attention else page.explorable.trace
        assert [block.split(" · ")[0] for block in blocks] == [stage.name for stage in stages.stages()]
        assert f"<figcaption>{'weights' if attention else 'grouped'} · batch 1 × " in page.explorable.still()


@pytest.mark.parametrize(
    ("size", "mistake"),
    [((1, 3, 4, 2), NONE), ((2, 3, 8, 4), MERGE), ((2, 3, 4, 2), SPLIT), ((2, 1, 2, 2), SPLIT)],
    ids=str,
)
def test_every_id_explains_itself(size: tuple[int, int, int, int], mistake: str) -> None:
    extra = {NONE: [], MERGE: ["wrong_merged"], SPLIT: ["wrong_heads"]}[mistake]
    assert_all_explained(sized(*size, mistake=mistake), [*ROUTE, *extra])


@pytest.mark.parametrize("mistake", [NONE, MERGE])
def test_every_number_of_attention_explains_itself(mistake: str) -> None:
    shown = ["x", "q_heads", "masked", "weights", "head_output", "output"]
    assert_all_explained(
        open_page(attention=True, mistake=mistake), [*shown, *(["wrong_output"] * (mistake == MERGE))]
    )
