"""Q, K and V packed in one matrix: by blocks, or by heads. The shapes are the same, the meaning isn't.

Both are in use, and neither says in its shape which one it is: a packed tensor needs the name of its layout.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from attnlab.engine.sizes import head_width, require_whole
from attnlab.engine.tensors import require_tensor
from attnlab.engine.trace import Trace, note

__all__ = ["LAYOUTS", "UnpackedTrace", "pack", "unpack"]

LAYOUTS = ("blocks", "per head")
"""`blocks`: Q Q K K V V, all of Q first. `per head`: Q K V Q K V, each head with its own three."""

Columns = Float[Tensor, "*batch width"]


@dataclass(frozen=True, eq=False)
class UnpackedTrace(Trace):
    """What `unpack` took apart. The first axes are those of a weight (`d_in`), or `batch time`."""

    packed: Float[Tensor, "*batch packed"] = note("three times the width")
    q: Float[Tensor, "*batch width"] = note("queries, as this layout reads them")
    k: Float[Tensor, "*batch width"] = note("keys, as this layout reads them")
    v: Float[Tensor, "*batch width"] = note("values, as this layout reads them")


def pack(q: Columns, k: Columns, v: Columns, heads: int, layout: str) -> Float[Tensor, "*batch packed"]:
    """q, k and v (`… × width`) side by side on the last axis: `… × 3 width`.

    For weights of `nn.Linear` (out × in) this axis is the first one: transpose them before and after.
    `layout` is one of `LAYOUTS`. Raises `ValueError` for another one, for inputs of different shapes, and
    where `heads` doesn't divide the width.
    """
    for name, tensor in (("q", q), ("k", k), ("v", v)):
        require_tensor(tensor, name)
        if tensor.shape != q.shape:
            raise ValueError(f"{name}: expected the shape {tuple(q.shape)} of q, got {tuple(tensor.shape)}")
    d_head = _d_head(q.shape[-1], heads, layout)
    if layout == "blocks":
        return torch.cat([q, k, v], dim=-1)
    leading = q.shape[:-1]
    grouped = [part.reshape(*leading, heads, d_head) for part in (q, k, v)]
    return torch.cat(grouped, dim=-1).reshape(*leading, -1)


def unpack(packed: Float[Tensor, "*batch packed"], heads: int, layout: str) -> UnpackedTrace:
    """q, k and v of a packed tensor (`… × 3 width`), each `… × width`.

    Read with the other layout than it was packed with, it comes apart without an error, wrongly.
    Raises `ValueError` for a last axis that isn't three equal widths of `heads` heads.
    """
    require_tensor(packed, "packed")
    columns = packed.shape[-1]
    if columns % 3:
        raise ValueError(f"packed: expected 3 equal parts for q, k and v, got {columns} columns")
    width = columns // 3
    d_head = _d_head(width, heads, layout)
    # Cloned, so that no stage shares memory with another one.
    if layout == "blocks":
        q, k, v = packed.clone().chunk(3, dim=-1)
    else:
        leading = packed.shape[:-1]
        by_head = packed.reshape(*leading, heads, 3 * d_head)
        q, k, v = (part.reshape(*leading, width) for part in by_head.chunk(3, dim=-1))
    return UnpackedTrace(packed.clone(), q.clone(), k.clone(), v.clone())


def _d_head(width: int, heads: int, layout: str) -> int:
    if layout not in LAYOUTS:
        raise ValueError(f"layout: expected one of {', '.join(LAYOUTS)}, got {str(layout)[:20]!r}")
    require_whole(heads, "heads", 1, width)
    return head_width(width, heads)
