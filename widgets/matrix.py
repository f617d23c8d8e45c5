"""The trait of an editable matrix: one place that validates, stores and hands out its tensor."""

import math
import warnings
from typing import Any

import numpy as np
import torch
import traitlets
from numpy.exceptions import ComplexWarning
from torch import Tensor

from attnlab.engine import MatrixError, format_number, parse_matrices, parse_matrix, require_in_range
from attnlab.widgets.read_only import ReadOnlyTensor, plain, read_only
from attnlab.widgets.words import AXIS_NAMES

__all__ = ["Mask", "Matrix", "same_bits"]


class Matrix(traitlets.TraitType[ReadOnlyTensor, Any]):
    """A float64 matrix, read-only so that no change goes unnoticed.

    Takes a tensor, nested lists, a NumPy array, or text as `parse_matrix` reads it. Entries are
    finite, from −`limit` to `limit`; at most `max_size` along each axis, or one size for each. `axes` names
    the axes, `label` begins each message. With one axis it is a single row; with three, matrices that an
    empty row separates when they are text. With `shape` the shape is fixed, and may have any number of axes;
    as text its rows stand one after the other.
    """

    info_text = "a matrix of numbers"
    blank = 0.0
    """What a new row or column holds."""

    def __init__(
        self,
        *,
        label: str,
        axes: tuple[str, ...],
        role: str = "",
        shape: tuple[int, ...] | None = None,
        limit: float = 100.0,
        max_size: int | tuple[int, ...] = 16,
        **kwargs: Any,
    ) -> None:
        self.label = label
        self.axes = axes
        self.shape = shape
        self.role = role
        self.limit = limit
        self.max_sizes = max_size if isinstance(max_size, tuple) else (max_size,) * len(axes)
        super().__init__(**kwargs)

    def validate(self, obj: Any, value: Any) -> ReadOnlyTensor:
        if self.shape is not None:
            return self._shaped(value, self.shape)
        *_, max_rows, max_columns = (1, *self.max_sizes)
        limits: dict[str, Any] = {
            "name": self.label,
            "max_rows": max_rows,
            "max_columns": max_columns,
            "limit": self.limit,
        }
        if len(self.axes) == 1:
            return self._row(value, limits)
        if len(self.axes) == 3:
            return self._matrices(value, limits)
        if isinstance(value, ReadOnlyTensor) and value.dtype == torch.float64 and value.ndim == 2:
            require_in_range(plain(value), **limits)
            return value
        if isinstance(value, str):
            return read_only(parse_matrix(value, **limits))
        matrix = self._float64(value, "rows of numbers of equal length")
        require_in_range(matrix, **limits)
        return read_only(matrix)

    def _row(self, value: Any, limits: dict[str, Any]) -> ReadOnlyTensor:
        if isinstance(value, str):
            return read_only(parse_matrix(value, **limits)[0])
        row = self._float64(value, "a row of numbers")
        if row.ndim != 1:
            raise MatrixError(f"{self.label}: expected one row of numbers, got {row.ndim} axes")
        require_in_range(row[None], **limits)
        return read_only(row)

    def _matrices(self, value: Any, limits: dict[str, Any]) -> ReadOnlyTensor:
        most = self.max_sizes[0]
        if isinstance(value, str):
            part = AXIS_NAMES.get(self.axes[0], self.axes[0])
            return read_only(parse_matrices(value, part=part, max_matrices=most, **limits))
        tensor = self._float64(value, "rows of numbers of equal length")
        if tensor.ndim != 3:
            raise MatrixError(f"{self.label}: expected {' × '.join(self.axes)}, got {tensor.ndim} axes")
        if not 1 <= tensor.shape[0] <= most:
            raise MatrixError(
                f"{self.label}: expected 1 to {most} along {self.axes[0]}, got {tensor.shape[0]}"
            )
        for matrix in tensor:
            require_in_range(matrix, **limits)
        return _kept(value, tensor)

    def _shaped(self, value: Any, shape: tuple[int, ...]) -> ReadOnlyTensor:
        columns = shape[-1] if shape else 1
        rows = math.prod(shape) // columns
        limits: dict[str, Any] = {
            "name": self.label,
            "max_rows": rows,
            "max_columns": columns,
            "limit": self.limit,
        }
        if isinstance(value, str):
            matrix = parse_matrix(value, **limits)
            if matrix.shape != (rows, columns):
                raise MatrixError(
                    f"{self.label}: expected {rows} rows of {columns} numbers, "
                    f"got {matrix.shape[0]} of {matrix.shape[1]}"
                )
            return read_only(matrix.reshape(shape))
        tensor = self._float64(value, "rows of numbers of equal length")
        if tensor.shape != shape:
            wanted, came = (" × ".join(map(str, s)) for s in (shape, tensor.shape))
            raise MatrixError(f"{self.label}: expected a tensor of shape {wanted}, got {came}")
        require_in_range(tensor.reshape(rows, columns), **limits)
        return _kept(value, tensor)

    def _float64(self, value: Any, expected: str) -> Tensor:
        if isinstance(value, Tensor | np.ndarray) and "complex" in str(value.dtype):
            raise MatrixError(f"{self.label}: expected real numbers, got {value.dtype}")
        if isinstance(value, Tensor):
            return plain(value.detach()).to(torch.float64)
        try:
            with warnings.catch_warnings():
                # NumPy drops the imaginary part of its complex numbers, and only warns.
                warnings.simplefilter("error", ComplexWarning)
                # Not by way of float32, which lists become by themselves: 0.1 would be another number.
                return torch.tensor(value, dtype=torch.float64)
        except ComplexWarning:
            raise MatrixError(f"{self.label}: expected real numbers, got complex ones") from None
        except (TypeError, ValueError, OverflowError) as error:
            raise MatrixError(f"{self.label}: expected {expected}, got {error}") from None


def _kept(value: Any, tensor: Tensor) -> ReadOnlyTensor:
    """What was handed out before is shared; of anything else its float64 `tensor` is copied."""
    return value if isinstance(value, ReadOnlyTensor) and value.dtype == torch.float64 else read_only(tensor)


class Mask(Matrix):
    """A boolean matrix, written with 0 and 1; True = kept, or may read."""

    info_text = "a matrix of 0 and 1"
    blank = 1.0

    def validate(self, obj: Any, value: Any) -> ReadOnlyTensor:
        numbers = plain(super().validate(obj, value))
        wrong = numbers[(numbers != 0) & (numbers != 1)]
        if wrong.numel():
            raise MatrixError(f"{self.label}: expected only 0 and 1, got {format_number(float(wrong[0]))}")
        return read_only(numbers.bool())


def same_bits(a: Tensor, b: Tensor) -> bool:
    """Are two matrices equal, −0 told apart from 0?"""
    with torch._C.DisableTorchFunctionSubclass():  # it is asked for every state of every drag
        if a is b or a.shape != b.shape or a.dtype != b.dtype:
            return a is b
        return (
            torch.equal(a, b)
            if a.dtype == torch.bool
            else torch.equal(a.view(torch.int64), b.view(torch.int64))
        )
