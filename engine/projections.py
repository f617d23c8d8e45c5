"""Q, K and V from X, and the whole of multi-head attention in one trace."""

import math
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from attnlab.engine.masks import bidirectional
from attnlab.engine.masks import causal as causal_mask
from attnlab.engine.multi_head import require_projection
from attnlab.engine.sizes import head_width, require_whole
from attnlab.engine.tensors import require_tensor
from attnlab.engine.trace import Trace, note

__all__ = [
    "ProjectTrace",
    "ProjectionTrace",
    "multi_head_projection",
    "parameter_count",
    "project",
    "tile_heads",
]

KeyHeads = Float[Tensor, "*batch kv_head time d_head"]


@dataclass(frozen=True, eq=False)
class ProjectTrace(Trace):
    """X and what three matrices make of it. k is as wide as q, unless several query heads share each key."""

    x: Float[Tensor, "*batch time d_in"] = note("one row for each position")
    w_q: Float[Tensor, "d_in width"] = note("weights of the queries")
    w_k: Float[Tensor, "d_in kv_width"] = note("weights of the keys")
    w_v: Float[Tensor, "d_in d_v"] = note("weights of the values")
    q: Float[Tensor, "*batch time width"] = note("x · w_q")
    k: Float[Tensor, "*batch time kv_width"] = note("x · w_k")
    v: Float[Tensor, "*batch time d_v"] = note("x · w_v")


@dataclass(frozen=True, eq=False)
class ProjectionTrace(Trace):
    """What `multi_head_projection` computed, in order.

    `k_shared` and `v_shared` are there when several query heads share a key and value head, `w_o` when there
    is an output projection.
    """

    x: Float[Tensor, "*batch time d_in"] = note("one row for each position")
    w_q: Float[Tensor, "d_in width"] = note("weights of the queries")
    w_k: Float[Tensor, "d_in kv_width"] = note("weights of the keys")
    w_v: Float[Tensor, "d_in kv_width"] = note("weights of the values")
    q: Float[Tensor, "*batch time width"] = note("x · w_q")
    k: Float[Tensor, "*batch time kv_width"] = note("x · w_k")
    v: Float[Tensor, "*batch time kv_width"] = note("x · w_v")
    q_heads: Float[Tensor, "*batch head query d_k"] = note("q, split")
    k_heads: Float[Tensor, "*batch kv_head key d_k"] = note("k, split")
    v_heads: Float[Tensor, "*batch kv_head key d_v"] = note("v, split")
    k_shared: Float[Tensor, "*batch head key d_k"] | None = note("k_heads, each for several query heads")
    v_shared: Float[Tensor, "*batch head key d_v"] | None = note("v_heads, each for several query heads")
    scores: Float[Tensor, "*batch head query key"] = note("q · k in each head")
    scaled: Float[Tensor, "*batch head query key"] = note("scores ÷ √d_k")
    masked: Float[Tensor, "*batch head query key"] = note("−∞ where not allowed")
    weights: Float[Tensor, "*batch head query key"] = note("softmax over key")
    head_output: Float[Tensor, "*batch head query d_v"] = note("weights · v in each head")
    concat: Float[Tensor, "*batch time width"] = note("heads side by side")
    w_o: Float[Tensor, "width d_out"] | None = note("weights of the output")
    output: Float[Tensor, "*batch time d_out"] = note("concat · w_o")
    allowed: Bool[Tensor, "query key"] = note("True = may read")


