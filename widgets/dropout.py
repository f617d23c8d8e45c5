"""DropoutExplorable: one draw of a dropout mask, every possible draw, and many draws."""

import math
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
import traitlets as t
from torch import Tensor

from attnlab.engine import (
    AttentionTrace,
    Check,
    MaskTableTrace,
    SampleTrace,
    Stage,
    Trace,
    attend,
    causal,
    divide_by_p,
    drop,
    drop_before_softmax,
    every_mask,
    functional_still_drops,
    mask_probability,
    no_grad_still_drops,
    sample_keep,
    sample_statistics,
    sum_rows,
)
from attnlab.engine.dropout import check_expectation
from attnlab.widgets.control_bar import Command, Control, Select, Slider, Toggle
from attnlab.widgets.draws import Draws, as_masks, as_text
from attnlab.widgets.explorable import Explorable
from attnlab.widgets.matrix import Mask, Matrix
from attnlab.widgets.number import Number
from attnlab.widgets.plotter import Drawable, Plot
from attnlab.widgets.result import Result

__all__ = ["DropoutExplorable"]

_THREE = [[1, 0], [0, 1], [1, 1]]
_INSIDE = {"q": _THREE, "k": _THREE, "v": _THREE, "attention_keep": [[1, 1, 0], [0, 1, 1], [1, 0, 1]]}

PRESETS: dict[str, dict[str, Any]] = {
    "two, three and five tenths": {"weights": [0.2, 0.3, 0.5], "keep": [1, 0, 1]},
    "a smaller p": {"weights": [0.2, 0.3, 0.5], "keep": [1, 1, 1], "p": 0.2},
    "four equal weights": {"weights": [0.25] * 4, "keep": [1, 1, 1, 0]},
    "one weight is masked": {"weights": [0.4, 0.6, 0], "keep": [1, 0, 1]},
    "six equal weights": {"weights": [1 / 6] * 6, "keep": [1, 0, 1, 1, 0, 1]},
    "inside attention": {"weights": [0.2, 0.3, 0.5], "keep": [1, 0, 1], "inside": True},
}
PRESETS = {name: _INSIDE | values for name, values in PRESETS.items()}

_NONE = "none"
_FACTOR = "1/p instead of 1/(1 − p)"
_BEFORE = "dropout before softmax"
_NO_GRAD = "no_grad instead of eval()"
_LEFT_ON = "p left on in evaluation"
MISTAKES = (_NONE, _FACTOR, _BEFORE, _NO_GRAD, _LEFT_ON)

_SAMPLES = (1, 10, 100, 1_000, 10_000)


