"""TraceView: any trace, sent exactly, with stated limits."""

import math

import pytest
import torch
from torch import Tensor

from attnlab.engine import attend, attention_row, causal
from attnlab.widgets import TraceView
from attnlab.widgets.trace_view import MAX_CELLS, answer, array
from helpers.front_end import assert_strict_json, decoded, same_numbers
from helpers.inputs import DISTINCT, tensors

SPECIAL = [
    0.0, -0.0, math.inf, -math.inf, math.nan, 5e-324, -5e-324, 2.2250738585072014e-308,
    1.7976931348623157e308, 0.1, -1 / 3, 1 + 2**-52, 1e-7,
]  # fmt: skip


class TestArrays:
    @pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16], ids=str)
    def test_special_values_travel_exactly(self, dtype: torch.dtype) -> None:
        tensor = torch.tensor(SPECIAL, dtype=torch.float64).to(dtype)
        sent = array(tensor)
        assert sent["dtype"] == ("float64" if dtype == torch.float64 else "float32")
        assert same_numbers(decoded(sent).to(dtype), tensor)

    @pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
    def test_all_numbers_of_half_precision(self, dtype: torch.dtype) -> None:
        every = torch.arange(-(2**15), 2**15, dtype=torch.int16).view(dtype)
        numbers = every[~every.isnan()]
        assert same_numbers(decoded(array(numbers)).to(dtype), numbers)

    @pytest.mark.parametrize("shape", [(), (1,), (3,), (2, 3), (2, 3, 4, 5), (1, 1), (0, 3)])
    def test_shapes(self, shape: tuple[int, ...]) -> None:
        tensor = torch.arange(math.prod(shape), dtype=torch.float64).reshape(shape)
        sent = array(tensor)
        assert sent["shape"] == list(shape)
        assert same_numbers(decoded(sent), tensor) if 0 not in shape else sent["data"] == b""

    def test_the_order_is_row_major_whatever_the_strides(self) -> None:
        tensor = torch.arange(24, dtype=torch.float64).reshape(2, 3, 4)
        for view in (
            tensor.mT,
            tensor[:, ::2],
            tensor[1],
            tensor.permute(2, 0, 1),
            tensor[:1].expand(5, 3, 4),
        ):
            assert same_numbers(decoded(array(view)), view)

    def test_masks(self) -> None:
        mask = causal(2, 3)
        assert array(mask)["data"] == bytes([1, 1, 0, 1, 1, 1])
        assert same_numbers(decoded(array(mask)), mask)

    def test_a_tensor_that_learns(self) -> None:
        weight = torch.ones(2, 2, requires_grad=True)
        assert decoded(array(weight * 2)).tolist() == [[2, 2], [2, 2]]

    def test_the_bytes_are_a_copy(self) -> None:
        tensor = torch.ones(2, dtype=torch.float64)
        sent = array(tensor)
        tensor.zero_()
        assert decoded(sent).tolist() == [1, 1]


