"""Checks of anybody's code: right code of any style fails none, wrong code fails, all else is left alone."""

import math
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from attnlab.engine import Check, record
from attnlab.engine.code_checks import check_code
from helpers.calls import calls
from helpers.hand_written import (
    HeadsInALoop,
    PackedAttention,
    TinyLanguageModel,
    einsum_attention,
    in_place_attention,
    rms_block,
)

SUMS = "each query's weights sum to 1"
MERGED = "merged heads keep each position"
B, H, T, D = 2, 3, 5, 4


def scale(width: int = D) -> str:
    return f"scores are scaled by 1/√{width}"


def checks(function: Callable[[], object]) -> dict[str, Check]:
    with record() as tape:
        function()
    return {check.name: check for check in check_code(tape)}


def verdicts(function: Callable[[], object]) -> dict[str, bool]:
    return {name: check.holds for name, check in checks(function).items()}


@pytest.fixture
def qkv() -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    q, k, v = (torch.randn(B, H, T, D, generator=generator, dtype=torch.float64) for _ in range(3))
    return q, k, v


def future(time: int = T) -> Tensor:
    return torch.ones(time, time, dtype=torch.bool).triu(1)


QKV = tuple[Tensor, Tensor, Tensor]


class TestCodeWithoutAttention:
    @pytest.mark.parametrize(
        "function",
        [
            lambda x: x,
            lambda x: x @ x.mT,
            lambda x: x.softmax(-1),
            lambda x: F.layer_norm(x, x.shape[-1:]) @ x.mT,
            lambda x: rms_block(x, x[0], x.mT @ x),
            lambda x: F.cross_entropy(x, torch.zeros(len(x), dtype=torch.long)),
            lambda x: x.long() @ x.mT.long(),
            lambda x: torch.fft.fft(x).abs(),
        ],
    )
    def test_nothing_is_claimed(self, function: Callable[[Tensor], object]) -> None:
        x = torch.arange(12.0).reshape(4, 3)
        assert checks(lambda: function(x)) == {}

    def test_what_is_not_found_is_not_checked(self) -> None:
        x = torch.randn(2, 5, 12)
        weights = [torch.randn(3, 12, 4) for _ in range(3)] + [torch.randn(3, 4, 12)]
        assert checks(lambda: einsum_attention(x, *weights)) == {}
        q, k, v = torch.randn(3, 5, 4)
        assert checks(lambda: in_place_attention(q, k, v, torch.zeros(5, 5))) == {}
        assert checks(lambda: F.scaled_dot_product_attention(q, k, v)) == {}


