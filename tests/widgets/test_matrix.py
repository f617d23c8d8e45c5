"""The trait of a matrix: what it takes, what it refuses, what it hands out."""

from typing import Any

import numpy as np
import pytest
import torch
import traitlets

from attnlab.engine import MatrixError
from attnlab.widgets.matrix import Matrix, same_bits
from attnlab.widgets.read_only import ReadOnlyTensor, read_only


class Holder(traitlets.HasTraits):
    m = Matrix(label="M", axes=("row", "column"), role="key")
    small = Matrix(label="S", axes=("row", "column"), role="key", limit=1.5, max_size=2)
    stack = Matrix(label="X", axes=("batch", "time", "width"), max_size=(2, 3, 4))


@pytest.mark.parametrize(
    "value",
    [
        [[1, 2.5], [-3, 0]],
        ((1, 2.5), (-3, 0)),
        "1 2.5; -3 0",
        torch.tensor([[1, 2.5], [-3, 0]]),
        torch.tensor([[1, 2.5], [-3, 0]], dtype=torch.float16),
        torch.tensor([[1, 2.5], [-3, 0]], requires_grad=True),
        torch.tensor([[1, -3], [2.5, 0]]).mT,
        np.array([[1, 2.5], [-3, 0]]),
        np.array([[1, 2.5], [-3, 0]], dtype=np.float32, order="F"),
        read_only(torch.tensor([[1, 2.5], [-3, 0]])),
        torch.nn.Parameter(torch.tensor([[1, 2.5], [-3, 0]])),
    ],
    ids=lambda value: type(value).__name__,
)
def test_taken(value: Any) -> None:
    holder = Holder(m=value)
    assert type(holder.m) is ReadOnlyTensor
    assert holder.m.dtype == torch.float64
    assert not holder.m.requires_grad
    assert holder.m.tolist() == [[1, 2.5], [-3, 0]]


@pytest.mark.parametrize(
    "value", [[[True, False]], torch.tensor([[1, 0]]), np.array([[1, 0]], dtype=np.uint8)]
)
def test_whole_numbers_become_float64(value: Any) -> None:
    assert Holder(m=value).m.tolist() == [[1.0, 0.0]]


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ([[1, 2], [3]], "M: expected rows of numbers of equal length"),
        ([1, 2], "M: expected rows and columns, got a tensor of 1 axes"),
        (5, "M: expected rows and columns, got a tensor of 0 axes"),
        ([[[1]]], "M: expected rows and columns, got a tensor of 3 axes"),
        ([], "M: expected rows and columns"),
        ([[]], "M: expected 1 to 16 rows and 1 to 16 columns, got 1 × 0"),
        (torch.zeros(17, 1), "got 17 × 1"),
        (torch.zeros(1, 17), "got 1 × 17"),
        ([[1, 2], [3, float("nan")]], "M row 2, column 2: expected a number from −100 to 100, got nan"),
        ([[float("inf")]], "M row 1, column 1"),
        ([[-100.00001]], "M row 1, column 1"),
        ([[10**400]], "M: expected rows of numbers"),
        (torch.zeros(2, 2, dtype=torch.complex64), "M: expected real numbers, got torch.complex64"),
        ([[1j]], "M: expected rows of numbers"),
        (np.array([[1j, 2]]), "M: expected real numbers, got complex"),
        (np.array([[1, 2]], dtype=np.complex64), "M: expected real numbers, got complex"),
        ([[np.complex64(1j)]], "M: expected real numbers, got complex"),
        (None, "M: expected rows of numbers"),
        ({}, "M: expected rows of numbers"),
        ([["1"]], "M: expected rows of numbers"),
        (np.array([[None]]), "M: expected rows of numbers"),
        (object(), "M: expected rows of numbers"),
        ("", "M is empty"),
        ("1 2; 3", "M row 2 has 1 number; row 1 has 2"),
    ],
)
def test_refused(value: Any, words: str) -> None:
    holder = Holder(m=[[7]])
    with pytest.raises(MatrixError) as caught:
        holder.m = value
    assert words in str(caught.value)
    assert holder.m.tolist() == [[7]]


def test_limits_of_its_own() -> None:
    assert Holder(small=[[1.5, -1.5]]).small.tolist() == [[1.5, -1.5]]
    for value in ([[1.6]], "1.6", torch.tensor([[1.6]])):
        with pytest.raises(MatrixError, match=r"S row 1, column 1: expected a number from −1\.5 to 1\.5"):
            Holder(small=value)
    for value in ("1;1;1", [[1]] * 3):
        with pytest.raises(MatrixError, match="S: expected 1 to 2 rows and 1 to 2 columns, got 3 × 1"):
            Holder(small=value)


@pytest.mark.parametrize(
    "value",
    [
        [[[1, 2], [3, 4]], [[5, 6], [7, 8]]],
        "1 2; 3 4;; 5 6; 7 8",
        torch.arange(1.0, 9).reshape(2, 2, 2),
        np.arange(1, 9).reshape(2, 2, 2),
    ],
)
def test_three_axes_are_taken(value: Any) -> None:
    holder = Holder(stack=value)
    assert holder.stack.dtype == torch.float64
    assert holder.stack.tolist() == [[[1, 2], [3, 4]], [[5, 6], [7, 8]]]
    assert Holder(stack=holder.stack).stack is holder.stack


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ([[1, 2]], "X: expected batch × time × width, got 2 axes"),
        (np.array([[[1j]]]), "X: expected real numbers, got complex"),
        (torch.zeros(3, 1, 1), "X: expected 1 to 2 along batch, got 3"),
        (torch.zeros(0, 1, 1), "X: expected 1 to 2 along batch, got 0"),
        (torch.zeros(1, 4, 1), "X: expected 1 to 3 rows and 1 to 4 columns, got 4 × 1"),
        (torch.full((1, 1, 1), 101.0), "X row 1, column 1: expected a number from −100 to 100, got 101"),
        ("1;;2;;3", "X: expected at most 2 × batch, got 3"),
        ("1 2;;3", "X batch 2: expected 1 × 2 numbers as in batch 1, got 1 × 1"),
    ],
)
def test_three_axes_are_refused(value: Any, words: str) -> None:
    with pytest.raises(MatrixError) as caught:
        Holder(stack=value)
    assert words in str(caught.value)


def test_special_values_are_kept_exactly() -> None:
    values = [[-0.0, 5e-324, -5e-324, 2.2250738585072014e-308, 0.1, 100.0, -100.0]]
    assert same_bits(Holder(m=values).m, torch.tensor(values, dtype=torch.float64))


def test_a_read_only_matrix_is_shared_not_copied() -> None:
    first = Holder(m=[[1, 2]])
    assert Holder(m=first.m).m is first.m


@pytest.mark.parametrize(
    ("a", "b", "same"),
    [
        ([[1, 2]], [[1, 2]], True),
        ([[0.0]], [[-0.0]], False),
        ([[1, 2]], [[1], [2]], False),
        ([[1, 2]], [[1, 2 + 2**-51]], False),
    ],
)
def test_same_bits(a: list, b: list, same: bool) -> None:
    one, other = (torch.tensor(x, dtype=torch.float64) for x in (a, b))
    assert same_bits(one, other) is same
    assert same_bits(read_only(one), read_only(other)) is same
    assert same_bits(read_only(one), other) is same
    columns = torch.stack([other, other], -1)[..., 0]  # not contiguous
    assert same_bits(one, columns) is same
