"""The plots of the scaling page: the spread of scores, and two curves against the width."""

import math

import torch
from torch import Tensor

from attnlab.engine.scaling import CurveTrace, ScalingTrace
from attnlab.engine.score_statistics import ScoreTrace
from attnlab.widgets.plots import INK, Drawn, plot_axes

__all__ = ["CurvePlots", "ScorePlot"]

_RAW, _SCALED = "#D55E00", "#0072B2"
_BINS = 64
_STYLES = (
    (f"fill: none; stroke: {_RAW}; stroke-width: 1.2", f"fill: none; stroke: {INK}; stroke-dasharray: 1 2"),
    (f"fill: {_SCALED}; fill-opacity: 0.45", f"fill: none; stroke: {INK}; stroke-dasharray: 5 3"),
)
_TICKS = (1, 4, 16, 64, 256, 1024, 4096)


class ScorePlot:
    """Histograms of the raw and the scaled scores on one axis, with the normal curve of the theory.

    Axes and legend are drawn once for each range of scores; what moves is put on them.
    """

    def __init__(self) -> None:
        self._drawn: dict[float, Drawn] = {}

    def drawn(self, statistics: ScoreTrace) -> Drawn:
        """The plot with these scores."""
        d_k = statistics.d_k
        # Ranges are powers of two: the widest of four standard deviations fits, and few are needed.
        spread = max(math.sqrt(d_k), 1.0, float(statistics.sample_scores.std()))
        end = 2.0 ** math.ceil(math.log2(4 * spread))
        if end not in self._drawn:
            self._drawn[end] = self._background(end)
        edges = torch.linspace(-end, end, _BINS + 1)
        x = torch.linspace(-end, end, 161)
        lines = []
        for scores, deviation, (bars, curve) in zip(
            (statistics.sample_scores, statistics.sample_scaled), (math.sqrt(d_k), 1.0), _STYLES, strict=True
        ):
            counts = torch.histogram(scores.float(), bins=edges)[0]
            heights = (counts / counts.max().clamp(min=1)).tolist()
            sides = edges.tolist()
            # Two corners on top of each bar; the first and the last stand on the axis.
            tops = [(side, y) for i, y in enumerate(heights) for side in sides[i : i + 2]]
            lines.append(([(sides[0], 0.0), *tops, (sides[-1], 0.0)], bars))
            theory = torch.exp(-0.5 * (x / deviation) ** 2)
            lines.append((list(zip(x.tolist(), theory.tolist(), strict=True)), curve))
        samples = f"{statistics.sample_scores.numel():,} samples"
        return self._drawn[end].with_lines(lines, f"Scores, scaled and not, at width {d_k}: {samples}")

    def _background(self, end: float) -> Drawn:
        figure, axes = plot_axes("Scores, scaled and not", "score", "density, largest = 1")
        axes.set_xlim(-end, end)
        axes.set_ylim(0, 1.3)
        axes.plot([], [], color=_RAW, label="not scaled")
        axes.plot([], [], color=INK, lw=1, linestyle=":", label="normal, variance dₖ")
        axes.fill_between([], [], color=_SCALED, alpha=0.45, label="scaled")
        axes.plot([], [], color=INK, lw=1, linestyle="--", label="normal, variance 1")
        axes.legend(frameon=False, fontsize=8, labelcolor=INK, ncols=2, loc="upper center")
        return Drawn.of(figure)


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
            axes.plot(x, mean.tolist(), color=colour, lw=3, label=f"{label}, mean of 64 queries")
            axes.plot(x, one.tolist(), color=INK, lw=1, linestyle=style, label=f"{label}, this query")
        axes.set_ylim(0, 1.3 * axes.get_ylim()[1])  # room for the legend above the curves
        axes.legend(frameon=False, fontsize=8, labelcolor=INK, ncols=2, loc="upper center")
        return Drawn.of(figure)
