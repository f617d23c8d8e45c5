"""Attention as people write it by hand, in several styles: programs for the tests of the recorder."""

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

__all__ = [
    "HeadsInALoop",
    "PackedAttention",
    "TinyLanguageModel",
    "einsum_attention",
    "in_place_attention",
    "in_place_twin",
    "rms_block",
]


class PackedAttention(nn.Module):
    """One projection for queries, keys and values; heads by view and transpose."""

    def __init__(self, width: int, heads: int, drop_p: float = 0.0) -> None:
        super().__init__()
        self.heads = heads
        self.packed = nn.Linear(width, 3 * width)
        self.merge = nn.Linear(width, width, bias=False)
        self.dropout = nn.Dropout(drop_p)

    def forward(self, x: Tensor) -> Tensor:
        batch, time, width = x.shape
        d_head = width // self.heads
        q, k, v = self.packed(x).chunk(3, dim=-1)
        q = q.view(batch, time, self.heads, d_head).transpose(1, 2)
        k = k.view(batch, time, self.heads, d_head).transpose(1, 2)
        v = v.view(batch, time, self.heads, d_head).transpose(1, 2)
        scores = q @ k.transpose(-2, -1) / math.sqrt(d_head)
        future = torch.ones(time, time, dtype=torch.bool).triu(1)
        scores = scores.masked_fill(future, float("-inf"))
        weights = F.softmax(scores, dim=-1)
        weights = self.dropout(weights)
        mixed = (weights @ v).transpose(1, 2).contiguous().view(batch, time, width)
        return self.merge(mixed)


def einsum_attention(x: Tensor, w_q: Tensor, w_k: Tensor, w_v: Tensor, w_o: Tensor) -> Tensor:
    """Heads as an axis of the weights; every product an einsum."""
    q = torch.einsum("btw,hwd->bhtd", x, w_q)
    k = torch.einsum("btw,hwd->bhtd", x, w_k)
    v = torch.einsum("b t w, h w e -> b h t e", x, w_v)
    scores = torch.einsum("...qd,...kd->...qk", q, k) * q.shape[-1] ** -0.5
    allowed = torch.tril(torch.ones(x.shape[1], x.shape[1])).bool()
    scores = torch.where(allowed, scores, -torch.inf)
    weights = torch.exp(scores - scores.amax(-1, keepdim=True))
    weights = weights / weights.sum(dim=-1, keepdim=True)
    return torch.einsum("bhqk,bhke,hew", weights, v, w_o)


class HeadsInALoop(nn.Module):
    """A pre-norm block: each head has its own projections; residual, LayerNorm, GELU."""

    def __init__(self, width: int, heads: int, drop_p: float = 0.0) -> None:
        super().__init__()
        d_head = width // heads
        self.norm = nn.LayerNorm(width)
        self.projections = nn.ModuleList(nn.Linear(width, 3 * d_head) for _ in range(heads))
        self.merge = nn.Linear(width, width)
        self.widen = nn.Linear(width, width + 1)
        self.act = nn.GELU()
        self.narrow = nn.Linear(width + 1, width)
        self.dropout = nn.Dropout(drop_p)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        normed = self.norm(x)
        outputs, maps = [], []
        for projection in self.projections:
            q, k, v = torch.split(projection(normed), projection.out_features // 3, dim=-1)
            scores = torch.bmm(q, k.mT).mul(q.size(-1) ** -0.5)
            weights = scores.softmax(-1)
            maps.append(weights)
            outputs.append(self.dropout(weights) @ v)
        merged = self.merge(torch.cat(outputs, dim=-1))
        x = x + merged
        hidden = self.act(self.widen(x))
        x = x + self.narrow(hidden)
        return x, torch.stack(maps, dim=1)


def in_place_attention(q: Tensor, k: Tensor, v: Tensor, bias: Tensor) -> Tensor:
    """Written over and over into the same tensors, as in code that saves memory."""
    scores = q @ k.transpose(-1, -2)
    scores /= math.sqrt(q.shape[-1])
    scores += bias
    for i in range(scores.shape[-2]):
        scores[..., i, i + 1 :] = -torch.inf
    scores.sub_(scores.max(dim=-1, keepdim=True).values)
    weights = scores.exp_()
    first = weights[..., :1, :]
    weights.div_(weights.sum(-1, keepdim=True))
    first.mul_(0.5)
    output = torch.empty_like(v)
    for i in range(v.shape[-2]):
        output[..., i, :] = (weights[..., i, :, None] * v).sum(-2)
    return output


def in_place_twin(q: Tensor, k: Tensor, v: Tensor, bias: Tensor) -> Tensor:
    """The same numbers as `in_place_attention`, without writing into anything."""
    scores = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1]) + bias
    allowed = torch.ones(scores.shape[-2:], dtype=torch.bool).tril()
    weights = scores.masked_fill(~allowed, -torch.inf).softmax(-1)
    halves = torch.ones(scores.shape[-2], 1, dtype=q.dtype)
    halves = torch.cat([halves[:1] * 0.5, halves[1:]])
    return weights * halves @ v


class TinyLanguageModel(nn.Module):
    """Embedding, one causal block, tied output layer and the loss."""

    def __init__(self, vocab: int, width: int, heads: int, longest: int, drop_p: float = 0.0) -> None:
        super().__init__()
        self.token = nn.Embedding(vocab, width)
        self.position = nn.Embedding(longest, width)
        self.attention = PackedAttention(width, heads, drop_p)
        self.norm = nn.LayerNorm(width)

    def forward(self, tokens: Tensor) -> tuple[Tensor, Tensor]:
        inputs, targets = tokens[:, :-1], tokens[:, 1:]
        x = self.token(inputs) + self.position(torch.arange(inputs.shape[1]))
        x = x + self.attention(self.norm(x))
        logits = x @ self.token.weight.T
        loss = F.cross_entropy(logits.reshape(-1, logits.shape[-1]), targets.reshape(-1))
        return logits, loss


def rms_block(x: Tensor, gain: Tensor, gate: Tensor) -> Tensor:
    """RMSNorm twice, by hand and by torch, and a gated unit."""
    by_hand = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * gain
    by_torch = F.rms_norm(x, (x.shape[-1],), gain)
    return F.silu(by_hand @ gate) * (by_torch @ gate)
