"""A chain of tensor operations with torch's real outcome: a view, a copy, or torch's own error."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from attnlab.engine.chain_text import MAX_AXES, MAX_OPERATIONS, Operation
from attnlab.engine.layout import Layout, layout
from attnlab.engine.sizes import require_whole
from attnlab.engine.trace import Stage

__all__ = ["READY_CHAINS", "ChainResult", "ChainStep", "ReadyChain", "changed_by_writing", "run_chain"]

MAX_ELEMENTS = 96


@dataclass(frozen=True, eq=False)
class ChainStep:
    """One stage of a chain: the tensor to begin with (`operation` None), or what an operation made of it.

    `name` is `start`, `step1`, `step2` …
    `outcome` is "start", "view" (shares the storage of the stage before), "copy" (a storage of its own) or
    "error"; then `error` is torch's text, unchanged, and there is no tensor. `is_same_tensor` says that torch
    gave back the very tensor it was given. `shares_with` are the numbers of the earlier stages on the same
    storage, where the first stage is 0.
    """

    name: str
    operation: Operation | None
    tensor: Tensor | None
    outcome: str
    error: str = ""
    is_same_tensor: bool = False
    shares_with: tuple[int, ...] = ()

    @property
    def layout(self) -> Layout | None:
        return None if self.tensor is None else layout(self.tensor)


@dataclass(frozen=True, eq=False)
class ChainResult:
    """Every stage of a chain, the first being what it started from. After an error there are no more.

    Unlike in a trace, the tensors do share memory where torch made views: that is what is shown.
    """

    steps: tuple[ChainStep, ...]

    @property
    def error(self) -> str:
        """Torch's text, if an operation failed, else empty."""
        return self.steps[-1].error

    def tensors(self) -> tuple[Tensor, ...]:
        """The tensors of all stages that came to be."""
        return tuple(step.tensor for step in self.steps if step.tensor is not None)

    def stages(self) -> Iterator[Stage]:
        """The tensors that came to be, under the names of their steps. Their axes have numbers, no names."""
        for step in self.steps:
            if step.tensor is not None:
                axes = tuple(f"axis{axis}" for axis in range(step.tensor.ndim))
                yield Stage(step.name, step.tensor, axes, str(step.operation or "in the order of memory"))


@dataclass(frozen=True)
class ReadyChain:
    """A chain worth looking at: its start, its operations as text, and an element to follow."""

    name: str
    start: tuple[int, ...]
    text: str
    index: tuple[int, ...]
    """The place of an element in the start."""


READY_CHAINS: tuple[ReadyChain, ...] = (
    ReadyChain(
        "view of transposed heads", (1, 3, 4), "reshape(1,3,2,2) | transpose(1,2) | view(1,3,4)", (0, 0, 2)
    ),
    ReadyChain("reshape copies", (1, 3, 4), "reshape(1,3,2,2) | transpose(1,2) | reshape(1,3,4)", (0, 0, 2)),
    ReadyChain(
        "contiguous, then view",
        (1, 3, 4),
        "reshape(1,3,2,2) | transpose(1,2) | contiguous() | view(1,3,4)",
        (0, 0, 2),
    ),
    ReadyChain(
        "there and back",
        (1, 3, 4),
        "view(1,3,2,2) | transpose(1,2) | transpose(1,2) | view(1,3,4)",
        (0, 0, 2),
    ),
    ReadyChain("heads of 2 · 3 · 2", (1, 2, 3, 2), "transpose(1,2) | view(1,3,4)", (0, 1, 0, 0)),
    ReadyChain("one head", (1, 1, 3, 2), "transpose(1,2) | view(1,3,2)", (0, 0, 1, 0)),
    ReadyChain("one position", (1, 2, 1, 2), "transpose(1,2) | view(1,1,4)", (0, 1, 0, 1)),
    ReadyChain(
        "four heads, strides", (2, 3, 8), "reshape(2,3,4,2) | transpose(1,2) | contiguous()", (1, 2, 5)
    ),
    ReadyChain("flatten a transpose", (3, 4), "transpose(0,1) | flatten()", (1, 2)),
    ReadyChain("permute three axes", (2, 3, 4), "permute(2,0,1) | contiguous() | view(8,3)", (1, 2, 3)),
)
"""The famous cases. What torch makes of them isn't written here: run them."""


