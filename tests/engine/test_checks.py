"""The live checks hold on every honest trace and fail on each kind of wrong one."""

import dataclasses
import math

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from torch import Tensor

from attnlab.engine import (
    AttentionTrace,
    Check,
    attend,
    blocked_weights,
    causal,
    check_attention,
    fused_agreement,
    row_sums,
)
from helpers.inputs import COINCIDENCES, DISTINCT, Sizes, masks_with_a_key, seeds, sizes, tensors

DTYPES = (torch.float64, torch.float32, torch.bfloat16, torch.float16)
NAMES = ["row sums 1", "masked weights exactly 0", "torch SDPA agrees"]


def traced(**options: object) -> AttentionTrace:
    options = {"allowed": masks_with_a_key((2, 3, 5, 7))} | options
    return attend(*tensors(DISTINCT), **options)


def failing(trace: AttentionTrace) -> list[str]:
    return [check.name for check in check_attention(trace) if not check.holds]


@pytest.mark.parametrize(
    ("measured", "bound", "holds"),
    [
        (0.0, 0.0, True),
        (1e-300, 0.0, False),
        (1.0, 2.0, True),
        (2.0, 2.0, True),
        (math.nan, 2.0, False),
        (math.inf, 2.0, False),
    ],
)
def test_holds(measured: float, bound: float, holds: bool) -> None:
    assert Check("c", measured, bound, "how").holds is holds


class TestHonestTraces:
    @pytest.mark.parametrize("dtype", DTYPES, ids=str)
    @pytest.mark.parametrize("of", [DISTINCT, *COINCIDENCES], ids=str)
    @pytest.mark.parametrize("empty", [False, True], ids=["every row has a key", "empty rows"])
    def test_all_hold(self, of: Sizes, dtype: torch.dtype, empty: bool) -> None:
        allowed = masks_with_a_key(of.scores[-2:], 8)
        allowed[0] &= not empty
        trace = attend(*tensors(of, dtype=dtype), allowed=allowed)
        checks = check_attention(trace)
        sums, *others = [check.name for check in checks]
        assert others == NAMES[1:]
        rows = trace.allowed.expand(trace.weights.shape).any(dim=-1)
        some = f"{NAMES[0]} in {int(rows.sum())} of {rows.numel()} rows"
        assert sums == (some if empty else NAMES[0])  # what was not looked at is not claimed
        assert [trace.stage(check.stage).name for check in checks] == ["weights", "weights", "output"]
        assert failing(trace) == []

    @given(
        sizes(),
        seeds,
        st.sampled_from(DTYPES),
        st.sampled_from([1e-3, 1.0, 10.0, 40.0]),
        st.sampled_from([True, False, 0.1]),
        st.sampled_from([0.0, 1e-3]),
    )
    # Two keys that nearly tie at large scores: rounding of the scores themselves reaches the weights.
    @example(Sizes((), 6, 6, 6, 2), 1, torch.float64, 40.0, True, 1e-3)
    @example(Sizes((), 6, 6, 6, 2), 1, torch.float32, 40.0, False, 1e-3)
    def test_all_hold_for_large_entries_and_near_ties(
        self, of: Sizes, seed: int, dtype: torch.dtype, size: float, scale: bool | float, spread: float
    ) -> None:
        q, k, v = tensors(of, seed, size=size)
        if spread:
            k = k[..., :1, :] + spread * (k - k[..., :1, :])
        v = v / size
        inputs = tuple(x.clamp(-100, 100).to(dtype) for x in (q, k, v))
        trace = attend(*inputs, scale=scale, allowed=masks_with_a_key(of.scores, seed))
        if trace.scaled.isfinite().all():
            assert failing(trace) == []

    @pytest.mark.parametrize("p", [0.0, 0.5])
    def test_dropout_is_left_out(self, p: float) -> None:
        assert failing(traced(keep=masks_with_a_key((2, 3, 5, 7), 1), drop_p=p)) == []

    @pytest.mark.parametrize("shape", [(5, 7), (2, 1, 5, 7), (1, 3, 5, 7), (1, 1, 5, 7)], ids=str)
    def test_masks_that_repeat(self, shape: tuple[int, ...]) -> None:
        allowed = masks_with_a_key(shape, 3)
        allowed[..., 1, :] = False
        assert failing(traced(allowed=allowed)) == []

    def test_a_trace_that_is_learnt_through(self) -> None:
        trace = attend(*tensors(DISTINCT, grad=True), allowed=causal(5, 7))
        assert failing(trace) == []
        assert trace.output.requires_grad

    def test_nothing_but_empty_rows(self) -> None:
        trace = traced(allowed=torch.zeros(5, 7, dtype=torch.bool))
        checks = check_attention(trace)
        assert [check.measured for check in checks] == [0, 0, 0]
        assert all(check.holds for check in checks)
        assert "30 rows with no key left out" in checks[2].how


