"""What the reader does to the numbers: edits, wrong input, undo, and requests that make no sense."""

import logging
import math
import re
from collections.abc import Callable
from typing import Any

import pytest
import torch

from attnlab.widgets import AttentionExplorable
from helpers.front_end import FrontEnd, same_numbers

OpenPage = Callable[..., FrontEnd]
MINUS = "\N{MINUS SIGN}"
STAGES = (
    "scores",
    "scaled",
    "masked",
    "weights",
    "dropped",
    "output",
    "row_weights",
    "row_output",
    "allowed",
)


def matrices(page: FrontEnd) -> dict[str, list[list[float]]]:
    return {name: getattr(page.explorable, name).tolist() for name in "qkv"}


class TestKinds:
    @pytest.mark.parametrize("value", [0.1, -100, 100, 0, 7.77, 1e-8, 5e-324, -0.0])
    def test_one_number(self, value: float, page: FrontEnd) -> None:
        answer = page.value("k", [2, 0], value)
        expected = torch.tensor([[1, 0], [0, 1], [value, 1]], dtype=torch.float64)
        assert same_numbers(page.numbers["k"], expected)
        assert same_numbers(page.explorable.k.clone(), expected)
        assert page.numbers["scores"][0, 2].item() == value
        assert (answer["state"], answer["refused"], answer["wrong"]) == ("ready", None, None)

    @pytest.mark.parametrize(
        ("text", "value"),
        [("7.77", 7.77), (" 1e-8 ", 1e-8), (f"{MINUS}.5", -0.5), ("-0.0", -0.0), ("+3.", 3)],
    )
    def test_one_number_as_text(self, text: str, value: float, page: FrontEnd) -> None:
        page.text("q", text, [0, 1])
        assert page.numbers["q"][0, 1].item() == value
        assert math.copysign(1, page.numbers["q"][0, 1].item()) == math.copysign(1, value)

    @pytest.mark.parametrize(
        "text",
        [
            "5 6\n7 8\n9 10",
            "5,6;7,8;9,10",
            "[[5, 6], [7, 8], [9, 10]]",
            "5\t6\r\n7\t8\r\n9\t10\r\n",
            "tensor([[5., 6.],\n [7., 8.], [9., 10.]])",
        ],
        ids=["lines", "semicolons", "python", "spreadsheet", "torch"],
    )
    def test_a_whole_matrix(self, text: str, page: FrontEnd) -> None:
        page.text("v", text)
        assert page.numbers["v"].tolist() == [[5, 6], [7, 8], [9, 10]]
        assert page.numbers["output"][0].tolist() == [5, 6]

    @pytest.mark.parametrize(
        ("axis", "larger"),
        [
            ("query", {"q": [[1, 0], [0, 1], [1, 1], [0, 0]]}),
            ("key", {"k": [[1, 0], [0, 1], [1, 1], [0, 0]], "v": [[1, 0], [0, 1], [1, 1], [0, 0]]}),
            ("d_k", {"q": [[1, 0, 0], [0, 1, 0], [1, 1, 0]], "k": [[1, 0, 0], [0, 1, 0], [1, 1, 0]]}),
            ("d_v", {"v": [[1, 0, 0], [0, 1, 0], [1, 1, 0]]}),
        ],
    )
    def test_sizes(self, axis: str, larger: dict[str, list], page: FrontEnd) -> None:
        before = matrices(page)
        page.resize(axis, 1)
        assert matrices(page) == before | larger
        assert page.answer["state"] == "ready"
        page.resize(axis, -1)
        assert matrices(page) == before

    @pytest.mark.parametrize("axis", ["query", "key", "d_k", "d_v"])
    @pytest.mark.parametrize(("by", "end", "words"), [(1, 16, "1 to 16 along .*, got 17"), (-1, 1, "got 0")])
    def test_sizes_end_somewhere(
        self, axis: str, by: int, end: int, words: str, page: FrontEnd, open_page: OpenPage
    ) -> None:
        page = open_page(causal=False)
        for _ in range(20):
            page.resize(axis, by)
        sizes = {"query": (0, 0), "key": (1, 0), "d_k": (0, 1), "d_v": (2, 1)}
        which, dim = sizes[axis]
        assert page.numbers["qkv"[which]].shape[dim] == end
        assert page.answer["state"] == "invalid"
        assert re.search(words, page.answer["message"])
        page.resize(axis, -by)
        assert page.answer["state"] == "ready"

    def test_several_edits_are_one_computation(self, page: FrontEnd, monkeypatch: pytest.MonkeyPatch) -> None:
        runs = counted(page.explorable, monkeypatch)
        page.edit(*({"input": "q", "index": [0, 0], "value": n / 10, "gesture": 1} for n in range(10)))
        assert page.numbers["q"][0, 0].item() == 0.9
        assert len(runs) == 1

    def test_each_request_is_one_computation(self, page: FrontEnd, monkeypatch: pytest.MonkeyPatch) -> None:
        runs = counted(page.explorable, monkeypatch)
        page.value("q", [0, 0], 3)
        page.text("k", "1 2; 3 4; 5 6")
        page.resize("d_v", 1)
        page.control("scale", False)
        page.control("preset", "cross lengths")
        page.command("undo")
        page.explorable.assign(q=[[1, 2]], query=0)
        assert len(runs) == 7

    def test_every_answer_names_its_request(self, page: FrontEnd) -> None:
        seen = [
            page.value("q", [0, 0], 1),  # changes nothing
            page.text("q", "1 x"),
            page.resize("d_v", 1),
            page.command("undo"),
            page.command("redo"),
            page.command("redo"),
            page.command("reset"),
            page.command("revert"),
            page.edit(),
            page.edit(None),
        ]
        assert [(answer["ack"], answer["nonce"]) for answer in seen] == [(n, "page") for n in range(1, 11)]

    def test_a_change_from_python_keeps_the_last_number(self, page: FrontEnd) -> None:
        page.value("q", [0, 0], 2)
        page.explorable.scale = False
        assert page.answer["ack"] == 1


