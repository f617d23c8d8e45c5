"""Each mistake gives the wrong numbers it is famous for, and its check finds it; the right ones hold."""

import math

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from attnlab.engine import causal
from attnlab.engine.dropout import drop, keep_masks, mask_probability, sample_keep
from attnlab.engine.dropout_left_on import functional_still_drops, no_grad_still_drops
from attnlab.engine.dropout_mistakes import divide_by_p, drop_before_softmax
from helpers.refusals import refused

ROW = (0.2, 0.3, 0.5)

seeds = st.integers(0, 2**31 - 1)


def f64(rows: object) -> Tensor:
    return torch.tensor(rows, dtype=torch.float64)


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def close(actual: Tensor, expected: Tensor, tolerance: float = 1e-14) -> None:
    torch.testing.assert_close(actual, expected, rtol=tolerance, atol=tolerance, equal_nan=True)


def gradient(output: Tensor, *inputs: Tensor) -> tuple[Tensor, ...]:
    pull = torch.linspace(-1, 2, output.numel(), dtype=output.dtype).reshape(output.shape)
    return torch.autograd.grad(output, inputs, pull)


class TestDivideByP:
    def test_numbers(self) -> None:
        trace = divide_by_p(f64([0.25] * 4), torch.tensor([True, True, True, False]), 0.1)
        close(trace.right, f64([0.25 / 0.9] * 3 + [0]))
        assert trace.wrong.tolist() == [2.5, 2.5, 2.5, 0]
        # Nine times too large: (1 − p)/p.
        close(trace.wrong_expected, f64([2.25] * 4))
        assert trace.wrong_check.measured == pytest.approx(2)
        assert not trace.wrong_check.holds
        assert trace.right_check.holds

    @given(st.integers(1, 6), seeds, st.floats(0.01, 0.95))
    def test_expectations(self, n: int, seed: int, p: float) -> None:
        weights, keep = normal(n, seed=seed).softmax(dim=-1), sample_keep((n,), p, seed)
        trace = divide_by_p(weights, keep, p)
        assert torch.equal(trace.right, drop(weights, keep, p).dropped)
        close(trace.wrong * p, trace.right * (1 - p))
        by_hand = sum(mask_probability(row, p) * weights * row / p for row in keep_masks(n))
        close(trace.wrong_expected, by_hand, 1e-13)
        close(trace.wrong_expected, weights * ((1 - p) / p), 1e-13)
        assert trace.right_check.holds
        assert trace.wrong_check.measured == pytest.approx(
            (weights.max() * abs((1 - p) / p - 1)).item(), abs=1e-12
        )

    def test_at_one_half_the_mistake_hides(self) -> None:
        trace = divide_by_p(f64(ROW), torch.tensor([True, False, True]), 0.5)
        assert torch.equal(trace.right, trace.wrong)
        assert trace.wrong_check.holds

    @pytest.mark.parametrize("p", [0.1, 0.6])
    @pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
    def test_in_fewer_digits(self, dtype: torch.dtype, p: float) -> None:
        trace = divide_by_p(f64(ROW).to(dtype), torch.tensor([True, False, True]), p)
        assert trace.wrong.dtype == trace.wrong_expected.dtype == dtype
        assert trace.right_check.holds
        assert not trace.wrong_check.holds

    def test_gradient(self) -> None:
        weights = f64(ROW).requires_grad_()
        keep = torch.tensor([True, False, True])
        trace = divide_by_p(weights, keep, 0.2)
        close(*gradient(trace.wrong, weights), *gradient(weights * keep / 0.2, weights))
        close(*gradient(trace.wrong_expected, weights), *gradient(weights * 4, weights))

    def test_refusals(self) -> None:
        keep = torch.ones(3, dtype=torch.bool)
        with refused("p:", "0 < p < 1", "1/p has no value", "got 0"):
            divide_by_p(f64(ROW), keep, 0)
        with refused("p:", "has no value"):
            divide_by_p(f64(ROW), keep, 1)
        with refused("keep:", "(3,)", "got (2,)"):
            divide_by_p(f64(ROW), keep[:2], 0.2)
        with refused("keep:", "boolean"):
            divide_by_p(f64(ROW), keep.double(), 0.2)
        with refused("weights:", "sum of 1", "got 0.9"):
            divide_by_p(f64([0.4, 0.3, 0.2]), keep, 0.2)