def project(
    x: Float[Tensor, "*batch time d_in"],
    w_q: Float[Tensor, "d_in width"],
    w_k: Float[Tensor, "d_in kv_width"],
    w_v: Float[Tensor, "d_in d_v"],
) -> ProjectTrace:
    """q = x w_q, k = x w_k, v = x w_v: the same rows, read by three matrices that share no parameter.

    `x` is `time × d_in` (after any leading axes), the matrices are `d_in × width`, `d_in × kv_width`,
    `d_in × d_v`. kv_width is the width, or divides it where several query heads share each key.
    `nn.Linear` stores their transpose: see `linear_weight`.

    Raises `ValueError` with what was expected, what came, and in which input.
    Source: Vaswani et al. 2017, section 3.2.2.
    """
    for name, w in (("w_q", w_q), ("w_k", w_k), ("w_v", w_v)):
        require_projection(x, w, name)
    if w_q.shape[1] % w_k.shape[1]:
        raise ValueError(
            f"w_q and w_k: expected one width, because a score is a dot product, or a multiple of it in w_q, "
            f"for query heads that share keys; got {w_q.shape[1]} columns in w_q and {w_k.shape[1]} in w_k"
        )
    q = x @ w_q
    k = x @ w_k
    v = x @ w_v
    return ProjectTrace(x.clone(), w_q.clone(), w_k.clone(), w_v.clone(), q, k, v)


def tile_heads(k: KeyHeads, heads: int) -> Float[Tensor, "*batch head time d_head"]:
    """The mistake: key or value heads repeated as a whole, 0 1 0 1. Query heads read what isn't theirs.

    `k` is `… kv_head × time × d_head`. Right is 0 0 1 1, neighbours sharing one: `k_shared` of a
    `ProjectionTrace`. Raises `ValueError` where the number of its heads doesn't divide `heads`.
    """
    return torch.cat([k] * _sharing(_kv_heads(k), heads), dim=-3)