WRONG = [
    ("", ("Q is empty", "at least one row"), None),
    (" \n ; ", ("Q is empty",), None),
    ("1 2; 3", ("Q row 2 has 1 number", "row 1 has 2"), 1),
    ("1 2; 3 4 5; 6 7", ("Q row 2 has 3 numbers", "rows 1 and 3 have 2"), 1),
    ("1 2; x 4", ("Q row 2, column 1", "−100 to 100", "'x'"), 1),
    ("1 nan", ("Q row 1, column 2", "'nan'"), 0),
    ("1 2; inf 3", ("Q row 2, column 1", "'inf'"), 1),
    ("1e400 0", ("Q row 1, column 1", "'1e400'"), 0),
    ("1 2; 3 100.1", ("Q row 2, column 2", "'100.1'"), 1),
    ("9" * 10_000, ("Q row 1, column 1", "10,000 characters"), 0),
    ("0." + "0" * 9_997 + "1", ("10,000 characters",), 0),
    ("1 " * 17, ("Q", "1 to 16 columns", "got 1 × 17"), None),
    ("1\n" * 17, ("Q", "1 to 16 rows", "got 17 × 1"), None),
    ("1,,2", ("Q row 1, column 2 is empty",), 0),
    ("[[1, 2], [3, 4]", ("Q", "brackets"), None),
    ("__import__('os').getcwd()", ("Q row 1, column 1",), 0),
    ("<img src=x onerror=alert(1)>", ("Q row 1, column 1",), 0),
]


