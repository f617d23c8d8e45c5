"""Inputs of attention for tests: given shapes, or drawn by hypothesis."""

from dataclasses import dataclass

import torch
from hypothesis import strategies as st
from torch import Tensor

__all__ = ["COINCIDENCES", "DISTINCT", "Sizes", "masks_with_a_key", "seeds", "sizes", "tensors"]


@dataclass(frozen=True)
class Sizes:
    """Sizes of an attention problem; `leading` is (), (batch,) or (batch, head)."""

    leading: tuple[int, ...]
    queries: int
    keys: int
    d_k: int
    d_v: int

    @property
    def scores(self) -> tuple[int, ...]:
        return (*self.leading, self.queries, self.keys)

    def __str__(self) -> str:
        return "·".join(map(str, (*self.leading, self.queries, self.keys, self.d_k, self.d_v)))


# No two sizes are equal, so an axis that is taken for another cannot go unseen.
DISTINCT = Sizes((2, 3), 5, 7, 4, 6)

# Sizes that are equal by chance, where a wrong axis has the right shape.
COINCIDENCES = (
    Sizes((), 5, 7, 4, 6),
    Sizes((), 4, 4, 4, 4),
    Sizes((), 1, 1, 1, 1),
    Sizes((2,), 2, 2, 3, 2),
    Sizes((3,), 5, 3, 1, 2),
    Sizes((3, 3), 2, 4, 5, 3),
    Sizes((2, 2), 2, 2, 2, 2),
    Sizes((2, 1), 4, 3, 4, 3),
    Sizes((2, 3), 1, 7, 7, 1),
    Sizes((1, 1), 5, 1, 5, 5),
)


def tensors(
    of: Sizes, seed: int = 0, *, size: float = 1.0, dtype: torch.dtype = torch.float64, grad: bool = False
) -> tuple[Tensor, Tensor, Tensor]:
    """Normally distributed q, k and v with standard deviation `size`."""
    generator = torch.Generator().manual_seed(seed)
    shapes = ((of.queries, of.d_k), (of.keys, of.d_k), (of.keys, of.d_v))
    q, k, v = (
        (torch.randn(*of.leading, *shape, generator=generator, dtype=torch.float64) * size)
        .to(dtype)
        .requires_grad_(grad)
        for shape in shapes
    )
    return q, k, v


def masks_with_a_key(shape: tuple[int, ...], seed: int = 0) -> Tensor:
    """A random mask that leaves each query at least one key."""
    generator = torch.Generator().manual_seed(seed)
    mask = torch.rand(*shape, generator=generator) < 0.6
    forced = torch.randint(shape[-1], shape[:-1], generator=generator)
    return mask.scatter(-1, forced[..., None], True)


seeds = st.integers(0, 2**31 - 1)


@st.composite
def sizes(draw: st.DrawFn, *, leading: bool = True) -> Sizes:
    """Small sizes, each from 1; equal ones are likely enough."""
    axes = draw(st.lists(st.integers(1, 3), max_size=2)) if leading else []
    numbers = [draw(st.integers(1, 6)) for _ in range(4)]
    return Sizes(tuple(axes), *numbers)
