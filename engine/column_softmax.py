"""A mistake with the right shape: the softmax over the queries of a key, not over the keys of a query."""

from dataclasses import dataclass, field, replace

from jaxtyping import Float
from torch import Tensor

from attnlab.engine.attention import AttentionTrace
from attnlab.engine.checks import Check, rows_with_keys, sums_to_one
from attnlab.engine.trace import Trace, note

__all__ = ["ColumnSoftmaxTrace", "softmax_over_columns"]


@dataclass(frozen=True, eq=False)
class ColumnSoftmaxTrace(Trace):
    """Weights whose columns sum to 1, and what they make of the values."""

    column_weights: Float[Tensor, "*batch query key"] = note("softmax over query, the mistake")
    column_output: Float[Tensor, "*batch query d_v"] = note("column_weights · v")
    check: Check = field(kw_only=True)
    """Row sums 1: fails, unless the sums happen to be right."""


def softmax_over_columns(trace: AttentionTrace) -> ColumnSoftmaxTrace:
    """wᵢⱼ = exp(mᵢⱼ) ÷ Σᵣ exp(mᵣⱼ), with m the masked scores: each key divides 1 among the queries.

    A key that no query may read has no such weights (NaN). Source: `torch.Tensor.softmax`, PyTorch
    documentation; the right axis is Vaswani et al. 2017, equation 1.
    """
    column_weights = trace.masked.softmax(dim=-2)
    column_output = column_weights @ trace.v
    name = "mistake, softmax over columns: row sums 1"
    found = sums_to_one(column_weights, name, "sum of each of its rows over key", rows_with_keys(trace))
    return ColumnSoftmaxTrace(
        column_weights=column_weights,
        column_output=column_output,
        check=replace(found, stage="column_weights"),
    )