class TestWrongText:
    @pytest.mark.parametrize(("text", "words", "row"), WRONG, ids=lambda value: str(value)[:20])
    def test_it_is_told_and_nothing_is_lost(
        self, text: str, words: tuple[str, ...], row: int | None, page: FrontEnd
    ) -> None:
        page.value("q", [0, 0], 0.3)
        before, trace, q = page.numbers, page.explorable.trace, page.explorable.q
        answer = page.text("q", text)
        assert answer["state"] == page.explorable.state == "invalid"
        assert answer["message"] == page.explorable.message
        assert all(word in answer["message"] for word in words), answer["message"]
        assert answer["message"].endswith(".")
        assert len(answer["message"]) < 300
        assert answer["refused"] == {"input": "q", "index": None, "text": text, "row": row}
        assert answer["wrong"] == {"inputs": ["q"], "row": row}
        assert page.explorable.q is q
        assert page.numbers.keys() == before.keys()
        assert all(same_numbers(tensor, before[name]) for name, tensor in page.numbers.items())
        assert same_numbers(page.explorable.weights, trace.weights)
        answer = page.command("revert")
        assert (answer["state"], answer["message"], answer["refused"], answer["wrong"]) == (
            "ready",
            "",
            None,
            None,
        )

    def test_one_cell(self, page: FrontEnd) -> None:
        before = page.numbers
        for text in (
            "",
            " ",
            "x",
            "nan",
            "inf",
            "1e400",
            "101",
            "9" * 10_000,
            "1 2",
            "1_0",
            "0x1",
            "\N{FULLWIDTH DIGIT ONE}",
        ):
            answer = page.text("v", text, [2, 1])
            assert answer["state"] == "invalid"
            assert "V" in answer["message"]
            assert "key 2" in answer["message"]
            assert answer["refused"] == {"input": "v", "index": [2, 1], "text": text, "row": 2}
            assert answer["wrong"] == {"inputs": ["v"], "row": 2}
        assert all(same_numbers(tensor, before[name]) for name, tensor in page.numbers.items())
        assert page.text("v", "4", [2, 1])["state"] == "ready"

    @pytest.mark.parametrize("value", [math.inf, -math.inf, math.nan, 100.5, -1e300])
    def test_one_number(self, value: float, page: FrontEnd) -> None:
        answer = page.value("k", [1, 0], value)
        assert answer["state"] == "invalid"
        assert answer["refused"]["input"] == "k"
        assert matrices(page)["k"] == [[1, 0], [0, 1], [1, 1]]

    def test_a_cleared_cell_is_not_zero(self, page: FrontEnd) -> None:
        answer = page.text("q", "", [0, 0])
        assert "is empty" in answer["message"]
        assert page.explorable.q[0, 0] == 1

    def test_a_good_edit_ends_it(self, page: FrontEnd) -> None:
        page.text("q", "1 x")
        answer = page.value("k", [0, 0], 2)
        assert (answer["state"], answer["message"], answer["refused"]) == ("ready", "", None)
        assert page.explorable.state == "ready"

    @pytest.mark.parametrize("name", ["scale", "step"])
    def test_a_control_ends_it_too(self, name: str, page: FrontEnd) -> None:
        page.text("q", "1 x")
        page.control(name, {"scale": False, "step": 2}[name])
        assert page.answer["state"] == "ready"
        page.text("q", "1 x")
        setattr(page.explorable, name, {"scale": True, "step": 3}[name])
        assert page.answer["state"] == "ready"

    def test_a_button_that_does_nothing_does_not_end_it(self, page: FrontEnd) -> None:
        answer = page.text("q", "1 x")
        for name in ("undo", "redo"):
            page.control(name)
        assert page.answer is answer
        page.control("reset")
        assert page.answer["state"] == "ready"

    def test_wrong_text_is_no_step_of_undo(self, page: FrontEnd) -> None:
        page.text("q", "1 x")
        assert page.explorable.bar.disabled == ["undo", "redo"]

    def test_the_rest_of_a_request_is_done(self, page: FrontEnd) -> None:
        answer = page.edit({"input": "q", "text": "1 x"}, {"input": "k", "index": [0, 0], "value": 5})
        assert answer["state"] == "invalid"
        assert answer["refused"]["text"] == "1 x"
        assert page.numbers["k"][0, 0] == 5


