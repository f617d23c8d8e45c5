"""Attention written a second time, slow and plain: one number at a time, no matrix product."""

import itertools

import torch
from torch import Tensor

__all__ = ["attention_by_loops", "may_read"]


def may_read(query: int, key: int, offset: int) -> bool:
    """The causal rule in words: a key may be read when it is no more than `offset` places after the query."""
    return key - query <= offset


def attention_by_loops(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    factor: float,
    allowed: Tensor | None = None,
    keep: Tensor | None = None,
    drop_p: float = 0.0,
) -> dict[str, Tensor]:
    """Scores, weights, dropped and output, built from scalars, so that autograd works through it too.

    Masks have all the leading axes of `q` or none. A query with no allowed key gets NaN.
    """
    leading = q.shape[:-2]
    found: dict[str, list[Tensor]] = {"scores": [], "weights": [], "dropped": [], "output": []}
    for item in itertools.product(*map(range, leading)):
        for i in range(q.shape[-2]):
            row = [sum(a * b for a, b in zip(q[item][i], key, strict=True)) for key in k[item]]
            readable = [_cell(allowed, item, i, j, leading) for j in range(len(row))]
            # e^(score − largest): the same quotient, without overflow.
            scaled = [float(score.detach()) * factor for score in row]
            largest = max((s for s, yes in zip(scaled, readable, strict=True) if yes), default=0.0)
            powers = [
                torch.exp(s * factor - largest) if yes else torch.zeros_like(s)
                for s, yes in zip(row, readable, strict=True)
            ]
            total = sum(powers)
            weights = [power / total for power in powers]
            dropped = [
                weight / (1 - drop_p) if _cell(keep, item, i, j, leading) else weight * 0
                for j, weight in enumerate(weights)
            ]
            output = [
                sum(weight * value[c] for weight, value in zip(dropped, v[item], strict=True))
                for c in range(v.shape[-1])
            ]
            for name, numbers in (
                ("scores", row),
                ("weights", weights),
                ("dropped", dropped),
                ("output", output),
            ):
                found[name].append(torch.stack(numbers))
    return {name: torch.stack(rows).reshape(*leading, q.shape[-2], -1) for name, rows in found.items()}


def _cell(mask: Tensor | None, item: tuple[int, ...], i: int, j: int, leading: torch.Size) -> bool:
    if mask is None:
        return True
    if mask.ndim > 2:
        mask = mask.expand(*leading, *mask.shape[-2:])[item]
    return bool(mask[i, j])
