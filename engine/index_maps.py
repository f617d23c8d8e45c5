"""Calls that only move elements: where did each come from? Asked of torch itself.

The call is run again on tensors that hold, in place of the numbers, the position of each element. What
comes out says where everything came from, for any such call, without a rule for each.
"""

from typing import Any

import torch
from torch import Tensor

from attnlab.engine.call import Call, Version

__all__ = ["CASTS", "MOVES", "is_move", "origin", "traced"]

MOVES = frozenset(
    """
    view reshape view_as reshape_as transpose permute contiguous clone detach chunk split
    tensor_split unbind cat stack hstack vstack getitem setitem select narrow index_select gather
    take unsqueeze squeeze expand expand_as flatten unflatten ravel movedim moveaxis T mT H mH flip
    roll rot90 repeat tile repeat_interleave broadcast_to tril triu diagonal to float double half
    bfloat16 type type_as cpu masked_select alias data split_with_sizes swapaxes squeeze_ unfold
    atleast_2d atleast_1d positive as_strided fliplr flipud hsplit vsplit dsplit dstack column_stack
    diag diag_embed take_along_dim adjoint pixel_shuffle
    """.split()
) | {"shared storage"}

CASTS = frozenset(
    """
    to float double half bfloat16 int long short char byte bool type type_as cpu contiguous clone
    detach alias data positive
    """.split()
)
MOVES |= CASTS


def origin(call: Call, output: int, index: tuple[int, ...]) -> tuple[Version, tuple[int, ...]] | None:
    """(version, index) of the element that ended up at `index`.

    None for one that the call put in itself (zeros of `tril`, the number of `x[i] = 0.5`), and where the call
    doesn't just move (see `is_move`).
    """
    if not is_move(call, output):
        return None
    if call.name in CASTS:
        return call.inputs[0], index
    sources, outputs = traced(call)
    position = int(outputs[output][index])
    if position == 0:
        return None
    position -= 1
    for version in sources:
        count = version.values.numel()
        if position < count:
            return version, _unravelled(position, version.shape)
        position -= count
    raise AssertionError("a position beyond every source")


def _unravelled(position: int, shape: tuple[int, ...]) -> tuple[int, ...]:
    # torch.unravel_index would load SymPy, for seconds, when the first number is asked for.
    places = []
    for size in reversed(shape):
        position, place = divmod(position, size)
        places.append(place)
    return tuple(reversed(places))


def is_move(call: Call, output: int) -> bool:
    """Does this call only move elements? Some forms of the calls in `MOVES` do more."""
    if call.name not in MOVES or not call.inputs:
        return False
    if any(version.note for version in call.inputs):  # what is kept is no longer what went in
        return False
    if call.name == "repeat_interleave":  # of repeats alone, it makes positions
        return len(call.args) + len(call.kwargs) > 1
    # x.view(dtype) reads the same bits as other numbers.
    made = next(version for version in call.outputs if version.output == output).values.dtype
    return call.name not in ("view", "view_as") or made == call.inputs[0].values.dtype


def traced(call: Call) -> tuple[list[Version], list[Tensor]]:
    """The moved inputs, and the positions that came out; computed once for each call."""
    known = getattr(call, "_traced", None)
    if known is None:
        known = _trace(call)
        call._traced = known  # type: ignore[attr-defined]
    return known


def _laid_out(positions: Tensor, version: Version) -> Tensor:
    """The positions where the numbers of `version` are in memory, and 0 in the rest of that memory."""
    values = version.values
    memory = torch.zeros(values.untyped_storage().nbytes() // values.itemsize, dtype=torch.float64)
    places = torch.arange(len(memory)).as_strided(values.shape, values.stride(), values.storage_offset())
    memory[places.flatten()] = positions.flatten()
    return memory.as_strided(values.shape, values.stride(), values.storage_offset())


def _trace(call: Call) -> tuple[list[Version], list[Tensor]]:
    sources: list[Version] = []
    start = 1  # 0 stands for a zero that comes from nowhere

    def positions(version: Version) -> Tensor:
        nonlocal start
        sources.append(version)
        count = version.values.numel()
        tensor = torch.arange(start, start + count, dtype=torch.float64).reshape(version.shape)
        start += count
        if call.name == "as_strided":  # it goes by the memory, so the positions must lie as the numbers do
            tensor = _laid_out(tensor, version)
        return tensor

    def replace(value: Any, moved: bool) -> Any:
        if isinstance(value, Version):
            return positions(value) if moved else value.values
        if isinstance(value, tuple | list):
            return type(value)(replace(item, moved) for item in value)
        return value

    # The first argument is moved (all of it, for a list); of `x[i] = y` also y. Others say where to.
    moved = {0, 2} if call.name == "setitem" else {0}
    everything = call.name in ("shared storage", "atleast_1d", "atleast_2d")
    args = [replace(value, everything or i in moved) for i, value in enumerate(call.args)]
    kwargs = {key: replace(value, key in ("input", "tensors")) for key, value in call.kwargs.items()}
    if call.name == "setitem":
        if not isinstance(call.args[2], Version):
            args[2] = 0
        call.function(*args)
        return sources, [args[0]]
    if call.name in ("view", "view_as"):
        # A view keeps the logical order; the positions are laid out anew, so they may need a reshape.
        shape = call.outputs[0].shape
        return sources, [args[0].reshape(shape)]
    result = call.function(*args, **kwargs)
    return sources, list(result) if isinstance(result, tuple | list) else [result]