class TestRightCodeFailsNothing:
    def test_modules(self) -> None:
        torch.manual_seed(0)
        x = torch.randn(B, T, 12)
        assert verdicts(lambda: PackedAttention(12, H)(x)) == {SUMS: True, scale(4): True, MERGED: True}
        assert verdicts(lambda: HeadsInALoop(12, H)(x)) == {SUMS: True, scale(4): True}
        tokens = torch.arange(12).reshape(2, 6)
        model = TinyLanguageModel(13, 12, 3, 6)
        assert verdicts(lambda: model(tokens)) == {SUMS: True, scale(4): True, MERGED: True}

    @pytest.mark.parametrize("training", [True, False])
    @pytest.mark.parametrize("drop_p", [0.0, 0.5, 0.9])
    def test_dropout_changes_sums_by_design(self, drop_p: float, training: bool) -> None:
        torch.manual_seed(0)
        module = PackedAttention(12, H, drop_p).train(training)
        x = torch.randn(B, T, 12)
        assert verdicts(lambda: module(x)) == {SUMS: True, scale(4): True, MERGED: True}

    @pytest.mark.parametrize(
        "scores",
        [
            lambda q, k: (q / D**0.5) @ k.mT,
            lambda q, k: q @ (k.mT * D**-0.5),
            lambda q, k: (q * D**-0.25) @ (k * D**-0.25).mT,
            lambda q, k: q @ k.mT * torch.tensor(D).rsqrt(),
            lambda q, k: q @ k.mT / torch.tensor(2.0),
            lambda q, k: D**-0.5 * (q @ k.mT),
            lambda q, k: (q @ k.mT).div_(2),
            lambda q, k: torch.matmul(q, k.transpose(-2, -1)).mul(0.5),
            lambda q, k: (q @ k.mT).masked_fill(future(), -torch.inf) / 2,
            lambda q, k: q @ k.mT / 2 + torch.where(future(), -1e9, 0.0),
            lambda q, k: q @ k.mT / 2 - torch.arange(T) * 0.7,  # a bias of distance
            lambda q, k: (q @ k.mT * 2) / 4,
        ],
    )
    def test_the_factor_may_stand_anywhere(
        self, scores: Callable[[Tensor, Tensor], Tensor], qkv: QKV
    ) -> None:
        q, k, v = qkv
        assert verdicts(lambda: scores(q, k).softmax(-1) @ v) == {SUMS: True, scale(): True}

    def test_a_temperature_for_each_head_is_no_scale(self, qkv: QKV) -> None:
        q, k, v = qkv
        warmth = torch.rand(H, 1, 1, dtype=torch.float64)
        assert verdicts(lambda: (q @ k.mT * warmth).softmax(-1) @ v) == {SUMS: True}
        assert verdicts(lambda: (1 / (q @ k.mT)).softmax(-1) @ v) == {SUMS: True}
        assert verdicts(lambda: (q * 0 @ k.mT).softmax(-1) @ v) == {SUMS: True}

    @pytest.mark.parametrize(
        "merge",
        [
            lambda heads: heads.transpose(1, 2).reshape(len(heads), -1, H * D),
            lambda heads: heads.permute(0, 2, 1, 3).flatten(2),
            lambda heads: heads.transpose(1, 2).contiguous().float().view(len(heads), -1, H * D),
            lambda heads: heads.permute(2, 0, 1, 3).flatten(2),  # time first
        ],
    )
    @pytest.mark.parametrize("batch", [1, B, T])  # also batch = time
    def test_any_layout_of_merged_heads(self, merge: Callable[[Tensor], Tensor], batch: int) -> None:
        q, k, v = torch.randn(3, batch, H, T, D)
        assert verdicts(lambda: merge((q @ k.mT / 2).softmax(-1) @ v)) == {
            SUMS: True,
            scale(): True,
            MERGED: True,
        }

    @pytest.mark.parametrize(
        "after",
        [
            lambda heads: heads[:, :, -1],  # the last position only
            lambda heads: heads.transpose(1, 2).reshape(-1, H * D),  # batch and time in one
            lambda heads: heads.mean(1),
            lambda heads: heads,
        ],
    )
    def test_what_is_no_merge_is_not_checked(self, after: Callable[[Tensor], Tensor], qkv: QKV) -> None:
        q, k, v = qkv
        assert verdicts(lambda: after((q @ k.mT / 2).softmax(-1) @ v)) == {SUMS: True, scale(): True}

    def test_the_last_position_is_no_merge_even_where_batch_equals_time(self) -> None:
        q, k, v = torch.randn(3, T, T, D)
        assert verdicts(lambda: ((q @ k.mT / 2).softmax(-1) @ v)[:, -1]) == {SUMS: True, scale(): True}

    def test_grouped_queries_by_broadcasting(self) -> None:
        q = torch.randn(B, 2, 3, T, D)  # two groups of three heads
        k, v = torch.randn(2, B, 2, 1, T, D)
        assert verdicts(lambda: (q @ k.mT / 2).masked_fill(future(), -torch.inf).softmax(-1) @ v) == {
            SUMS: True,
            scale(): True,
        }

        def repeated() -> Tensor:
            keys, values = (kv.expand(B, 2, 3, T, D).reshape(B, 6, T, D) for kv in (k, v))
            weights = (q.reshape(B, 6, T, D) @ keys.mT / 2).softmax(-1)
            return (weights @ values).transpose(1, 2).reshape(B, T, 6 * D)

        assert verdicts(repeated) == {SUMS: True, scale(): True, MERGED: True}

    @pytest.mark.parametrize("right", [True, False])
    def test_windows_are_put_back_together_after_the_merge(self, right: bool) -> None:
        """What becomes of the positions later is no part of the merge."""
        x = torch.arange(2.0 * 6 * 8).reshape(2, 6, 8).sin()

        def windows() -> Tensor:
            parts = x.view(4, 3, 8)
            q = k = v = parts.view(4, 3, 2, 4).transpose(1, 2)
            weights = (q @ k.mT / math.sqrt(4)).softmax(-1)
            mixed = weights @ v
            merged = (mixed.transpose(1, 2) if right else mixed).reshape(4, 3, 8)
            return merged.view(2, 6, 8)

        assert verdicts(windows)[MERGED] is right

    @pytest.mark.parametrize("filled", [False, True])
    def test_a_row_without_a_key_has_no_sum(self, filled: bool, qkv: QKV) -> None:
        q, k, v = qkv
        padding = torch.zeros(B, 1, T, T, dtype=torch.bool)
        padding[1, :, 2] = True

        def masked() -> Tensor:
            weights = (q @ k.mT / 2).masked_fill(padding, -torch.inf).softmax(-1)
            if filled:
                weights = weights.masked_fill(padding.all(-1, keepdim=True), 0.0)
            return weights @ v

        assert verdicts(masked) == {SUMS: True, scale(): True}

    def test_nothing_but_rows_without_a_key(self, qkv: QKV) -> None:
        q, k, v = qkv
        everything = torch.ones(T, T, dtype=torch.bool)
        found = checks(lambda: (q @ k.mT / 2).masked_fill(everything, -torch.inf).softmax(-1) @ v)
        assert found[SUMS].holds
        assert found[SUMS].measured == 0

    @pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
    def test_in_fewer_digits(self, dtype: torch.dtype, qkv: QKV) -> None:
        q, k, v = (tensor.to(dtype) for tensor in qkv)
        found = verdicts(lambda: ((q @ k.mT * D**-0.5).softmax(-1) @ v).transpose(1, 2).reshape(B, T, H * D))
        assert found == {SUMS: True, scale(): True, MERGED: True}

    def test_softmax_in_more_digits_than_the_product(self, qkv: QKV) -> None:
        q, k, v = (tensor.half() for tensor in qkv)
        assert verdicts(lambda: (q @ k.mT / 2).float().softmax(-1).half() @ v) == {SUMS: True, scale(): True}

    @pytest.mark.parametrize("cast", [torch.float32, torch.bfloat16], ids=str)
    def test_softmax_in_fewer_digits_than_the_values(self, cast: torch.dtype, qkv: QKV) -> None:
        q, k, v = qkv
        assert verdicts(lambda: F.softmax(q @ k.mT / 2, dim=-1, dtype=cast).to(q.dtype) @ v) == {
            SUMS: True,
            scale(): True,
        }
        assert verdicts(lambda: (q @ k.mT / 2).to(cast).softmax(-1).double().clone() @ v) == {
            SUMS: True,
            scale(): True,
        }

    @pytest.mark.parametrize("experts", [2, T, D])
    @pytest.mark.parametrize("leading", [(), (B,), (B, H)])
    def test_a_product_with_weights_is_no_score(self, experts: int, leading: tuple[int, ...]) -> None:
        """A router, a soft embedding, linear attention: rows that sum to 1, but no queries and keys."""
        h, gate, out = torch.randn(*leading, T, D), torch.randn(D, experts), torch.randn(experts, D)
        w_q, w_k, w_v = torch.randn(3, D, D)

        def router() -> Tensor:
            return (h @ gate).softmax(-1) @ out

        def as_in_linear() -> Tensor:
            return (h @ gate.mT.contiguous().mT).softmax(-1) @ out

        def soft_embedding() -> Tensor:
            return (h @ out.T).softmax(-1) @ out

        def linear_attention() -> Tensor:
            q, k, v = h @ w_q, h @ w_k, h @ w_v
            return q.softmax(-1) * D**-0.5 @ (k.softmax(-2).mT @ v)

        def best_two() -> Tensor:
            shares = (h @ gate).softmax(-1)
            return shares.masked_fill(shares < shares.topk(1).values, 0) @ out

        for program in (router, as_in_linear, soft_embedding, linear_attention, best_two):
            assert set(verdicts(program).items()) <= {(SUMS, True)}, program.__name__

    def test_axes_in_one_without_the_heads(self) -> None:
        """As many heads as positions: the axis of the heads is not the one of the positions."""
        q, k, v = torch.randn(3, B, T, T, D)
        found = verdicts(lambda: ((q @ k.mT / 2).softmax(-1) @ v).transpose(1, 2).flatten(0, 1))
        assert found == {SUMS: True, scale(): True}


