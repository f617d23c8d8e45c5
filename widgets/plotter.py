"""Plots beside the numbers, drawn in a thread of their own.

The numbers never wait for a plot: it is drawn after they have been sent, and of several states that
come quickly only the newest is drawn. Nothing of matplotlib is loaded here, because loading it takes
as long as much of the rest, and most pages open without a plot.
"""

import asyncio
import html
import logging
import re
import sys
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from typing import Protocol

__all__ = ["Drawable", "Picture", "Plot", "Plotter"]

_TURN = 0.0005  # seconds

_log = logging.getLogger("attnlab")


@dataclass(frozen=True)
class Picture:
    """A plot in two parts: most of it stays while a control moves, and need not be sent and read again."""

    ground: str
    """An SVG with its name for screen readers."""
    marks: str = ""
    """Shapes of SVG that lie on it."""
    name: str = ""
    """The name with these marks, if it is another one."""

    def svg(self) -> str:
        """All of it as one SVG."""
        text = self.ground.replace("</svg>", f"{self.marks}</svg>")
        label = f'aria-label="{html.escape(self.name)}"'
        return re.sub('aria-label="[^"]*"', lambda _: label, text, count=1) if self.name else text


class Drawable(Protocol):
    """A figure, or one that is drawn already."""

    def picture(self) -> Picture:
        """What is sent of it."""


Plot = Callable[[], Drawable]
"""Draws one figure from tensors it holds."""

# One for all: matplotlib's caches are made for one thread at a time.
_worker = ThreadPoolExecutor(1, thread_name_prefix="attnlab-plots")


class Plotter:
    """Draws what is wanted last and hands it to `show` as {name: picture}."""

    def __init__(self, show: Callable[[Mapping[str, Picture]], None]) -> None:
        self._show = show
        self._wanted: Mapping[str, Plot] | None = None
        self._shown = False
        self._drawing: Future[Mapping[str, Picture]] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    def draw(self, plots: Mapping[str, Plot]) -> None:
        """Draws soon, where an event loop runs (a notebook's kernel); elsewhere `finish` does."""
        if not plots and not self._shown:
            return
        self._wanted = plots
        self._shown = bool(plots)
        # What an event loop that has ended was to show, nobody waits for.
        if self._drawing is None or (self._loop is not None and self._loop.is_closed()):
            self._start()

    def finish(self) -> None:
        """Shows now what is wanted, drawn already or not."""
        drawing, self._drawing = self._drawing, None
        if self._wanted is not None:
            # In the same thread as ever: matplotlib's caches are made for one at a time.
            drawing, self._wanted = _worker.submit(_drawn, self._wanted), None
        if drawing is not None:
            self._show(drawing.result())

    def stop(self) -> None:
        """Forgets what is wanted; what is being drawn is shown to nobody."""
        self._wanted = None
        self._show = lambda pictures: None

    def _start(self) -> None:
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            return
        wanted, self._wanted = self._wanted, None
        if wanted is None:
            return
        self._loop, self._drawing = loop, _worker.submit(_drawn, wanted)

        def done(drawn: "Future[Mapping[str, Picture]]") -> None:
            with suppress(RuntimeError):  # the loop has been closed meanwhile
                loop.call_soon_threadsafe(self._finished, drawn)

        self._drawing.add_done_callback(done)

    def _finished(self, drawn: "Future[Mapping[str, Picture]]") -> None:
        if drawn is not self._drawing:
            return  # `finish` was quicker, and may have shown a newer one
        self._drawing = None
        self._show(drawn.result())
        self._start()


def _drawn(plots: Mapping[str, Plot]) -> Mapping[str, Picture]:
    """Pictures by name; a plot that can't be drawn is missing, the others are there."""
    found = {}
    # Python lets a busy thread run for 5 ms before another has its turn; an update of the numbers needs
    # some ten turns. While something is drawn they come more often.
    turn = sys.getswitchinterval()
    sys.setswitchinterval(_TURN)
    try:
        for name, plot in plots.items():
            try:
                found[name] = plot().picture()
            except Exception:
                _log.exception("the plot %s could not be drawn", name)
    finally:
        sys.setswitchinterval(turn)
    return found
