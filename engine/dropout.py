"""Dropout of attention weights: one draw, every possible draw, and many draws.

A dropout mask is data: a boolean `keep`, True = kept. A seed only proposes one.
Dropout zeroes entries of this forward pass, not weights of the model. In evaluation nothing is
dropped, which is p = 0 with a mask that keeps everything.
Source: Srivastava et al. 2014, in the form of `torch.nn.functional.dropout` (kept values are divided
by 1 − p in training, so that nothing has to be changed in evaluation).
"""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from attnlab.engine.checks import Check, largest
from attnlab.engine.sizes import MAX_SEED, require_whole
from attnlab.engine.tensors import require_tensor
from attnlab.engine.trace import Trace, note
from attnlab.engine.weights import require_keep, require_p, require_row, require_weights

__all__ = [
    "MAX_KEYS",
    "DropoutTrace",
    "MaskTableTrace",
    "SampleTrace",
    "check_expectation",
    "drop",
    "every_mask",
    "expectation",
    "keep_masks",
    "mask_probability",
    "sample_keep",
    "sample_statistics",
    "sum_rows",
]

MAX_KEYS = 6
"""Longest row of which all 2ⁿ masks are made."""


@dataclass(frozen=True, eq=False)
class DropoutTrace(Trace):
    """What `drop` computed, in order."""

    weights: Float[Tensor, "*batch key"] = note("before dropout, sum 1")
    keep: Bool[Tensor, "*batch key"] = note("True = kept")
    dropped: Float[Tensor, "*batch key"] = note("weights × keep ÷ (1 − p)")
    row_sum: Float[Tensor, "*batch"] = note("sum of dropped over key")
    p: float = note("probability of dropping")
    scale: float = note("1 ÷ (1 − p), the factor of a kept weight")


def drop(weights: Float[Tensor, "*batch key"], keep: Bool[Tensor, "*batch key"], p: float) -> DropoutTrace:
    """weights · keep / (1 − p), with the sum of each row, which dropout changes by design.

    - `weights`: rows of softmax weights, each in [0, 1], each row with sum 1.
    - `keep`: True where the weight is kept, of the same shape.
    - `p`: probability of dropping, 0 ≤ p < 1. A weight of 0 stays 0: dropout is no causal mask.

    Never renormalises. Raises `ValueError` with what was expected, what came, and in which input and row.
    PyTorch: `torch.nn.functional.dropout(weights, p)` draws `keep` itself and accepts p = 1 (all zeros).
    """
    require_p(p)
    require_weights(weights)
    require_keep(keep, weights.shape)

    dropped = weights * keep / (1 - p)
    row_sum = dropped.sum(dim=-1)

    # The inputs are cloned so that a later in-place step of the caller can't change what is on the screen.
    return DropoutTrace(
        weights=weights.clone(), keep=keep.clone(), dropped=dropped, row_sum=row_sum, p=p, scale=1 / (1 - p)
    )


def sum_rows(dropped: Float[Tensor, "*batch key"]) -> Float[Tensor, "*batch"]:
    """The sum of each row over key: 1 before dropout, another number in each draw after it."""
    return dropped.sum(dim=-1)


def keep_masks(n: int) -> Bool[Tensor, "mask key"]:
    """All 2ⁿ masks over n keys, 1 ≤ n ≤ 6, counting in binary: row 0 drops all, the last keeps all.

    The first key is the highest bit, so row 5 of n = 3 reads 101.
    """
    require_whole(n, "n", 1, MAX_KEYS)
    numbers = torch.arange(2**n)
    bits = torch.arange(n - 1, -1, -1)
    return (numbers[:, None] >> bits) & 1 == 1


def mask_probability(
    keep: Bool[Tensor, "*batch key"], p: float, *, dtype: torch.dtype = torch.float64
) -> Float[Tensor, "*batch"]:
    """Probability of drawing exactly this mask: the product over key of 1 − p (kept) or p (dropped).

    Written as (1 − p)^kept · p^dropped, with the number of kept and of dropped keys, and 0⁰ = 1.
    """
    require_p(p)
    require_tensor(keep, "keep")
    require_keep(keep, keep.shape)
    if keep.ndim == 0 or 0 in keep.shape:
        raise ValueError(f"keep: expected at least one key in each row, got shape {tuple(keep.shape)}")
    kept = keep.sum(dim=-1).to(dtype)
    gone = keep.shape[-1] - kept
    return (1 - p) ** kept * p**gone


def sample_keep(shape: tuple[int, ...], p: float, seed: int) -> Bool[Tensor, "*shape"]:
    """Proposes a mask: each entry is kept with probability 1 − p, independently.

    The seed only proposes: the same seed can give another mask on another machine or version of torch,
    so keep the mask, not the seed. The generator is our own, torch's global one is not touched.
    `seed` is a whole number from 0 to 2⁶³ − 1.
    """
    require_p(p)
    require_whole(seed, "seed", 0, MAX_SEED)
    if not shape:
        raise ValueError("shape: expected at least one axis, got ()")
    for size in shape:
        require_whole(size, "shape", 1, MAX_SEED)
    generator = torch.Generator().manual_seed(seed)
    # float64, because 2⁻²⁴ steps of float32 would round a small p.
    return torch.rand(shape, generator=generator, dtype=torch.float64) >= p