def multi_head_projection(
    x: Float[Tensor, "*batch time d_in"],
    w_q: Float[Tensor, "d_in width"],
    w_k: Float[Tensor, "d_in kv_width"],
    w_v: Float[Tensor, "d_in kv_width"],
    w_o: Float[Tensor, "width d_out"] | None,
    *,
    heads: int,
    kv_heads: int | None = None,
    causal: bool = False,
) -> ProjectionTrace:
    """concat over heads of softmax(qₕ kₕᵀ ÷ √d_k) vₕ, times w_o, each intermediate a tensor of its own.

    - `x`: `time × d_in`, or `batch × time × d_in`.
    - `w_q`: `d_in × width`, width = heads · d_k. `w_k`, `w_v`: `d_in × kv_width`, kv_width = kv_heads · d_k.
    - `w_o`: `width × d_out`. None leaves the output projection out: it still runs, and is another model, in
      which the heads never meet.
    - `kv_heads`: how many key and value heads there are, default `heads`. Fewer are shared by neighbouring
      query heads, 0 0 1 1 (grouped-query attention; 1 = multi-query).
    - `causal`: True = no position reads a later one.

    Raises `ValueError` with what was expected, what came, and in which input.
    Source: Vaswani et al. 2017, section 3.2.2; Ainslie et al. 2023 (Shazeer 2019 for multi-query).
    `nn.MultiheadAttention` stores the transposes: `in_proj_weight`, packed by blocks, and `out_proj.weight`.
    """
    kv_heads = heads if kv_heads is None else kv_heads
    _require_fit(x, w_q, w_k, w_v, w_o, heads, kv_heads)
    leading, time = x.shape[:-2], x.shape[-2]
    d_k = w_q.shape[1] // heads

    projected = project(x, w_q, w_k, w_v)
    q, k, v = projected.q, projected.k, projected.v

    # Cloned where torch would give a view, so that none shares memory with another one.
    q_heads = q.reshape(*leading, time, heads, d_k).transpose(-3, -2).clone()
    k_heads = k.reshape(*leading, time, kv_heads, d_k).transpose(-3, -2).clone()
    v_heads = v.reshape(*leading, time, kv_heads, d_k).transpose(-3, -2).clone()
    k_shared = k_heads.repeat_interleave(heads // kv_heads, dim=-3) if kv_heads < heads else None
    v_shared = v_heads.repeat_interleave(heads // kv_heads, dim=-3) if kv_heads < heads else None

    allowed = causal_mask(time) if causal else bidirectional(time)
    scores = q_heads @ (k_heads if k_shared is None else k_shared).mT
    scaled = scores / math.sqrt(d_k)
    masked = scaled.masked_fill(~allowed, -torch.inf)
    weights = masked.softmax(dim=-1)
    head_output = weights @ (v_heads if v_shared is None else v_shared)

    concat = head_output.transpose(-3, -2).reshape(*leading, time, heads * d_k).clone()
    output = concat.clone() if w_o is None else concat @ w_o
    return ProjectionTrace(
        x=projected.x,
        w_q=projected.w_q,
        w_k=projected.w_k,
        w_v=projected.w_v,
        q=q,
        k=k,
        v=v,
        q_heads=q_heads,
        k_heads=k_heads,
        v_heads=v_heads,
        k_shared=k_shared,
        v_shared=v_shared,
        scores=scores,
        scaled=scaled,
        masked=masked,
        weights=weights,
        head_output=head_output,
        concat=concat,
        w_o=None if w_o is None else w_o.clone(),
        output=output,
        allowed=allowed,
    )


def parameter_count(
    width: int, heads: int, *, bias: bool = True, qkv_bias: bool = True, kv_heads: int | None = None
) -> int:
    """Parameters of multi-head attention at this width, counted from modules with one `nn.Linear` per head.

    `qkv_bias` is about the projections to q, k and v, `bias` about the output projection.
    The number of heads cuts the same matrices in more pieces; only fewer `kv_heads` save parameters.

    Raises `ValueError` for sizes beyond 1 … 65536, and where heads don't divide evenly.
    """
    require_whole(width, "width", 1, 65536)
    require_whole(heads, "heads", 1, width)
    d_head = head_width(width, heads)
    kv_heads = heads if kv_heads is None else require_whole(kv_heads, "kv_heads", 1, heads)
    _sharing(kv_heads, heads)
    # The meta device has shapes without numbers: nothing is allocated, however large the model.
    to_heads = [nn.Linear(width, d_head, bias=qkv_bias, device="meta") for _ in range(heads + 2 * kv_heads)]
    out = nn.Linear(heads * d_head, width, bias=bias, device="meta")
    return sum(parameter.numel() for module in (*to_heads, out) for parameter in module.parameters())


def _kv_heads(k: Tensor) -> int:
    require_tensor(k, "k")
    if k.ndim < 3 or not k.shape[-3]:
        raise ValueError(f"k: expected … kv_head × time × d_head, got shape {tuple(k.shape)}")
    return k.shape[-3]


def _sharing(kv_heads: int, heads: int) -> int:
    """How many query heads share one key and value head."""
    require_whole(heads, "heads", 1, 65536)
    if heads % kv_heads:
        raise ValueError(f"{heads} query heads cannot share {kv_heads} key/value heads equally")
    return heads // kv_heads


def _require_fit(
    x: Tensor, w_q: Tensor, w_k: Tensor, w_v: Tensor, w_o: Tensor | None, heads: int, kv_heads: int
) -> None:
    width = require_projection(x, w_q, "w_q")
    if x.ndim > 3:
        raise ValueError(f"x: expected time × d_in or batch × time × d_in, got shape {tuple(x.shape)}")
    require_whole(heads, "heads", 1, width)
    d_k = head_width(width, heads)
    require_whole(kv_heads, "kv_heads", 1, heads)
    _sharing(kv_heads, heads)
    for name, w in (("w_k", w_k), ("w_v", w_v)):
        columns = require_projection(x, w, name)
        if columns != kv_heads * d_k:
            raise ValueError(
                f"{name}: expected {kv_heads * d_k} columns, {kv_heads} heads of width {d_k}, got {columns}"
            )
    if w_o is not None:
        require_projection(x, w_o, "w_o", rows=width)