class TestMatricesThatDoNotFit:
    @pytest.mark.parametrize(
        ("name", "text", "inputs", "words"),
        [
            ("q", "1 2 3", ["q", "k"], ("Q and K", "3 numbers in a row of Q and 2 in a row of K")),
            (
                "k",
                "1 2 3; 4 5 6; 7 8 9",
                ["q", "k"],
                ("Q and K", "2 numbers in a row of Q and 3 in a row of K"),
            ),
            ("k", "1 2; 3 4", ["k", "v"], ("K and V", "2 rows in K and 3 in V")),
            ("v", "1 2; 3 4; 5 6; 7 8", ["k", "v"], ("K and V", "3 rows in K and 4 in V")),
        ],
    )
    def test_the_draft_is_kept_and_the_result_too(
        self, name: str, text: str, inputs: list[str], words: tuple[str, ...], page: FrontEnd
    ) -> None:
        before, trace = page.numbers, page.explorable.trace
        answer = page.text(name, text)
        draft = torch.tensor(
            [[float(x) for x in row.split()] for row in text.split(";")], dtype=torch.float64
        )
        assert answer["state"] == "invalid"
        assert all(word in answer["message"] for word in words), answer["message"]
        assert answer["refused"] is None
        assert sorted(answer["wrong"]["inputs"]) == sorted(inputs)
        assert answer["wrong"].get("row") is None
        assert same_numbers(page.numbers[name], draft)
        assert page.explorable.trace is trace
        assert all(same_numbers(page.numbers[stage], before[stage]) for stage in STAGES)
        assert answer["checks"]
        page.command("undo")
        assert page.answer["state"] == "ready"
        told = {
            stage: tensor
            for stage, tensor in page.numbers.items()
            if not stage.startswith(("row_", "weight_sum"))
        }
        assert all(same_numbers(tensor, before[stage]) for stage, tensor in told.items())

    def test_a_second_edit_makes_them_fit(self, page: FrontEnd) -> None:
        page.text("q", "1 2 3")
        answer = page.text("k", "1 2 3; 4 5 6; 7 8 9")
        assert answer["state"] == "ready"
        assert page.numbers["scores"].tolist() == [[14, 32, 50]]

    def test_wrong_text_over_a_misfit(self, page: FrontEnd) -> None:
        """Two faults at once: the one that was typed last is told, then the other again."""
        page.text("q", "1 2 3")
        assert page.text("v", "x")["wrong"] == {"inputs": ["v"], "row": 0}
        answer = page.command("revert")
        assert answer["state"] == "invalid"
        assert answer["message"].startswith("Q and K")


