"""Later: what nobody waits for is done a moment after what they do wait for."""

import asyncio
from collections.abc import Callable

__all__ = ["Later"]


class Later:
    """Does something `seconds` after it was last asked for: once for a whole drag.

    Where no event loop runs there is no later, and it is done at once.
    """

    def __init__(self, act: Callable[[], None], seconds: float) -> None:
        self._act = act
        self._seconds = seconds
        self._timer: asyncio.TimerHandle | None = None

    def ask(self) -> None:
        """Soon, then."""
        self.stop()
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            self._act()
            return
        self._timer = loop.call_later(self._seconds, self._act)

    def stop(self) -> None:
        """Not any more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