class TestAnyTrace:
    def test_batch_and_heads(self) -> None:
        q, k, v = tensors(DISTINCT)
        trace = attend(q, k, v)
        view = TraceView(trace)
        shown = {name: decoded(sent) for name, sent in view.answer["arrays"].items()}
        for stage in trace.stages():
            if stage.name == "empty_rows":
                continue  # a flag for pages that show it; a bare trace shows its NaN
            # One mask for all batches and heads is sent for each of them, lined up by axis name.
            whole = stage.tensor.expand(trace.scores.shape) if stage.name == "allowed" else stage.tensor
            assert same_numbers(shown[stage.name], whole), stage.name
        assert view.stages["q"]["axes"] == ["batch", "head", "query", "d_k"]
        assert view.stages["weights"] | {"note": ""} == {
            "axes": ["batch", "head", "query", "key"],
            "ramp": "signed",
            "group": "weights",
            "masked": "allowed",
            "note": "",
        }
        assert "masked" not in view.stages["output"]
        assert view.answer["state"] == "ready"

    def test_every_stage_that_is_laid_out_has_its_numbers(self) -> None:
        q, k, v = tensors(DISTINCT)
        view = TraceView(attend(q, k, v))
        drawn = [item["stage"] for block in view.layout_blocks for item in block.get("items", [])]
        assert drawn == ["q", "k", "v", "scores", "scaled", "masked", "weights", "dropped", "output"]
        assert view.stages.keys() == set(drawn)
        assert set(drawn) <= view.answer["arrays"].keys()
        assert {stage["masked"] for stage in view.stages.values() if "masked" in stage} <= view.answer[
            "arrays"
        ].keys()

    def test_a_trace_without_masks(self) -> None:
        matrix = torch.ones(2, 3)
        view = TraceView(attention_row(attend(matrix, matrix, matrix), 1))
        assert decoded(view.answer["arrays"]["row_weights"]).tolist() == [0.5, 0.5]
        assert view.answer["arrays"]["weight_sum"]["shape"] == []
        assert all("masked" not in stage for stage in view.stages.values())

    def test_empty_rows_and_half_precision(self) -> None:
        matrix = torch.full((3, 8), 100, dtype=torch.float16)
        trace = attend(matrix, matrix[:2], matrix[:2], allowed=causal(3, 2), scale=False)
        view = TraceView(trace)
        shown = decoded(view.answer["arrays"]["weights"])
        assert shown[0].isnan().all()
        assert decoded(view.answer["arrays"]["scores"]).isinf().all()
        assert_strict_json(view.get_state())

    def test_shown_again(self) -> None:
        one, two = (attend(*(torch.full((n, 2), 1.0) for _ in range(3))) for n in (2, 3))
        view = TraceView(one)
        view.show(two)
        assert view.answer["arrays"]["weights"]["shape"] == [3, 3]

    def test_the_limit(self) -> None:
        side = math.isqrt(MAX_CELLS)
        fits = torch.zeros(side, 1)
        assert TraceView(attend(fits, fits, fits)).answer["arrays"]["scores"]["shape"] == [128, 128]
        wide = torch.zeros(side + 1, 1)
        with pytest.raises(
            ValueError, match="scores: expected at most 16,384 elements, got 16,641"
        ) as caught:
            TraceView(attend(wide, wide, wide))
        assert "129 × 129" in str(caught.value)
        assert "one head" in str(caught.value)

    def test_a_refused_trace_leaves_the_last_one(self) -> None:
        small, large = torch.zeros(2, 1), torch.zeros(300, 1)
        view = TraceView(attend(small, small, small))
        before = view.answer, view.stages
        with pytest.raises(ValueError, match="expected at most"):
            view.show(attend(large, large, large))
        assert (view.answer, view.stages) == before

    def test_an_empty_view(self) -> None:
        view = TraceView()
        assert (view.stages, view.answer, view.layout_blocks) == ({}, {}, [])
        assert_strict_json(view.get_state())

    def test_unknown_arguments(self) -> None:
        with pytest.raises(TypeError, match="TraceView has no argument 'stage'"):
            TraceView(stage={})

    def test_options(self) -> None:
        matrix = torch.ones(2, 2)
        view = TraceView(attend(matrix, matrix, matrix), decimals=6, labels={"key": ["<pad>", "<img src=x>"]})
        assert view.decimals == 6
        assert view.labels == {"key": ["<pad>", "<img src=x>"]}


def test_an_answer_is_complete() -> None:
    """The script reads each of these, in every answer."""
    made = answer({"x": torch.ones(2)}, ack=3, nonce="n", message="m", refused={"input": "q"})
    assert made.keys() >= {
        "ack",
        "nonce",
        "state",
        "message",
        "refused",
        "wrong",
        "texts",
        "checks",
        "arrays",
    }
    assert (made["ack"], made["nonce"], made["state"]) == (3, "n", "ready")
    assert (made["refused"], made["wrong"], made["texts"], made["checks"]) == ({"input": "q"}, None, {}, [])
    empty: dict[str, Tensor] = {}
    assert answer(empty)["arrays"] == {}
