"""How measured numbers are written in the lines of checks; cells are written by `numbers.js`."""

import math

from attnlab.engine import Check

__all__ = ["measured"]


def measured(check: Check) -> str:
    """`max error 1.1e−16`, `error exactly 0`, or `8 elements misplaced`."""
    if math.isnan(check.measured):
        return "not a number"
    if check.counted:
        return f"{check.measured:.4g} {check.counted}"
    if check.measured == 0:
        return "error exactly 0"
    size = f"{check.measured:.4g}" if check.measured >= 1e-3 else f"{check.measured:.1e}"
    return f"max error {size}".replace("-", "\N{MINUS SIGN}")