class TestBeforeSoftmax:
    def test_minus_infinity_times_0_is_nan(self) -> None:
        scores, keep = f64([[1.0, 2.0], [3.0, 4.0]]), torch.tensor([[True, False], [True, True]])
        trace = drop_before_softmax(scores, keep, 0.5, allowed=causal(2))
        assert trace.dropped_scores[0, 1].isnan()
        assert trace.wrong[0].isnan().all()
        close(trace.wrong[1], (f64([3.0, 4.0]) * 2).softmax(dim=-1))
        close(trace.right, f64([[2.0, 0.0], [2 / (1 + math.e), 2 * math.e / (1 + math.e)]]))
        assert math.isnan(trace.wrong_check.measured)
        assert not trace.wrong_check.holds
        assert trace.right_check.measured == 0
        assert trace.right_check.holds

    def test_without_a_mask_a_dropped_key_still_gets_a_share(self) -> None:
        trace = drop_before_softmax(f64([[0.0, 1.0, 2.0]]), torch.tensor([[True, False, True]]), 0.5)
        assert trace.dropped_scores.tolist() == [[0.0, 0.0, 4.0]]
        # The share of a score of 0: 1/(1 + 1 + e⁴).
        assert trace.wrong_check.measured == pytest.approx(1 / (2 + math.exp(4)), rel=1e-14)
        assert not trace.wrong_check.holds
        close(trace.wrong.sum(dim=-1), f64([1.0]))

    @given(st.integers(1, 5), st.integers(1, 5), seeds, st.floats(0, 0.9))
    def test_the_right_side_is_torchs(self, queries: int, keys: int, seed: int, p: float) -> None:
        scores, keep = normal(queries, keys, seed=seed), sample_keep((queries, keys), p, seed)
        allowed = causal(queries, keys, offset=0)
        trace = drop_before_softmax(scores, keep, p, allowed=allowed)
        masked = scores + torch.zeros(queries, keys, dtype=torch.float64).masked_fill(~allowed, -math.inf)
        weights = F.softmax(masked, dim=-1)
        close(trace.right, drop(weights, keep, p).dropped)
        close(trace.wrong, F.softmax(masked * keep.double() * (1 / (1 - p)), dim=-1), 1e-12)
        lost = (~keep & ~allowed).any(dim=-1)
        assert torch.equal(trace.wrong.isnan().any(dim=-1), lost)
        assert trace.right_check.holds
        # Wherever an allowed key was dropped, or a masked one, the wrong side shows it.
        assert trace.wrong_check.holds == bool((keep | ~allowed).all() and not lost.any())

    def test_nothing_dropped_breaks_nothing(self) -> None:
        trace = drop_before_softmax(normal(3, 3), torch.ones(3, 3, dtype=torch.bool), 0, allowed=causal(3))
        assert torch.equal(trace.wrong, trace.right)
        assert trace.wrong_check.holds

    def test_gradient(self) -> None:
        scores, keep = normal(2, 3).requires_grad_(), torch.tensor([[True, False, True], [True, True, False]])
        wrong = drop_before_softmax(scores, keep, 0.2).wrong
        close(*gradient(wrong, scores), *gradient(F.softmax(scores * keep * 1.25, dim=-1), scores))
        # A second pass, because torch frees the graph that both results share.
        right = drop_before_softmax(scores, keep, 0.2).right
        close(*gradient(right, scores), *gradient(F.softmax(scores, dim=-1) * keep * 1.25, scores))

    def test_refusals(self) -> None:
        keep = torch.ones(2, 2, dtype=torch.bool)
        with refused("scores:", "matrix", "(2,)"):
            drop_before_softmax(normal(2), keep, 0.5)
        with refused("scores:", "floating-point", "torch.int64"):
            drop_before_softmax(torch.ones(2, 2, dtype=torch.int64), keep, 0.5)
        with refused("keep:", "(2, 3)", "got (2, 2)"):
            drop_before_softmax(normal(2, 3), keep, 0.5)
        with refused("allowed:", "boolean", "(2, 2)", "torch.float64"):
            drop_before_softmax(normal(2, 2), keep, 0.5, allowed=keep.double())
        with refused("allowed:", "at least one key", "row 1"):
            drop_before_softmax(normal(2, 2), keep, 0.5, allowed=torch.tensor([[True, True], [False, False]]))
        with refused("p:", "got 2"):
            drop_before_softmax(normal(2, 2), keep, 2)