class TestUndo:
    def test_undoing_a_preset_tells_the_query_of_the_preset_before(self, open_page: OpenPage) -> None:
        page = open_page()
        assert page.explorable.query == 1
        page.control("preset", "two keys")
        assert page.explorable.query == 0
        page.control("undo")
        assert page.explorable.query == 1
        assert page.explorable.address == ""

    def test_late_moves_of_a_drag_do_not_undo_an_undo(self, open_page: OpenPage) -> None:
        page = open_page(q="1 0; 0 1; 1 1", query=0)
        before = undoable(page)
        page.value("q", [0, 0], 0.7, gesture=5)
        page.control("undo")
        assert undoable(page) == before
        # Sent before the button was pressed, and arriving after it.
        answer = page.value("q", [0, 0], 0.8, gesture=5)
        assert undoable(page) == before
        assert answer["ack"]
        # What comes next is a new thing, even with an old number.
        page.value("q", [0, 0], 0.9, gesture=5)
        assert float(page.explorable.q[0, 0]) == 0.9
        page.control("undo")
        assert undoable(page) == before

    def test_late_moves_of_a_drag_do_not_edit_a_preset(self, open_page: OpenPage) -> None:
        page = open_page()
        page.value("v", [0, 0], 0.7, gesture=5)
        page.control("preset", "two keys")
        answer = page.value("v", [0, 0], 0.8, gesture=5)
        assert answer["ack"]
        assert page.explorable.code() == "AttentionExplorable(preset='two keys')"
        page.value("v", [0, 0], 0.9, gesture=6)
        assert float(page.explorable.v[0, 0]) == 0.9

    def test_another_drag_after_an_undo_counts(self, open_page: OpenPage) -> None:
        page = open_page(q="1 0; 0 1; 1 1", query=0)
        page.value("q", [0, 0], 0.7, gesture=5)
        page.control("undo")
        page.value("q", [0, 0], 0.8, gesture=6)
        assert float(page.explorable.q[0, 0]) == 0.8

    @pytest.mark.parametrize(
        "act",
        [
            lambda page: page.value("q", [0, 0], 0.7),
            lambda page: page.text("q", "-3.5", [1, 1]),
            lambda page: page.text("v", "1 2 3; 4 5 6; 7 8 9"),
            lambda page: page.text("k", "1 2 3"),
            lambda page: page.resize("query", -1),
            lambda page: page.resize("key", 1),
            lambda page: page.resize("d_k", 1),
            lambda page: page.resize("d_v", -1),
            lambda page: page.control("scale", False),
            lambda page: page.control("causal", False),
            lambda page: page.control("dtype", "bfloat16"),
            lambda page: page.control("preset", "two keys"),
            lambda page: page.control("preset", "plain dot product"),
            lambda page: page.command("reset"),
            lambda page: page.control("reset"),
            lambda page: setattr(page.explorable, "k", [[9, 9]] * 3),
            lambda page: setattr(page.explorable, "preset", "cross lengths"),
            lambda page: page.explorable.assign(q=[[3, 3]], v=[[1], [2], [3]], dtype="float32"),
        ],
        ids=[
            "drag", "type", "paste", "misfit", "query", "key", "d_k", "d_v", "scale", "causal", "dtype",
            "preset", "same sizes", "reset", "reset button", "python", "python preset", "assign",
        ],
    )  # fmt: skip
    def test_there_and_back(self, act: Callable[[FrontEnd], Any], open_page: OpenPage) -> None:
        page = open_page(q="0.1 0.2; 0.3 0.4; 0.5 0.6", query=0)
        before = undoable(page)
        act(page)
        after, state = undoable(page), page.answer["state"]
        assert after != before
        for go in (page.command, page.control, lambda name: getattr(page.explorable, name)()):
            assert page.explorable.bar.disabled == ["redo"]
            go("undo")
            assert page.explorable.bar.disabled == ["undo"]
            assert page.answer["state"] == "ready"
            assert undoable(page) == before
            go("redo")
            assert page.answer["state"] == state
            assert undoable(page) == after
            go("redo")
            assert undoable(page) == after

    def test_the_tracked_query_is_not_undone(self, page: FrontEnd) -> None:
        """It only chooses what is told; undoing a number doesn't move the reader's eye."""
        page.value("q", [0, 0], 5)
        page.control("query", 2)
        page.command("undo")
        assert page.explorable.query == 2

    def test_one_drag_is_one_step(self, page: FrontEnd) -> None:
        for n in range(1, 11):
            page.value("q", [0, 0], n / 10, gesture=1)
        for n in range(1, 6):
            page.value("q", [0, 0], n, gesture=2)
        page.command("undo")
        assert page.numbers["q"][0, 0] == 1
        page.command("undo")
        assert page.numbers["q"][0, 0] == 1
        assert page.explorable.code() == "AttentionExplorable()"
        page.command("redo")
        page.command("redo")
        assert page.numbers["q"][0, 0] == 5

    def test_the_gestures_of_two_windows_are_two(self, page: FrontEnd) -> None:
        """Each window, and each reload of it, counts its gestures from 0."""
        page.value("q", [0, 0], 5, gesture=1)
        FrontEnd(page.explorable, nonce="another").value("v", [0, 0], 6, gesture=1)
        page.command("undo")
        assert (page.numbers["q"][0, 0], page.numbers["v"][0, 0]) == (5, 1)

    def test_edits_without_a_gesture_are_steps_of_their_own(self, page: FrontEnd) -> None:
        page.value("q", [0, 0], 5)
        page.value("q", [0, 0], 6)
        page.command("undo")
        assert page.numbers["q"][0, 0] == 5

    @pytest.mark.parametrize(
        "act",
        [
            lambda page: page.value("q", [0, 0], 1),
            lambda page: page.text("q", "1 0; 0 1; 1 1"),
            lambda page: page.command("reset"),
            lambda page: page.control("preset", "three positions, causal"),
            lambda page: page.control("scale", True),
            lambda page: page.control("query", 0),
            lambda page: page.control("step", 2),
            lambda page: [page.value("q", [0, 0], x, gesture=1) for x in (2, 3, 1)],
        ],
        ids=["same number", "same text", "reset", "preset", "switch", "query", "step", "drag to and fro"],
    )  # fmt: skip
    def test_what_changes_no_number_is_no_step(self, act: Callable[[FrontEnd], Any], page: FrontEnd) -> None:
        act(page)
        assert page.explorable.bar.disabled == ["undo", "redo"]

    def test_a_new_edit_forgets_what_was_undone(self, page: FrontEnd) -> None:
        page.value("q", [0, 0], 5)
        page.command("undo")
        page.value("q", [0, 0], 6)
        assert page.explorable.bar.disabled == ["redo"]
        page.command("redo")
        assert page.numbers["q"][0, 0] == 6

    def test_reset_goes_to_the_preset_chosen_last(self, page: FrontEnd) -> None:
        page.control("preset", "two keys")
        page.text("v", "5; 6")
        page.control("causal", True)
        page.control("step", 2)
        page.control("gradient", True)
        page.select("scores", [0, 0])
        page.command("reset")
        assert page.explorable.code() == "AttentionExplorable(preset='two keys')"
        assert page.explorable.view.selected is None


