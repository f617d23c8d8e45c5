"""A stage as a matplotlib figure, made without pyplot: nothing global, nothing to close."""

import html
import io
import itertools
import math
import threading

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.collections import QuadMesh
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from torch import Tensor

from attnlab.engine import Stage
from attnlab.widgets.plotter import Picture
from attnlab.widgets.words import AXIS_NAMES

__all__ = ["StageFigure", "stage_figure"]

# Blue and vermilion of the Okabe–Ito palette: told apart with every common colour vision.
_SIGNED = LinearSegmentedColormap.from_list("attnlab signed", ["#E08A4F", "#FFFFFF", "#6FA8D0"])
_UNIT = LinearSegmentedColormap.from_list("attnlab unit", ["#FFFFFF", "#9678C8"])


_SETTINGS = threading.Lock()


class StageFigure(Figure):
    """A figure that a notebook shows by itself, as SVG with its title as alternative text."""

    def svg(self) -> str:
        """The figure as an SVG text, selectable and scalable, with a title for screen readers."""
        buffer = io.StringIO()
        # matplotlib's settings are one for all threads, and plots are drawn in one of their own.
        with _SETTINGS, rc_context({"svg.fonttype": "none", "svg.hashsalt": "attnlab"}):
            self.savefig(buffer, format="svg", metadata={"Title": self.get_label(), "Date": None})
        text = buffer.getvalue()
        return text[text.index("<svg") :].replace(
            "<svg ", f'<svg role="img" aria-label="{html.escape(str(self.get_label()))}" ', 1
        )

    def picture(self) -> Picture:
        """What is sent of it to a page: everything."""
        return Picture(self.svg())

    def _repr_svg_(self) -> str:
        return self.svg()


def stage_figure(
    stage: Stage, *, allowed: Tensor | None = None, unit: bool = False, decimals: int = 4
) -> StageFigure:
    """`stage` as heat maps with their numbers: one for each position of the leading axes (batch, head).

    The last two axes are rows and columns; a stage of one axis is one row. `allowed` hatches the cells that
    are not allowed; `unit` colours from 0 to 1 instead of symmetrically about 0. One colour bar serves all.
    """
    tensor, stage_axes = stage.tensor.double(), stage.axes
    while tensor.ndim > 2 and tensor.shape[0] == 1:
        tensor, stage_axes = tensor[0], stage_axes[1:]
    while tensor.ndim < 2:
        tensor, stage_axes = tensor[None], ("", *stage_axes)
    names = [AXIS_NAMES.get(axis, axis) for axis in stage_axes]
    *leading, rows, columns = tensor.shape
    across = leading[-1] if leading else 1
    down = math.prod(leading) // across
    finite = tensor[tensor.isfinite()].abs()
    end = 1.0 if unit else (float(finite.max()) if finite.numel() else 0.0) or 1.0
    figure = StageFigure(
        figsize=(0.4 + across * (0.5 + 0.95 * columns) + 0.5, down * (1.2 + 0.6 * rows)), layout="constrained"
    )
    places = list(itertools.product(*map(range, leading)))
    grid = figure.subplots(down, across, squeeze=False)
    for place, axes in zip(places, grid.flat, strict=True):
        image = _draw(axes, tensor[place], None if unit else -end, end, allowed, decimals)
        axes.set_ylabel(names[-2])
        axes.set_xlabel(names[-1])
        if place:
            told = ", ".join(f"{name} {i}" for name, i in zip(names, place, strict=False))
            axes.set_title(told, loc="left", fontsize=10)
    sizes = [f"{name} {n}" for name, n in zip(names, tensor.shape, strict=True) if name]
    title = " · ".join([stage.name, " × ".join(sizes)] if sizes else [stage.name])
    if places[0]:
        figure.suptitle(title, x=0.01, ha="left", fontsize=11)
    else:
        grid[0, 0].set_title(title, loc="left", fontsize=11)
    bar = figure.colorbar(image, ax=list(grid.flat), shrink=0.9)
    if bar.solids is not None:
        bar.solids.set_rasterized(False)
    figure.set_label(title)
    return figure


def _draw(
    axes: Axes, matrix: Tensor, low: float | None, end: float, allowed: Tensor | None, decimals: int
) -> QuadMesh:
    """One heat map; without `low` its colours go from 0 to `end`."""
    numbers = matrix.tolist()
    rows, columns = matrix.shape
    # Not `imshow`, which puts a bitmap into the SVG.
    image = axes.pcolormesh(
        [j - 0.5 for j in range(columns + 1)],
        [i - 0.5 for i in range(rows + 1)],
        [[x if math.isfinite(x) else math.nan for x in row] for row in numbers],
        cmap=_UNIT if low is None else _SIGNED,
        vmin=low or 0.0,
        vmax=end,
    )
    axes.invert_yaxis()
    for i, row in enumerate(numbers):
        for j, x in enumerate(row):
            blocked = allowed is not None and not bool(allowed[i, j])
            if blocked:
                axes.add_patch(
                    Rectangle((j - 0.5, i - 0.5), 1, 1, fill=False, hatch="////", edgecolor="#9AA3AD", lw=0)
                )
            box = {"facecolor": "white", "edgecolor": "none", "pad": 1} if blocked else None
            axes.text(
                j, i, _text(x, decimals), ha="center", va="center", fontsize=10, color="black", bbox=box
            )
    axes.set_xticks(range(columns))
    axes.set_yticks(range(rows))
    axes.spines[:].set_visible(False)
    axes.tick_params(length=0)
    return image


def _text(x: float, decimals: int) -> str:
    """As `formatNumber` in numbers.js: what isn't zero never prints as zero."""
    if math.isnan(x):
        return "NaN"
    if math.isinf(x):
        return "∞" if x > 0 else "\N{MINUS SIGN}∞"
    if x == 0:
        return "0"
    fixed = f"{x:.{decimals}f}"
    small_or_large = float(fixed) == 0 or abs(x) >= 1e6
    return (f"{x:.1e}" if small_or_large else fixed).replace("-", "\N{MINUS SIGN}")
