"""Sizes as people give them: whole numbers within limits, and the width that goes to each head."""

__all__ = ["head_width", "require_whole"]


def require_whole(value: object, name: str, low: int, high: int) -> int:
    """`value`, which has to be an `int` from `low` to `high`.

    True is no number here, and 2.0 no whole number: a size that is nearly right hides a fault elsewhere.
    Raises `ValueError` with the limits and what came.
    """
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        # Python refuses to print integers of thousands of digits, and nobody reads them.
        huge = isinstance(value, int) and abs(value) >= 10**12
        told = "a number of more than 12 digits" if huge else repr(value)
        raise ValueError(f"{name}: expected a whole number from {low} to {high}, got {told[:40]}")
    return value


def head_width(width: int, heads: int) -> int:
    """d_head = width ÷ heads. Raises `ValueError`, with both numbers, where that leaves a rest."""
    if width % heads:
        raise ValueError(f"width {width} cannot be split into {heads} equal heads")
    return width // heads
