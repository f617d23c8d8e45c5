"""Two famous mistakes in the formula of dropout, each computed for real beside the right result.

Each trace has `wrong_check` and `right_check`: the same claim, measured on the wrong and on the right
numbers. A mistake that changes no number in the given setting (1/p at p = .5) breaks nothing there, and
the measured number says so. Dropout that nobody turned off is in `dropout_left_on.py`.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from attnlab.engine.checks import Check, largest
from attnlab.engine.dropout import check_expectation, expectation, keep_masks, mask_probability
from attnlab.engine.masks import bidirectional
from attnlab.engine.trace import Trace, note
from attnlab.engine.weights import require_keep, require_p

__all__ = ["BeforeSoftmaxTrace", "WrongFactorTrace", "divide_by_p", "drop_before_softmax"]


@dataclass(frozen=True, eq=False)
class WrongFactorTrace(Trace):
    """Kept weights divided by p, beside the right division by 1 − p."""

    weights: Float[Tensor, "key"] = note("before dropout, sum 1")
    keep: Bool[Tensor, "key"] = note("True = kept")
    right: Float[Tensor, "key"] = note("weights × keep ÷ (1 − p)")
    wrong: Float[Tensor, "key"] = note("weights × keep ÷ p")
    right_expected: Float[Tensor, "key"] = note("mean of right over all masks")
    wrong_expected: Float[Tensor, "key"] = note("mean of wrong over all masks")
    right_check: Check = note("the claim, measured on right")
    wrong_check: Check = note("the claim, measured on wrong")


def divide_by_p(weights: Float[Tensor, "key"], keep: Bool[Tensor, "key"], p: float) -> WrongFactorTrace:
    """Mistake: the factor 1/p in place of 1/(1 − p). The expectation becomes weights · (1 − p)/p.

    One row of 1 to 6 weights and one mask; 0 < p < 1, because 1/p has no value at 0. At p = .5 the two
    factors are equal and the mistake hides. Breaks: the expectation over all masks is the row itself.
    """
    require_p(p)
    if p == 0:
        raise ValueError(f"p: expected 0 < p < 1 for this mistake, because 1/p has no value at 0; got {p:g}")
    right_expected = expectation(weights, p)
    require_keep(keep, weights.shape)

    right = weights * keep / (1 - p)
    wrong = weights * keep / p
    every_keep = keep_masks(weights.shape[0])
    probability = mask_probability(every_keep, p, dtype=weights.dtype)
    wrong_rows = weights * every_keep / p
    wrong_expected = (probability[:, None] * wrong_rows).sum(dim=0)

    return WrongFactorTrace(
        weights=weights.clone(),
        keep=keep.clone(),
        right=right,
        wrong=wrong,
        right_expected=right_expected,
        wrong_expected=wrong_expected,
        right_check=check_expectation(right_expected, weights),
        wrong_check=check_expectation(wrong_expected, weights),
    )


@dataclass(frozen=True, eq=False)
class BeforeSoftmaxTrace(Trace):
    """Dropout of the scores, beside the right dropout of the weights."""

    scores: Float[Tensor, "query key"] = note("before the mask")
    allowed: Bool[Tensor, "query key"] = note("True = may read")
    keep: Bool[Tensor, "query key"] = note("True = kept")
    masked: Float[Tensor, "query key"] = note("−∞ where not allowed")
    weights: Float[Tensor, "query key"] = note("softmax over key")
    right: Float[Tensor, "query key"] = note("weights × keep ÷ (1 − p)")
    dropped_scores: Float[Tensor, "query key"] = note("masked × keep ÷ (1 − p); −∞ × 0 is NaN")
    wrong: Float[Tensor, "query key"] = note("softmax of the dropped scores")
    right_check: Check = note("the claim, measured on right")
    wrong_check: Check = note("the claim, measured on wrong")


def drop_before_softmax(
    scores: Float[Tensor, "query key"],
    keep: Bool[Tensor, "query key"],
    p: float,
    *,
    allowed: Bool[Tensor, "query key"] | None = None,
) -> BeforeSoftmaxTrace:
    """Mistake: the scores are dropped, and the softmax comes after.

    A dropped score is 0, not −∞, so its key still gets a share; a dropped −∞ is −∞ · 0 = NaN, and takes
    its whole row with it. Breaks: a weight that is dropped or not allowed is exactly 0.
    `allowed` (default: everything) must leave each query a key.
    """
    require_p(p)
    if scores.ndim != 2 or 0 in scores.shape or not scores.is_floating_point():
        raise ValueError(
            f"scores: expected a non-empty matrix of floating-point numbers, "
            f"got {scores.dtype} of shape {tuple(scores.shape)}"
        )
    require_keep(keep, scores.shape)
    allowed = bidirectional(*scores.shape) if allowed is None else allowed
    if allowed.dtype != torch.bool or allowed.shape != scores.shape:
        raise ValueError(
            f"allowed: expected a boolean mask of shape {tuple(scores.shape)}, "
            f"got {allowed.dtype} of shape {tuple(allowed.shape)}"
        )
    if not allowed.any(dim=-1).all():
        query = int((~allowed.any(dim=-1)).nonzero()[0])
        raise ValueError(f"allowed: expected at least one key for each query, got none in row {query}")

    masked = scores.masked_fill(~allowed, -torch.inf)
    weights = masked.softmax(dim=-1)
    right = weights * keep / (1 - p)
    dropped_scores = masked * keep / (1 - p)
    wrong = dropped_scores.softmax(dim=-1)

    gone = ~(keep & allowed)
    return BeforeSoftmaxTrace(
        scores=scores.clone(),
        allowed=allowed.clone(),
        keep=keep.clone(),
        masked=masked,
        weights=weights,
        right=right,
        dropped_scores=dropped_scores,
        wrong=wrong,
        right_check=_zeros_check(right, gone),
        wrong_check=_zeros_check(wrong, gone),
    )


def _zeros_check(result: Tensor, gone: Tensor) -> Check:
    return Check(
        "dropped and masked weights exactly 0",
        largest(result.abs()[gone]),
        0.0,
        f"{int(gone.sum())} weights that are dropped or not allowed",
    )
