"""The memory behind tensors: whose it is, where a tensor lies in it, and what writing into it changes."""

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

__all__ = [
    "Geometry",
    "address_of",
    "changes_of",
    "geometry_of",
    "is_foreign",
    "overlaid",
    "same_numbers",
    "shared_storage",
]

Geometry = tuple[tuple[int, ...], tuple[int, ...], int]
"""Shape, strides and offset in a storage."""


def address_of(tensor: Tensor) -> int:
    """Where the storage begins; 0 for none. Also of memory that several storages share."""
    try:
        return tensor.untyped_storage().data_ptr()
    except (RuntimeError, NotImplementedError):
        return 0  # sparse


def geometry_of(tensor: Tensor) -> Geometry:
    """Where in its storage a tensor has its numbers."""
    return tensor.shape, tensor.stride(), int(tensor.storage_offset())


def changes_of(tensor: Tensor) -> int | None:
    """Torch's count of the changes to a storage; None in inference mode, where it doesn't count."""
    try:
        return tensor._version
    except RuntimeError:
        return None


def is_foreign(tensor: Tensor) -> bool:
    """Is its memory another's than torch's, which may write there unseen?"""
    try:
        return not tensor.untyped_storage().resizable()
    except (RuntimeError, NotImplementedError):
        return False  # sparse


def same_numbers(a: Tensor, b: Tensor) -> bool:
    """Are all numbers equal, NaN with NaN?"""
    return a.shape == b.shape and bool(((a == b) | ((a != a) & (b != b))).all())


def overlaid(own: Geometry, writes: Sequence[Geometry]) -> Tensor | None:
    """For each element of a view, which element of all that was written it holds now; −1 for none of them.

    The elements of the writes are counted on from one write to the next. None where nothing was hit.
    """
    positions = torch.full((max(map(_reach, [own, *writes])),), -1)
    start = 0
    for shape, strides, offset in writes:
        count = math.prod(shape)
        positions.as_strided(shape, strides, offset).copy_(torch.arange(start, start + count).reshape(shape))
        start += count
    source = positions.as_strided(*own).clone()
    return source if bool((source >= 0).any()) else None


def shared_storage(source: Tensor) -> Callable[..., Tensor]:
    """How a view looks after other views of its storage were written."""

    def function(before: Tensor, *written: Tensor) -> Tensor:
        all_written = torch.cat([part.flatten() for part in written])
        return torch.where(source >= 0, all_written[source.clamp(min=0)], before)

    return function


def _reach(geometry: Geometry) -> int:
    """One more than the last storage position that a view reads."""
    shape, strides, offset = geometry
    return offset + sum((size - 1) * stride for size, stride in zip(shape, strides, strict=True)) + 1