class TestWrongCodeFails:
    def test_without_leading_axes(self) -> None:
        """Two axes only: keys that were projected, are the queries, or are masked are surely keys."""
        x, w_q, w_k = torch.randn(T, D), torch.randn(D, D), torch.randn(D, D)
        assert verdicts(lambda: ((x @ w_q) @ (x @ w_k).T).softmax(-1) @ x) == {SUMS: True, scale(): False}
        assert verdicts(lambda: (x @ x.T).softmax(-1) @ x) == {SUMS: True, scale(): False}
        one, two = torch.randn(2, B, 1, D)  # a single key, which has no step from one to the next
        assert verdicts(lambda: (one @ two.transpose(1, 2)).softmax(-1) @ one) == {SUMS: True, scale(): False}
        q, k, v = torch.randn(3, T, D)
        assert verdicts(lambda: (q @ k.T).masked_fill(future(), -torch.inf).softmax(-1) @ v) == {
            SUMS: True,
            scale(): False,
        }

    @pytest.mark.parametrize("factor", [1.0, 1 / D, D**0.5, (H * D) ** -0.5, -(D**-0.5)])
    @pytest.mark.parametrize("before", [True, False])
    def test_other_factors(self, factor: float, before: bool, qkv: QKV) -> None:
        q, k, v = qkv

        def attend() -> Tensor:
            scores = (q * factor) @ k.mT if before else (q @ k.mT).mul(factor)
            return scores.softmax(-1) @ v

        found = checks(attend)
        assert not found[scale()].holds
        assert found[SUMS].holds
        assert math.isclose(found[scale()].measured, abs(factor * D**0.5 - 1))

    def test_no_factor(self, qkv: QKV) -> None:
        q, k, v = qkv
        assert verdicts(lambda: (q @ k.mT).softmax(-1) @ v) == {SUMS: True, scale(): False}

    def test_a_mask_after_the_softmax_is_found_before_dropout_too(self, qkv: QKV) -> None:
        q, k, v = qkv

        def attend() -> Tensor:
            weights = (q @ k.mT / 2).softmax(-1).masked_fill(future(), 0.0)
            return F.dropout(weights, 0.5) @ v

        torch.manual_seed(0)
        assert verdicts(attend) == {SUMS: False, scale(): True}

    @pytest.mark.parametrize(
        "merge",
        [
            lambda heads: heads.reshape(B, T, H * D),
            lambda heads: heads.transpose(1, 2).flip(1).reshape(B, T, H * D),
            lambda heads: heads.transpose(1, 2).transpose(0, 1).reshape(B, T, H * D),
        ],
    )
    def test_positions_that_wander(self, merge: Callable[[Tensor], Tensor], qkv: QKV) -> None:
        q, k, v = qkv
        found = checks(lambda: merge((q @ k.mT / 2).softmax(-1) @ v))
        assert not found[MERGED].holds
        assert found[MERGED].measured == round(found[MERGED].measured) > 0
        assert str(B * T * H * D) in found[MERGED].how

    def test_how_many_are_misplaced(self) -> None:
        """Two heads, two positions, width 2 · 1: of four numbers, those of row 0 from position 1 and back."""
        q, k, v = torch.ones(3, 1, 2, 2, 1)
        found = checks(lambda: ((q @ k.mT).softmax(-1) @ v).reshape(1, 2, 2))
        assert found[MERGED].measured == 2

    def test_softmax_over_the_queries(self, qkv: QKV) -> None:
        q, k, v = qkv
        found = checks(lambda: (q @ k.mT / 2).softmax(-2) @ v)
        assert not found[SUMS].holds
        assert "line" in found[SUMS].how


def test_numbers_of_a_merge_are_checked_all_at_once() -> None:
    def checked(time: int) -> int:
        q, k, v = torch.randn(3, 2, 8, time, 16)
        with record() as tape:
            ((q @ k.mT / 4).softmax(-1) @ v).transpose(1, 2).reshape(2, time, 128)
        count = calls(lambda: check_code(tape))
        assert all(check.holds for check in check_code(tape))
        return count

    checked(2)  # reads the source, once
    assert checked(256) < 1.1 * checked(2)  # 65,536 numbers and 512
