"""Call and Version: what a recording is made of."""

import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from types import MethodDescriptorType, WrapperDescriptorType
from typing import Any, TypeVar

import torch
from torch import Tensor

from attnlab.engine.memory import Geometry, changes_of
from attnlab.engine.source import Place, Spot, spot

__all__ = ["MAX_CLONED", "Call", "Version", "each"]

Kind = TypeVar("Kind")

MAX_CLONED = 1_000_000
"""Tensors with more elements are kept by reference, with a note, so that memory is bounded."""

# What they give back is a tuple, also when there is one tensor in it.
_LISTING = frozenset(["multi_head_attention_forward", "_native_multi_head_attention"])
_COMPARISONS = frozenset(["lt", "le", "gt", "ge", "eq", "ne"])
_METHODS = (MethodDescriptorType, WrapperDescriptorType)


@dataclass(eq=False, repr=False)
class Version:
    """One state of one tensor: in-place calls make new versions, history is never rewritten.

    `call` is None for tensors that came from outside; `output` is the position among its results.
    """

    kept: Tensor
    """Its numbers: a copy of the whole storage, shared by all versions that are views of it; see `values`."""
    view: Geometry | None
    """Where in `kept`; None where `kept` is the tensor itself."""
    call: "Call | None" = None
    output: int = 0
    name: str = ""
    given_axes: tuple[str, ...] = ()
    unrecorded: str = ""
    """What is known of a tensor that the program made, or changed, without a call that could be recorded."""
    by_reference: bool = False
    """True for more than a million elements: not copied, so a later in-place call can change them."""
    changes: int | None = None
    """Torch's count of the changes to what is kept by reference, when the version came to be."""

    def __repr__(self) -> str:
        names = self.call.spot.names if self.call is not None else ()
        name = self.name or next((n for n in names if n), "") or (self.call.name if self.call else "input")
        return f"<{name} {' × '.join(map(str, self.shape)) or 'a single number'}>"

    @property
    def values(self) -> Tensor:
        """The numbers, as they were when the version came to be."""
        with torch._C.DisableTorchFunction():
            return self.kept.detach() if self.view is None else self.kept.as_strided(*self.view)

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.kept.shape if self.view is None else self.view[0])

    @property
    def note(self) -> str:
        """What has to be said of the numbers, if anything."""
        if self.by_reference and changes_of(self.kept) != self.changes:
            return f"more than {MAX_CLONED:,} numbers are not copied, and these were changed since"
        return ""

    def number(self, place: tuple[int, ...]) -> float:
        """One of the values."""
        if self.view is None:
            return float(self.kept[place])
        _, strides, offset = self.view
        flat = self.kept if self.kept.ndim == 1 else self.kept.view(-1)
        return float(flat[offset + sum(i * stride for i, stride in zip(place, strides, strict=True))])

    def place(self, index: Sequence[int]) -> tuple[int, ...]:
        """`index` as numbers. Raises `IndexError` where there is no such place."""
        try:
            place = tuple(operator.index(i) for i in index)
        except TypeError:
            raise IndexError(f"expected whole numbers as a place, got {tuple(index)}") from None
        shape = self.shape
        if len(place) != len(shape) or any(not 0 <= i < n for i, n in zip(place, shape, strict=True)):
            raise IndexError(
                f"expected a place in {' × '.join(map(str, shape)) or 'a single number'}, got {place}"
            )
        return place


@dataclass(eq=False, repr=False)
class Call:
    """One torch call. Tensors in `args` and `kwargs` stand as the versions that went in."""

    name: str
    """As in PyTorch, without the underscores of in-place and operator forms: `matmul`, `masked_fill`."""
    function: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    place: Place
    in_place: bool = False
    within: str = ""
    """The `torch.autograd.Function` it happened in, whose gradient is another than that of its calls."""
    random_state: Tensor | None = None
    inside: int = 0
    """Which run of a function of torch's own it is a step of; 0 for what the program calls by itself."""
    preparing: bool = False
    """Is it a step of making a module of torch's own? Then no variable of the program holds its result."""
    differentiated: bool = True
    """False under `torch.no_grad()` and in inference mode."""
    autocast: torch.dtype | None = None
    """To what `torch.autocast` takes some calls on the CPU, where it is on."""
    passed: tuple[Place, ...] = ()
    """Where later calls gave its result back as it was: in `y = (x * 2).to(dtype)` the product is y."""
    outputs: list[Version] = field(default_factory=list)

    @property
    def inputs(self) -> list[Version]:
        """The tensors that went in, in order."""
        return list(each(Version, (*self.args, *self.kwargs.values())))

    @cached_property
    def spot(self) -> Spot:
        """Where it happened, in the source. Read once, so that it stays what it was when first asked for."""
        own = self._own_spot()
        if self.passed and not own.names and len(self.outputs) == 1 and not self.preparing:
            for later in map(spot, self.passed):
                if later.names or later.returned:
                    named = {n: getattr(later, n) for n in ("names", "returned", "part", "each")}
                    return replace(own, **named)
        return own

    def _own_spot(self) -> Spot:
        found = spot(self.place, len(self.outputs), listed=self.name in _LISTING)
        method = getattr(self.function, "__name__", "") if isinstance(self.function, _METHODS) else ""
        # What `max(a, b)` or `sorted(rows)` of Python ask in between is not what the line is about.
        asked = found.calls and method in _COMPARISONS and f"{method}(" not in found.text
        if self.preparing or asked:
            return replace(found, names=(), returned=False, each=())
        if not self.in_place or found.names:
            return found
        # `x.relu_()` changes x, and so does `F.relu_(x)`: the source alone can't tell F from a tensor.
        own = method == "__setitem__" or (method and f".{method}(" in found.text)
        name = found.written[0 if own else 1]
        return replace(found, names=(name,)) if name else found

    def before(self, output: int) -> Version | None:
        """Of a call that writes: the state that the result at `output` is the next one of; else None."""
        if self.name == "shared storage":
            return self.inputs[0]
        return self.inputs[output] if self.in_place and output < len(self.inputs) else None


def each(kind: type[Kind], value: Any) -> Iterator[Kind]:
    """What there is of a kind in an argument or a result: itself, or in a list or tuple, however deep."""
    if isinstance(value, kind):
        yield value
    elif isinstance(value, tuple | list):
        for item in value:
            yield from each(kind, item)
