"""Why √d_k: samples against theory, entropy and Jacobian against torch, and the width of one head."""

import math

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from attnlab.engine import attend
from attnlab.engine.concentration import entropy, jacobian_norm, softmax_jacobian
from attnlab.engine.head_width import compare_head_width, divide_by_root
from attnlab.engine.scaling import scaling_curve, scaling_trace
from attnlab.engine.score_statistics import score_statistics
from attnlab.engine.vectors import (
    DISTRIBUTIONS,
    dot_product_variance,
    sample_queries_and_keys,
    sample_vectors,
)
from helpers.refusals import refused

INDEPENDENT = ("normal", "uniform", "signs")
RHO = 0.5

seeds = st.integers(0, 2**31 - 1)
row_sizes = st.integers(1, 7)


def f64(rows: object) -> Tensor:
    return torch.tensor(rows, dtype=torch.float64)


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def close(actual: Tensor, expected: Tensor, tolerance: float = 1e-13) -> None:
    torch.testing.assert_close(actual, expected, rtol=tolerance, atol=tolerance)


def refuse_each(name: str, low: int, high: int, call, values: tuple[object, ...] = ()) -> None:
    for value in (low - 1, high + 1, 1.5, True, "2", *values):
        with refused(f"{name}:", "whole number", f"from {low} to {high}", f"got {value!r}"):
            call(value)


@pytest.fixture(scope="module")
def draws() -> dict[str, tuple[Tensor, Tensor]]:
    """256 queries and keys of 1024 components of each distribution."""
    return {name: sample_queries_and_keys(name, 7, d_k=1024, rho=RHO) for name in DISTRIBUTIONS}


@pytest.fixture(scope="module")
def wide() -> tuple[Tensor, Tensor]:
    return sample_queries_and_keys("normal", 3, n=64)


class TestVectors:
    @pytest.mark.parametrize("distribution", INDEPENDENT)
    def test_mean_0_and_variance_1(self, distribution: str) -> None:
        x = sample_vectors(distribution, 400, 500, 1).flatten()
        fourth = {"normal": 3, "uniform": 9 / 5, "signs": 1}[distribution]
        assert abs(x.mean().item()) <= 4 / math.sqrt(x.numel())
        assert abs(x.square().mean().item() - 1) <= 4 * math.sqrt((fourth - 1) / x.numel()) + 1e-12
        four = x.pow(4).mean().item()
        assert four == pytest.approx(fourth, abs=0.05)

    def test_ranges(self) -> None:
        uniform, signs = (sample_vectors(name, 100, 100, 2) for name in ("uniform", "signs"))
        assert 1.7 < uniform.max() <= math.sqrt(3)
        assert -math.sqrt(3) <= uniform.min() < -1.7
        assert set(signs.unique().tolist()) == {-1, 1}

    @pytest.mark.parametrize("rho", [0.0, 0.3, 1.0])
    def test_correlated(self, rho: float) -> None:
        x = torch.cat([sample_vectors("correlated", 1024, 3, seed, rho=rho) for seed in range(20)])
        covariance = x.T @ x / len(x)
        expected = torch.full((3, 3), rho, dtype=torch.float64).fill_diagonal_(1)
        # Var(xᵢxⱼ) = 1 + ρ² off the diagonal, 2 on it.
        error = ((1 + expected.square()) / len(x)).sqrt()
        assert ((covariance - expected).abs() <= 4 * error).all()
        assert (x.mean(dim=0).abs() <= 4 / math.sqrt(len(x))).all()
        if rho == 1:
            close(x, x[:, :1].expand(-1, 3))

    @pytest.mark.parametrize("distribution", DISTRIBUTIONS)
    def test_the_seed_is_our_own(self, distribution: str) -> None:
        before = torch.get_rng_state()
        first, again, other = (sample_vectors(distribution, 5, 7, seed) for seed in (1, 1, 2))
        assert torch.equal(torch.get_rng_state(), before)
        assert first.dtype == torch.float64
        assert first.shape == (5, 7)
        assert torch.equal(first, again)
        assert not torch.equal(first, other)

    def test_no_query_is_a_key(self) -> None:
        q, k = sample_queries_and_keys("normal", 1, n=32, d_k=3)
        assert q.shape == k.shape == (32, 3)
        assert torch.cdist(q, k).min() > 0

    def test_refusals(self) -> None:
        with refused("distribution:", "normal, uniform, signs, correlated", "got 'cauchy'"):
            sample_vectors("cauchy", 2, 3, 0)
        refuse_each("n", 1, 1024, lambda n: sample_vectors("normal", n, 3, 0))
        refuse_each("d_k", 1, 4096, lambda d_k: sample_vectors("normal", 2, d_k, 0))
        refuse_each("seed", 0, 2**63 - 1, lambda seed: sample_vectors("normal", 2, 3, seed))
        refuse_each("n", 1, 512, lambda n: sample_queries_and_keys("normal", 0, n=n))
        for rho in (-0.1, 1.1, math.nan, "0.5", True):
            with refused("rho:", "0 ≤ rho ≤ 1", f"got {rho!r}"):
                sample_vectors("correlated", 2, 3, 0, rho=rho)
            with refused("rho:", "0 ≤ rho ≤ 1", f"got {rho!r}"):
                dot_product_variance(3, rho)


