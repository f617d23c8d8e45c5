"""One draw, every draw and many draws against torch's dropout, as identities, and on the facts' numbers."""

import itertools
import math

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from attnlab.engine import attend, causal, record
from attnlab.engine.dropout import (
    DropoutTrace,
    drop,
    every_mask,
    expectation,
    keep_masks,
    mask_probability,
    sample_keep,
    sample_statistics,
)
from helpers.calls import calls
from helpers.refusals import refused

DTYPES = (torch.float64, torch.float32, torch.bfloat16, torch.float16)
ROW = (0.2, 0.3, 0.5)

seeds = st.integers(0, 2**31 - 1)
probabilities = st.floats(0, 0.95)


def f64(rows: object) -> Tensor:
    return torch.tensor(rows, dtype=torch.float64)


def mask(bits: str) -> Tensor:
    return torch.tensor([bit == "1" for bit in bits])


def softmax_rows(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64).softmax(dim=-1).to(dtype)


def close(actual: Tensor, expected: Tensor, tolerance: float = 1e-15) -> None:
    torch.testing.assert_close(actual, expected, rtol=tolerance, atol=tolerance)


def torch_dropout(weights: Tensor, p: float, seed: int) -> tuple[Tensor, Tensor]:
    """F.dropout's result, and the mask that it drew (the same draw on ones)."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        result = F.dropout(weights, p, training=True)
        torch.manual_seed(seed)
        return result, F.dropout(torch.ones_like(weights), p, training=True) != 0


class TestFacts:
    @pytest.mark.parametrize(
        ("p", "bits", "row_sum", "probability"),
        [
            (0.5, "101", 1.4, 0.125),
            (0.5, "010", 0.6, 0.125),
            (0.5, "001", 1.0, 0.125),
            (0.5, "110", 1.0, 0.125),
            (0.5, "000", 0.0, 0.125),
            (0.5, "111", 2.0, 0.125),
            (0.2, "111", 1.25, 0.512),
            (0.2, "011", 1.0, 0.128),
            (0.2, "101", 0.875, 0.128),
            (0.2, "000", 0.0, 0.008),
        ],
    )
    def test_printed_numbers(self, p: float, bits: str, row_sum: float, probability: float) -> None:
        close(drop(f64(ROW), mask(bits), p).row_sum, f64(row_sum))
        close(mask_probability(mask(bits), p), f64(probability))
        table = every_mask(f64(ROW), p)
        place = int(bits, 2)
        assert torch.equal(table.keep[place], mask(bits))
        close(table.row_sum[place], f64(row_sum))
        close(table.probability[place], f64(probability))

    def test_reported_four_quarters(self) -> None:
        trace = drop(f64([0.25] * 4), mask("1110"), 0.5)
        assert trace.dropped.tolist() == [0.5, 0.5, 0.5, 0]
        assert trace.row_sum.item() == 1.5
        assert trace.scale == 2
        light = drop(f64([0.25] * 4), mask("1110"), 0.1)
        assert light.scale == pytest.approx(1.111111, abs=5e-7)
        close(light.dropped / 0.25, f64([10 / 9, 10 / 9, 10 / 9, 0]))

    def test_a_masked_weight_stays_0_and_dropout_is_no_causal_mask(self) -> None:
        weights = attend(*(softmax_rows(5, 4, seed=s) for s in range(3)), allowed=causal(5)).weights
        dropped = drop(weights, sample_keep((5, 5), 0.5, 3), 0.5).dropped
        assert (dropped[~causal(5)] == 0).all()
        ones = torch.ones(5, 5, dtype=torch.bool)
        assert drop(weights, ones, 0.5).dropped[causal(5)].all()

    def test_evaluation_changes_nothing(self) -> None:
        """Reported: p = .5, evaluation, 20 runs: 20 identical outputs and rows that sum to 1."""
        weights = softmax_rows(2, 3, 5)
        everything = torch.ones(2, 3, 5, dtype=torch.bool)
        for _ in range(20):
            trace = drop(weights, everything, 0)
            assert torch.equal(trace.dropped, F.dropout(weights, 0.5, training=False))
            close(trace.row_sum, torch.ones(2, 3, dtype=torch.float64))

    @pytest.mark.parametrize("p", [0.0, 0.1, 0.2, 0.5, 0.9])
    def test_expectation_is_the_row(self, p: float) -> None:
        close(expectation(f64(ROW), p), f64(ROW), 1e-15)


@pytest.mark.parametrize("shape", [(1,), (5,), (1, 1), (3, 3), (2, 3, 5), (2, 2, 2)], ids=str)
class TestOracle:
    """The same mask fed to `drop` gives what F.dropout gave, forward and backward."""

    @pytest.mark.parametrize("p", [0.0, 0.1, 0.5, 0.75])
    def test_torch(self, shape: tuple[int, ...], p: float) -> None:
        weights = softmax_rows(*shape).requires_grad_()
        expected, keep = torch_dropout(weights, p, 5)
        trace = drop(weights, keep, p)
        close(trace.dropped, expected)
        close(trace.row_sum, expected.sum(dim=-1))
        pull = torch.linspace(-1, 2, weights.numel(), dtype=torch.float64).reshape(shape)
        (ours,) = torch.autograd.grad(trace.dropped, weights, pull)
        (theirs,) = torch.autograd.grad(expected, weights, pull)
        close(ours, theirs)
        (of_sum,) = torch.autograd.grad(drop(weights, keep, p).row_sum.sum(), weights)
        close(of_sum, keep / (1 - f64(p)))

    def test_the_attention_engine_drops_alike(self, shape: tuple[int, ...]) -> None:
        weights = softmax_rows(*shape)
        if weights.ndim == 1:
            weights = weights[None]
        keep = sample_keep(tuple(weights.shape), 0.3, 2)
        # Scores that are logarithms of the weights have these weights, and the values are the identity.
        eye = torch.eye(weights.shape[-1], dtype=torch.float64).expand(*weights.shape[:-2], -1, -1)
        trace = attend(weights.log(), eye, eye, scale=False, keep=keep, drop_p=0.3)
        close(drop(weights, keep, 0.3).dropped, trace.dropped, 1e-14)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
class TestDtypes:
    def test_kept(self, dtype: torch.dtype) -> None:
        weights = softmax_rows(5, dtype=dtype)
        keep = sample_keep((7, 5), 0.3, 1)
        one, table, many = (
            drop(weights.expand(7, 5), keep, 0.3),
            every_mask(weights, 0.3),
            sample_statistics(weights, keep, 0.3),
        )
        for trace in (one, table, many):
            kinds = {stage.tensor.dtype for stage in trace.stages() if stage.name != "keep"}
            assert kinds == {dtype}
        # The float64 row that was rounded to this dtype.
        exact = every_mask(softmax_rows(5), 0.3)
        tolerance = 8 * torch.finfo(dtype).eps
        close(table.expected.double(), exact.expected, tolerance)
        close(table.dropped.double(), exact.dropped, tolerance)
        close(table.probability.double(), exact.probability, tolerance)

    def test_same_as_torch(self, dtype: torch.dtype) -> None:
        weights = softmax_rows(3, 5, dtype=dtype)
        expected, keep = torch_dropout(weights, 0.3, 6)
        close(drop(weights, keep, 0.3).dropped.double(), expected.double(), 2 * torch.finfo(dtype).eps)


class TestMasks:
    @pytest.mark.parametrize("n", range(1, 7))
    def test_every_mask_once_counting_in_binary(self, n: int) -> None:
        masks = keep_masks(n)
        assert masks.dtype == torch.bool
        assert masks.tolist() == [list(bits) for bits in itertools.product([False, True], repeat=n)]

    @given(st.integers(1, 6), probabilities)
    def test_probabilities(self, n: int, p: float) -> None:
        keep = keep_masks(n)
        found = mask_probability(keep, p)
        close(found, f64([math.prod(1 - p if bit else p for bit in row) for row in keep.tolist()]))
        close(found.sum(), f64(1.0), 4e-15)

    def test_leading_axes(self) -> None:
        keep = sample_keep((2, 3, 5), 0.4, 1)
        rows = [[mask_probability(row, 0.4) for row in item] for item in keep]
        close(mask_probability(keep, 0.4), torch.stack([torch.stack(item) for item in rows]))

    def test_certain_and_impossible(self) -> None:
        assert mask_probability(mask("11"), 0).item() == 1
        assert mask_probability(mask("10"), 0).item() == 0


class TestTable:
    @given(st.integers(1, 6), seeds, probabilities)
    def test_expectation_and_the_sum_of_probabilities(self, n: int, seed: int, p: float) -> None:
        weights = softmax_rows(n, seed=seed)
        table = every_mask(weights, p)
        torch.testing.assert_close(table.expected, weights, rtol=0, atol=1e-15)
        close(table.weighted.sum(), f64(1.0), 4e-15)

    @pytest.mark.parametrize("n", [1, 3, 6])
    def test_rows_are_single_draws(self, n: int) -> None:
        weights = softmax_rows(n)
        table = every_mask(weights, 0.3)
        for place, keep in enumerate(keep_masks(n)):
            one = drop(weights, keep, 0.3)
            assert torch.equal(table.dropped[place], one.dropped)
            close(table.row_sum[place], one.row_sum)
            assert table.probability[place] == mask_probability(keep, 0.3)

    def test_gradient_of_the_expectation_is_the_identity(self) -> None:
        weights = f64(ROW)
        # Not of a row on the simplex: the Jacobian is of the formula, for each weight alone.
        jacobian = torch.autograd.functional.jacobian(lambda row: expectation(row, 0.2), weights)
        close(jacobian, torch.eye(3, dtype=torch.float64), 1e-14)

    def test_axes(self) -> None:
        table = every_mask(f64(ROW), 0.5)
        assert {stage.name: stage.axes for stage in table.stages()} == {
            "weights": ("key",),
            "keep": ("mask", "key"),
            "dropped": ("mask", "key"),
            "row_sum": ("mask",),
            "probability": ("mask",),
            "weighted": ("mask", "key"),
            "expected": ("key",),
        }


class TestSampling:
    @pytest.mark.parametrize("p", [0.1, 0.5, 0.8])
    def test_within_four_standard_errors_of_the_expectation(self, p: float) -> None:
        weights = f64([0.05, 0.1, 0.15, 0.2, 0.2, 0.3])
        many = sample_statistics(weights, sample_keep((10_000, 6), p, 11), p)
        distance = (many.running_mean[-1] - weights).abs()
        assert (distance <= 4 * many.standard_error[-1]).all()
        # The error that is claimed is the true one: √(w² p/(1 − p) / draws).
        close(many.standard_error[-1], weights * math.sqrt(p / (1 - p) / 10_000), 2e-3)

    def test_row_sums_have_the_exact_distribution(self) -> None:
        table = every_mask(f64(ROW), 0.2)
        keep = sample_keep((20_000, 3), 0.2, 4)
        numbers = (keep * torch.tensor([4, 2, 1])).sum(dim=1)
        counts = torch.bincount(numbers, minlength=8) / f64(20_000)
        error = (table.probability * (1 - table.probability) / 20_000).sqrt()
        assert ((counts - table.probability).abs() <= 4 * error).all()

    def test_torch_dropout_draws_with_the_same_share(self) -> None:
        ones = torch.ones(20_000, dtype=torch.float64)
        for keep in (torch_dropout(ones, 0.3, 1)[1], sample_keep((20_000,), 0.3, 1)):
            assert abs(keep.double().mean().item() - 0.7) <= 4 * math.sqrt(0.3 * 0.7 / 20_000)

    def test_running_numbers_are_those_of_each_prefix(self) -> None:
        weights = f64(ROW)
        many = sample_statistics(weights, sample_keep((9, 3), 0.4, 8), 0.4)
        assert many.standard_error[0].isnan().all()
        for draws in range(1, 10):
            rows = many.dropped[:draws]
            close(many.running_mean[draws - 1], rows.mean(dim=0), 1e-14)
            close(many.kept_share[draws - 1], many.keep[:draws].double().mean(dim=0), 1e-14)
            if draws > 1:
                close(many.standard_error[draws - 1], rows.std(dim=0) / math.sqrt(draws), 1e-14)
        close(many.row_sum, many.dropped.sum(dim=1))

    def test_gradient_of_the_running_mean(self) -> None:
        weights = f64(ROW).requires_grad_()
        keep = sample_keep((6, 3), 0.4, 3)
        ours = torch.autograd.grad(sample_statistics(weights, keep, 0.4).running_mean[-1].sum(), weights)
        theirs = torch.autograd.grad((weights * keep / 0.6).mean(dim=0).sum(), weights)
        close(ours[0], theirs[0])

    def test_without_dropout_the_error_is_exactly_0(self) -> None:
        many = sample_statistics(f64(ROW), torch.ones(5, 3, dtype=torch.bool), 0)
        assert (many.standard_error[1:] == 0).all()
        assert torch.equal(many.running_mean, f64(ROW).expand(5, 3))

    def test_the_seed_is_our_own(self) -> None:
        before = torch.get_rng_state()
        first, again, other = (sample_keep((50,), 0.5, seed) for seed in (1, 1, 2))
        assert torch.equal(torch.get_rng_state(), before)
        assert torch.equal(first, again)
        assert not torch.equal(first, other)
        assert sample_keep((50,), 0, 1).all()

    def test_axes(self) -> None:
        many = sample_statistics(f64([1.0]), mask("1")[None], 0.5)
        axes = {stage.name: stage.axes for stage in many.stages()}
        assert axes["row_sum"] == ("draw",)
        assert axes["running_mean"] == axes["standard_error"] == axes["keep"] == ("draw", "key")

    def test_many_masks_are_drawn_at_once(self) -> None:
        one, many = (calls(lambda n=n: sample_keep((n, 6), 0.3, 0)) for n in (1, 10_000))
        assert many == one


class TestTrace:
    def test_one_weight(self) -> None:
        for bits, p, row_sum in (("1", 0.5, 2.0), ("0", 0.5, 0.0), ("1", 0, 1.0)):
            assert drop(f64([1.0]), mask(bits), p).row_sum.item() == row_sum

    @pytest.mark.parametrize(
        "row", [[1 / 6] * 6, [0.1, 0.2, 0.7], [0.1] * 10, [1.0, 0.0], [0.5, 0.5 + 9e-10]]
    )
    def test_sums_of_1_up_to_rounding(self, row: list[float]) -> None:
        trace = drop(f64(row), torch.ones(len(row), dtype=torch.bool), 0)
        # As they came: nothing was renormalised.
        assert trace.dropped.tolist() == trace.weights.tolist() == row

    def test_fields_are_tensors_of_their_own(self) -> None:
        weights, keep = softmax_rows(2, 3), torch.ones(2, 3, dtype=torch.bool)
        trace = drop(weights, keep, 0)
        tensors = [weights, keep, trace.weights, trace.keep, trace.dropped, trace.row_sum]
        assert len({tensor.untyped_storage().data_ptr() for tensor in tensors}) == len(tensors)

    def test_axes_and_notes(self) -> None:
        def axes(trace: DropoutTrace) -> dict[str, tuple[str, ...]]:
            return {stage.name: stage.axes for stage in trace.stages() if stage.note}

        found = axes(drop(softmax_rows(2, 3, 5), torch.ones(2, 3, 5, dtype=torch.bool), 0.5))
        assert list(found) == ["weights", "keep", "dropped", "row_sum"]
        assert found["dropped"] == ("batch", "head", "key")
        assert found["row_sum"] == ("batch", "head")
        assert axes(drop(f64(ROW), mask("101"), 0.5))["row_sum"] == ()

    def test_an_entry_explains_itself(self) -> None:
        weights, keep = f64(ROW), mask("101")
        with record() as tape:
            trace = drop(weights, keep, 0.5)
        # Only the steps and the copies of the inputs: checking them left nothing on the tape.
        assert [call.name for call in tape.calls] == ["mul", "div", "sum", "clone", "clone"]
        kept, sums = tape.explain(trace.dropped, (2,)), tape.explain(trace.row_sum)
        assert tape.version(trace.dropped).call.spot.text == "weights * keep / (1 - p)"
        assert kept.formula is not None
        assert kept.formula.value() == 1.0
        assert sums.formula is not None
        assert sums.formula.value() == pytest.approx(1.4)


class TestRefusals:
    @pytest.mark.parametrize(
        ("p", "words"),
        [
            (1, ("0 ≤ p < 1", "got 1", "1/(1 − 1) has no value", "torch.nn.functional.dropout", "zeros")),
            (1.0, ("got 1.0", "has no value")),
            (1.5, ("0 ≤ p < 1", "got 1.5")),
            (-0.1, ("0 ≤ p < 1", "got -0.1")),
            (math.nan, ("0 ≤ p < 1", "got nan")),
            (math.inf, ("0 ≤ p < 1", "got inf")),
            ("0.5", ("expected a number", "got '0.5'")),
            (None, ("expected a number", "got None")),
            (True, ("expected a number", "got True")),
            (0.5 + 0j, ("expected a number", "got (0.5+0j)")),
        ],
    )
    def test_p(self, p: object, words: tuple[str, ...]) -> None:
        for call in (
            lambda: drop(f64(ROW), mask("101"), p),
            lambda: mask_probability(mask("101"), p),
            lambda: sample_keep((3,), p, 0),
            lambda: expectation(f64(ROW), p),
            lambda: sample_statistics(f64(ROW), mask("101")[None], p),
        ):
            with refused("p:", *words):
                call()

    def test_torch_accepts_p_1_as_the_message_says(self) -> None:
        assert not F.dropout(f64(ROW), 1.0, training=True).any()

    @pytest.mark.parametrize(
        ("weights", "words"),
        [
            (f64([0.5, 0.4]), ("sum of 1", "1e−09", "got 0.9", "not renormalised")),
            (f64([0.5, 0.5 + 2e-9]), ("sum of 1", "got 1.000000002")),
            (f64([[0.5, 0.5], [0.5, 0.6]]), ("of row 1", "got 1.1")),
            (f64([[[0.5, 0.5], [0.2, 0.2]]]), ("of row (0, 1)", "got 0.4")),
            (f64([-0.5, 1.5]), ("from 0 to 1", "got −0.5", "key 0")),
            (f64([[1.0, 0.0], [0.0, 1.5]]), ("from 0 to 1", "got 1.5", "key 1", "row 1")),
            (f64([0.5, math.nan]), ("from 0 to 1", "got nan", "key 1")),
            (f64([math.inf, 0.0]), ("from 0 to 1", "got inf", "key 0")),
            (torch.tensor([1, 0]), ("floating-point", "torch.int64")),
            (f64([]), ("at least one weight", "(0,)")),
            (f64(1.0), ("at least one weight", "()")),
            (torch.tensor([0.5, 0.499]), ("sum of 1", "got 0.99")),
        ],
        ids=str,
    )
    def test_weights(self, weights: Tensor, words: tuple[str, ...]) -> None:
        with refused("weights:", *words):
            drop(weights, torch.ones(weights.shape, dtype=torch.bool), 0.5)
        if weights.ndim == 1:
            with refused("weights:", *words):
                expectation(weights, 0.5)
            with refused("weights:", *words):
                sample_statistics(weights, torch.ones(2, *weights.shape, dtype=torch.bool), 0.5)

    @pytest.mark.parametrize("dtype", [torch.float64, torch.int64, torch.uint8], ids=str)
    def test_a_mask_of_numbers(self, dtype: torch.dtype) -> None:
        for call in (
            lambda: drop(f64(ROW), mask("101").to(dtype), 0.5),
            lambda: mask_probability(mask("101").to(dtype), 0.5),
            lambda: sample_statistics(f64(ROW), mask("101")[None].to(dtype), 0.5),
        ):
            with refused("keep:", "boolean mask", f"got {dtype}"):
                call()

    @pytest.mark.parametrize("shape", [(2,), (1, 3), (3, 1), (1,), ()], ids=str)
    def test_a_mask_of_another_shape(self, shape: tuple[int, ...]) -> None:
        with refused("keep:", "(3,)", f"got {shape}"):
            drop(f64(ROW), torch.ones(shape, dtype=torch.bool), 0.5)

    @pytest.mark.parametrize("n", [0, 7, -1, 2.0, True, "3"])
    def test_number_of_keys(self, n: object) -> None:
        with refused("n:", "from 1 to 6", f"got {n!r}"):
            keep_masks(n)

    def test_seven_weights_and_two_rows_have_no_table(self) -> None:
        with refused("number of weights", "1 to 6", "got 7"):
            expectation(softmax_rows(7), 0.5)
        with refused("weights:", "one row", "(2, 3)"):
            expectation(softmax_rows(2, 3), 0.5)
        with refused("weights:", "one row", "(2, 3)"):
            sample_statistics(softmax_rows(2, 3), torch.ones(4, 3, dtype=torch.bool), 0.5)

    @pytest.mark.parametrize("shape", [(3,), (0, 3), (2, 2, 3)], ids=str)
    def test_draws(self, shape: tuple[int, ...]) -> None:
        with refused("keep:", "draws × keys", f"got shape {shape}"):
            sample_statistics(f64(ROW), torch.ones(shape, dtype=torch.bool), 0.5)

    def test_draws_of_another_row(self) -> None:
        with refused("keep:", "(5, 3)", "got (5, 2)"):
            sample_statistics(f64(ROW), torch.ones(5, 2, dtype=torch.bool), 0.5)

    def test_an_empty_mask_has_no_probability(self) -> None:
        with refused("keep:", "at least one key", "(2, 0)"):
            mask_probability(torch.ones(2, 0, dtype=torch.bool), 0.5)

    @pytest.mark.parametrize("seed", [-1, 2**63, 0.5, None, True])
    def test_seed(self, seed: object) -> None:
        with refused("seed:", "whole number", "from 0", f"got {seed!r}"):
            sample_keep((3,), 0.5, seed)

    @pytest.mark.parametrize("shape", [(0,), (2, -1), (2.5,)])
    def test_shape_of_a_sample(self, shape: tuple[object, ...]) -> None:
        with refused("shape:", "whole number from 1", f"got {shape[-1]}"):
            sample_keep(shape, 0.5, 0)
        with refused("shape:", "at least one axis", "got ()"):
            sample_keep((), 0.5, 0)