class TestWrongTraces:
    @pytest.mark.parametrize(
        ("wrong", "expected"),
        [
            (lambda t: {"weights": t.masked.softmax(dim=-2).nan_to_num()}, ["row sums 1", NAMES[2]]),
            (lambda t: {"weights": t.scaled.softmax(dim=-1) * t.allowed}, ["row sums 1", NAMES[2]]),
            (lambda t: {"weights": t.scaled.softmax(dim=-1)}, NAMES[1:]),
            (lambda t: {"weights": t.weights.where(t.allowed, 1e-300)}, NAMES[1:2]),
            (lambda t: {"weights": t.weights.clone().fill_(math.nan)}, NAMES),
            (lambda t: {"weights": t.weights.roll(1, dims=-2)}, NAMES[1:]),
            (lambda t: {"scale": 0.25}, NAMES[2:]),
            (lambda t: {"v": t.v.roll(1, dims=-2)}, []),
            (lambda t: {"k": t.k.roll(1, dims=-2)}, NAMES[2:]),
        ],
        ids=[
            "softmax over queries",
            "zeroed after softmax",
            "mask forgotten",
            "a trace of weight behind the mask",
            "NaN",
            "rows in another order",
            "scaled by the width of four heads",
            "v itself is an input",
            "keys in another order",
        ],
    )
    def test_is_noticed(self, wrong, expected: list[str]) -> None:
        trace = traced()
        assert failing(trace) == []
        assert failing(dataclasses.replace(trace, **wrong(trace))) == expected

    def test_one_wrong_number_of_210_is_enough(self) -> None:
        trace = traced()
        weights = trace.weights.clone()
        weights[1, 2, 4, int(trace.allowed[1, 2, 4].nonzero()[0])] += 1e-9
        assert failing(dataclasses.replace(trace, weights=weights)) == ["row sums 1", NAMES[2]]

    def test_overflow_in_half_precision_does_not_hold(self) -> None:
        q, k = torch.tensor([[64.0]]).half(), torch.tensor([[1600.0], [1600.0]]).half()
        assert failing(attend(q, k, k)) == ["row sums 1", NAMES[2]]

    def test_the_bound_itself_does_not_overflow_in_half_precision(self) -> None:
        """Σ|q||k| is 80,000 here, beyond float16: an infinite bound would hold for anything."""
        q, k = torch.tensor([[200.0, 200.0]]).half(), torch.tensor([[200.0, -200.0], [-200.0, 200.0]]).half()
        trace = attend(q, k, torch.tensor([[1.0], [3.0]]).half(), scale=1e-6)
        assert failing(trace) == []
        wrong = dataclasses.replace(trace, weights=torch.tensor([[0.0, 1.0]]).half())
        assert failing(wrong) == [NAMES[2]]


class TestMeasured:
    def test_row_sums_by_hand(self) -> None:
        trace = traced()
        weights = trace.weights.clone()
        weights[0, 1, 2] *= 1.25
        assert row_sums(dataclasses.replace(trace, weights=weights)).measured == pytest.approx(0.25)
        weights[0, 1, 3] *= 0.5
        assert row_sums(dataclasses.replace(trace, weights=weights)).measured == pytest.approx(0.5)

    def test_blocked_weights_by_hand(self) -> None:
        trace = traced(allowed=causal(5, 7, offset=-1))
        weights = trace.weights.clone()
        weights[1, 0, 2, 4] = -0.125
        weights[1, 0, 2, 1] = 0.5  # may be read
        check = blocked_weights(dataclasses.replace(trace, weights=weights))
        assert check.measured == 0.125
        assert check.bound == 0
        # Each head: rows 1 to 4 have 6, 5, 4, 3 hidden keys; row 0 has no key and is left out.
        assert check.how.startswith(f"{6 * (6 + 5 + 4 + 3)} weights")

    def test_fused_agreement_by_hand(self) -> None:
        trace = traced()
        moved = trace.weights.clone()
        moved[0, 0, 0] = 0
        check = fused_agreement(dataclasses.replace(trace, weights=moved))
        assert check.measured == pytest.approx(trace.output[0, 0, 0].abs().max().item())

    @pytest.mark.parametrize("dtype", DTYPES, ids=str)
    def test_words(self, dtype: torch.dtype) -> None:
        inputs = tensors(Sizes((), 5, 2, 4, 6), dtype=dtype)
        checks = check_attention(attend(*inputs, allowed=causal(5, 2)))
        how = checks[2].how
        assert str(dtype).removeprefix("torch.") in how
        assert "torch." not in how.partition(", ")[2]
        assert "3 rows with no key left out (NaN here, torch returns zeros)" in how
        clean = check_attention(attend(*inputs))
        assert "no key" not in clean[2].how

    def test_measured_is_the_largest_not_the_first(self) -> None:
        trace = traced()
        errors: list[Tensor] = []
        for at in ((0, 0, 0), (1, 2, 4)):
            weights = trace.weights.clone()
            weights[at] = weights[at] * 3
            errors.append(weights)
            assert row_sums(dataclasses.replace(trace, weights=weights)).measured == pytest.approx(2)