class TestVariance:
    def test_formula(self) -> None:
        assert dot_product_variance(64) == 64
        assert dot_product_variance(64, 0.5) == 64 * (1 + 63 / 4)
        for d_k, rho in ((1, 0.7), (5, 0.3), (4, 1.0), (7, 0.0)):
            # Σᵢⱼ of the product of the two covariance matrices.
            covariance = torch.full((d_k, d_k), rho, dtype=torch.float64).fill_diagonal_(1)
            assert dot_product_variance(d_k, rho) == pytest.approx(covariance.square().sum().item())
        refuse_each("d_k", 1, 4096, dot_product_variance)

    @pytest.mark.parametrize("d_k", [1, 4, 5, 64, 1024])
    @pytest.mark.parametrize("distribution", DISTRIBUTIONS)
    def test_within_four_standard_errors(
        self, draws: dict[str, tuple[Tensor, Tensor]], distribution: str, d_k: int
    ) -> None:
        found = score_statistics(*draws[distribution], d_k)
        variance = dot_product_variance(d_k, RHO if distribution == "correlated" else 0)
        # Signs of one component have the square 1 in every draw: nothing varies but the mean.
        slack = 4 / found.sample_scores.numel() * variance
        assert abs(found.variance_raw.item() - variance) <= 4 * found.variance_error_raw.item() + slack
        assert abs(found.variance_scaled.item() - variance / d_k) <= (
            4 * found.variance_error_scaled.item() + slack / d_k
        )
        # Two scores of different pairs are uncorrelated, so the mean has the usual error.
        assert abs(found.mean_raw.item()) <= 4 * math.sqrt(variance / found.sample_scores.numel())

    def test_table_of_the_facts(self, draws: dict[str, tuple[Tensor, Tensor]]) -> None:
        for d_k in (4, 64, 1024):
            found = score_statistics(*draws["normal"], d_k)
            assert found.variance_raw.item() == pytest.approx(d_k, rel=0.2)
            assert found.variance_scaled.item() == pytest.approx(1, rel=0.2)
        # The mistake that the scaling corrects is far outside of all sampling error.
        assert found.variance_raw / found.variance_error_raw > 10

    def test_the_claimed_error_of_the_variance_is_the_true_one(self) -> None:
        found = [score_statistics(*sample_queries_and_keys("normal", seed, d_k=16)) for seed in range(40)]
        true = torch.stack([one.variance_raw for one in found]).std()
        claimed = torch.stack([one.variance_error_raw for one in found]).mean()
        assert 0.6 < (claimed / true).item() < 1.6

    def test_scores_are_dot_products_of_one_group(self) -> None:
        q, k = normal(48, 5, seed=1), normal(48, 5, seed=2)
        found = score_statistics(q, k, 3)
        by_loops = [
            sum(q[i, c] * k[j, c] for c in range(3))
            for i in range(48)
            for j in range(48)
            if i // 16 == j // 16
        ]
        close(found.sample_scores, torch.stack(by_loops))
        close(found.sample_scaled, found.sample_scores * 3**-0.5)
        close(found.variance_raw, torch.stack(by_loops).var(unbiased=True))
        close(found.mean_scaled, found.mean_raw / math.sqrt(3))
        close(found.variance_scaled, found.variance_raw / 3)
        close(found.variance_error_scaled, found.variance_error_raw / 3)
        assert score_statistics(q, k).d_k == 5
        close(
            score_statistics(q, k, 3, widths_under_root=4).sample_scaled, found.sample_scores / math.sqrt(12)
        )

    def test_gradient(self) -> None:
        q, k = normal(32, 3).requires_grad_(), normal(32, 3, seed=1).requires_grad_()
        ours = torch.autograd.grad(score_statistics(q, k).variance_scaled, (q, k))
        blocks = torch.stack([q[i : i + 16] @ k[i : i + 16].T for i in (0, 16)])
        theirs = torch.autograd.grad(torch.var(blocks) / 3, (q, k))
        for mine, expected in zip(ours, theirs, strict=True):
            close(mine, expected)

    @pytest.mark.parametrize(("queries", "keys"), [(32, 48), (16, 16), (40, 40), (1, 1)])
    def test_groups(self, queries: int, keys: int) -> None:
        with refused("q and k:", "multiple of 16 from 32", f"got {queries} queries and {keys} keys"):
            score_statistics(normal(queries, 3), normal(keys, 3))