@dataclass(frozen=True, eq=False)
class MaskTableTrace(Trace):
    """Every mask of a row, what it does and how likely it is, and the mean over all of them."""

    weights: Float[Tensor, "key"] = note("before dropout, sum 1")
    keep: Bool[Tensor, "mask key"] = note("all masks, True = kept")
    dropped: Float[Tensor, "mask key"] = note("weights × keep ÷ (1 − p)")
    row_sum: Float[Tensor, "mask"] = note("sum of dropped over key")
    probability: Float[Tensor, "mask"] = note("(1 − p)^kept × p^dropped")
    weighted: Float[Tensor, "mask key"] = note("probability × dropped")
    expected: Float[Tensor, "key"] = note("sum of weighted over all masks")
    p: float = note("probability of dropping")


def every_mask(weights: Float[Tensor, "key"], p: float) -> MaskTableTrace:
    """The whole table of 2ⁿ masks for a row of 1 to 6 weights, in the order of `keep_masks`.

    `expected` = Σ probability · dropped: the row itself, up to rounding.
    """
    require_p(p)
    require_row(weights)
    require_whole(weights.shape[0], "number of weights", 1, MAX_KEYS)

    keep = keep_masks(weights.shape[0])
    dropped = weights * keep / (1 - p)
    row_sum = dropped.sum(dim=-1)
    probability = mask_probability(keep, p, dtype=weights.dtype)
    weighted = probability[:, None] * dropped
    expected = weighted.sum(dim=0)

    return MaskTableTrace(
        weights=weights.clone(),
        keep=keep,
        dropped=dropped,
        row_sum=row_sum,
        probability=probability,
        weighted=weighted,
        expected=expected,
        p=p,
    )


def expectation(weights: Float[Tensor, "key"], p: float) -> Float[Tensor, "key"]:
    """Mean of the dropped row over all masks, each by its probability: exact, nothing is sampled."""
    return every_mask(weights, p).expected


def check_expectation(expected: Float[Tensor, "key"], weights: Float[Tensor, "key"]) -> Check:
    """Largest |Δ| between a mean over all masks and the row: 0 up to rounding."""
    keys = weights.shape[0]
    return Check(
        "expectation is the row itself",
        largest((expected - weights).abs()),
        # Rounding of the powers, of the division and of adding 2ⁿ terms.
        (2 * keys + 10) * torch.finfo(weights.dtype).eps,
        f"mean over all {2**keys} masks against the weights",
    )


@dataclass(frozen=True, eq=False)
class SampleTrace(Trace):
    """Many draws of one row, and what is known of the mean after each of them."""

    weights: Float[Tensor, "key"] = note("before dropout, sum 1")
    keep: Bool[Tensor, "draw key"] = note("True = kept in this draw")
    dropped: Float[Tensor, "draw key"] = note("weights × keep ÷ (1 − p)")
    row_sum: Float[Tensor, "draw"] = note("sum of dropped over key")
    kept_share: Float[Tensor, "draw key"] = note("share of the draws so far that kept it")
    running_mean: Float[Tensor, "draw key"] = note("mean of dropped over the draws so far")
    standard_error: Float[Tensor, "draw key"] = note("of the running mean, NaN for one draw")
    mean: Float[Tensor, "key"] = note("running mean after the last draw")
    mean_error: Float[Tensor, "key"] = note("standard error after the last draw")
    difference: Float[Tensor, "key"] = note("mean − weights, which are the expectation")
    p: float = note("probability of dropping")


def sample_statistics(weights: Float[Tensor, "key"], keep: Bool[Tensor, "draw key"], p: float) -> SampleTrace:
    """Mean and standard error of the dropped row over the first 1, 2, 3, … draws.

    A dropped weight has two values only, 0 and weight/(1 − p), so both follow from the share f of the
    draws that kept it: mean = f · weight/(1 − p), and the standard error s/√draws, with the sample
    deviation s over draws − 1, is weight/(1 − p) · √(f (1 − f)/(draws − 1)). One draw has no spread: NaN.
    """
    require_p(p)
    require_row(weights)
    require_tensor(keep, "keep")
    if keep.ndim != 2 or keep.shape[0] == 0:
        raise ValueError(f"keep: expected draws × keys, at least one draw, got shape {tuple(keep.shape)}")
    require_keep(keep, (keep.shape[0], *weights.shape))

    dropped = weights * keep / (1 - p)
    row_sum = dropped.sum(dim=-1)
    # Counts are exact in float64; float16 couldn't count to 10,000.
    draws = torch.arange(1, keep.shape[0] + 1, dtype=torch.float64)[:, None]
    share = keep.cumsum(dim=0) / draws
    spread = (share * (1 - share) / (draws - 1)).sqrt()
    kept_share = share.to(weights.dtype)
    running_mean = kept_share * weights / (1 - p)
    standard_error = spread.to(weights.dtype) * weights / (1 - p)
    mean = running_mean[-1].clone()
    mean_error = standard_error[-1].clone()
    difference = mean - weights

    return SampleTrace(
        weights=weights.clone(),
        keep=keep.clone(),
        dropped=dropped,
        row_sum=row_sum,
        kept_share=kept_share,
        running_mean=running_mean,
        standard_error=standard_error,
        mean=mean,
        mean_error=mean_error,
        difference=difference,
        p=p,
    )
