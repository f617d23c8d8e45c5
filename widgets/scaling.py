"""ScalingExplorable: what the width of a head does to scores, weights and gradients, scaled and not."""

import math
import secrets
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

import traitlets as t
from torch import Tensor

from attnlab.engine import Check, MatrixError, Stage, unrecorded
from attnlab.engine.checks import sums_to_one
from attnlab.engine.head_width import HeadWidthTrace, compare_head_width
from attnlab.engine.scaling import CurveTrace, ScalingTrace, scaling_curve, scaling_trace
from attnlab.engine.vectors import DISTRIBUTIONS, MAX_D_K, dot_product_variance, sample_queries_and_keys
from attnlab.widgets.control_bar import Command, Control, Select, Slider, Stepper, Toggle
from attnlab.widgets.explorable import Explorable
from attnlab.widgets.matrix import Matrix
from attnlab.widgets.number import Number
from attnlab.widgets.plotter import Plot
from attnlab.widgets.read_only import read_only_trace
from attnlab.widgets.result import Result

if TYPE_CHECKING:
    from attnlab.widgets.scaling_plots import CurvePlots, ScorePlot

__all__ = ["ScalingExplorable"]

_WIDTH = 64
_D_KS = [2**i for i in range(13)]
_HEADS = [2**i for i in range(7)]
_MISTAKEN = ("weights", "entropy", "jacobian_norm")
_TOLD = {
    "normal": "normal",
    "uniform": "uniform",
    "signs": "+1 or −1",
    "correlated": "correlated",
}

PRESETS: dict[str, dict[str, Any]] = {
    "a head of 64": {"raw": [8, 0]},
    "a narrow head": {"raw": [8, 0], "d_k": 4},
    "a wide head": {"raw": [8, 0], "d_k": 1024},
    "components that agree": {"raw": [8, 0], "distribution": "correlated"},
    "the model's width under the root": {"raw": [8, 0], "d_k": 16, "model_width": True},
}


