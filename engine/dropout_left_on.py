"""Two famous ways to leave dropout on in evaluation, each run for real beside the right way.

Torch draws here, from its global generator, which is forked and seeded. Each trace has `wrong_check` and
`right_check`: the same claim, measured on the wrong and on the right runs. With p = 0 nothing is broken,
and the measured number says so.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from attnlab.engine.checks import Check
from attnlab.engine.sizes import MAX_SEED, require_whole
from attnlab.engine.trace import Trace, note
from attnlab.engine.weights import require_p, require_row

__all__ = ["FunctionalTrace", "NoGradTrace", "functional_still_drops", "no_grad_still_drops"]

MAX_RUNS = 1000


@dataclass(frozen=True, eq=False)
class NoGradTrace(Trace):
    """`nn.Dropout` run again and again: in training mode under no_grad, and after `.eval()`."""

    weights: Float[Tensor, "key"] = note("before dropout, sum 1")
    wrong: Float[Tensor, "run key"] = note("nn.Dropout in training mode, under no_grad")
    right: Float[Tensor, "run key"] = note("nn.Dropout after .eval()")
    wrong_spread: Float[Tensor, "key"] = note("largest − smallest over the runs")
    right_spread: Float[Tensor, "key"] = note("largest − smallest over the runs")
    right_check: Check = note("the claim, measured on right")
    wrong_check: Check = note("the claim, measured on wrong")


def no_grad_still_drops(
    weights: Float[Tensor, "key"], p: float, *, runs: int = 20, seed: int = 0
) -> NoGradTrace:
    """Mistake: "`torch.no_grad()` turns dropout off". It turns gradients off; `.eval()` turns dropout off.

    Torch draws here, with its global generator forked and seeded. Breaks: all runs give the same numbers.
    """
    require_p(p)
    require_row(weights)

    dropout = nn.Dropout(p)

    def under_no_grad() -> Tensor:
        with torch.no_grad():
            return dropout(weights)

    wrong = _runs(under_no_grad, runs, seed)
    dropout.eval()
    right = _runs(lambda: dropout(weights), runs, seed)

    return NoGradTrace(
        weights=weights.clone(),
        wrong=wrong,
        right=right,
        wrong_spread=_spread(wrong),
        right_spread=_spread(right),
        right_check=_same_check(right),
        wrong_check=_same_check(wrong),
    )


@dataclass(frozen=True, eq=False)
class FunctionalTrace(Trace):
    """Functional attention in evaluation, run again and again: p left on, and p only in training."""

    q: Float[Tensor, "query d_k"] = note("queries")
    k: Float[Tensor, "key d_k"] = note("keys")
    v: Float[Tensor, "key d_v"] = note("values")
    wrong: Float[Tensor, "run query d_v"] = note("dropout_p = p")
    right: Float[Tensor, "run query d_v"] = note("dropout_p = p if training else 0")
    wrong_spread: Float[Tensor, "query d_v"] = note("largest − smallest over the runs")
    right_spread: Float[Tensor, "query d_v"] = note("largest − smallest over the runs")
    right_check: Check = note("the claim, measured on right")
    wrong_check: Check = note("the claim, measured on wrong")


def functional_still_drops(
    q: Float[Tensor, "query d_k"],
    k: Float[Tensor, "key d_k"],
    v: Float[Tensor, "key d_v"],
    p: float,
    *,
    runs: int = 20,
    seed: int = 0,
) -> FunctionalTrace:
    """Mistake: `F.scaled_dot_product_attention(dropout_p=p)` in evaluation. A function has no `.eval()`.

    It drops whenever it is called, so it must be told `p if training else 0.0`. Torch draws here, with its
    global generator forked and seeded. Breaks: all runs give the same numbers.
    """
    require_p(p)
    fits = q.ndim == k.ndim == v.ndim == 2 and q.shape[1] == k.shape[1] and k.shape[0] == v.shape[0]
    if not fits or 0 in (*q.shape, *v.shape) or not q.dtype == k.dtype == v.dtype:
        raise ValueError(
            "q, k, v: expected query × d_k, key × d_k and key × d_v of one dtype, none empty; got "
            + ", ".join(f"{tuple(x.shape)} {x.dtype}" for x in (q, k, v))
        )

    training = False
    wrong = _runs(lambda: F.scaled_dot_product_attention(q, k, v, dropout_p=p), runs, seed)
    right = _runs(
        lambda: F.scaled_dot_product_attention(q, k, v, dropout_p=p if training else 0.0), runs, seed
    )

    return FunctionalTrace(
        q=q.clone(),
        k=k.clone(),
        v=v.clone(),
        wrong=wrong,
        right=right,
        wrong_spread=_spread(wrong),
        right_spread=_spread(right),
        right_check=_same_check(right),
        wrong_check=_same_check(wrong),
    )


def _runs(function: Callable[[], Tensor], runs: int, seed: int) -> Tensor:
    require_whole(runs, "runs", 2, MAX_RUNS)
    require_whole(seed, "seed", 0, MAX_SEED)
    # Torch's dropout draws from the global generator only; the caller's state comes back afterwards.
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        return torch.stack([function() for _ in range(runs)])


def _spread(runs: Tensor) -> Tensor:
    return runs.amax(dim=0) - runs.amin(dim=0)


def _same_check(runs: Tensor) -> Check:
    return Check(
        "all runs give the same numbers",
        _spread(runs).max().item(),
        0.0,
        f"largest − smallest over {runs.shape[0]} runs on the same input",
    )