class DropoutExplorable(Explorable):
    """Dropout of attention weights: one mask, all masks, many drawn masks, and its place in attention.

    - `weights`: a row of 1 to 6 numbers from 0 to 1 with the sum 1; `keep`: one 0 or 1 for each
    - `p`: probability of dropping, 0 ≤ p < 1; `training`: off means evaluation, where nothing is dropped
    - `draws`: the masks drawn so far, as text (see `attnlab.widgets.draws`)
    - `inside`: the mask lies over the weights of an attention with `q`, `k`, `v` (3 × 2 each), as
      `attention_keep` (3 × 3)
    - `mistake`: one of `MISTAKES`, computed beside the right way
    - `chosen`, `gradient`, `decimals`, `preset` as everywhere

    `trace` holds the last good row (a `DropoutTrace`), `table` all its masks, `sample` the draws,
    `attention` the attention with its mask; each is None before it was first computed.
    """

    presets = PRESETS
    cover = ("dropped by each mask", "dropped")

    weights = Matrix(label="weights", axes=("key",), max_size=6)
    keep = Mask(label="keep", axes=("key",), max_size=6)
    q = Matrix(label="Q", axes=("query", "d_k"), role="query", shape=(3, 2))
    k = Matrix(label="K", axes=("key", "d_k"), role="key", shape=(3, 2))
    v = Matrix(label="V", axes=("key", "d_v"), role="value", shape=(3, 2))
    attention_keep = Mask(label="keep", axes=("query", "key"), shape=(3, 3))
    p = Number(
        0.5,
        label="p",
        least=0,
        below=1,
        why="kept weights are divided by 1 − p, and 1/(1 − 1) has no value "
        "(PyTorch itself accepts p = 1 and gives zeros)",
    ).tag(state="input")
    training = t.Bool(True).tag(state="input")
    inside = t.Bool(False).tag(state="input")
    mistake = t.Enum(MISTAKES, _NONE).tag(state="input")
    draws = Draws().tag(state="input")
    gradient = t.Bool(False).tag(state="view")
    decimals = t.Int(4, min=2, max=8).tag(state="view")
    preset = t.Enum(list(PRESETS), next(iter(PRESETS)))

    trace = t.Instance(Trace, allow_none=True, read_only=True)
    table = t.Instance(MaskTableTrace, allow_none=True, read_only=True)
    sample = t.Instance(SampleTrace, allow_none=True, read_only=True)
    attention = t.Instance(AttentionTrace, allow_none=True, read_only=True)

    _keys = 0
    """How many weights `draws` are over."""

    def controls(self) -> list[list[Control]]:
        return [
            [
                self.preset_control(),
                Toggle("training", "training"),
                Slider("p", "p", [i / 20 for i in range(20)], typed=True),
                *self.common_controls(),
            ],
            [
                Command("previous_mask", "◂ mask", end=False),
                Command("next_mask", "mask ▸", end=False),
                *(Command(f"draw_{n}", f"draw {n:,}", end=False) for n in _SAMPLES),
                Command("forget", "forget draws", end=False),
                Command("normalise", "divide by the sum", end=False),
            ],
            [
                Toggle("inside", "inside attention"),
                Select("mistake", "mistake", [(name, name) for name in MISTAKES]),
                *self.number_controls(),
            ],
        ]

    def stages(self) -> dict[str, dict[str, Any]]:
        row = {"axes": ["key"], "ramp": "unit", "group": "row"}
        grid = {"axes": ["query", "key"], "ramp": "unit", "group": "weights"}
        runs = {"axes": ["run", "key"], "ramp": "unit", "group": "row"}
        output = {"axes": ["query", "d_v"], "ramp": "signed", "group": "output", "role": "value"}
        spread = {"axes": ["query", "d_v"], "ramp": "signed", "group": "spread"}
        inputs = self.input_stages()
        # By hand a weight stays between 0 and 1; what is typed may be refused with the reason.
        inputs["weights"] |= {"ramp": "unit", "group": "row", "least": 0, "limit": 1}
        inputs["keep"] |= {"dropped": "keep"}
        inputs["attention_keep"] |= {"dropped": "attention_keep"}
        # Evaluation keeps everything, whatever was drawn: nothing there to be switched.
        everything = {"title": "keep (all)", "whole": True}
        return inputs | {
            "keep_used": everything | {"axes": ["key"]},
            "attention_keep_used": everything | {"axes": ["query", "key"]},
            "dropped": row | {"dropped": "keep_used", "bar": True},
            "row_sum": {"title": "row sum", "axes": []},
            "probability": {"title": "probability of this mask", "axes": []},
            "expected": row | {"title": "mean over all masks"},
            "mean": row | {"title": "mean of the draws"},
            "standard_error": {"title": "standard error", "axes": ["key"]},
            "difference": {"title": "mean − expectation", "axes": ["key"]},
            "table_keep": {"axes": ["mask", "key"], "dropped": "table_keep"},
            "table_probability": {"axes": ["mask"]},
            "table_sum": {"axes": ["mask"]},
            "table_dropped": {
                "title": "dropped by each mask",
                "axes": ["mask", "key"],
                "dropped": "table_keep",
            },
            "attention_weights": grid | {"title": "weights", "masked": "allowed"},
            "attention_dropped": grid
            | {"title": "dropped", "masked": "allowed", "dropped": "attention_keep_used", "bar": True},
            "attention_sum": {"title": "row sums", "axes": ["query"]},
            "output": output | {"bar": True},
            "output_without": output | {"title": "output without dropout"},
            "wrong": row | {"title": "dropped, ÷ p", "dropped": "keep_used"},
            "wrong_expected": row | {"title": "mean over all masks, ÷ p"},
            "scores": {"axes": ["query", "key"], "ramp": "signed", "group": "scores"},
            "masked": {"axes": ["query", "key"], "ramp": "signed", "group": "scores", "masked": "allowed"},
            "dropped_scores": {
                "title": "dropped scores",
                "axes": ["query", "key"],
                "ramp": "signed",
                "group": "scores",
                "masked": "allowed",
                "dropped": "attention_keep_used",
            },
            "wrong_weights": grid | {"title": "softmax of the dropped scores"},
            "runs_wrong": runs | {"title": "20 runs under no_grad"},
            "runs_right": runs | {"title": "20 runs after eval()"},
            "spread_wrong": spread | {"title": "largest − smallest, p left on"},
            "spread_right": spread | {"title": "largest − smallest, p if training else 0"},
        }

    def layout_blocks(self) -> list[dict[str, Any]]:
        return []  # they depend on what is looked at: see `compute`

    def compute(self) -> Result:
        self._keys = self.weights.shape[0]
        p = self.p if self.training else 0.0
        result = self._attention(p) if self._shows_attention else self._row(p)
        return self._with_mistake(result, p)

    @property
    def _shows_attention(self) -> bool:
        """Two of the mistakes are made in attention, wherever the reader was."""
        return self.inside or self.mistake in (_BEFORE, _LEFT_ON)

    def _as_sentence(self, message: str) -> str:
        told = super()._as_sentence(message)
        return f"{told} “divide by the sum” makes it 1." if "expected a sum of 1" in message else told

    def _dropping(self, p: float) -> str:
        return f"× keep ÷ (1 − {p:g})" if self.training else "evaluation: as they are"

    # ------------------------------------------------------------ one row

    def _row(self, p: float) -> Result:
        given = self.matrices()
        weights = given["weights"]
        # Evaluation is p = 0 with everything kept; the line that computes is the same.
        keep = given["keep"] if self.training else torch.ones_like(given["keep"])
        trace = drop(weights, keep, p)
        table = every_mask(weights, p)
        tensors: dict[str, Tensor] = {
            "dropped": trace.dropped,
            "row_sum": trace.row_sum,
            "probability": mask_probability(keep, p),
            "expected": table.expected,
            "table_keep": table.keep,
            "table_probability": table.probability,
            "table_sum": table.row_sum,
            "table_dropped": table.dropped,
            "keep_used": keep,
        }
        checks = [
            (check_expectation(table.expected, weights), 0),
            (_zeros_stay(trace.weights, trace.dropped), 0),
        ]
        sample = None
        if self.draws and self.training:
            sample = sample_statistics(weights, as_masks(self.draws, weights.shape[0]), p)
            tensors |= {
                "mean": sample.mean,
                "standard_error": sample.mean_error,
                "difference": sample.difference,
            }
            if len(self.draws) > 1:
                checks.append((_close(tensors["difference"], weights, p, len(self.draws)), 0))
        if not self.training:
            checks.append((no_grad_still_drops(weights, self.p).right_check, 0))
        return Result(
            tensors=tensors,
            published={"trace": trace, "table": table, "sample": sample},
            checks=checks,
            texts={
                "drop": self._dropping(p),
                "sum": "sum",
                "all": _all_masks(weights.shape[0], self.training),
                "sampled": f"{len(self.draws):,} drawn" if sample else "no draws yet",
                "table": f"All {2 ** weights.shape[0]} masks"
                + ("" if self.training else "; in evaluation only the one that keeps all is used"),
            },
            layout_blocks=self._row_blocks(sample is not None),
            limits={"decimals": 8},
            labels={"mask": ["".join(map(str, bits)) for bits in table.keep.int().tolist()]},
            tracked={"mask": int("".join(str(int(bit)) for bit in keep.tolist()), 2)},
            disabled=[] if self.training else self._drawing(),
            plots=self._plots(table, sample),
        )

    def _row_blocks(self, sampled: bool) -> list[dict[str, Any]]:
        drawn = [
            {"stage": "mean", "operation": "sampled"},
            *([{"stage": "standard_error"}] if len(self.draws) > 1 else []),  # one draw has none
            {"stage": "difference"},
        ]
        columns = [
            {"stage": "table_keep", "title": "keep"},
            {"stage": "table_probability", "title": "probability"},
            {"stage": "table_dropped", "title": "dropped"},
            {"stage": "table_sum", "title": "row sum"},
        ]
        return [
            {"kind": "sizes", "axes": ["key"]},
            {
                "kind": "grids",
                "items": [
                    {"stage": "weights"},
                    {"stage": "keep" if self.training else "keep_used"},
                    {"stage": "dropped", "operation": "drop"},
                    {"stage": "row_sum", "operation": "sum"},
                    *([{"stage": "probability"}] if self.training else []),
                ],
            },
            {"kind": "message"},
            *self._mistake_blocks(),
            {
                "kind": "grids",
                "items": [{"stage": "expected", "operation": "all"}, *(drawn if sampled else [])],
            },
            {"kind": "readout"},
            {"kind": "explanation"},
            {"kind": "checks"},
            {"kind": "plots", "plots": ["sums", "means"] if sampled else ["sums"]},
            {
                "kind": "table",
                "axis": "mask",
                "title": "table",
                "sortable": True,
                "columns": columns,
            },
        ]

    def _plots(self, table: MaskTableTrace, sample: SampleTrace | None) -> dict[str, Plot]:
        plots: dict[str, Plot] = {"sums": lambda: _sums(table, sample)}
        if sample is not None:
            plots["means"] = lambda: _means(table, sample)
        return plots

    # ------------------------------------------------------------ inside attention

    def _attention(self, p: float) -> Result:
        given = self.matrices()
        keep = given["attention_keep"]
        keep = keep if self.training else torch.ones_like(keep)
        allowed = causal(3)
        trace = attend(given["q"], given["k"], given["v"], allowed=allowed, keep=keep, drop_p=p)
        without = attend(given["q"], given["k"], given["v"], allowed=allowed)
        row_sums = sum_rows(trace.dropped)
        checks = [(_zeros_stay(trace.weights, trace.dropped), 0)]
        if not self.training:
            runs = functional_still_drops(given["q"], given["k"], given["v"], self.p)
            checks.append((runs.right_check, 0))
        return Result(
            tensors={
                "attention_weights": trace.weights,
                "attention_dropped": trace.dropped,
                "attention_sum": row_sums,
                "attention_keep_used": keep,
                "allowed": trace.allowed,
                "output": trace.output,
                "output_without": without.output,
            },
            published={"attention": trace},
            checks=checks,
            texts={
                "drop": self._dropping(p),
                "sum": "sum",
                "mix": "dropped · V",
                "attend": "attention",
            },
            layout_blocks=[
                {"kind": "grids", "items": [{"stage": "q"}, {"stage": "k"}, {"stage": "v"}]},
                {"kind": "message"},
                {
                    "kind": "grids",
                    "items": [
                        {"stage": "attention_weights", "operation": "attend"},
                        {"stage": "attention_keep" if self.training else "attention_keep_used"},
                        {"stage": "attention_dropped", "operation": "drop"},
                        {"stage": "attention_sum", "operation": "sum"},
                    ],
                },
                {
                    "kind": "grids",
                    "items": [{"stage": "output", "operation": "mix"}, {"stage": "output_without"}],
                },
                *self._mistake_blocks(),
                {"kind": "readout"},
                {"kind": "explanation"},
                {"kind": "checks"},
            ],
            limits={"decimals": 8},
            # One mask is drawn here; the mean over many is told in one row.
            disabled=["normalise", *(n for n in self._drawing() if n != "draw_1" or not self.training)],
        )

    # ------------------------------------------------------------ the mistakes

    def _mistake_blocks(self) -> list[dict[str, Any]]:
        items = {
            _NONE: [],
            _FACTOR: ["wrong", "wrong_expected"],
            _BEFORE: ["masked", "dropped_scores", "wrong_weights"],
            _NO_GRAD: ["runs_wrong", "runs_right"],
            _LEFT_ON: ["spread_wrong", "spread_right"],
        }[self.mistake]
        if not items or (self.mistake in (_FACTOR, _NO_GRAD) and self.inside):
            return []
        return [
            {"kind": "text", "text": "mistake"},
            {"kind": "grids", "items": [{"stage": stage} for stage in items]},
        ]

    def _with_mistake(self, result: Result, p: float) -> Result:
        """The mistake computed beside the right way, with the claim that it breaks."""
        given = self.matrices()
        right: Check
        if not self.training and self.mistake in (_FACTOR, _BEFORE):
            why = f"{self.mistake}: in evaluation nothing is dropped. Switch training on to see it."
            return _extended(result, {}, {"mistake": why}, [])
        if self.mistake == _FACTOR and not self.inside:
            told = divide_by_p(given["weights"], given["keep"], self.p)
            tensors = {"wrong": told.wrong, "wrong_expected": told.wrong_expected}
            right, wrong = told.right_check, told.wrong_check
            text = "Mistake: kept weights are divided by p. Only for p = 0.5 is that the same number."
        elif self.mistake == _BEFORE:
            trace = result.published["attention"]
            before = drop_before_softmax(trace.scaled, given["attention_keep"], self.p, allowed=trace.allowed)
            tensors = {
                "masked": before.masked,
                "dropped_scores": before.dropped_scores,
                "wrong_weights": before.wrong,
            }
            right, wrong = before.right_check, before.wrong_check
            text = (
                "Mistake: the scores are dropped, and softmax comes after. A dropped score is 0 and keeps "
                "its share; a dropped −∞ is −∞ · 0, not a number, and takes its row along."
            )
        elif self.mistake == _NO_GRAD and not self.inside:
            runs = no_grad_still_drops(given["weights"], self.p)
            tensors = {"runs_wrong": runs.wrong, "runs_right": runs.right}
            right, wrong = runs.right_check, runs.wrong_check
            text = "Mistake: torch.no_grad() turns gradients off, not dropout. model.eval() turns it off."
        elif self.mistake == _LEFT_ON:
            called = functional_still_drops(given["q"], given["k"], given["v"], self.p)
            tensors = {"spread_wrong": called.wrong_spread, "spread_right": called.right_spread}
            right, wrong = called.right_check, called.wrong_check
            text = (
                "Mistake: scaled_dot_product_attention(…, dropout_p=p) in evaluation. A function has no "
                "eval(); it drops whenever it is called. Each number is the spread of 20 runs."
            )
        else:
            return result
        checks = [(_named(wrong, "mistake"), 0), (_named(right, "right way"), 0)]
        return _extended(result, tensors, {"mistake": text}, checks)

    # ------------------------------------------------------------ what the buttons do

    def commands(self) -> dict[str, Callable[[], None]]:
        drawn = {f"draw_{n}": lambda n=n: self.draw(n) for n in _SAMPLES}
        return drawn | {
            "previous_mask": lambda: self._walk(-1),
            "next_mask": lambda: self._walk(1),
            "forget": lambda: self.set_trait("draws", ""),
            "normalise": self._normalise,
        }

    def draw(self, n: int = 1) -> None:
        """Draws `n` masks at random and adds them to `draws`; the last one becomes `keep`.

        Inside attention it draws one mask for its weights. A seed of the system's is used once and
        forgotten: what is kept is the masks.
        """
        seed = secrets.randbits(63)
        if self._shows_attention:
            self.attention_keep = sample_keep((3, 3), self.p, seed).double()
            return
        masks = sample_keep((n, self.weights.shape[0]), self.p, seed)
        with self._batch():
            self.draws = self.draws + as_text(masks)
            self.keep = masks[-1].double()

    def follow(self, name: str) -> None:
        if name == "mistake" and self.mistake != _NONE:
            # A mistake is made at its place, and the controls say where that is.
            self.inside = self.mistake in (_BEFORE, _LEFT_ON)
            self.training = self.mistake in (_FACTOR, _BEFORE)
        elif name == "mistake":
            base = self._base(self.preset)
            self.inside, self.training = base["inside"], base["training"]
        if name == "weights" and self.keep.shape != self.weights.shape:
            # More weights than before: the new ones are kept.
            keep = torch.ones(self.weights.shape[0])
            shared = min(len(keep), self.keep.shape[0])
            keep[:shared] = self.keep[:shared].clone().float()
            self.keep = keep
        if name == "p" or (name == "weights" and self._keys != self.weights.shape[0]):
            self.draws = ""  # they were drawn with another p, or over another number of keys

    def _apply(self, values: Mapping[str, Any]) -> None:
        # Several at once are not followed one by one, and the masks that were drawn must fit here too.
        p = self.p
        super()._apply(values)
        if "draws" not in values and (self.p != p or self.weights.shape[0] != self._keys):
            self.draws = ""

    def _drawing(self) -> list[str]:
        return [*(f"draw_{n}" for n in _SAMPLES), "forget", "previous_mask", "next_mask"]

    def _walk(self, by: int) -> None:
        """To the next mask in the order of counting, round and round."""
        bits = self.weights.shape[0]
        number = int("".join(str(int(bit)) for bit in self.keep.tolist()), 2)
        self.keep = [float(bit) for bit in f"{(number + by) % 2**bits:0{bits}b}"]

    def _normalise(self) -> None:
        total = self.weights.sum()
        if total > 0:
            self.weights = self.weights.clone() / total

    def still_stages(self) -> Iterator[Stage]:
        # A saved notebook and "copy all numbers" show what is on the screen.
        tensors = self._last.tensors if self._last else {}
        items = (item for block in self.view.layout_blocks for item in self._items(block))
        shown = {item["stage"] for item in items}
        specs = self.stages()
        for name, tensor in {**self.matrices(), **tensors}.items():
            if name in specs and name in shown:
                spec = specs[name]
                yield Stage(spec.get("title", name), tensor.double(), tuple(spec["axes"]), "")

    @staticmethod
    def _items(block: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
        """The stages of a block: grids have items, a table has columns."""
        return block.get("items") or block.get("columns") or ()


# Loaded in the thread that draws: matplotlib takes its time, and no number waits for it.
def _sums(table: MaskTableTrace, sample: SampleTrace | None) -> Drawable:
    from attnlab.widgets.dropout_plots import sum_plot

    return sum_plot(table, sample)


def _means(table: MaskTableTrace, sample: SampleTrace) -> Drawable:
    from attnlab.widgets.dropout_plots import mean_plot

    return mean_plot(table, sample)


def _zeros_stay(weights: Tensor, dropped: Tensor) -> Check:
    zero = weights == 0
    return Check(
        "weights of 0 stay 0",
        float(dropped[zero].abs().max()) if zero.any() else 0.0,
        0.0,
        f"{int(zero.sum())} weights that were 0 before dropout",
    )


def _close(difference: Tensor, weights: Tensor, p: float, draws: int) -> Check:
    # The exact standard error. The one of the sample is too small where a few draws agree by chance: nine
    # of ten kept at p = 0.5 would be as far away as 4 of them.
    error = weights * math.sqrt(p / ((1 - p) * draws))
    known = error > 0
    away = float((difference[known].abs() / error[known]).max()) if known.any() else 0.0
    return Check(
        "mean of the draws near the expectation",
        away,
        4.0,
        f"largest |mean − expectation| ÷ its exact standard error, weight · √(p ÷ ((1 − p) · draws)), "
        f"after {draws:,} draws; beyond 4 is very rare",
        counted="standard errors away at most",
    )


def _named(check: Check, prefix: str) -> Check:
    return Check(f"{prefix}: {check.name}", check.measured, check.bound, check.how, check.counted)


def _extended(
    result: Result,
    tensors: Mapping[str, Tensor],
    texts: Mapping[str, str],
    checks: Sequence[tuple[Check, int]],
) -> Result:
    return replace(
        result,
        tensors={**result.tensors, **tensors},
        texts={**result.texts, **texts},
        checks=[*result.checks, *checks],
    )


def _all_masks(keys: int, training: bool) -> str:
    return f"over {2**keys} masks" if training else "evaluation"
