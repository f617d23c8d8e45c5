"""The trait of an editable matrix: one place that validates, stores and hands out its tensor."""

from typing import Any

import torch
import traitlets
from torch import Tensor

from attnlab.engine import MatrixError, parse_matrix, require_in_range
from attnlab.widgets.read_only import ReadOnlyTensor, read_only

__all__ = ["Matrix", "same_bits"]


class Matrix(traitlets.TraitType[ReadOnlyTensor, Any]):
    """A float64 matrix, read-only so that no change goes unnoticed.

    Takes a tensor, nested lists, a NumPy array, or text as `parse_matrix` reads it. Entries are
    finite, from −`limit` to `limit`; at most `max_size` rows and columns. `axes` names the two
    axes, `label` begins each message.
    """

    info_text = "a matrix of numbers"

    def __init__(
        self,
        *,
        label: str,
        axes: tuple[str, str],
        role: str,
        limit: float = 100.0,
        max_size: int = 16,
        **kwargs: Any,
    ) -> None:
        self.label = label
        self.axes = axes
        self.role = role
        self.limit = limit
        self.max_size = max_size
        super().__init__(**kwargs)

    def validate(self, obj: Any, value: Any) -> ReadOnlyTensor:
        limits: dict[str, Any] = {
            "name": self.label,
            "max_rows": self.max_size,
            "max_columns": self.max_size,
            "limit": self.limit,
        }
        if isinstance(value, ReadOnlyTensor) and value.dtype == torch.float64 and value.ndim == 2:
            require_in_range(value, **limits)
            return value
        if isinstance(value, str):
            return read_only(parse_matrix(value, **limits))
        if not isinstance(value, Tensor):
            try:
                value = torch.tensor(value, dtype=torch.float64)
            except (TypeError, ValueError, OverflowError) as error:
                raise MatrixError(
                    f"{self.label}: expected rows of numbers of equal length, got {error}"
                ) from None
        if value.is_complex():
            raise MatrixError(f"{self.label}: expected real numbers, got {value.dtype}")
        matrix = value.detach().to(torch.float64)
        require_in_range(matrix, **limits)
        return read_only(matrix)


def same_bits(a: Tensor, b: Tensor) -> bool:
    """Are two float64 matrices equal, −0 told apart from 0?"""
    with torch._C.DisableTorchFunctionSubclass():  # it is asked for every state of every drag
        return a is b or (a.shape == b.shape and torch.equal(a.view(torch.int64), b.view(torch.int64)))
