"""One query told in detail: its row of every stage, and what each key contributes to its output."""

from dataclasses import dataclass

from jaxtyping import Float
from torch import Tensor

from attnlab.engine.attention import AttentionTrace
from attnlab.engine.trace import Trace, note

__all__ = ["RowTrace", "attention_row"]


@dataclass(frozen=True, eq=False)
class RowTrace(Trace):
    """The row of one query, key by key."""

    row_scores: Float[Tensor, "key"] = note("q · k")
    row_scaled: Float[Tensor, "key"] = note("q · k × scale")
    row_masked: Float[Tensor, "key"] = note("−∞ where not allowed")
    row_weights: Float[Tensor, "key"] = note("weight of each key, after dropout")
    row_weighted: Float[Tensor, "key d_v"] = note("weight × value")
    weight_sum: Float[Tensor, ""] = note("sum of the weights")
    row_output: Float[Tensor, "d_v"] = note("sum of the weighted values")


def attention_row(trace: AttentionTrace, query: int) -> RowTrace:
    """Row `query` of a trace without leading axes, with weightⱼ · vⱼ for each key j and the two sums.

    The terms use the weights after dropout, so they add up to `trace.output[query]` to rounding.
    Raises `ValueError` when there is no such query or the trace has leading axes.
    """
    if trace.scores.ndim != 2:
        raise ValueError(
            f"expected a trace of one head (query × key), got scores of shape {tuple(trace.scores.shape)}"
        )
    queries = trace.scores.shape[0]
    if not 0 <= query < queries:
        raise ValueError(f"query: expected 0 to {queries - 1}, got {query}")
    row_weights = trace.dropped[query].clone()
    row_weighted = row_weights[:, None] * trace.v
    return RowTrace(
        row_scores=trace.scores[query].clone(),
        row_scaled=trace.scaled[query].clone(),
        row_masked=trace.masked[query].clone(),
        row_weights=row_weights,
        row_weighted=row_weighted,
        weight_sum=row_weights.sum(),
        row_output=row_weighted.sum(dim=0),
    )
