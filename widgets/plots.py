"""Figures in the style of the pages, and figures that are drawn already."""

import html
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator, NullLocator
from matplotlib.transforms import Transform

from attnlab.widgets.figure import StageFigure

__all__ = ["INK", "Drawn", "plot_axes"]

INK = "#010101"
"""The colour of lines and text in a figure; on the screen it is the colour of the text around."""

_POINTS_PER_INCH = 72  # what an SVG of matplotlib is measured in


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
        return self._with(dots, name)

    def with_lines(self, lines: Sequence[tuple[Sequence[tuple[float, float]], str]], name: str) -> "Drawn":
        """With a line through each list of points, in a style of CSS, and `name` as its name."""
        paths = ""
        for points, style in lines:
            corners = "L".join("{:.1f} {:.1f}".format(*self.to_svg(x, y)) for x, y in points)
            paths += f'<path d="M{corners}" style="{style}"/>'
        return self._with(paths, name)

    def _with(self, shapes: str, name: str) -> "Drawn":
        label = f'aria-label="{html.escape(name)}"'
        text = self.text.replace("</svg>", f"{shapes}</svg>")
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