NONSENSE = [
    {},
    {"id": 1},
    {"id": 1, "nonce": "page"},
    {"id": None, "nonce": None, "edits": None},
    {"id": "1", "nonce": 5, "edits": {"input": "q"}},
    {"id": 1, "nonce": "page", "edits": 5},
    {"id": 1, "nonce": "page", "edits": [5, None, "q", [], True]},
]
MEANINGLESS = [
    {},
    {"input": "q"},
    {"input": "nothing", "text": "1"},
    {"input": None, "text": "1"},
    {"input": [], "text": "1"},
    {"input": "trace", "index": [0, 0], "value": 1},
    {"input": "q", "text": None},
    {"input": "q", "text": 5},
    {"input": "q", "text": [[1, 2], [3, 4], [5, 6]]},
    {"input": "q", "text": {"a": 1}},
    {"input": "q", "index": [0, 0]},
    {"input": "q", "index": [0, 0], "value": None},
    {"input": "q", "index": [0, 0], "value": "abc"},
    {"input": "q", "index": [0, 0], "value": [1]},
    {"input": "q", "index": [0, 0], "value": 10**400},
    {"input": "q", "index": [0, 0], "text": 5},
    {"input": "q", "index": [0, 0], "text": None},
    {"input": "q", "index": [0], "value": 5},
    {"input": "q", "index": [], "value": 5},
    {"input": "q", "index": [0, 0, 0], "value": 5},
    {"input": "q", "index": [3, 0], "value": 5},
    {"input": "q", "index": [0, 2], "value": 5},
    {"input": "q", "index": [-1, 0], "value": 5},
    {"input": "q", "index": [0, -1], "text": "5"},
    {"input": "q", "index": [10**30, 0], "value": 5},
    {"input": "q", "index": [0.5, 0], "value": 5},
    {"input": "q", "index": ["0", "0"], "value": 5},
    {"input": "q", "index": "00", "value": 5},
    {"input": "q", "index": 0, "value": 5},
    {"input": "q", "index": {}, "value": 5},
    {"input": "q", "index": [[0], 0], "value": 5},
    {"resize": "query"},
    {"resize": "query", "by": None},
    {"resize": "query", "by": "1"},
    {"resize": "nothing", "by": 1},
    {"resize": None, "by": 1},
    {"resize": [], "by": 1},
    {"command": "nothing"},
    {"command": None},
    {"command": []},
    {"command": "close"},
    {"command": "__init__"},
]