class TestConcentration:
    @given(row_sizes, seeds, st.floats(0.1, 30))
    def test_entropy_is_torchs(self, n: int, seed: int, size: float) -> None:
        scores = (normal(3, n, seed=seed) * size).requires_grad_()
        ours = entropy(scores.softmax(dim=-1))
        theirs = torch.distributions.Categorical(logits=scores).entropy()
        close(ours, theirs, 1e-12)
        pull = f64([1.0, -2.0, 3.0])
        close(*torch.autograd.grad(ours, scores, pull), *torch.autograd.grad(theirs, scores, pull), 1e-11)
        assert (ours >= 0).all()
        assert (ours <= math.log(n) + 1e-12).all()

    def test_entropy_at_its_ends(self) -> None:
        assert entropy(f64([1.0, 0.0, 0.0])).item() == 0
        assert entropy(f64([1.0])).item() == 0
        for n in (2, 6, 64):
            assert entropy(torch.full((n,), 1 / n, dtype=torch.float64)).item() == pytest.approx(math.log(n))
        assert entropy(f64([0.5, 0.5, 0.0])).item() == pytest.approx(math.log(2))
        row = f64([0.5, 0.5, 0.0]).requires_grad_()
        (found,) = torch.autograd.grad(entropy(row), row)
        close(found, f64([math.log(2) - 1, math.log(2) - 1, 0]))

    @given(row_sizes, seeds)
    def test_jacobian_is_autograds(self, n: int, seed: int) -> None:
        scores = normal(n, seed=seed) * 2
        expected = torch.autograd.functional.jacobian(lambda x: F.softmax(x, dim=-1), scores)
        found = softmax_jacobian(scores.softmax(dim=-1))
        close(found, expected)
        close(jacobian_norm(scores.softmax(dim=-1)), torch.linalg.matrix_norm(expected))
        close(found.sum(dim=-1), torch.zeros(n, dtype=torch.float64))
        close(found, found.mT)

    @pytest.mark.parametrize("shape", [(2, 3, 4), (4, 4, 4), (3, 1)], ids=str)
    def test_leading_axes_and_gradient(self, shape: tuple[int, ...]) -> None:
        weights = normal(*shape).softmax(dim=-1).requires_grad_()
        found = softmax_jacobian(weights)
        for item in torch.cartesian_prod(*(torch.arange(n) for n in shape[:-1])).reshape(-1, len(shape) - 1):
            place = tuple(item.tolist())
            row = weights[place]
            close(found[place], torch.diag(row) - torch.outer(row, row))
        if shape[-1] > 1:
            (ours,) = torch.autograd.grad(jacobian_norm(weights).sum(), weights)
            matrices = torch.diag_embed(weights) - torch.einsum("...i,...j->...ij", weights, weights)
            (theirs,) = torch.autograd.grad(torch.linalg.matrix_norm(matrices).sum(), weights)
            close(ours, theirs)

    def test_norm_at_its_ends(self) -> None:
        assert jacobian_norm(f64([1.0])).item() == 0
        assert jacobian_norm(f64([0.0, 1.0, 0.0])).item() == 0
        assert jacobian_norm(f64([0.5, 0.5, 0.0])).item() == pytest.approx(0.5)
        for n in (2, 5):
            even = torch.full((n,), 1 / n, dtype=torch.float64)
            assert jacobian_norm(even).item() == pytest.approx(math.sqrt(n - 1) / n)

    def test_refusals(self) -> None:
        for function in (entropy, softmax_jacobian, jacobian_norm):
            with refused("weights:", "sum of 1", "got 0.9"):
                function(f64([0.4, 0.5]))
            with refused("weights:", "from 0 to 1", "got nan"):
                function(f64([math.nan, 0.5]))


