"""Chains of tensor operations as text: `reshape(1,3,2,2) | transpose(1,2) | view(1,3,4)`.

A strict grammar of six names and whole numbers; nothing is ever evaluated.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

__all__ = ["OPERATIONS", "Operation", "format_chain", "parse_chain"]

MAX_OPERATIONS = 8
MAX_AXES = 5
MAX_NUMBER = 9999
MAX_TEXT = 400

# Name → how few and how many numbers it takes.
OPERATIONS: dict[str, tuple[int, int]] = {
    "reshape": (1, MAX_AXES),
    "view": (1, MAX_AXES),
    "transpose": (2, 2),
    "permute": (1, MAX_AXES),
    "contiguous": (0, 0),
    "flatten": (0, 2),
}

_STEP = re.compile(r"\s*([A-Za-z_][A-Za-z0-9_]*)\s*\(([^()]*)\)\s*")
_NUMBER = re.compile(r"\s*(-?[0-9]{1,4})\s*")


@dataclass(frozen=True)
class Operation:
    """One operation as data: a method of `torch.Tensor` and its numbers.

    Raises `ValueError` for a name that isn't in `OPERATIONS`, too few or too many numbers, and numbers that
    aren't whole or beyond ±9999. Whether the operation is possible is left to torch.
    """

    name: str
    arguments: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if self.name not in OPERATIONS:
            raise ValueError(f"expected one of {', '.join(OPERATIONS)}, got {str(self.name)[:20]!r}")
        fewest, most = OPERATIONS[self.name]
        count = len(self.arguments)
        if not fewest <= count <= most:
            limits = str(fewest) if fewest == most else f"{fewest} to {most}"
            raise ValueError(f"{self.name} takes {limits} numbers, got {count}")
        for number in self.arguments:
            if isinstance(number, bool) or not isinstance(number, int) or abs(number) > MAX_NUMBER:
                raise ValueError(
                    f"{self.name}: expected whole numbers from −{MAX_NUMBER} to {MAX_NUMBER}, "
                    f"got {'a larger one' if type(number) is int else repr(number)[:20]}"
                )

    def __str__(self) -> str:
        return f"{self.name}({','.join(map(str, self.arguments))})"


def parse_chain(text: str) -> tuple[Operation, ...]:
    """The operations of a chain, separated by `|`; none for an empty text.

    Raises `ValueError`, with the number of the operation at fault (from 1).
    """
    if len(text) > MAX_TEXT:
        raise ValueError(f"chain: expected at most {MAX_TEXT} characters, got {len(text):,}")
    if not text.strip():
        return ()
    steps = text.split("|")
    if len(steps) > MAX_OPERATIONS:
        raise ValueError(f"chain: expected at most {MAX_OPERATIONS} operations, got {len(steps)}")
    return tuple(_operation(step, f"operation {i}") for i, step in enumerate(steps, start=1))


def format_chain(operations: Sequence[Operation]) -> str:
    """The text that `parse_chain` reads back as the same operations."""
    return " | ".join(map(str, operations))


def _operation(step: str, where: str) -> Operation:
    shown = step.strip()
    if not shown:
        raise ValueError(f"{where} is empty: expected for example transpose(1,2)")
    match = _STEP.fullmatch(step)
    if match is None:
        raise ValueError(f"{where}: expected a name and its numbers, as transpose(1,2), got {shown[:40]!r}")
    name, inner = match.groups()
    if name not in OPERATIONS:
        raise ValueError(f"{where}: expected one of {', '.join(OPERATIONS)}, got {name[:20]!r}")
    numbers = [_number(part, where) for part in inner.split(",")] if inner.strip() else []
    try:
        return Operation(name, tuple(numbers))
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from None


def _number(text: str, where: str) -> int:
    match = _NUMBER.fullmatch(text)
    if match is None:
        raise ValueError(f"{where}: expected a whole number of at most 4 digits, got {text.strip()[:20]!r}")
    return int(match[1])
