"""What goes over the wire: one message for a result, strict JSON, small."""

import asyncio
import json
from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from attnlab.engine import Check
from attnlab.widgets import AttentionExplorable
from attnlab.widgets.measure_text import measured
from helpers.front_end import FrontEnd, assert_strict_json, receive

LIMIT = 50_000


def large() -> AttentionExplorable:
    generator = torch.Generator().manual_seed(0)
    q, k, v = ((torch.rand(16, 16, generator=generator, dtype=torch.float64) * 200 - 100) for _ in range(3))
    return AttentionExplorable(q=q, k=k, v=v, query=15)


def assert_everything_is_strict_json(explorable: AttentionExplorable) -> None:
    for widget in (explorable, explorable.bar, explorable.view):
        assert_strict_json(widget.get_state())


class TestStrictJson:
    @pytest.mark.parametrize("preset", AttentionExplorable.presets)
    def test_presets(self, preset: str, page: FrontEnd) -> None:
        page.control("preset", preset)
        assert_everything_is_strict_json(page.explorable)

    @pytest.mark.parametrize("dtype", ["float64", "float32", "bfloat16", "float16"])
    def test_infinities_and_nan(self, dtype: str, page: FrontEnd) -> None:
        page.explorable.assign(q=[[100] * 8] * 3, k=[[100] * 8] * 2, v=[[1], [2]], dtype=dtype, query=0)
        assert page.numbers["weights"][0].isnan().all()
        assert page.numbers["masked"][0].isinf().all()
        assert page.numbers["weight_sum"].isnan()
        assert_everything_is_strict_json(page.explorable)
        page.control("export", "numbers")
        assert_everything_is_strict_json(page.explorable)

    def test_wrong_input(self, page: FrontEnd) -> None:
        for edit in ({"value": 1e300}, {"value": None}, {"text": "nan"}, {"text": "inf"}, {"text": "1e400"}):
            page.edit({"input": "q", "index": [0, 0]} | edit)
            assert_everything_is_strict_json(page.explorable)
        page.text("q", "1 2 3")
        assert_everything_is_strict_json(page.explorable)
        page.request({"id": None, "nonce": None, "edits": [{"input": "q", "text": "\x00\u2028</script>"}]})
        assert_everything_is_strict_json(page.explorable)

    @settings(max_examples=20)
    @given(st.text())
    def test_any_text(self, text: str) -> None:
        explorable = AttentionExplorable()
        answer = FrontEnd(explorable).text("q", text)
        if answer["refused"]:
            assert answer["refused"]["text"] == text
        assert_strict_json(explorable.view.get_state())
        explorable.close()

    def test_every_message_that_was_sent(self, messages, open_page: Callable[..., FrontEnd]) -> None:
        page = open_page()
        page.explorable.assign(q=[[100] * 8] * 3, k=[[100] * 8] * 2, v=[[1], [2]], dtype="float16", query=0)
        page.control("export", "svg")
        page.text("q", "x")
        page.resize("query", 1)
        page.open("?q=nan")
        page.explorable.close()
        assert len(messages.sent) > 10
        for _, data, buffers in messages.sent:
            json.dumps(data, allow_nan=False)
            assert all(isinstance(buffer, bytes | memoryview) for buffer in buffers)


