"""Multi-head attention as people write it by hand, once right and four times with a famous mistake.

Each takes `x` (`batch × time × width`), `w_qkv` (`width × 3 width`, packed as Q, K, V blocks) and
`w_out` (`width × width`), has two heads and a causal mask, and differs from the right one in one place.
Nothing raises, and the shapes are right in all of them: that is what makes these mistakes famous.
"""

import math

import torch
from jaxtyping import Float
from torch import Tensor

__all__ = ["MISTAKES", "attention"]

HEADS = 2

X = Float[Tensor, "batch time width"]


def attention(x: X, w_qkv: Tensor, w_out: Tensor) -> X:
    """The right one."""
    batch, time, width = x.shape
    d_head = width // HEADS

    qkv = x @ w_qkv
    q, k, v = qkv.chunk(3, dim=-1)
    q = q.view(batch, time, HEADS, d_head).transpose(1, 2)
    k = k.view(batch, time, HEADS, d_head).transpose(1, 2)
    v = v.view(batch, time, HEADS, d_head).transpose(1, 2)

    scores = q @ k.transpose(-2, -1) / math.sqrt(d_head)
    future = torch.ones(time, time, dtype=torch.bool).triu(1)
    masked = scores.masked_fill(future, -torch.inf)
    weights = masked.softmax(dim=-1)

    heads = weights @ v
    merged = heads.transpose(1, 2).contiguous().view(batch, time, width)
    return merged @ w_out


def mask_after_softmax(x: X, w_qkv: Tensor, w_out: Tensor) -> X:
    """Weights of the future are set to 0 after they have taken their share: rows sum to less than 1."""
    batch, time, width = x.shape
    d_head = width // HEADS

    qkv = x @ w_qkv
    q, k, v = qkv.chunk(3, dim=-1)
    q = q.view(batch, time, HEADS, d_head).transpose(1, 2)
    k = k.view(batch, time, HEADS, d_head).transpose(1, 2)
    v = v.view(batch, time, HEADS, d_head).transpose(1, 2)

    scores = q @ k.transpose(-2, -1) / math.sqrt(d_head)
    future = torch.ones(time, time, dtype=torch.bool).triu(1)
    shares = scores.softmax(dim=-1)
    weights = shares.masked_fill(future, 0.0)

    heads = weights @ v
    merged = heads.transpose(1, 2).contiguous().view(batch, time, width)
    return merged @ w_out


def softmax_over_queries(x: X, w_qkv: Tensor, w_out: Tensor) -> X:
    """The softmax runs down the columns: the queries share each key among themselves."""
    batch, time, width = x.shape
    d_head = width // HEADS

    qkv = x @ w_qkv
    q, k, v = qkv.chunk(3, dim=-1)
    q = q.view(batch, time, HEADS, d_head).transpose(1, 2)
    k = k.view(batch, time, HEADS, d_head).transpose(1, 2)
    v = v.view(batch, time, HEADS, d_head).transpose(1, 2)

    scores = q @ k.transpose(-2, -1) / math.sqrt(d_head)
    future = torch.ones(time, time, dtype=torch.bool).triu(1)
    masked = scores.masked_fill(future, -torch.inf)
    weights = masked.softmax(dim=-2)

    heads = weights @ v
    merged = heads.transpose(1, 2).contiguous().view(batch, time, width)
    return merged @ w_out


def merge_without_transpose(x: X, w_qkv: Tensor, w_out: Tensor) -> X:
    """The heads are merged as they lie in memory: each row of the result holds other positions too."""
    batch, time, width = x.shape
    d_head = width // HEADS

    qkv = x @ w_qkv
    q, k, v = qkv.chunk(3, dim=-1)
    q = q.view(batch, time, HEADS, d_head).transpose(1, 2)
    k = k.view(batch, time, HEADS, d_head).transpose(1, 2)
    v = v.view(batch, time, HEADS, d_head).transpose(1, 2)

    scores = q @ k.transpose(-2, -1) / math.sqrt(d_head)
    future = torch.ones(time, time, dtype=torch.bool).triu(1)
    masked = scores.masked_fill(future, -torch.inf)
    weights = masked.softmax(dim=-1)

    heads = weights @ v
    merged = heads.reshape(batch, time, width)
    return merged @ w_out


def scale_by_model_width(x: X, w_qkv: Tensor, w_out: Tensor) -> X:
    """The root is of the whole width, though each dot product has only the width of one head."""
    batch, time, width = x.shape
    d_head = width // HEADS

    qkv = x @ w_qkv
    q, k, v = qkv.chunk(3, dim=-1)
    q = q.view(batch, time, HEADS, d_head).transpose(1, 2)
    k = k.view(batch, time, HEADS, d_head).transpose(1, 2)
    v = v.view(batch, time, HEADS, d_head).transpose(1, 2)

    scores = q @ k.transpose(-2, -1) / math.sqrt(width)
    future = torch.ones(time, time, dtype=torch.bool).triu(1)
    masked = scores.masked_fill(future, -torch.inf)
    weights = masked.softmax(dim=-1)

    heads = weights @ v
    merged = heads.transpose(1, 2).contiguous().view(batch, time, width)
    return merged @ w_out


MISTAKES = {
    "mystery 1": mask_after_softmax,
    "mystery 2": merge_without_transpose,
    "mystery 3": scale_by_model_width,
    "mystery 4": softmax_over_queries,
}
"""Under names that don't give the answer away."""
