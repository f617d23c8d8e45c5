"""What counts as a row of attention weights, as a mask over it, and as a probability of dropping.

Nothing is repaired here: a row that doesn't sum to 1 is refused, never renormalised.
"""

from numbers import Real

import torch
from torch import Tensor

from attnlab.engine.tensors import require_tensor

__all__ = ["SUM_TOLERANCE", "require_keep", "require_p", "require_row", "require_weights"]

SUM_TOLERANCE = 1e-9
"""How far from 1 the sum of a row may be in float64: six times 1/6 is 1 only up to rounding."""


def require_p(p: float, name: str = "p") -> None:
    """Refuses what is no probability of dropping: 0 ≤ p < 1, a number, no boolean, not NaN."""
    if isinstance(p, bool) or not isinstance(p, Real):
        raise ValueError(f"{name}: expected a number with 0 ≤ p < 1, got {p!r}")
    if p == 1:
        raise ValueError(
            f"{name}: expected 0 ≤ p < 1, got {p}: kept weights are divided by 1 − p, and 1/(1 − 1) has no "
            "value (torch.nn.functional.dropout accepts p = 1 and returns zeros)"
        )
    # Written so that NaN is refused too.
    if not 0 <= p < 1:
        raise ValueError(f"{name}: expected 0 ≤ p < 1, got {p}")


def require_weights(weights: Tensor, name: str = "weights") -> None:
    """Refuses what is no row, or rows, of softmax weights: each in [0, 1], each row's sum 1.

    The sum is taken in float64 and may be `SUM_TOLERANCE` from 1, or keys · eps in a coarser dtype.
    """
    require_tensor(weights, name)
    if not weights.is_floating_point():
        raise ValueError(f"{name}: expected floating-point numbers, got {weights.dtype}")
    if weights.ndim == 0 or 0 in weights.shape:
        raise ValueError(
            f"{name}: expected at least one weight in each row, got shape {tuple(weights.shape)}"
        )
    # A recorder shows the steps of the program, and checking its input is none of them.
    with torch._C.DisableTorchFunction():
        values = weights.detach().double()
        outside = ~((values >= 0) & (values <= 1))  # NaN is outside
        if outside.any():
            *row, key = outside.nonzero()[0].tolist()
            raise ValueError(
                f"{name}: expected numbers from 0 to 1, got {_told(values[(*row, key)].item())} "
                f"at key {key}{_of_row(row)}"
            )
        sums = values.sum(dim=-1)
        tolerance = max(SUM_TOLERANCE, weights.shape[-1] * torch.finfo(weights.dtype).eps)
        wrong = (sums - 1).abs() > tolerance
        if wrong.any():
            row = wrong.nonzero()[0].tolist()
            raise ValueError(
                f"{name}: expected a sum of 1 within {_told(tolerance)}{_of_row(row)}, "
                f"got {sums[tuple(row)].item():.12g}; it is not renormalised"
            )


def _told(number: float) -> str:
    return f"{number:g}".replace("-", "\N{MINUS SIGN}")


def require_row(weights: Tensor, name: str = "weights") -> None:
    """Refuses what is no single row of softmax weights."""
    require_weights(weights, name)
    if weights.ndim != 1:
        raise ValueError(f"{name}: expected one row of weights, got shape {tuple(weights.shape)}")


def require_keep(keep: Tensor, shape: tuple[int, ...], name: str = "keep") -> None:
    """Refuses what is no dropout mask: boolean, True = kept, of exactly this shape."""
    require_tensor(keep, name)
    if keep.dtype != torch.bool:
        raise ValueError(
            f"{name}: expected a boolean mask (True = kept), got {keep.dtype}; "
            "a mask of numbers is never guessed at: compare it first, for example mask == 1"
        )
    if keep.shape != shape:
        raise ValueError(
            f"{name}: expected the shape {tuple(shape)} of what is dropped, got {tuple(keep.shape)}"
        )


def _of_row(row: list[int]) -> str:
    if not row:
        return ""
    return f" of row {row[0] if len(row) == 1 else tuple(row)}"
