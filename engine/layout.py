"""How a tensor lies in memory: shape, strides, offset, and the strip of numbers behind them.

Everything is read from the tensor itself; nothing is worked out from what the operation ought to do.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from attnlab.engine.sizes import require_whole

__all__ = ["Layout", "Offset", "OffsetTerm", "layout", "offset_of", "storage_strip"]


@dataclass(frozen=True)
class Layout:
    """What torch says about a tensor.

    `stride` and `storage_offset` count elements, not bytes.
    """

    shape: tuple[int, ...]
    stride: tuple[int, ...]
    storage_offset: int
    contiguous: bool


@dataclass(frozen=True)
class OffsetTerm:
    """One axis of an offset: index · stride."""

    index: int
    stride: int

    @property
    def product(self) -> int:
        return self.index * self.stride


@dataclass(frozen=True)
class Offset:
    """Where in the storage strip one element is: `start` + Σ index · stride."""

    start: int
    terms: tuple[OffsetTerm, ...]

    @property
    def total(self) -> int:
        return self.start + sum(term.product for term in self.terms)

    @property
    def text(self) -> str:
        """The sum with its numbers: `0 + 1·24 + 2·2 + 2·8 + 1·1 = 45`."""
        terms = [str(self.start), *(f"{term.index}·{term.stride}" for term in self.terms)]
        return f"{' + '.join(terms)} = {self.total}"


def layout(tensor: Tensor) -> Layout:
    """Shape, strides, offset and contiguity of a tensor.

    Source: PyTorch documentation, `torch.Tensor.stride` and "Tensor Views".
    """
    return Layout(tuple(tensor.shape), tensor.stride(), int(tensor.storage_offset()), tensor.is_contiguous())


def offset_of(tensor: Tensor, index: tuple[int, ...]) -> Offset:
    """storage_offset + Σ index · stride, term by term.

    Raises `ValueError` where `index` has another number of places than the tensor has axes, or leaves it.
    """
    if len(index) != tensor.ndim:
        raise ValueError(f"expected an index of {tensor.ndim} places, one for each axis, got {len(index)}")
    for axis, (place, size) in enumerate(zip(index, tensor.shape, strict=True)):
        require_whole(place, f"index on axis {axis}", 0, size - 1)
    terms = tuple(OffsetTerm(i, stride) for i, stride in zip(index, tensor.stride(), strict=True))
    return Offset(int(tensor.storage_offset()), terms)


def storage_strip(tensor: Tensor) -> Tensor:
    """All numbers of the storage in the order of memory, as a tensor of one axis, of its own.

    They may be more than the tensor shows.
    """
    size = tensor.untyped_storage().nbytes() // tensor.itemsize
    return torch.as_strided(tensor.detach(), (size,), (1,), 0).clone()
