"""One query told in detail: its numbers are the trace's, and its terms add up to the output."""

import dataclasses

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from attnlab.engine import AttentionTrace, RowTrace, attend, attention_row, causal
from helpers.attention_facts import by_name
from helpers.inputs import Sizes, masks_with_a_key, seeds, sizes, tensors
from helpers.oracles import attention_by_loops
from helpers.refusals import refused

DISTINCT = Sizes((), 5, 7, 4, 6)
FIELDS = tuple(field.name for field in dataclasses.fields(RowTrace))


def traced(of: Sizes = DISTINCT, **options: object) -> AttentionTrace:
    return attend(*tensors(of), **options)


def close(actual: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(actual, expected, rtol=1e-12, atol=1e-12, equal_nan=True)


@pytest.mark.parametrize("of", [DISTINCT, Sizes((), 4, 4, 4, 4), Sizes((), 1, 1, 1, 1)], ids=str)
@pytest.mark.parametrize("drop_p", [0.0, 0.25])
def test_against_loops(of: Sizes, drop_p: float) -> None:
    q, k, v = tensors(of, 2, grad=True)
    allowed = masks_with_a_key(of.scores, 3)
    keep = masks_with_a_key(of.scores, 4) if drop_p else None
    expected = attention_by_loops(q, k, v, factor=of.d_k**-0.5, allowed=allowed, keep=keep, drop_p=drop_p)
    trace = attend(q, k, v, allowed=allowed, keep=keep, drop_p=drop_p)
    for query in range(of.queries):
        row = attention_row(trace, query)
        close(row.row_scores, expected["scores"][query])
        close(row.row_scaled, expected["scores"][query] * of.d_k**-0.5)
        close(
            row.row_masked,
            (expected["scores"][query] * of.d_k**-0.5).masked_fill(~allowed[query], -torch.inf),
        )
        close(row.row_weights, expected["dropped"][query])
        terms = [float(w) * value for w, value in zip(expected["dropped"][query].detach(), v, strict=True)]
        close(row.row_weighted, torch.stack(terms))
        close(row.weight_sum, torch.tensor(sum(expected["dropped"][query].tolist()), dtype=torch.float64))
        close(row.row_output, expected["output"][query])
        ours = torch.autograd.grad(row.row_output.sin().sum(), (q, k, v), retain_graph=True)
        theirs = torch.autograd.grad(expected["output"][query].sin().sum(), (q, k, v), retain_graph=True)
        for a, b in zip(ours, theirs, strict=True):
            close(a, b)


@given(sizes(leading=False), seeds, st.data())
def test_the_terms_add_up_to_the_output(of: Sizes, seed: int, data: st.DataObject) -> None:
    query = data.draw(st.integers(0, of.queries - 1))
    trace = attend(*tensors(of, seed), allowed=masks_with_a_key(of.scores, seed))
    row = attention_row(trace, query)
    close(row.row_weighted.sum(dim=0), trace.output[query])
    close(row.row_output, trace.output[query])
    assert row.weight_sum.item() == pytest.approx(1, abs=1e-12)
    for ours, stage in (("scores",) * 2, ("scaled",) * 2, ("masked",) * 2, ("weights", "dropped")):
        assert torch.equal(getattr(row, f"row_{ours}"), getattr(trace, stage)[query])


def test_numbers_of_the_default_preset() -> None:
    preset = by_name("three positions, causal")
    q, k, v = (torch.tensor(rows, dtype=torch.float64) for rows in (preset.q, preset.k, preset.v))
    row = attention_row(attend(q, k, v, allowed=causal(3)), preset.query)
    expected = torch.tensor([[0.3302, 0], [0, 0.6698], [0, 0]], dtype=torch.float64)
    torch.testing.assert_close(row.row_weighted, expected, rtol=0, atol=5e-5)
    assert row.row_masked.tolist()[2] == -torch.inf


def test_dropout_changes_the_sum() -> None:
    zeros = torch.zeros(4, 2, dtype=torch.float64)
    keep = torch.tensor([[True, True, True, False]] * 4)
    row = attention_row(attend(zeros, zeros, zeros + 1, keep=keep, drop_p=0.5), 0)
    assert row.row_weights.tolist() == [0.5, 0.5, 0.5, 0]
    assert row.weight_sum.item() == 1.5
    assert row.row_output.tolist() == [1.5, 1.5]


def test_a_query_without_a_key_is_nan_and_its_neighbour_is_clean() -> None:
    trace = traced(Sizes((), 3, 2, 4, 6), allowed=causal(3, 2))
    empty, clean = attention_row(trace, 0), attention_row(trace, 1)
    for name in ("row_weights", "row_weighted", "weight_sum", "row_output"):
        assert getattr(empty, name).isnan().all()
        assert getattr(clean, name).isfinite().all()


@pytest.mark.parametrize("source", ["trace", "row"])
def test_own_storage(source: str) -> None:
    trace = traced(Sizes((), 3, 3, 3, 3))
    row = attention_row(trace, 1)
    fields = [getattr(row, name) for name in FIELDS]
    before = [tensor.clone() for tensor in fields]
    if source == "trace":
        for stage in trace.stages():
            stage.tensor.logical_not_() if stage.tensor.dtype == torch.bool else stage.tensor.zero_()
        assert all(map(torch.equal, fields, before))
    else:
        kept = [stage.tensor.clone() for stage in trace.stages()]
        for changed in range(len(fields)):
            fields[changed].add_(1)
            for i, tensor in enumerate(fields):
                assert torch.equal(tensor, before[i] + (i <= changed))
        assert all(map(torch.equal, (stage.tensor for stage in trace.stages()), kept))


@pytest.mark.parametrize("query", [-1, 5, 99])
def test_no_such_query(query: int) -> None:
    with refused("query:", "0 to 4", f"got {query}"):
        attention_row(traced(), query)


@pytest.mark.parametrize("leading", [(1,), (2, 3)])
def test_a_trace_of_several_heads(leading: tuple[int, ...]) -> None:
    with refused("one head", "query × key", f"got scores of shape {(*leading, 5, 7)}"):
        attention_row(traced(Sizes(leading, 5, 7, 4, 6)), 0)
