"""The two plots of the dropout page: sums of rows, and the mean closing in on the expectation."""

import math

import torch

from attnlab.engine import MaskTableTrace, SampleTrace
from attnlab.widgets.figure import StageFigure
from attnlab.widgets.plots import INK, plot_axes

__all__ = ["mean_plot", "sum_plot"]

_BLUE, _ORANGE = "#0072B2", "#D55E00"
_LINES = ("-", "--", "-.", ":", (0, (5, 1)), (0, (1, 1)))
_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#8C6D00")
_POINTS = 240


def sum_plot(table: MaskTableTrace, sample: SampleTrace | None) -> StageFigure:
    """How likely each row sum is: exactly, over all masks, and as a share of the draws."""
    # Sums that differ by rounding only are one sum.
    sums, place = (table.row_sum * 1e9).round().unique(return_inverse=True)
    sums = sums / 1e9
    exact = torch.zeros_like(sums).index_add(0, place, table.probability)
    spread = "the sum need not be 1" if (exact > 0).sum() > 1 else "the sum is 1"
    figure, axes = plot_axes(f"Row sums over all masks: {spread}", "row sum", "probability")
    width = float((sums[1:] - sums[:-1]).min()) if len(sums) > 1 else 1.0
    bars = 0.4 * max(width, float(sums.max() - sums.min()) / 60, 1e-3)
    # Beside the share of the draws; alone, on the sum itself.
    beside = bars / 2 if sample is not None else 0.0
    axes.bar((sums - beside).tolist(), exact.tolist(), width=bars, color=_BLUE, label="all masks, exactly")
    if sample is not None:
        drawn = (sample.row_sum * 1e9).round() / 1e9
        share = (drawn[:, None] == sums).double().mean(dim=0)
        axes.bar(
            (sums + beside).tolist(),
            share.tolist(),
            width=bars,
            color="none",
            edgecolor=_ORANGE,
            hatch="////",
            label=f"share of {len(drawn):,} draws",
        )
    axes.axvline(1, color=INK, linewidth=0.8, linestyle=":")
    axes.legend(frameon=False, fontsize=9, labelcolor=INK)
    return figure


def mean_plot(table: MaskTableTrace, sample: SampleTrace) -> StageFigure:
    """The running mean of each weight with its standard error, and the expectation it closes in on."""
    draws = sample.running_mean.shape[0]
    figure, axes = plot_axes(
        f"Mean of the first draws, up to {draws:,}",
        "draws",
        "mean ± standard error",
        powers=[10**i for i in range(6) if 10**i <= max(draws, 10)],
    )
    # Evenly on the logarithmic axis: more points than pixels would only be slow.
    # Rounded, not cut off, so that the last draw is the last point.
    at = torch.logspace(0, math.log10(draws), _POINTS, dtype=torch.float64).round().long().unique()
    mean, error = sample.running_mean[at - 1], sample.standard_error[at - 1].nan_to_num(0)
    x = at.tolist()
    for key in range(mean.shape[1]):
        colour = _COLOURS[key]
        axes.fill_between(
            x,
            (mean - error)[:, key].tolist(),
            (mean + error)[:, key].tolist(),
            color=colour,
            alpha=0.18,
            lw=0,
        )
        axes.plot(x, mean[:, key].tolist(), color=colour, linestyle=_LINES[key], lw=1.6, label=f"key {key}")
        axes.axhline(float(table.expected[key]), color=colour, lw=0.8)
    axes.set_xlim(1, max(draws, 10))
    axes.legend(frameon=False, fontsize=9, labelcolor=INK, ncols=2)
    return figure
