"""Sizes as people give them: whole numbers within limits, and the width that goes to each head."""

from numbers import Integral, Real

__all__ = ["MAX_SEED", "head_width", "require_whole"]

MAX_SEED = 2**63 - 1
"""The largest whole number of 64 bits, one of them the sign."""


def require_whole(value: object, name: str, low: int, high: int) -> int:
    """`value` as an `int`, which has to be a whole number from `low` to `high`; NumPy's integers are welcome.

    True is no number here, and 2.0 no whole number: a size that is nearly right hides a fault elsewhere.
    Raises `ValueError` with the limits and what came.
    """
    whole = int(value) if isinstance(value, Integral) and not isinstance(value, bool) else None
    if whole is not None and low <= whole <= high:
        return whole
    # Python refuses to print integers of thousands of digits, and nobody reads them.
    if whole is not None and abs(whole) >= 10**20:
        told = "a number of more than 20 digits"
    else:
        told = (str if isinstance(value, Real) else repr)(value)[:40]
    raise ValueError(f"{name}: expected a whole number from {low} to {high}, got {told}")


def head_width(width: int, heads: int) -> int:
    """d_head = width ÷ heads. Raises `ValueError`, with both numbers, where that leaves a rest."""
    if width % heads:
        raise ValueError(f"width {width} cannot be split into {heads} equal heads")
    return width // heads
