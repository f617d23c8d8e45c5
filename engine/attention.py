"""Scaled dot-product attention, one step a line, every step kept."""

import math
import sys
from dataclasses import dataclass
from numbers import Real

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from attnlab.engine.masks import bidirectional, empty_rows
from attnlab.engine.tensors import require_tensor
from attnlab.engine.trace import Trace, note

__all__ = ["AttentionTrace", "attend"]


@dataclass(frozen=True, eq=False)
class AttentionTrace(Trace):
    """What `attend` computed, in order. Leading axes are `batch`, or `batch head`."""

    q: Float[Tensor, "*batch query d_k"] = note("queries")
    k: Float[Tensor, "*batch key d_k"] = note("keys")
    v: Float[Tensor, "*batch key d_v"] = note("values")
    scores: Float[Tensor, "*batch query key"] = note("q · k")
    scaled: Float[Tensor, "*batch query key"] = note("scores × scale")
    masked: Float[Tensor, "*batch query key"] = note("−∞ where not allowed")
    weights: Float[Tensor, "*batch query key"] = note("softmax over key")
    dropped: Float[Tensor, "*batch query key"] = note("weights after dropout")
    output: Float[Tensor, "*batch query d_v"] = note("dropped · v")
    allowed: Bool[Tensor, "*mask query key"] = note("True = may read")
    empty_rows: Bool[Tensor, "*mask query"] = note("True = no key allowed")
    scale: float = note("the scores are multiplied by this")


def attend(
    q: Float[Tensor, "*batch query d_k"],
    k: Float[Tensor, "*batch key d_k"],
    v: Float[Tensor, "*batch key d_v"],
    *,
    scale: bool | float = True,
    allowed: Bool[Tensor, "*mask query key"] | None = None,
    keep: Bool[Tensor, "*drop query key"] | None = None,
    drop_p: float = 0.0,
) -> AttentionTrace:
    """softmax(q kᵀ · scale + mask) v, with each intermediate as a tensor of its own.

    - `q`: `query × d_k`, `k`: `key × d_k`, `v`: `key × d_v`, each after the same leading axes
      (none, `batch`, or `batch head`), all of one floating dtype.
    - `scale`: True for 1/√d_k, False for 1, or the factor itself.
    - `allowed`: True where a query may read a key; `query × key`, or one axis for each leading axis
      too (size 1 repeats). Default: everything may be read.
    - `keep`: dropout mask as data, True = kept; the kept weights are divided by 1 − `drop_p`.
      Default: no dropout.

    A query with no allowed key has no distribution: its weights are NaN, as plain softmax gives,
    and it is listed in `empty_rows`. (`torch.nn.functional.scaled_dot_product_attention` returns
    zeros there.)

    Raises `ValueError` with what was expected, what came, and in which input.
    Source: Vaswani et al. 2017, equation 1. PyTorch calls `allowed` a boolean `attn_mask`.
    """
    _require_shapes(q, k, v)
    shape = (*q.shape[:-1], k.shape[-2])
    if allowed is None:
        allowed = bidirectional(*shape[-2:])
    _require_mask(allowed, "allowed", shape)
    if isinstance(drop_p, bool) or not isinstance(drop_p, Real):
        raise ValueError(f"drop_p: expected a number with 0 ≤ p < 1, got {drop_p!r:.60}")
    if not 0 <= drop_p < 1:
        raise ValueError(
            f"drop_p: expected 0 ≤ p < 1, because kept weights are divided by 1 − p; got {drop_p}"
        )
    if keep is not None:
        _require_mask(keep, "keep", shape)
    elif drop_p:
        raise ValueError(f"keep: expected the dropout mask that goes with drop_p {drop_p}, got none")

    # A boolean of NumPy or a tensor would count as the factor 1 or 0.
    if not isinstance(scale, Real) or not abs(scale) <= sys.float_info.max:
        raise ValueError(f"scale: expected True, False or a finite factor, got {scale!r:.60}")

    d_k = q.shape[-1]
    factor = (1 / math.sqrt(d_k) if scale else 1.0) if isinstance(scale, bool) else scale

    scores = q @ k.mT
    scaled = scores * factor
    masked = scaled.masked_fill(~allowed, -torch.inf)
    weights = masked.softmax(dim=-1)
    dropped = weights.clone() if keep is None else weights * keep / (1 - drop_p)
    output = dropped @ v

    # The inputs are cloned so that a later in-place step of the caller can't change what is on the screen.
    return AttentionTrace(
        q=q.clone(),
        k=k.clone(),
        v=v.clone(),
        scores=scores,
        scaled=scaled,
        masked=masked,
        weights=weights,
        dropped=dropped,
        output=output,
        allowed=allowed.clone(),
        empty_rows=empty_rows(allowed),
        scale=factor,
    )


def _require_shapes(q: Tensor, k: Tensor, v: Tensor) -> None:
    for name, tensor in (("q", q), ("k", k), ("v", v)):
        require_tensor(tensor, name)
    for name, tensor in (("q", q), ("k", k), ("v", v)):
        if not tensor.is_floating_point():
            raise ValueError(f"{name}: expected floating-point numbers, got {tensor.dtype}")
        if tensor.ndim < 2 or 0 in tensor.shape:
            raise ValueError(f"{name}: expected a non-empty matrix, got shape {tuple(tensor.shape)}")
        if tensor.dtype != q.dtype:
            raise ValueError(f"{name}: expected {q.dtype} like q, got {tensor.dtype}")
        if tensor.shape[:-2] != q.shape[:-2]:
            raise ValueError(
                f"{name}: expected the leading axes {tuple(q.shape[:-2])} of q, "
                f"got {tuple(tensor.shape[:-2])}"
            )
    if q.shape[-1] != k.shape[-1]:
        raise ValueError(
            f"q and k: expected rows of one width, because a score is a dot product; "
            f"got {q.shape[-1]} numbers in a row of q and {k.shape[-1]} in a row of k"
        )
    if k.shape[-2] != v.shape[-2]:
        raise ValueError(
            f"k and v: expected one value row for each key row; "
            f"got {k.shape[-2]} rows in k and {v.shape[-2]} in v"
        )


def _require_mask(mask: Tensor, name: str, shape: tuple[int, ...]) -> None:
    require_tensor(mask, name)
    if mask.dtype != torch.bool:
        raise ValueError(
            f"{name}: expected a boolean mask, got {mask.dtype}; it is never added to the scores"
        )
    # A mask with some, not all, of the leading axes would be lined up by position,
    # and batch = heads would hide the fault.
    fits = mask.ndim in (2, len(shape)) and all(
        size in (1, full) for size, full in zip(mask.shape, shape[-mask.ndim :], strict=True)
    )
    if not fits or mask.shape[-2:] != shape[-2:]:
        raise ValueError(
            f"{name}: expected the shape {shape[-2:]} (query, key)"
            + (f" or {shape}, where a leading size of 1 repeats" if len(shape) > 2 else "")
            + f"; got {tuple(mask.shape)}"
        )
