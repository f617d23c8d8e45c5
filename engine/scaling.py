"""Why the scores are divided by √d_k, with d_k the width of one head: measured on samples.

If the components of q and k are independent with mean 0 and variance 1, q · k has mean 0 and variance d_k;
a larger spread concentrates the softmax, and its gradient vanishes. Everything here takes queries and keys
that are drawn already, and uses their first d_k components, so that all widths are of the same samples.
It is an argument about initialisation; it promises no independence during training.
Source: Vaswani et al. 2017, section 3.2.1 and footnote 4.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from attnlab.engine.concentration import entropy, jacobian_norm, softmax_jacobian
from attnlab.engine.head_width import MAX_MODEL_HEADS
from attnlab.engine.score_statistics import ScoreTrace, require_vectors, score_statistics
from attnlab.engine.sizes import require_whole
from attnlab.engine.trace import Trace, note

__all__ = ["CurveTrace", "ScalingTrace", "scaling_curve", "scaling_trace"]

MAX_ROW_KEYS = 64
"""Longest row of which entropy and Jacobian are made."""


@dataclass(frozen=True, eq=False)
class ScalingTrace(Trace):
    """One query and its keys, with raw and with scaled scores: two attention rows of the same draws."""

    q: Float[Tensor, "d_k"] = note("one query")
    k: Float[Tensor, "key d_k"] = note("keys")
    scores: Float[Tensor, "key"] = note("q · k")
    scaled: Float[Tensor, "key"] = note("q · k ÷ √d_k")
    weights_raw: Float[Tensor, "key"] = note("softmax of scores")
    weights_scaled: Float[Tensor, "key"] = note("softmax of scaled")
    entropy_raw: Float[Tensor, ""] = note("−Σ a ln a, nats")
    entropy_scaled: Float[Tensor, ""] = note("−Σ a ln a, nats")
    jacobian_raw: Float[Tensor, "key other_key"] = note("∂ weight ÷ ∂ score = diag(a) − a aᵀ")
    jacobian_scaled: Float[Tensor, "key other_key"] = note("∂ weight ÷ ∂ score = diag(a) − a aᵀ")
    jacobian_norm_raw: Float[Tensor, ""] = note("root of the sum of squares")
    jacobian_norm_scaled: Float[Tensor, ""] = note("root of the sum of squares")
    d_k: int = note("width of one head")
    scale: float = note("the scores are multiplied by this")
    statistics: ScoreTrace = note("many scores of this width")


def scaling_trace(
    q: Float[Tensor, "query width"],
    k: Float[Tensor, "key width"],
    d_k: int | None = None,
    *,
    n_keys: int = 8,
    widths_under_root: int = 1,
) -> ScalingTrace:
    """One setting: the row of the first query over the first `n_keys` keys, and the statistics.

    `n_keys`: 1 to 64 and at most the number of keys; the rest as in `score_statistics`. The Jacobians are
    with respect to the scores that went into the softmax: `scores` for raw, `scaled` for scaled.
    """
    statistics = score_statistics(q, k, d_k, widths_under_root=widths_under_root)
    d_k = statistics.d_k
    _require_n_keys(n_keys, k)

    # Copies, so that the fields don't share memory with the draws.
    one_q = q[0, :d_k].clone()
    few_k = k[:n_keys, :d_k].clone()
    scores = few_k @ one_q
    scaled = scores / math.sqrt(d_k * widths_under_root)
    weights_raw = scores.softmax(dim=-1)
    weights_scaled = scaled.softmax(dim=-1)

    return ScalingTrace(
        q=one_q,
        k=few_k,
        scores=scores,
        scaled=scaled,
        weights_raw=weights_raw,
        weights_scaled=weights_scaled,
        entropy_raw=entropy(weights_raw),
        entropy_scaled=entropy(weights_scaled),
        jacobian_raw=softmax_jacobian(weights_raw),
        jacobian_scaled=softmax_jacobian(weights_scaled),
        jacobian_norm_raw=jacobian_norm(weights_raw),
        jacobian_norm_scaled=jacobian_norm(weights_scaled),
        d_k=d_k,
        scale=1 / math.sqrt(d_k * widths_under_root),
        statistics=statistics,
    )


@dataclass(frozen=True, eq=False)
class CurveTrace(Trace):
    """Entropy and size of the softmax Jacobian against d_k: of the first query, and on average."""

    d_ks: Int[Tensor, "setting"] = note("widths of one head")
    entropy_raw: Float[Tensor, "setting"] = note("of the first query, nats")
    entropy_scaled: Float[Tensor, "setting"] = note("of the first query, nats")
    jacobian_norm_raw: Float[Tensor, "setting"] = note("of the first query")
    jacobian_norm_scaled: Float[Tensor, "setting"] = note("of the first query")
    mean_entropy_raw: Float[Tensor, "setting"] = note("mean over queries, nats")
    mean_entropy_scaled: Float[Tensor, "setting"] = note("mean over queries, nats")
    mean_jacobian_norm_raw: Float[Tensor, "setting"] = note("mean over queries")
    mean_jacobian_norm_scaled: Float[Tensor, "setting"] = note("mean over queries")


def scaling_curve(
    q: Float[Tensor, "query width"],
    k: Float[Tensor, "key width"],
    d_ks: Sequence[int],
    *,
    n_keys: int = 8,
    widths_under_root: int = 1,
) -> CurveTrace:
    """The numbers of `scaling_trace`'s row for each of `d_ks`, of the same samples.

    The first query is the one of `scaling_trace`; the means are over the first 64 queries (or all there
    are), because one query alone makes a restless curve. Arguments as in `scaling_trace`.
    """
    if not len(d_ks):
        raise ValueError("d_ks: expected at least one width, got none")
    _require_n_keys(n_keys, k)
    require_whole(widths_under_root, "widths_under_root", 1, MAX_MODEL_HEADS)

    rows: dict[str, list[Tensor]] = {
        name: [] for name in ("entropy_raw", "entropy_scaled", "jacobian_norm_raw", "jacobian_norm_scaled")
    }
    for d_k in d_ks:
        require_vectors(q, k, d_k)
        scores = q[:64, :d_k] @ k[:n_keys, :d_k].mT
        scaled = scores / math.sqrt(d_k * widths_under_root)
        weights_raw = scores.softmax(dim=-1)
        weights_scaled = scaled.softmax(dim=-1)
        rows["entropy_raw"].append(entropy(weights_raw))
        rows["entropy_scaled"].append(entropy(weights_scaled))
        rows["jacobian_norm_raw"].append(jacobian_norm(weights_raw))
        rows["jacobian_norm_scaled"].append(jacobian_norm(weights_scaled))

    stacked = {name: torch.stack(values) for name, values in rows.items()}
    return CurveTrace(
        d_ks=torch.tensor(list(d_ks)),
        **{name: values[:, 0].clone() for name, values in stacked.items()},
        **{f"mean_{name}": values.mean(dim=1) for name, values in stacked.items()},
    )


def _require_n_keys(n_keys: int, k: Tensor) -> None:
    require_whole(n_keys, "n_keys", 1, min(MAX_ROW_KEYS, k.shape[0]))