def run_chain(start_shape: Sequence[int], operations: Sequence[Operation]) -> ChainResult:
    """Runs the operations, one after the other, on the numbers 0, 1, 2 … (float64) in `start_shape`.

    Limits: 1 to 5 axes, at most 96 elements, at most 8 operations. An operation that torch refuses is no
    error here: it is the last step, with torch's own text.

    Raises `ValueError` for a start beyond the limits, or too many operations.
    """
    _require_start(start_shape)
    if len(operations) > MAX_OPERATIONS:
        raise ValueError(f"chain: expected at most {MAX_OPERATIONS} operations, got {len(operations)}")
    start = torch.arange(math.prod(start_shape), dtype=torch.float64).reshape(tuple(start_shape))
    steps = [ChainStep("start", None, start, "start")]
    tensor = start
    for number, operation in enumerate(operations, start=1):
        name = f"step{number}"
        try:
            made = _applied(tensor, operation)
        except (RuntimeError, IndexError) as refusal:
            steps.append(ChainStep(name, operation, None, "error", str(refusal)))
            break
        shares_with = tuple(i for i, step in enumerate(steps) if _share(step.tensor, made))
        outcome = "view" if len(steps) - 1 in shares_with else "copy"
        steps.append(ChainStep(name, operation, made, outcome, "", made is tensor, shares_with))
        tensor = made
    return ChainResult(tuple(steps))


def changed_by_writing(
    start_shape: Sequence[int], operations: Sequence[Operation], stage: int, index: tuple[int, ...]
) -> tuple[tuple[tuple[int, ...], ...], ...]:
    """For each stage, the places that changed when one element of `stage` was written.

    The chain is run once more, −1 (which no element is) is written, and every stage is compared with what
    it was: nothing is concluded from strides.

    Raises `ValueError` where there is no such stage or place.
    """
    tensors = run_chain(start_shape, operations).tensors()
    require_whole(stage, "stage", 0, len(tensors) - 1)
    written = tensors[stage]
    if len(index) != written.ndim:
        raise ValueError(f"expected an index of {written.ndim} places, one for each axis, got {len(index)}")
    for axis, (place, size) in enumerate(zip(index, written.shape, strict=True)):
        require_whole(place, f"index on axis {axis}", 0, size - 1)
    before = [tensor.clone() for tensor in tensors]
    written[index] = -1.0
    return tuple(
        tuple(tuple(place) for place in (tensor != old).nonzero().tolist())
        for tensor, old in zip(tensors, before, strict=True)
    )


def _applied(tensor: Tensor, operation: Operation) -> Tensor:
    # Written out, so that the line that ran is the line a reader would write.
    numbers = operation.arguments
    match operation.name:
        case "reshape":
            return tensor.reshape(*numbers)
        case "view":
            return tensor.view(*numbers)
        case "transpose":
            return tensor.transpose(*numbers)
        case "permute":
            return tensor.permute(*numbers)
        case "contiguous":
            return tensor.contiguous()
        case _:
            return tensor.flatten(*numbers)


def _share(one: Tensor | None, other: Tensor) -> bool:
    return one is not None and one.untyped_storage().data_ptr() == other.untyped_storage().data_ptr()


def _require_start(shape: Sequence[int]) -> None:
    if not 1 <= len(shape) <= MAX_AXES:
        raise ValueError(f"start: expected 1 to {MAX_AXES} axes, got {len(shape)}")
    for axis, size in enumerate(shape):
        require_whole(size, f"start, axis {axis}", 1, MAX_ELEMENTS)
    if math.prod(shape) > MAX_ELEMENTS:
        told = " × ".join(map(str, shape))
        raise ValueError(
            f"start: expected at most {MAX_ELEMENTS} elements, got {math.prod(shape):,} in {told}"
        )
