"""Traits of the memory page: a shape and a chain of operations, as text that is never evaluated."""

import re
from typing import Any

import traitlets

from attnlab.engine import MatrixError
from attnlab.engine.chain_text import format_chain, parse_chain

__all__ = ["ChainText", "Shape"]

_SHAPE = re.compile(r"\s*\(?\s*([0-9]{1,4}(\s*[,×x ]\s*[0-9]{1,4})*)\s*,?\s*\)?\s*")


def _shown(size: Any) -> str:
    # Python refuses to print integers of thousands of digits.
    return "a huge number" if isinstance(size, int) and abs(size) >= 10**20 else str(size)


class Shape(traitlets.TraitType[str, Any]):
    """Sizes of the axes, `1,3,4`; also written `(1, 3, 4)` or `1 × 3 × 4`, or given as numbers."""

    info_text = "a shape"
    default_value = "1,3,4"

    def validate(self, obj: Any, value: Any) -> str:
        text = ",".join(_shown(size) for size in value) if isinstance(value, list | tuple) else value
        if not isinstance(text, str):
            raise MatrixError(f"start: expected sizes as 1,3,4, got {type(value).__name__}")
        match = _SHAPE.fullmatch(text) if len(text) <= 60 else None
        if match is None:
            raise MatrixError(f"start: expected sizes as 1,3,4, got {text[:30]!r}")
        return ",".join(str(int(size)) for size in re.findall("[0-9]+", match[1]))


class ChainText(traitlets.TraitType[str, Any]):
    """Operations as `reshape(1,3,2,2) | transpose(1,2)`, see `attnlab.engine.chain_text`."""

    info_text = "a chain of operations"
    default_value = ""

    def validate(self, obj: Any, value: Any) -> str:
        if not isinstance(value, str):
            raise MatrixError(f"chain: expected text, got {type(value).__name__}")
        try:
            return format_chain(parse_chain(value))
        except ValueError as error:
            raise MatrixError(str(error)) from None
