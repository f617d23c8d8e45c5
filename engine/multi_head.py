"""Attention in several heads between split and merge, and what a wrong merge makes of it."""

import math
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from attnlab.engine.masks import bidirectional
from attnlab.engine.masks import causal as causal_mask
from attnlab.engine.sizes import head_width, require_whole
from attnlab.engine.tensors import require_tensor
from attnlab.engine.trace import Trace, note

__all__ = ["MERGES", "MultiHeadTrace", "multi_head", "require_matrix", "require_projection"]

MERGES = ("transpose back", "reshape alone")
"""The right merge and the mistake, see `wrong_routes` of `heads.py`."""


@dataclass(frozen=True, eq=False)
class MultiHeadTrace(Trace):
    """What `multi_head` computed, in order. `wrong_output` is there when the wrong merge was asked for."""

    x: Float[Tensor, "batch time d_in"] = note("one row for each position")
    q: Float[Tensor, "batch time width"] = note("x · w_q")
    k: Float[Tensor, "batch time width"] = note("x · w_k")
    v: Float[Tensor, "batch time width"] = note("x · w_v")
    q_heads: Float[Tensor, "batch head query d_k"] = note("q, split")
    k_heads: Float[Tensor, "batch head key d_k"] = note("k, split")
    v_heads: Float[Tensor, "batch head key d_v"] = note("v, split")
    scores: Float[Tensor, "batch head query key"] = note("q · k in each head")
    scaled: Float[Tensor, "batch head query key"] = note("scores ÷ √d_k")
    masked: Float[Tensor, "batch head query key"] = note("−∞ where not allowed")
    weights: Float[Tensor, "batch head query key"] = note("softmax over key")
    head_output: Float[Tensor, "batch head query d_v"] = note("weights · v in each head")
    output: Float[Tensor, "batch time width"] = note("heads side by side")
    wrong_output: Float[Tensor, "batch time width"] | None = note("heads, merged the wrong way")
    allowed: Bool[Tensor, "query key"] = note("True = may read")


def multi_head(
    x: Float[Tensor, "batch time d_in"],
    heads: int,
    *,
    causal: bool,
    merge: str = "transpose back",
    w_q: Float[Tensor, "d_in width"] | None = None,
    w_k: Float[Tensor, "d_in width"] | None = None,
    w_v: Float[Tensor, "d_in width"] | None = None,
) -> MultiHeadTrace:
    """split → softmax(q kᵀ ÷ √d_k) v in each head → merge, each step a tensor of its own.

    - `x`: `batch × time × d_in`. Without a projection (`w_q`, `w_k`, `w_v`: `d_in × width`) it is q, k or v
      itself.
    - `heads`: how many; it has to divide the width.
    - `causal`: True = no position reads a later one.
    - `merge`: one of `MERGES`. `output` is always the right one; "reshape alone" makes `wrong_output` too.

    Raises `ValueError` with what was expected, what came, and in which input.
    Source: Vaswani et al. 2017, section 3.2.2, without the output projection: see `multi_head_projection`.
    """
    require_matrix(x, "x", x)
    if x.ndim != 3:
        raise ValueError(f"x: expected batch × time × d_in, got shape {tuple(x.shape)}")
    matrices = {"w_q": w_q, "w_k": w_k, "w_v": w_v}
    widths = {
        name: x.shape[-1] if w is None else require_projection(x, w, name) for name, w in matrices.items()
    }
    if len(set(widths.values())) > 1:
        told = ", ".join(f"{width} for {name}" for name, width in widths.items())
        raise ValueError(f"expected q, k and v of one width, got {told} (without a matrix that of x)")
    width = widths["w_q"]
    require_whole(heads, "heads", 1, width)
    d_k = head_width(width, heads)
    if merge not in MERGES:
        raise ValueError(f"merge: expected one of {', '.join(MERGES)}, got {str(merge)[:20]!r}")
    batch, time, _ = x.shape

    # Each stage is cloned where torch would give a view, so that none shares memory with another one.
    q = x.clone() if w_q is None else x @ w_q
    k = x.clone() if w_k is None else x @ w_k
    v = x.clone() if w_v is None else x @ w_v
    q_heads = q.reshape(batch, time, heads, d_k).transpose(1, 2).clone()
    k_heads = k.reshape(batch, time, heads, d_k).transpose(1, 2).clone()
    v_heads = v.reshape(batch, time, heads, d_k).transpose(1, 2).clone()

    allowed = causal_mask(time) if causal else bidirectional(time)
    scores = q_heads @ k_heads.mT
    scaled = scores / math.sqrt(d_k)
    masked = scaled.masked_fill(~allowed, -torch.inf)
    weights = masked.softmax(dim=-1)
    head_output = weights @ v_heads

    output = head_output.transpose(1, 2).reshape(batch, time, width).clone()
    wrong_output = head_output.reshape(batch, time, width).clone() if merge == "reshape alone" else None
    return MultiHeadTrace(
        x=x.clone(),
        q=q,
        k=k,
        v=v,
        q_heads=q_heads,
        k_heads=k_heads,
        v_heads=v_heads,
        scores=scores,
        scaled=scaled,
        masked=masked,
        weights=weights,
        head_output=head_output,
        output=output,
        wrong_output=wrong_output,
        allowed=allowed,
    )


def require_matrix(tensor: Tensor, name: str, like: Tensor) -> None:
    """At least two axes, none empty, floating-point numbers of the dtype of `like` (the input x)."""
    require_tensor(tensor, name)
    if not tensor.is_floating_point():
        raise ValueError(f"{name}: expected floating-point numbers, got {tensor.dtype}")
    if tensor.ndim < 2 or 0 in tensor.shape:
        raise ValueError(f"{name}: expected a non-empty matrix, got shape {tuple(tensor.shape)}")
    if tensor.dtype != like.dtype:
        raise ValueError(f"{name}: expected {like.dtype} like x, got {tensor.dtype}")


def require_projection(x: Tensor, w: Tensor, name: str, rows: int | None = None) -> int:
    """The columns of a matrix that has a row for each number in a row of x, or else as many `rows`."""
    require_matrix(x, "x", x)
    require_matrix(w, name, x)
    expected = x.shape[-1] if rows is None else rows
    if w.ndim != 2 or w.shape[0] != expected:
        source = "a row of x" if rows is None else "a row of the heads side by side"
        raise ValueError(
            f"{name}: expected {expected} rows, one for each number in {source}, got shape {tuple(w.shape)}"
        )
    return w.shape[1]
