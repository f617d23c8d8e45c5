"""Live checks: each measures a number on a trace and says whether what it claims holds."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from torch import Tensor

from attnlab.engine.attention import AttentionTrace

__all__ = [
    "Check",
    "blocked_weights",
    "check_attention",
    "fused_agreement",
    "largest",
    "row_sums",
    "rows_with_keys",
    "sums_to_one",
]


@dataclass(frozen=True)
class Check:
    """One claim, measured.

    `measured` is the number that was found, `bound` the largest one with which the claim holds
    (0 = exactly), `how` says what was compared with what. `counted` names what `measured` counts
    ("elements misplaced"); without it `measured` is an error in the units of the numbers. `stage` names the
    stage of the trace that was measured, where there is one: before it is computed nothing can be claimed.
    """

    name: str
    measured: float
    bound: float
    how: str
    counted: str = ""
    stage: str = ""

    @property
    def holds(self) -> bool:
        # Written so that NaN does not hold.
        return self.measured <= self.bound


def row_sums(trace: AttentionTrace) -> Check:
    """Largest |Σ weights − 1| over queries that have a key, before dropout (it changes sums by design)."""
    how = "sum of each row of weights over key, rows with no key left out"
    rows = rows_with_keys(trace)
    name = "row sums 1" if rows.all() else f"row sums 1 in {int(rows.sum())} of {rows.numel()} rows"
    return replace(sums_to_one(trace.weights, name, how, rows), stage="weights")


def sums_to_one(
    weights: Tensor, name: str, how: str, rows: Tensor | None = None, *, eps: float | None = None
) -> Check:
    """Largest |Σ weights − 1| over the last axis, added up in float64.

    `rows` is True for the rows that count, by default all. The bound is rounding: keys · `eps`, by default
    that of the dtype.
    """
    away = (weights.double().sum(dim=-1) - 1).abs()
    bound = weights.shape[-1] * (torch.finfo(weights.dtype).eps if eps is None else eps)
    return Check(name, largest(away if rows is None else away[rows]), bound, how)


def blocked_weights(trace: AttentionTrace) -> Check:
    """Largest |weight| where the mask does not allow reading, over the queries that have a key: exactly 0."""
    blocked = ~trace.allowed.expand(trace.weights.shape) & rows_with_keys(trace)[..., None]
    return Check(
        "masked weights exactly 0",
        largest(trace.weights.abs()[blocked]),
        0.0,
        f"{int(blocked.sum())} weights where reading is not allowed",
        stage="weights",
    )


def fused_agreement(trace: AttentionTrace) -> Check:
    """Largest |Δ| between weights · v and `F.scaled_dot_product_attention` on the same inputs.

    Without dropout on either side. Rows with no key are left out: the weights are NaN there and the
    fused call returns zeros. The bound is rounding at the trace's dtype, of the sum over the keys and of
    the scores, which the exponential passes on:
    4 · (keys + (d_k + 2) · |scale| · max Σ|q||k|) · eps · max(1, max |v|),
    with max Σ|q||k| over the scores that are allowed.
    """
    fused = F.scaled_dot_product_attention(
        trace.q, trace.k, trace.v, attn_mask=trace.allowed.expand(trace.weights.shape), scale=trace.scale
    )
    ours = trace.weights @ trace.v
    rows = rows_with_keys(trace)
    how = f"weights @ v against F.scaled_dot_product_attention, {str(trace.q.dtype).removeprefix('torch.')}"
    if not rows.all():
        returned = largest(fused[~rows].abs())
        value = "zeros" if returned == 0 else f"values up to {returned:g}"
        how += f"; {int((~rows).sum())} rows with no key left out (NaN here, torch returns {value})"
    keys, d_k = trace.k.shape[-2:]
    # In float64: in half precision this bound could overflow and then hold for anything.
    products = trace.q.double().abs() @ trace.k.double().abs().mT * abs(trace.scale)
    rounding = keys + (d_k + 2) * largest(products[trace.allowed.expand(products.shape)])
    size = max(1.0, largest(trace.v.abs()))
    return Check(
        "torch SDPA agrees",
        largest((fused - ours)[rows].abs()),
        4 * rounding * torch.finfo(trace.v.dtype).eps * size,
        how,
        stage="output",
    )


ATTENTION_CHECKS: tuple[Callable[[AttentionTrace], Check], ...] = (row_sums, blocked_weights, fused_agreement)


def check_attention(trace: AttentionTrace) -> list[Check]:
    """All checks of an attention trace, in the order in which they are shown."""
    return [check(trace) for check in ATTENTION_CHECKS]


def rows_with_keys(trace: AttentionTrace) -> Tensor:
    return ~trace.empty_rows.expand(trace.weights.shape[:-1])


def largest(values: Tensor) -> float:
    """Largest element, 0 for none; NaN if there is one (`max` of torch keeps NaN)."""
    return values.max().item() if values.numel() else 0.0
