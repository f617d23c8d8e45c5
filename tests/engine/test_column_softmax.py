"""The softmax over the wrong axis: right shape, columns that sum to 1, and a check that says so."""

import math

import pytest
import torch

from attnlab.engine import attend, causal, softmax_over_columns
from helpers.inputs import COINCIDENCES, DISTINCT, Sizes, tensors


@pytest.mark.parametrize("of", [DISTINCT, *COINCIDENCES], ids=str)
def test_each_key_is_divided_among_the_queries(of: Sizes) -> None:
    trace = attend(*tensors(of))
    wrong = softmax_over_columns(trace)
    by_hand = trace.masked.exp() / trace.masked.exp().sum(dim=-2, keepdim=True)
    torch.testing.assert_close(wrong.column_weights, by_hand)
    assert wrong.column_weights.shape == trace.weights.shape
    torch.testing.assert_close(wrong.column_output, by_hand @ trace.v)
    square = trace.weights.shape[-1] == trace.weights.shape[-2] == 1  # a single weight is 1 either way
    assert wrong.check.holds is square


def test_scores_of_the_facts() -> None:
    q, k = torch.eye(2, dtype=torch.float64), torch.tensor([[1.0, 3], [2, 4]], dtype=torch.float64)
    trace = attend(q, k, q, scale=False)
    assert trace.scores.tolist() == [[1, 2], [3, 4]]
    right, other = 1 / (1 + math.e), 1 / (1 + math.exp(2))
    assert trace.weights.tolist() == [pytest.approx([right, 1 - right])] * 2
    wrong = softmax_over_columns(trace)
    assert wrong.column_weights.mT.tolist() == [pytest.approx([other, 1 - other])] * 2
    assert wrong.check.measured == pytest.approx(1 - 2 * other)


def test_a_key_that_nobody_may_read_has_no_such_weights() -> None:
    q, k, v = tensors(Sizes((), 3, 4, 2, 2))
    wrong = softmax_over_columns(attend(q, k, v, allowed=causal(3, 4, 0)))
    assert wrong.column_weights[:, 3].isnan().all()
    assert wrong.column_weights[:, :3].isfinite().all()
    assert not wrong.check.holds