class TestLeftOn:
    def test_no_grad_still_drops(self) -> None:
        trace = no_grad_still_drops(f64(ROW), 0.5)
        assert trace.wrong.shape == (20, 3)
        # Each entry is 0 or twice the weight, and both occur.
        doubled = trace.wrong == 2 * trace.weights
        assert (doubled | (trace.wrong == 0)).all()
        assert torch.equal(trace.wrong_spread, 2 * f64(ROW))
        assert trace.wrong_check.measured == 1.0
        assert not trace.wrong_check.holds
        assert "20 runs" in trace.wrong_check.how

    def test_eval_gives_20_identical_outputs_that_sum_to_1(self) -> None:
        trace = no_grad_still_drops(f64(ROW), 0.5)
        assert torch.equal(trace.right, f64(ROW).expand(20, 3))
        close(trace.right.sum(dim=1), torch.ones(20, dtype=torch.float64))
        assert trace.right_spread.tolist() == [0, 0, 0]
        assert trace.right_check.holds

    def test_no_grad_means_no_gradient_and_eval_keeps_it(self) -> None:
        weights = f64(ROW).requires_grad_()
        trace = no_grad_still_drops(weights, 0.5, runs=3)
        assert not trace.wrong.requires_grad
        (found,) = torch.autograd.grad(trace.right.sum(), weights)
        assert found.tolist() == [3, 3, 3]

    def test_wrong_runs_average_to_the_weights(self) -> None:
        trace = no_grad_still_drops(f64(ROW), 0.3, runs=1000, seed=3)
        error = f64(ROW) * math.sqrt(0.3 / 0.7 / 1000)
        assert ((trace.wrong.mean(dim=0) - f64(ROW)).abs() <= 4 * error).all()

    def test_functional_still_drops(self) -> None:
        q, k, v = normal(2, 3), normal(4, 3, seed=1), normal(4, 5, seed=2)
        trace = functional_still_drops(q, k, v, 0.5)
        assert trace.wrong.shape == trace.right.shape == (20, 2, 5)
        expected = (q @ k.mT / math.sqrt(3)).softmax(dim=-1)
        close(trace.right, (expected @ v).expand(20, 2, 5))
        assert trace.right_check.measured == 0
        assert not trace.wrong_check.holds
        assert trace.wrong_check.measured == (trace.wrong_spread.max().item())
        # Every run is the output of one of the 16 masks of each query.
        outputs = torch.stack([(expected * keep / 0.5) @ v for keep in keep_masks(4)])
        nearest = (trace.wrong[:, None] - outputs).abs().amax(dim=-1).amin(dim=1)
        assert nearest.max() < 1e-12

    def test_gradient_of_functional(self) -> None:
        q, k, v = (normal(n, 3, seed=n).requires_grad_() for n in (2, 4, 4))
        trace = functional_still_drops(q, k, v, 0.5, runs=2)
        expected = F.scaled_dot_product_attention(q, k, v)
        ours = torch.autograd.grad(trace.right.sum(), (q, k, v))
        for mine, theirs in zip(ours, torch.autograd.grad(2 * expected.sum(), (q, k, v)), strict=True):
            close(mine, theirs)

    def test_p_0_breaks_nothing(self) -> None:
        assert no_grad_still_drops(f64(ROW), 0).wrong_check.holds
        assert functional_still_drops(normal(2, 3), normal(2, 3), normal(2, 3), 0).wrong_check.holds

    def test_the_callers_generator_is_untouched(self) -> None:
        before = torch.get_rng_state()
        first = no_grad_still_drops(f64(ROW), 0.5, seed=1).wrong
        again = no_grad_still_drops(f64(ROW), 0.5, seed=1).wrong
        other = no_grad_still_drops(f64(ROW), 0.5, seed=2).wrong
        functional_still_drops(normal(2, 3), normal(2, 3), normal(2, 3), 0.5)
        assert torch.equal(torch.get_rng_state(), before)
        assert torch.equal(first, again)
        assert not torch.equal(first, other)

    def test_axes(self) -> None:
        trace = no_grad_still_drops(f64(ROW), 0.5)
        assert trace.stage("wrong").axes == ("run", "key")
        functional = functional_still_drops(normal(2, 3), normal(4, 3), normal(4, 5), 0.5)
        assert functional.stage("right").axes == ("run", "query", "d_v")
        assert functional.stage("wrong_spread").axes == ("query", "d_v")

    @pytest.mark.parametrize("runs", [1, 1001, 2.5, True])
    def test_runs(self, runs: object) -> None:
        with refused("runs:", "from 2 to 1000", f"got {runs}"):
            no_grad_still_drops(f64(ROW), 0.5, runs=runs)
        with refused("runs:", "from 2 to 1000", f"got {runs}"):
            functional_still_drops(normal(2, 3), normal(2, 3), normal(2, 3), 0.5, runs=runs)

    def test_refusals(self) -> None:
        with refused("p:", "got 1"):
            no_grad_still_drops(f64(ROW), 1)
        with refused("weights:", "one row", "(1, 3)"):
            no_grad_still_drops(f64([ROW]), 0.5)
        with refused("weights:", "got 0.5"):
            no_grad_still_drops(f64(ROW[:2]), 0.5)
        with refused("seed:", "got -1"):
            no_grad_still_drops(f64(ROW), 0.5, seed=-1)
        with refused("p:", "got -1"):
            functional_still_drops(normal(2, 3), normal(2, 3), normal(2, 3), -1)
        for shapes in (((2, 3), (2, 4), (2, 3)), ((2, 3), (2, 3), (3, 3)), ((3,), (2, 3), (2, 3))):
            with refused("q, k, v:", "query × d_k", str(shapes[0]), str(shapes[1]), str(shapes[2])):
                functional_still_drops(*(normal(*shape) for shape in shapes), 0.5)