class TestTrace:
    @pytest.mark.parametrize(("d_k", "n_keys"), [(1, 1), (3, 3), (5, 7), (64, 16), (4096, 64)])
    def test_row_is_attention(self, wide: tuple[Tensor, Tensor], d_k: int, n_keys: int) -> None:
        q, k = wide
        trace = scaling_trace(q, k, d_k, n_keys=n_keys)
        assert torch.equal(trace.q, q[0, :d_k])
        assert torch.equal(trace.k, k[:n_keys, :d_k])
        for scale, weights in ((False, trace.weights_raw), (True, trace.weights_scaled)):
            expected = attend(q[:1, :d_k], k[:n_keys, :d_k], k[:n_keys, :d_k], scale=scale)
            close(weights, expected.weights[0], 1e-11)
        fused = F.scaled_dot_product_attention(trace.q[None], trace.k, trace.k)
        close((trace.weights_scaled @ trace.k)[None], fused, 1e-11)
        close(trace.scaled, trace.scores / math.sqrt(d_k))
        assert trace.scale == pytest.approx(d_k**-0.5)
        for kind in ("raw", "scaled"):
            weights = getattr(trace, f"weights_{kind}")
            close(getattr(trace, f"entropy_{kind}"), torch.special.entr(weights).sum())
            close(getattr(trace, f"jacobian_{kind}"), torch.diag(weights) - torch.outer(weights, weights))
            norm = torch.linalg.matrix_norm(getattr(trace, f"jacobian_{kind}"))
            close(getattr(trace, f"jacobian_norm_{kind}"), norm)
        close(trace.statistics.variance_raw, score_statistics(q, k, d_k).variance_raw)

    def test_scaling_keeps_the_row_spread_and_the_gradient_alive(self, wide: tuple[Tensor, Tensor]) -> None:
        narrow, broad = (scaling_trace(*wide, d_k, n_keys=16) for d_k in (1, 4096))
        assert torch.equal(narrow.weights_raw, narrow.weights_scaled)
        assert broad.entropy_raw < 1e-3
        assert broad.jacobian_norm_raw < 1e-3
        assert broad.entropy_scaled > 1.5
        assert broad.jacobian_norm_scaled > 0.1

    def test_the_models_width_under_the_root(self, wide: tuple[Tensor, Tensor]) -> None:
        wrong = scaling_trace(*wide, 16, n_keys=5, widths_under_root=4)
        assert wrong.scale == 1 / 8
        close(wrong.scaled, wrong.scores / 8)
        assert wrong.entropy_scaled > scaling_trace(*wide, 16, n_keys=5).entropy_scaled

    def test_gradient_from_row_to_query_goes_through_the_jacobian(self, wide: tuple[Tensor, Tensor]) -> None:
        q, k = (x[:32].clone().requires_grad_() for x in wide)
        trace = scaling_trace(q, k, 8, n_keys=5)
        pull = torch.linspace(-1, 2, 5, dtype=torch.float64)
        of_q, of_k = torch.autograd.grad(trace.weights_scaled, (q, k), pull)
        through = trace.jacobian_scaled.T @ pull * trace.scale
        close(of_q[0, :8], through @ trace.k)
        close(of_k[:5, :8], torch.outer(through, trace.q))
        assert not of_q[1:].any()
        assert not of_q[:, 8:].any()

    def test_axes(self, wide: tuple[Tensor, Tensor]) -> None:
        trace = scaling_trace(*wide, 5, n_keys=7)
        axes = {stage.name: stage.axes for stage in trace.stages()}
        assert axes["q"] == ("d_k",)
        assert axes["k"] == ("key", "d_k")
        assert axes["weights_scaled"] == ("key",)
        assert axes["jacobian_raw"] == ("key", "other_key")
        assert axes["entropy_raw"] == ()
        assert trace.statistics.stage("sample_scores").axes == ("sample",)
        assert scaling_curve(*wide, [1, 2]).stage("d_ks").axes == ("setting",)

    def test_fields_are_tensors_of_their_own(self, wide: tuple[Tensor, Tensor]) -> None:
        # As wide as the draws, where a slice would be the whole.
        trace = scaling_trace(*wide, 4096, n_keys=64)
        stages = [*trace.stages(), *trace.statistics.stages(), *scaling_curve(*wide, [4096]).stages()]
        pointers = [x.untyped_storage().data_ptr() for x in (*wide, *(stage.tensor for stage in stages))]
        # Both halves of one draw are views of it.
        assert len(set(pointers)) == len(pointers) - 1

    def test_refusals(self) -> None:
        q, k = normal(32, 5), normal(32, 5, seed=1)
        refuse_each("d_k", 1, 5, lambda d_k: scaling_trace(q, k, d_k))
        refuse_each("n_keys", 1, 32, lambda n: scaling_trace(q, k, 3, n_keys=n))
        big = normal(80, 2)
        refuse_each("n_keys", 1, 64, lambda n: scaling_trace(big, big, n_keys=n))
        refuse_each("n_keys", 1, 64, lambda n: scaling_curve(big, big, [1], n_keys=n))
        refuse_each(
            "d_k", 1, 4096, lambda d_k: scaling_curve(normal(1, 5000), normal(1, 5000), [d_k], n_keys=1)
        )
        refuse_each("widths_under_root", 1, 64, lambda w: scaling_trace(q, k, widths_under_root=w))
        refuse_each("widths_under_root", 1, 64, lambda w: scaling_curve(q, k, [1], widths_under_root=w))
        with refused("d_ks:", "at least one", "none"):
            scaling_curve(q, k, [])
        for function in (scaling_trace, lambda q, k: scaling_curve(q, k, [1])):
            with refused("q and k:", "one width", "5 components", "in q", "4 of torch.float64 in k"):
                function(q, normal(32, 4))
            with refused("q and k:", "one dtype", "torch.float32 in k"):
                function(q, k.float())
            with refused("q:", "matrix", "(5,)"):
                function(q[0], k)
            with refused("k:", "floating-point", "torch.int64"):
                function(q, k.long())