class ScalingExplorable(Explorable):
    """Dot products of sampled queries and keys as the head gets wider, with and without ÷ √d_k.

    - `d_k`: width of the head, 1 to 4096; `n_keys`: keys in the row that is shown, 2 to 16
    - `distribution`: of the components, one of normal, uniform, signs, correlated; `rho`: how strongly
      correlated components agree, 0 to 1
    - `seed`: which draws; it proposes them on this machine only
    - `heads`: heads that share a model; `model_width`: the mistake √(heads · d_k) under the root
    - `raw`: a row of 2 to 8 scores for the example of a model of width 64
    - `chosen`, `gradient`, `decimals`, `preset` as everywhere

    `trace` holds the last good result, `curve` the entropy and gradient size for all widths.
    """

    presets = PRESETS
    cover = ("jacobian_scaled",)

    raw = Matrix(label="raw scores", axes=("example_key",), max_size=8)
    d_k = t.Int(64, min=1, max=MAX_D_K).tag(state="input")
    n_keys = t.Int(6, min=2, max=16).tag(state="input")
    distribution = t.Enum(list(DISTRIBUTIONS), "normal").tag(state="input")
    rho = Number(0.5, label="rho", least=0, most=1).tag(state="input")
    # A draw whose single row lies near the mean of many at every width (machines may draw otherwise).
    seed = t.Int(19, min=0, max=2**29).tag(state="input")
    heads = t.Int(4).tag(state="input")
    model_width = t.Bool(False).tag(state="input")
    gradient = t.Bool(False).tag(state="view")
    decimals = t.Int(4, min=2, max=8).tag(state="view")
    preset = t.Enum(list(PRESETS), next(iter(PRESETS)))

    trace = t.Instance(ScalingTrace, read_only=True)
    head_widths = t.Instance(HeadWidthTrace, read_only=True)

    def __init__(self, **kwargs: Any) -> None:
        # The draws and the curve belong to a setting and are made once for it; the curve by who asks first,
        # mostly the thread that draws the plots: no number waits for it.
        self._made: dict[str, tuple[Any, Any]] = {}
        super().__init__(**kwargs)

    def controls(self) -> list[list[Control]]:
        return [
            [
                self.preset_control(),
                Slider("d_k", "dₖ", _D_KS),
                Stepper("n_keys", "keys", less="fewer keys", more="more keys", minimum=2),
                *self.common_controls(),
            ],
            [
                Select("distribution", "components", list(_TOLD.items())),
                Slider("rho", "ρ", [i / 20 for i in range(21)], typed=True),
                Select("heads", "heads", [(n, str(n)) for n in _HEADS]),
                Toggle("model_width", "mistake: √(heads · dₖ)"),
                Command("redraw", "draw again", end=False),
            ],
            self.number_controls(),
        ]

    def stages(self) -> dict[str, dict[str, Any]]:
        scores = {"axes": ["key"], "ramp": "signed", "group": "scores"}
        weights = {"axes": ["key"], "bars": True}
        jacobian = {"axes": ["key", "other_key"], "ramp": "signed", "group": "jacobian"}
        row = {"axes": ["example_key"], "ramp": "signed", "group": "row"}
        number: dict[str, Any] = {"axes": []}
        inputs = self.input_stages()
        inputs["raw"] |= {"ramp": "signed", "group": "row"}
        return inputs | {
            "scores": scores,
            "scaled": scores,
            "weights_raw": weights | {"title": "weights, not scaled"},
            "weights_scaled": weights | {"title": "weights, scaled"},
            "scaled_mistake": scores | {"title": "scaled, mistake"},
            "weights_mistake": weights | {"title": "weights, mistake"},
            "entropy_mistake": number | {"title": "entropy, mistake"},
            "jacobian_norm_mistake": number | {"title": "gradient size, mistake"},
            "entropy_raw": number | {"title": "entropy, not scaled"},
            "entropy_scaled": number | {"title": "entropy, scaled"},
            "jacobian_norm_raw": number | {"title": "gradient size, not scaled"},
            "jacobian_norm_scaled": number | {"title": "gradient size, scaled"},
            "variance_raw": number | {"title": "variance of the scores"},
            "variance_scaled": number | {"title": "variance, scaled"},
            "jacobian_raw": jacobian | {"title": "∂ weight / ∂ score, not scaled"},
            "jacobian_scaled": jacobian | {"title": "∂ weight / ∂ score, scaled", "bar": True},
            "q": {"title": "q", "axes": ["d_k"], "role": "query"},
            "k": {"title": "K", "axes": ["key", "d_k"], "role": "key"},
            "scaled_by_head": row | {"title": "scaled"},
            "weights_by_head": {"title": "weights", "axes": ["example_key"], "bars": True},
            "scaled_by_model": row | {"title": "scaled, mistake"},
            "weights_by_model": {"title": "weights, mistake", "axes": ["example_key"], "bars": True},
        }

    def layout_blocks(self) -> list[dict[str, Any]]:
        return []  # narrow heads show their vectors: see `compute`

    def compute(self) -> Result:
        q, k = self._once(
            "draws",
            (self.distribution, self.seed, self.rho),
            lambda: sample_queries_and_keys(self.distribution, self.seed, rho=self.rho),
        )
        heads = self.heads
        trace = scaling_trace(q, k, self.d_k, n_keys=self.n_keys)
        wrong = None
        if self.model_width:
            wrong = scaling_trace(q, k, self.d_k, n_keys=self.n_keys, widths_under_root=heads)
        setting = (self.distribution, self.seed, self.rho, self.n_keys)
        make_curve = partial(scaling_curve, q, k, _D_KS, n_keys=self.n_keys)
        curve = partial(self._once, "curve", setting, make_curve)
        compared = compare_head_width(self.matrices()["raw"], _WIDTH, heads)
        self._curve = curve
        narrow = self.d_k <= 16
        tensors = {stage.name: stage.tensor for stage in trace.stages() if narrow or stage.name not in "qk"}
        tensors |= {n: getattr(trace.statistics, n) for n in ("variance_raw", "variance_scaled")}
        tensors |= {
            n: getattr(compared, n)
            for n in ("scaled_by_head", "weights_by_head", "scaled_by_model", "weights_by_model")
        }
        if wrong is not None:
            tensors |= {f"{n}_mistake": getattr(wrong, f"{n}_scaled") for n in _MISTAKEN}
            tensors["scaled_mistake"] = wrong.scaled
        statistics, d_k = trace.statistics, self.d_k
        plots: dict[str, Plot] = {
            "scores": lambda: self._score_plot().drawn(statistics),
            "entropy": lambda: self._curves(setting, curve).entropy(d_k, trace),
            "jacobian": lambda: self._curves(setting, curve).jacobian(d_k, trace),
        }
        return Result(
            tensors=tensors,
            published={"trace": trace, "head_widths": compared},
            checks=[(check, 0) for check in self._checks(trace, wrong)],
            texts={
                "scale": f"÷ √{d_k}",
                "scale_mistake": f"÷ √({heads} · {d_k})",
                "softmax": "softmax",
                "heads": f"Another model, of width {_WIDTH} with {heads} head{'s' * (heads > 1)}: "
                f"each head has {_WIDTH // heads}",
                "head": f"÷ √{_WIDTH // heads}",
                "model": f"÷ √{_WIDTH}",
            },
            layout_blocks=self._blocks(narrow, wrong is not None),
            limits={"decimals": 8, "n_keys": 16},
            disabled=[] if self.distribution == "correlated" else ["rho"],
            plots=plots,
        )

    def _score_plot(self) -> "ScorePlot":
        from attnlab.widgets.scaling_plots import ScorePlot

        plot: ScorePlot = self._once("score plot", None, ScorePlot)
        return plot

    @property
    def curve(self) -> CurveTrace:
        """Entropy and gradient size for all widths, of the present setting; read-only."""
        return read_only_trace(self._curve())

    def _curves(self, setting: Any, curve: Callable[[], CurveTrace]) -> "CurvePlots":
        # Loaded in the thread that draws: matplotlib takes its time, and no number waits for it.
        from attnlab.widgets.scaling_plots import CurvePlots

        plots: CurvePlots = self._once("plots", setting, lambda: CurvePlots(curve()))
        return plots

    def _once(self, name: str, setting: Any, make: Callable[[], Any]) -> Any:
        """What `make` gave for this setting, made anew only when the setting is another."""
        made = self._made.get(name)
        if made is None or made[0] != setting:
            with unrecorded():  # what was made for an earlier computation is not recorded either
                made = self._made[name] = (setting, make())
        return made[1]

    def _checks(self, trace: ScalingTrace, wrong: ScalingTrace | None) -> list[Check]:
        statistics = trace.statistics
        checks = [
            _variance(
                "variance of the scores is dₖ",
                statistics.variance_raw,
                self.d_k,
                statistics.variance_error_raw,
            ),
            _variance(
                "variance of the scaled scores is 1",
                statistics.variance_scaled,
                1,
                statistics.variance_error_scaled,
            ),
        ]
        if self.distribution == "correlated":
            right = dot_product_variance(self.d_k, self.rho)
            claim = "variance of the scores is dₖ(1 + (dₖ − 1)ρ²)"
            checks.append(_variance(claim, statistics.variance_raw, right, statistics.variance_error_raw))
        how = "sum of the scaled row of weights over key"
        checks.append(sums_to_one(trace.weights_scaled, "row sum 1", how))
        if wrong is not None:
            found = wrong.statistics
            claim = "mistake: variance of the scaled scores is 1"
            checks.append(_variance(claim, found.variance_scaled, 1, found.variance_error_scaled))
        return checks

    def _blocks(self, narrow: bool, mistaken: bool) -> list[dict[str, Any]]:
        wrong = [
            {
                "kind": "grids",
                "items": [
                    {"stage": "scaled_mistake", "operation": "scale_mistake"},
                    {"stage": "weights_mistake", "operation": "softmax"},
                    *({"stage": f"{n}_mistake"} for n in _MISTAKEN if n != "weights"),
                ],
            }
        ]
        vectors = [{"kind": "grids", "items": [{"stage": "q"}, {"stage": "k"}]}] if narrow else []
        return [
            {"kind": "message"},
            {
                "kind": "grids",
                "items": [
                    {"stage": "scores"},
                    {"stage": "weights_raw", "operation": "softmax"},
                ],
            },
            {
                "kind": "grids",
                "items": [
                    {"stage": "scaled", "operation": "scale"},
                    {"stage": "weights_scaled", "operation": "softmax"},
                ],
            },
            *(wrong if mistaken else []),
            *vectors,  # behind the rows that a drag of the width is watched in
            # What is to be compared stands side by side also where not all fit into a row.
            *(
                {
                    "kind": "grids",
                    "items": [{"stage": f"{n}_{kind}"} for n in quantities for kind in ("raw", "scaled")],
                }
                for quantities in (("entropy", "jacobian_norm"), ("variance",))
            ),
            {"kind": "plots", "plots": ["scores", "entropy", "jacobian"]},
            {"kind": "readout"},
            {"kind": "explanation"},
            {"kind": "checks"},
            {"kind": "grids", "items": [{"stage": "jacobian_raw"}, {"stage": "jacobian_scaled"}]},
            {"kind": "text", "text": "heads", "heading": True},
            {
                "kind": "grids",
                "items": [
                    {"stage": "raw"},
                    {"stage": "scaled_by_head", "operation": "head"},
                    {"stage": "weights_by_head", "operation": "softmax"},
                    {"stage": "scaled_by_model", "operation": "model"},
                    {"stage": "weights_by_model", "operation": "softmax"},
                ],
            },
        ]

    def commands(self) -> dict[str, Callable[[], None]]:
        return {"redraw": lambda: self.set_trait("seed", secrets.randbits(29))}

    @t.validate("heads")
    def _check_heads(self, proposal: Any) -> int:
        heads: int = proposal["value"]
        if heads not in _HEADS:
            raise MatrixError(f"heads: expected one of {', '.join(map(str, _HEADS))}, got {heads}")
        return heads

    def still_stages(self) -> Iterator[Stage]:
        yield from (s for s in self.trace.stages() if s.name not in ("q", "k"))
        yield from self.head_widths.stages()


def _variance(name: str, variance: Tensor, right: float, error: Tensor) -> Check:
    measured = float(variance)
    away = abs(measured - right)
    # As large as it would be if the claim were right: a sample that spreads more is less sure of its
    # spread, and would excuse any claim.
    expected = float(error) * right / measured if measured else 0.0
    return Check(
        name,
        away / expected if expected else (0.0 if away < 1e-12 else math.inf),
        4.0,
        f"measured {measured:.4g}, claimed {right:.4g}, standard error of such a sample {expected:.2g}",
        counted=f"standard errors away (measured {measured:.4g})",
    )
