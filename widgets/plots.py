"""Plots beside the numbers: matplotlib figures as SVG, drawn in a thread of their own.

The numbers never wait for a plot: it is drawn after they have been sent, and of several states that
come quickly only the newest is drawn.
"""

import asyncio
import html
import logging
import re
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from typing import Protocol

from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator, NullLocator
from matplotlib.transforms import Transform

from attnlab.widgets.figure import StageFigure

__all__ = ["INK", "Drawn", "Plot", "Plotter", "plot_axes"]

_log = logging.getLogger("attnlab")


class Drawable(Protocol):
    """What has an SVG text: a figure, or one that is drawn already."""

    def svg(self) -> str:
        """The SVG, with its name for screen readers."""


Plot = Callable[[], Drawable]
"""Draws one figure from tensors it holds."""

INK = "#010101"
"""The colour of lines and text in a figure; on the screen it is the colour of the text around."""

_POINTS_PER_INCH = 72  # what an SVG of matplotlib is measured in

# One for all: matplotlib's caches are made for one thread at a time.
_worker = ThreadPoolExecutor(1, thread_name_prefix="attnlab-plots")


class Plotter:
    """Draws what is wanted last and hands it to `show` as {name: SVG}."""

    def __init__(self, show: Callable[[Mapping[str, str]], None]) -> None:
        self._show = show
        self._wanted: Mapping[str, Plot] | None = None
        self._shown = False
        self._drawing: Future[Mapping[str, str]] | None = None
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
        self._show = lambda svgs: None

    def _start(self) -> None:
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            return
        wanted, self._wanted = self._wanted, None
        if wanted is None:
            return
        self._loop, self._drawing = loop, _worker.submit(_drawn, wanted)

        def done(drawn: "Future[Mapping[str, str]]") -> None:
            with suppress(RuntimeError):  # the loop has been closed meanwhile
                loop.call_soon_threadsafe(self._finished, drawn)

        self._drawing.add_done_callback(done)

    def _finished(self, drawn: "Future[Mapping[str, str]]") -> None:
        if drawn is not self._drawing:
            return  # `finish` was quicker, and may have shown a newer one
        self._drawing = None
        self._show(drawn.result())
        self._start()


def _drawn(plots: Mapping[str, Plot]) -> Mapping[str, str]:
    """SVG by name; a plot that can't be drawn is missing, the others are there."""
    found = {}
    for name, plot in plots.items():
        try:
            found[name] = plot().svg()
        except Exception:
            _log.exception("the plot %s could not be drawn", name)
    return found


@dataclass(frozen=True)
class Drawn:
    """A figure that is drawn already, on which points can be put without drawing it again."""

    text: str
    to_svg: Callable[[float, float], tuple[float, float]]
    """From data to the coordinates of the SVG."""

    @classmethod
    def of(cls, figure: StageFigure) -> "Drawn":
        """The figure as it is now; its one pair of axes is what points are placed in."""
        text = figure.svg()
        transform: Transform = figure.axes[0].transData
        height = figure.get_figheight() * _POINTS_PER_INCH
        unit = _POINTS_PER_INCH / figure.dpi

        def to_svg(x: float, y: float) -> tuple[float, float]:
            right, up = transform.transform((x, y))
            return float(right * unit), float(height - up * unit)

        return cls(text, to_svg)

    def with_points(self, points: Sequence[tuple[float, float, str]], name: str) -> "Drawn":
        """With a dot at each (x, y, colour), and `name` as its name for screen readers."""
        dots = ""
        for x, y, colour in points:
            right, down = self.to_svg(x, y)
            dots += f'<circle cx="{right:.2f}" cy="{down:.2f}" r="5" style="fill: {colour}; stroke: {INK}"/>'
        text = self.text.replace("</svg>", f"{dots}</svg>")
        label = f'aria-label="{html.escape(name)}"'
        return Drawn(re.sub('aria-label="[^"]*"', lambda _: label, text, count=1), self.to_svg)

    def svg(self) -> str:
        """The SVG text."""
        return self.text


def plot_axes(
    title: str, x: str, y: str, *, powers: Sequence[float] = (), size: tuple[float, float] = (5.2, 2.9)
) -> tuple[StageFigure, Axes]:
    """An empty figure in the style of the pages: its title is also its name for screen readers.

    With `powers` the x axis is logarithmic, with these ticks. Few ticks and fixed margins: measuring
    text is most of what drawing costs.
    """
    figure = StageFigure(figsize=size)
    figure.subplots_adjust(left=0.13, right=0.98, top=0.89, bottom=0.18)
    figure.patch.set_alpha(0)
    axes = figure.add_subplot()
    axes.patch.set_alpha(0)
    axes.set_title(title, loc="left", fontsize=11, color=INK)
    axes.set_xlabel(x, color=INK)
    axes.set_ylabel(y, color=INK)
    if powers:
        axes.set_xscale("log")
        axes.set_xticks(list(powers), [f"{power:,.10g}" for power in powers])
        axes.xaxis.set_minor_locator(NullLocator())
    else:
        axes.xaxis.set_major_locator(MaxNLocator(6))
    axes.yaxis.set_major_locator(MaxNLocator(4))
    axes.tick_params(colors=INK, labelsize=9)
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[:].set_color(INK)
    figure.set_label(title)
    return figure, axes