class TestCurve:
    @pytest.mark.parametrize("widths_under_root", [1, 4])
    def test_is_the_row_at_each_width(self, wide: tuple[Tensor, Tensor], widths_under_root: int) -> None:
        d_ks = [1, 2, 3, 64, 1000, 4096]
        curve = scaling_curve(*wide, d_ks, n_keys=6, widths_under_root=widths_under_root)
        assert curve.d_ks.tolist() == d_ks
        for place, d_k in enumerate(d_ks):
            row = scaling_trace(*wide, d_k, n_keys=6, widths_under_root=widths_under_root)
            for name in ("entropy_raw", "entropy_scaled", "jacobian_norm_raw", "jacobian_norm_scaled"):
                close(getattr(curve, name)[place], getattr(row, name), 1e-10)

    def test_means_are_over_the_queries(self, wide: tuple[Tensor, Tensor]) -> None:
        q, k = wide
        curve = scaling_curve(q, k, [3, 100], n_keys=5)
        for place, d_k in enumerate((3, 100)):
            rows = [scaling_trace(q.roll(-i, dims=0), k, d_k, n_keys=5) for i in range(64)]
            for name in ("entropy_raw", "entropy_scaled", "jacobian_norm_raw", "jacobian_norm_scaled"):
                mean = torch.stack([getattr(row, name) for row in rows]).mean()
                close(getattr(curve, f"mean_{name}")[place], mean, 1e-12)

    def test_unscaled_falls_and_scaled_stays(self, wide: tuple[Tensor, Tensor]) -> None:
        curve = scaling_curve(*wide, [2**i for i in range(13)], n_keys=16)
        for name in ("entropy", "jacobian_norm"):
            raw, scaled = (getattr(curve, f"mean_{name}_{kind}") for kind in ("raw", "scaled"))
            assert raw[0] == scaled[0]
            # Like 1/√d_k in the long run; at 16, 256 and 4096 the fall is outside of the sampling error.
            assert raw[8] < 0.5 * raw[4]
            assert raw[12] < 0.5 * raw[8]
            assert (scaled > 0.5 * scaled[-1]).all()
            assert (scaled < 1.5 * scaled[-1]).all()


