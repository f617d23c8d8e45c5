"""Mean and variance of many dot products of one width, raw and divided by √d_k."""

import math
from dataclasses import dataclass

from jaxtyping import Float
from torch import Tensor

from attnlab.engine.head_width import MAX_MODEL_HEADS
from attnlab.engine.sizes import require_whole
from attnlab.engine.trace import Trace, note
from attnlab.engine.vectors import MAX_D_K

__all__ = ["GROUP", "ScoreTrace", "require_vectors", "score_statistics"]

GROUP = 16
"""Queries and keys that are multiplied with each other; groups share no vector, so they are independent."""


@dataclass(frozen=True, eq=False)
class ScoreTrace(Trace):
    """Many dot products of one width, and their spread."""

    sample_scores: Float[Tensor, "sample"] = note("q · k")
    sample_scaled: Float[Tensor, "sample"] = note("q · k ÷ √d_k")
    mean_raw: Float[Tensor, ""] = note("mean of q · k")
    mean_scaled: Float[Tensor, ""] = note("mean of q · k ÷ √d_k")
    variance_raw: Float[Tensor, ""] = note("variance of q · k")
    variance_scaled: Float[Tensor, ""] = note("variance of q · k ÷ √d_k")
    variance_error_raw: Float[Tensor, ""] = note("standard error of the variance")
    variance_error_scaled: Float[Tensor, ""] = note("standard error of the variance")
    d_k: int = note("width of one head")


def score_statistics(
    q: Float[Tensor, "query width"],
    k: Float[Tensor, "key width"],
    d_k: int | None = None,
    *,
    widths_under_root: int = 1,
) -> ScoreTrace:
    """Mean and variance (over n − 1) of q · k, raw and scaled, of the first `d_k` components.

    - `q`, `k`: as many queries as keys, a multiple of 16 from 32 on. Each 16 queries are multiplied with
      their 16 keys: 256 of each make 4096 scores.
    - `d_k`: 1 to 4096 and at most the width of `q` and `k`, the default.
    - `widths_under_root`: how many times d_k stands under the root. 1 is right; the number of heads is the
      mistake of the model's width.

    Scores of a group share vectors, so the standard error of the variance comes from the groups: the
    deviation of the groups' mean squares, divided by √groups.
    """
    d_k = require_vectors(q, k, d_k)
    _require_groups(q, k)
    require_whole(widths_under_root, "widths_under_root", 1, MAX_MODEL_HEADS)

    grouped_q = q[:, :d_k].unflatten(0, (-1, GROUP))
    grouped_k = k[:, :d_k].unflatten(0, (-1, GROUP))
    sample_scores = (grouped_q @ grouped_k.mT).flatten()
    sample_scaled = sample_scores / math.sqrt(d_k * widths_under_root)

    return ScoreTrace(
        sample_scores=sample_scores,
        sample_scaled=sample_scaled,
        mean_raw=sample_scores.mean(),
        mean_scaled=sample_scaled.mean(),
        variance_raw=sample_scores.var(),
        variance_scaled=sample_scaled.var(),
        variance_error_raw=_variance_error(sample_scores),
        variance_error_scaled=_variance_error(sample_scaled),
        d_k=d_k,
    )


def _variance_error(scores: Tensor) -> Tensor:
    squares = (scores - scores.mean()).square()
    groups = squares.unflatten(0, (-1, GROUP * GROUP)).mean(dim=1)
    return groups.std() / math.sqrt(groups.shape[0])


def require_vectors(q: Tensor, k: Tensor, d_k: int | None) -> int:
    """The width `d_k` (default: all) of queries and keys that can be multiplied; refuses others."""
    for name, vectors in (("q", q), ("k", k)):
        if not vectors.is_floating_point() or vectors.ndim != 2 or 0 in vectors.shape:
            raise ValueError(
                f"{name}: expected a non-empty matrix of floating-point numbers, "
                f"got {vectors.dtype} of shape {tuple(vectors.shape)}"
            )
    if q.shape[1] != k.shape[1] or q.dtype != k.dtype:
        raise ValueError(
            f"q and k: expected one width and one dtype, got {q.shape[1]} components of {q.dtype} in q "
            f"and {k.shape[1]} of {k.dtype} in k"
        )
    d_k = q.shape[1] if d_k is None else d_k
    require_whole(d_k, "d_k", 1, min(MAX_D_K, q.shape[1]))
    return d_k


def _require_groups(q: Tensor, k: Tensor) -> None:
    queries, keys = q.shape[0], k.shape[0]
    if queries != keys or queries % GROUP or queries < 2 * GROUP:
        raise ValueError(
            f"q and k: expected as many queries as keys, a multiple of {GROUP} from {2 * GROUP} on; "
            f"got {queries} queries and {keys} keys"
        )