class TestOneResultIsOneMessage:
    def test_of_the_view(self, messages, open_page: Callable[..., FrontEnd]) -> None:
        page = open_page()
        view = page.explorable.view
        for act in (
            lambda: page.value("q", [0, 0], 0.5),
            lambda: page.text("q", "1 x"),
            lambda: page.resize("query", -1),
            lambda: page.control("query", 0),
            lambda: page.control("preset", "cross lengths"),
            lambda: page.explorable.assign(step=2, decimals=3, causal=True),
            lambda: page.edit(),
        ):
            messages.sent.clear()
            act()
            sent = messages.of(view)
            assert len(sent) == 1, sent
            assert set(sent[0]) <= {"answer", "tracked", "step", "decimals"}
            assert "answer" in sent[0]

    def test_requests_are_not_echoed(self, messages, open_page: Callable[..., FrontEnd]) -> None:
        page = open_page()
        messages.sent.clear()
        page.value("q", [0, 0], 0.5)
        page.control("scale", False)
        page.open("?causal=0")
        for _, data, _ in messages.sent:
            assert not {"request", "search"} & data["state"].keys()

    def test_the_answer_comes_before_its_acknowledgement(
        self, messages, open_page: Callable[..., FrontEnd]
    ) -> None:
        """Or the bar would send the next change while the numbers of this one are still to come."""
        page = open_page()
        messages.sent.clear()
        page.control("scale", False)
        kinds = [key for _, data, _ in messages.sent for key in data["state"] if key in ("answer", "ack")]
        assert kinds == ["answer", "ack"]

    def test_the_link_of_a_drag_is_sent_when_the_hand_rests(
        self, messages, open_page: Callable[..., FrontEnd]
    ) -> None:
        page = open_page()
        bar = page.explorable.bar
        page.value("q", [0, 0], 0.5)  # now it is edited and can be undone

        async def drag() -> None:
            moved = asyncio.Event()
            bar.observe(lambda _: moved.set(), "address")
            messages.sent.clear()
            for value in (0.6, 0.7, 0.8):
                page.value("q", [0, 0], value)
            assert messages.of(bar) == []
            await asyncio.wait_for(moved.wait(), 15)
            assert messages.of(bar) == [{"address": "q=0.8,0;0,1;1,1"}]
            # What is shown on the bar comes with the numbers, and the link with it.
            messages.sent.clear()
            page.value("q", [0, 0], 0.9)
            page.control("scale", False)
            assert messages.of(bar)[0]["address"] == "q=0.9,0;0,1;1,1&scale=0"

        asyncio.run(drag())

    @pytest.mark.parametrize("act", ["drag", "paste", "control"])
    def test_size_at_16_by_16(self, act: str, messages) -> None:
        page = FrontEnd(large())
        messages.sent.clear()
        if act == "drag":
            page.value("q", [15, 15], 0.5)
        elif act == "paste":
            page.text("k", "1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16\n" * 16)
        else:
            page.control("scale", False)
        assert page.answer["state"] == "ready"
        size = sum(
            assert_strict_json(data["state"]) + sum(map(len, buffers)) for _, data, buffers in messages.sent
        )
        assert 20_000 < size <= LIMIT

    def test_numbers_travel_as_bytes_only(self) -> None:
        explorable = large()
        arrays = explorable.view.answer["arrays"]
        assert all(type(sent["data"]) is bytes for sent in arrays.values())
        assert all(type(size) is int for sent in arrays.values() for size in sent["shape"])

    def test_a_link_sends_the_state_once(self, messages, open_page: Callable[..., FrontEnd]) -> None:
        page = open_page()
        messages.sent.clear()
        page.open("?causal=0&q=1,2;3,4")
        assert len(messages.of(page.explorable.view)) == 1


def test_a_front_end_may_ask_for_everything(messages, open_page: Callable[..., FrontEnd]) -> None:
    page = open_page()
    page.value("q", [0, 0], 0.5)
    messages.sent.clear()
    for widget in (page.explorable.view, page.explorable.bar):
        widget.comm.handle_msg({"content": {"data": {"method": "request_state"}}, "buffers": []})
    assert "answer" in messages.of(page.explorable.view)[0]
    assert messages.of(page.explorable.bar)[0]["values"]["preset"] == "three positions, causal"


def test_what_a_front_end_selects_is_kept(page: FrontEnd) -> None:
    before = page.answer["arrays"]
    receive(page.explorable.view, selected={"stage": "weights", "index": [1, 0]})
    assert page.explorable.view.selected == {"stage": "weights", "index": [1, 0]}
    receive(page.explorable.view, selected=None)
    assert page.answer["arrays"] == before
    for nonsense in (
        {},
        {"stage": 5},
        {"stage": "weights"},
        {"stage": "weights", "index": [9, 9]},
        {"index": None},
    ):
        receive(page.explorable.view, selected=nonsense)
        assert page.answer["arrays"] == before
    assert page.value("q", [0, 0], 0.5)["state"] == "ready"


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (0.0, "error exactly 0"),
        (1.1e-16, "max error 1.1e−16"),
        (0.00012, "max error 1.2e−04"),
        (0.25, "max error 0.25"),
        (float("inf"), "max error inf"),
        (float("nan"), "not a number"),
    ],
)
def test_measured_numbers_in_words(number: float, text: str) -> None:
    assert measured(Check("name", number, 1.0, "how")) == text