class TestHeadWidth:
    def test_reported_numbers(self) -> None:
        trace = compare_head_width(f64([8.0, 0.0]), width=64, heads=4)
        assert trace.d_head == 16
        assert trace.scaled_by_head.tolist() == [2, 0]
        assert trace.scaled_by_model.tolist() == [1, 0]
        close(trace.weights_by_head, f64([0.880797, 0.119203]), 5e-7)
        close(trace.weights_by_model, f64([0.731059, 0.268941]), 5e-7)

    def test_one_head_is_the_coincidence(self) -> None:
        trace = compare_head_width(normal(2, 3), width=9, heads=1)
        assert torch.equal(trace.weights_by_head, trace.weights_by_model)

    @given(st.integers(1, 16), st.integers(1, 8), seeds)
    def test_oracle(self, d_head: int, heads: int, seed: int) -> None:
        scores = (normal(2, 3, seed=seed) * 5).requires_grad_()
        trace = compare_head_width(scores, d_head * heads, heads)
        for weights, width in ((trace.weights_by_head, d_head), (trace.weights_by_model, d_head * heads)):
            expected = F.softmax(scores * width**-0.5, dim=-1)
            close(weights, expected)
            pull = f64([[1.0, -2.0, 0.5], [0.0, 3.0, 1.0]])
            ours = torch.autograd.grad(weights, scores, pull, retain_graph=True)
            close(*ours, *torch.autograd.grad(expected, scores, pull))

    def test_heads_in_one_tensor(self) -> None:
        scores = normal(2, 4, 3, 5)
        trace = compare_head_width(scores, 64, 4)
        assert trace.stage("weights_by_head").axes[-1] == "key"
        close(trace.weights_by_head[1, 2], (scores[1, 2] / 4).softmax(dim=-1))
        assert divide_by_root(f64([8.0]), 64).tolist() == [1]

    def test_refusals(self) -> None:
        scores = f64([8.0, 0.0])
        with refused("width:", "width 5 cannot be split into 2 equal heads"):
            compare_head_width(scores, 5, 2)
        refuse_each("width", 1, 4096, lambda width: compare_head_width(scores, width, 1))
        refuse_each("heads", 1, 64, lambda heads: compare_head_width(scores, 64, heads))
        refuse_each("width", 1, 262144, lambda width: divide_by_root(scores, width))
        with refused("scores:", "floating-point", "torch.int64"):
            compare_head_width(torch.tensor([8, 0]), 64, 4)
        with refused("scores:", "rows", "(0,)"):
            compare_head_width(f64([]), 64, 4)
