"""Multi-head attention as people write it by hand, once right and four times with a famous mistake.

Each takes `x` (`batch × time × width`), `w_qkv` (`width × 3 width`, packed as Q, K, V blocks) and
`w_out` (`width × width`), has two heads and a causal mask, and differs from the right one in one place.
Nothing raises, and the shapes are right in all of them: that is what makes these mistakes famous.
Their names and the lines around them don't give them away, because a page shows those lines:

1. Weights of the future are set to 0 after they have taken their share: rows sum to less than 1.
2. The heads are merged as they lie in memory: each row of the result holds other positions too.
3. The root is of the whole width, though each dot product has only the width of one head.
4. The softmax runs down the columns: the queries share each key among themselves.
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


def mystery_1(x: X, w_qkv: Tensor, w_out: Tensor) -> X:
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


def mystery_2(x: X, w_qkv: Tensor, w_out: Tensor) -> X:
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


def mystery_3(x: X, w_qkv: Tensor, w_out: Tensor) -> X:
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


def mystery_4(x: X, w_qkv: Tensor, w_out: Tensor) -> X:
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


MISTAKES = {
    "mystery 1": mystery_1,
    "mystery 2": mystery_2,
    "mystery 3": mystery_3,
    "mystery 4": mystery_4,
}
"""Under names that don't give the answer away."""
