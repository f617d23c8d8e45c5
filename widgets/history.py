"""Undo and redo: states before and after each gesture."""

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from attnlab.widgets.matrix import same_bits

__all__ = ["History", "equal"]


class History:
    """States of an explorable. One drag, however many moves it has, is one step back.

    Matrices are compared bit for bit: an edit that changes nothing is no step.
    Holds at most `limit` states.
    """

    def __init__(self, state: Mapping[str, Any], limit: int = 200) -> None:
        self.limit = limit
        self.start(state)

    def start(self, state: Mapping[str, Any]) -> None:
        """Forgets everything; `state` is where undo ends."""
        self._states = [dict(state)]
        self._position = 0
        self._gesture: Any = None

    def record(self, state: Mapping[str, Any], gesture: Any = None) -> None:
        """Adds `state`; it replaces the newest one when both belong to the same `gesture`."""
        if _same(state, self._states[self._position]):
            return
        del self._states[self._position + 1 :]
        if gesture is not None and gesture == self._gesture and self._position > 0:
            self._states.pop()
        self._gesture = gesture
        if _same(state, self._states[-1]):
            self._gesture = None  # dragged back to where it began: what follows is a new step
        else:
            self._states.append(dict(state))
        del self._states[: -self.limit]
        self._position = len(self._states) - 1

    def undo(self) -> dict[str, Any] | None:
        """The state before, or None."""
        return self._move(-1)

    def redo(self) -> dict[str, Any] | None:
        """The state that was undone, or None."""
        return self._move(1)

    @property
    def can_undo(self) -> bool:
        return self._position > 0

    @property
    def can_redo(self) -> bool:
        return self._position < len(self._states) - 1

    def _move(self, by: int) -> dict[str, Any] | None:
        if not 0 <= self._position + by < len(self._states):
            return None
        self._position += by
        self._gesture = None
        return dict(self._states[self._position])


def _same(a: Mapping[str, Any], b: Mapping[str, Any]) -> bool:
    return a.keys() == b.keys() and all(equal(a[name], b[name]) for name in a)


def equal(a: Any, b: Any) -> bool:
    """Are two values of a trait the same? Matrices are compared bit for bit."""
    if isinstance(a, Tensor) and isinstance(b, Tensor):
        return same_bits(a, b)
    return bool(a == b)
