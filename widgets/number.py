"""The trait of a single number that a reader may type, with its limits in the message."""

import math
import sys
from typing import Any

import traitlets

from attnlab.engine import MatrixError, format_number, parse_number

__all__ = ["Number"]


class Number(traitlets.TraitType[float, Any]):
    """A finite number from `least` to `most`; with `below` it must stay under that.

    Takes a number or text as `parse_number` reads it. `label` begins each message, `why` ends the
    message for a number that is too large.
    """

    info_text = "a number"

    def __init__(
        self,
        default_value: float,
        *,
        label: str,
        least: float,
        most: float = math.inf,
        below: float = math.inf,
        why: str = "",
    ) -> None:
        self.label, self.least, self.most, self.below, self.why = label, least, most, below, why
        super().__init__(default_value)

    def validate(self, obj: Any, value: Any) -> float:
        if isinstance(value, str):
            try:
                # The limits are our own, and so is the message that names them.
                number = parse_number(value, name=self.label, limit=sys.float_info.max)
            except MatrixError:
                raise self._refusal(repr(value[:40])) from None
        elif isinstance(value, (int, float)) and not isinstance(value, bool):
            try:
                number = float(value)
            except OverflowError:
                raise self._refusal("one that is too large for float64") from None
        else:
            raise MatrixError(f"{self.label}: expected a number, got {type(value).__name__}")
        if not (self.least <= number <= self.most and number < self.below):
            why = f": {self.why}" if self.why and number == self.below else ""
            raise self._refusal(format_number(number) + why)
        return number

    def _refusal(self, got: str) -> MatrixError:
        upper = (
            f"below {format_number(self.below)}"
            if math.isfinite(self.below)
            else f"to {format_number(self.most)}"
        )
        least = format_number(self.least)
        return MatrixError(f"{self.label}: expected a number from {least} {upper}, got {got}")