class TestRequestsThatMakeNoSense:
    @pytest.mark.parametrize("request_", NONSENSE, ids=str)
    def test_requests(self, request_: dict[str, Any], page: FrontEnd) -> None:
        before = page.numbers
        answer = page.request(request_)
        assert answer["ack"] == (1 if request_.get("id") == 1 else 0)
        assert answer["state"] == "ready"
        assert page.explorable.code() == "AttentionExplorable()"
        assert all(same_numbers(tensor, before[name]) for name, tensor in page.numbers.items())
        assert page.edit({"input": "q", "index": [0, 0], "value": 3})["state"] == "ready"
        assert page.numbers["q"][0, 0] == 3

    def test_edits(self, page: FrontEnd) -> None:
        before = page.numbers
        for number, edit in enumerate(MEANINGLESS, start=1):
            answer = page.edit(edit)
            assert answer["ack"] == number, edit
            assert answer["state"] == "ready", edit
            assert page.explorable.code() == "AttentionExplorable()", edit
        assert page.explorable.bar.disabled == ["undo", "redo"]
        assert all(same_numbers(tensor, before[name]) for name, tensor in page.numbers.items())

    def test_good_edits_beside_them_are_done(self, page: FrontEnd) -> None:
        page.edit(*MEANINGLESS, {"input": "q", "index": [0, 0], "value": 3}, *MEANINGLESS)
        assert page.explorable.code() == "AttentionExplorable(q=[[3.0, 0.0], [0.0, 1.0], [1.0, 1.0]])"

    def test_the_log_stays_short(self, page: FrontEnd, caplog: pytest.LogCaptureFixture) -> None:
        page.edit({"input": "q", "index": [0, 0], "value": "x" * 10_000})
        assert len(caplog.records) == 1
        assert len(caplog.text) < 500


class TestFaultsOfOurs:
    def test_an_exception_in_the_computation(
        self, page: FrontEnd, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        before = page.numbers
        with monkeypatch.context() as broken:
            broken.setattr(page.explorable, "compute", lambda: {}["secret detail"])
            answer = page.value("q", [0, 0], 5)
        assert answer["state"] == page.explorable.state == "failed"
        assert answer["ack"] == 1
        assert "fault is ours" in answer["message"]
        assert "secret" not in str(answer["message"])
        assert "secret detail" in caplog.text
        assert [record.levelno for record in caplog.records] == [logging.ERROR]
        assert page.numbers["q"][0, 0] == 5  # what was typed is kept
        assert all(same_numbers(page.numbers[stage], before[stage]) for stage in STAGES)
        answer = page.value("q", [0, 0], 6)
        assert (answer["state"], answer["message"]) == ("ready", "")
        assert page.numbers["scores"][0, 0] == 6
        assert page.explorable.state == "ready"

    def test_undo_brings_the_last_state_back(self, page: FrontEnd, monkeypatch: pytest.MonkeyPatch) -> None:
        computes = page.explorable.compute
        monkeypatch.setattr(
            page.explorable, "compute", lambda: computes() if page.explorable.q[0, 0] < 5 else 1 / 0
        )
        assert page.value("q", [0, 0], 5)["state"] == "failed"
        assert page.command("undo")["state"] == "ready"

    def test_a_control_during_a_fault(self, page: FrontEnd, monkeypatch: pytest.MonkeyPatch) -> None:
        with monkeypatch.context() as broken:
            broken.setattr(page.explorable, "compute", lambda: 1 / 0)
            page.control("scale", False)
            assert page.answer["state"] == "failed"
            assert page.explorable.bar.values["scale"] is False
        page.control("scale", True)
        assert page.answer["state"] == "ready"


def undoable(page: FrontEnd) -> tuple[Any, ...]:
    """What undo must restore, and the bytes of what is shown of it."""
    switches = {name: page.explorable.bar.values[name] for name in ("preset", "scale", "causal", "dtype")}
    arrays = page.answer["arrays"]
    shown = {name: arrays[name]["data"] for name in arrays if not name.startswith(("row_", "weight_sum"))}
    return matrices(page), switches, shown, page.answer["message"]


def counted(explorable: AttentionExplorable, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """A list that grows with every computation."""
    runs: list[int] = []
    computes = explorable.compute
    monkeypatch.setattr(explorable, "compute", lambda: runs.append(1) or computes())
    return runs
