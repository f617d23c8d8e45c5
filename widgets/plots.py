"""Figures in the style of the pages, and figures that are drawn already."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator, NullLocator
from matplotlib.transforms import Transform

from attnlab.widgets.figure import StageFigure
from attnlab.widgets.plotter import Picture

__all__ = ["INK", "Drawn", "plot_axes"]

Points = Sequence[tuple[float, float]]

INK = "#010101"
"""The colour of lines and text in a figure; on the screen it is the colour of the text around."""

_POINTS_PER_INCH = 72  # what an SVG of matplotlib is measured in


@dataclass(frozen=True)
class Drawn:
    """A figure that is drawn already, on which points can be put without drawing it again."""

    drawn: Picture
    placed: Callable[[Points], Points]
    """From data to the coordinates of the SVG."""

    @classmethod
    def of(cls, figure: StageFigure) -> "Drawn":
        """The figure as it is now; its one pair of axes is what points are placed in."""
        picture = figure.picture()
        transform: Transform = figure.axes[0].transData
        height = figure.get_figheight() * _POINTS_PER_INCH
        unit = _POINTS_PER_INCH / figure.dpi

        def placed(points: Points) -> Points:
            # All at once: one by one, the points of two histograms take longer than the rest of a plot.
            found = transform.transform(points).tolist()
            return [(right * unit, height - up * unit) for right, up in found]

        return cls(picture, placed)

    def with_points(self, points: Sequence[tuple[float, float, str]], name: str) -> "Drawn":
        """With a dot at each (x, y, colour), and `name` as its name for screen readers."""
        places = self.placed([(x, y) for x, y, _ in points])
        dots = "".join(
            f'<circle cx="{right:.2f}" cy="{down:.2f}" r="5" style="fill: {colour}; stroke: {INK}"/>'
            for (right, down), (_, _, colour) in zip(places, points, strict=True)
        )
        return self._with(dots, name)

    def with_lines(self, lines: Sequence[tuple[Points, str]], name: str) -> "Drawn":
        """With a line through each list of points, in a style of CSS, and `name` as its name."""
        paths = ""
        for points, style in lines:
            corners = "L".join(f"{right:.1f} {down:.1f}" for right, down in self.placed(points))
            paths += f'<path d="M{corners}" style="{style}"/>'
        return self._with(paths, name)

    def _with(self, marks: str, name: str) -> "Drawn":
        return Drawn(replace(self.drawn, marks=marks, name=name), self.placed)

    def picture(self) -> Picture:
        """What is sent of it."""
        return self.drawn

    def svg(self) -> str:
        """All of it as one SVG."""
        return self.drawn.svg()


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
