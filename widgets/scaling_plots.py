"""The plots of the scaling page: the spread of scores, and two curves against the width."""

import math

import torch
from torch import Tensor

from attnlab.engine.scaling import CurveTrace, ScalingTrace
from attnlab.engine.score_statistics import ScoreTrace
from attnlab.widgets.figure import StageFigure
from attnlab.widgets.plots import INK, Drawn, plot_axes

__all__ = ["CurvePlots", "score_plot"]

_RAW, _SCALED = "#D55E00", "#0072B2"
_TICKS = (1, 4, 16, 64, 256, 1024, 4096)


def score_plot(statistics: ScoreTrace) -> StageFigure:
    """Histograms of the raw and the scaled scores on one axis, with the normal curve of the theory."""
    d_k = statistics.d_k
    figure, axes = plot_axes(
        f"Scores at width {d_k}: {statistics.sample_scores.numel():,} samples",
        "score",
        "density, largest = 1",
    )
    end = 4 * max(math.sqrt(d_k), 1.0, float(statistics.sample_scores.std()))
    edges = torch.linspace(-end, end, 81)
    for scores, spread, colour, filled, label in (
        (statistics.sample_scores, math.sqrt(d_k), _RAW, False, "not scaled"),
        (statistics.sample_scaled, 1.0, _SCALED, True, "scaled"),
    ):
        counts = torch.histogram(scores.float(), bins=edges)[0]
        axes.stairs(
            (counts / counts.max().clamp(min=1)).tolist(),
            edges.tolist(),
            color=colour,
            fill=filled,
            alpha=0.45 if filled else 1,
            label=label,
        )
        x = torch.linspace(-end, end, 161)
        y = torch.exp(-0.5 * (x / spread) ** 2)
        style = "--" if filled else ":"
        axes.plot(
            x.tolist(),
            y.tolist(),
            color=INK,
            lw=1,
            linestyle=style,
            label=f"normal, variance {spread**2:.4g}",
        )
    axes.set_ylim(0, 1.25)
    axes.legend(frameon=False, fontsize=8, labelcolor=INK, ncols=2, loc="upper center")
    return figure


class CurvePlots:
    """Entropy and gradient size against d_k for one setting; drawn once, only the point moves."""

    def __init__(self, curve: CurveTrace) -> None:
        self._curve = curve
        self._drawn: dict[str, Drawn] = {}

    def entropy(self, d_k: int, trace: ScalingTrace) -> Drawn:
        """Entropy of the weights in nats, with the row that is shown as two points."""
        return self._plot("entropy", "Entropy of a row", "nats", d_k, trace)

    def jacobian(self, d_k: int, trace: ScalingTrace) -> Drawn:
        """Frobenius norm of the Jacobian of the softmax, with the row that is shown as two points."""
        return self._plot(
            "jacobian_norm", "Size of the gradient of the softmax", "norm of ∂ weight / ∂ score", d_k, trace
        )

    def _plot(self, quantity: str, title: str, unit: str, d_k: int, trace: ScalingTrace) -> Drawn:
        if quantity not in self._drawn:
            self._drawn[quantity] = self._background(quantity, title, unit)
        points = [
            (float(d_k), float(getattr(trace, f"{quantity}_{kind}")), colour)
            for kind, colour in (("raw", _RAW), ("scaled", _SCALED))
        ]
        told = ", ".join(
            f"{label} {y:.3g}" for (_, y, _), label in zip(points, ("not scaled", "scaled"), strict=True)
        )
        return self._drawn[quantity].with_points(points, f"{title}, at width {d_k}: {told}")

    def _background(self, quantity: str, title: str, unit: str) -> Drawn:
        figure, axes = plot_axes(title, "width of a head, dₖ", unit, powers=_TICKS)
        x = self._curve.d_ks.tolist()
        for kind, colour, style, label in (
            ("raw", _RAW, "-", "not scaled"),
            ("scaled", _SCALED, "--", "scaled"),
        ):
            one: Tensor = getattr(self._curve, f"{quantity}_{kind}")
            mean: Tensor = getattr(self._curve, f"mean_{quantity}_{kind}")
            axes.plot(x, mean.tolist(), color=colour, lw=4, alpha=0.25, label=f"{label}, mean of 64 queries")
            axes.plot(x, one.tolist(), color=colour, lw=1.5, linestyle=style, label=f"{label}, this query")
        axes.set_ylim(bottom=0)
        axes.legend(frameon=False, fontsize=8, labelcolor=INK)
        return Drawn.of(figure)
