"""Who may read whom. In every mask of attnlab True means: this query may read this key.

A mask is called `allowed` and has the axes `query key`, or `batch head query key`. Other libraries'
meanings exist only as the converters at the end of this file.
"""

from numbers import Integral

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from attnlab.engine.tensors import require_tensor

__all__ = [
    "bidirectional",
    "causal",
    "causal_alignment",
    "combine",
    "empty_rows",
    "from_ignored",
    "to_additive",
]


def bidirectional(queries: int, keys: int | None = None) -> Bool[Tensor, "query key"]:
    """Every query may read every key.

    Returns a boolean tensor of shape `query × key`; `keys` defaults to `queries`.
    """
    queries, keys = _lengths(queries, keys)
    return torch.ones(queries, keys, dtype=torch.bool)


def causal(queries: int, keys: int | None = None, offset: int | None = None) -> Bool[Tensor, "query key"]:
    """Query i may read key j when j ≤ i + offset: itself and what came before, never what comes later.

    `offset` is how many keys precede the first query. Its default `keys − queries` lets the last query
    read the last key (bottom-right alignment, as in decoding with a cache). PyTorch's `is_causal` of
    `scaled_dot_product_attention` is `offset=0` (top-left). With more queries than keys the default is
    negative and the leading queries have no key at all: see `empty_rows`.

    Returns a boolean tensor of shape `query × key`, True = may read.
    Source: Vaswani et al. 2017, section 3.2.3.
    """
    queries, keys = _lengths(queries, keys)
    if offset is None:
        offset = keys - queries
    _require_integer(offset, "offset")
    return torch.ones(queries, keys, dtype=torch.bool).tril(diagonal=offset)


def causal_alignment(queries: int, keys: int, offset: int | None = None) -> str:
    """How the causal mask lines queries up with keys, in words; empty when there is nothing to say."""
    if queries == keys and not offset:
        return ""
    if offset is None:
        offset = keys - queries
    counts = f"{_counted(queries, 'query', 'queries')}, {_counted(keys, 'key', 'keys')}"
    told = f"{counts}, offset {offset}".replace("-", "\N{MINUS SIGN}")
    if offset < 0:
        why = "aligned at the last key, so " if offset == keys - queries else ""
        which = _first(min(-offset, queries), "query", "queries")
        return f"{told}: {why}no key is allowed for {which}"
    precede = f"{_counted(offset, 'key', 'keys')} {'precedes' if offset == 1 else 'precede'}"
    readable = _first(min(offset + 1, keys), "key", "keys")
    return f"{told}: {precede} the first query, so query 0 may read {readable}"


def combine(*masks: Bool[Tensor, "*shape"]) -> Bool[Tensor, "*shape"]:
    """Allowed where every mask allows it (logical AND).

    All masks must be boolean and have the same shape; line them up by naming axes first
    (`mask[:, None]` for one mask per batch item, `mask[None]` for one per head), never by accident.
    """
    if not masks:
        raise ValueError("expected at least one mask, got none")
    for position, mask in enumerate(masks):
        _require_bool(mask, f"mask {position}")
        if mask.shape != masks[0].shape:
            raise ValueError(
                f"expected masks of one shape, got {_shape(masks[0])} for mask 0 "
                f"and {_shape(mask)} for mask {position}"
            )
    allowed = masks[0].clone()
    for mask in masks[1:]:
        allowed = allowed & mask
    return allowed


def empty_rows(allowed: Bool[Tensor, "*batch query key"]) -> Bool[Tensor, "*batch query"]:
    """True for each query that may read no key: its softmax has no value."""
    require_tensor(allowed, "allowed")
    return ~allowed.amax(dim=-1)  # the same as `any`, which takes four times as long along an axis


def from_ignored(ignored: Bool[Tensor, "*shape"]) -> Bool[Tensor, "*shape"]:
    """From the opposite meaning, True = ignore, that `nn.MultiheadAttention` has in its boolean masks."""
    _require_bool(ignored, "ignored")
    return ~ignored


def to_additive(
    allowed: Bool[Tensor, "*shape"], dtype: torch.dtype = torch.float64
) -> Float[Tensor, "*shape"]:
    """As a float mask to be added to the scores: 0 where allowed, −∞ where not.

    Raises `ValueError` for a `dtype` that has no −∞: as a boolean it would be True where not allowed.
    """
    _require_bool(allowed, "allowed")
    if not (isinstance(dtype, torch.dtype) and dtype.is_floating_point):
        raise ValueError(f"dtype: expected a floating-point dtype, which has −∞, got {dtype}")
    return torch.zeros(allowed.shape, dtype=dtype).masked_fill(~allowed, -torch.inf)


def _require_bool(mask: Tensor, name: str) -> None:
    require_tensor(mask, name)
    if mask.dtype != torch.bool:
        raise ValueError(
            f"{name}: expected a boolean mask (True = may read), got {mask.dtype}; "
            "a mask of numbers is never guessed at: compare it first, for example mask == 1"
        )


def _lengths(queries: int, keys: int | None) -> tuple[int, int]:
    keys = queries if keys is None else keys
    for name, length in (("queries", queries), ("keys", keys)):
        _require_integer(length, name)
        if length < 1:
            raise ValueError(f"expected at least one of {name}, got {length}")
    return queries, keys


def _counted(count: int, one: str, many: str) -> str:
    return f"{count} {one if count == 1 else many}"


def _first(count: int, one: str, many: str) -> str:
    """The first `count` of them by number: `key 0`, `keys 0 and 1`, `keys 0 to 2`."""
    if count == 1:
        return f"{one} 0"
    return f"{many} 0 {'and' if count == 2 else 'to'} {count - 1}"


def _require_integer(value: object, name: str) -> None:
    if isinstance(value, bool) or not isinstance(value, Integral):
        raise ValueError(f"{name}: expected a whole number, got {value!r:.40}")


def _shape(tensor: Tensor) -> str:
    return " × ".join(map(str, tensor.shape))
