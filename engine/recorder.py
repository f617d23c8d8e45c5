"""Remembers which torch call, on which line, made each tensor from which tensors.

    with record() as tape:
        weights = (q @ k.mT).softmax(-1)
    tape.explain(weights, (1, 0))     # the formula with its numbers
    tape.gradient(weights, (1, 0))    # how much each earlier number matters

It works on any PyTorch code: nothing has to be declared, and nothing is slower when it is off.
Source: `torch.overrides.TorchFunctionMode`, PyTorch documentation, "Extending PyTorch".
"""

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from attnlab.engine.source import Place, Spot, spot

__all__ = ["Call", "Tape", "Version", "record"]

MAX_CLONED = 1_000_000
"""Tensors with more elements are kept by reference, with a note, so that memory is bounded."""

_TORCH = str(Path(torch.__file__).parent)
_HERE = __file__

# Reading a property makes no number; these say only what a tensor is.
_QUESTIONS = frozenset(
    """
    shape dtype device layout requires_grad grad grad_fn is_leaf ndim itemsize nbytes size dim
    stride numel is_floating_point is_complex is_contiguous storage_offset data_ptr untyped_storage
    element_size requires_grad_ retain_grad backward register_hook is_sparse is_cuda is_quantized
    is_nested names _version __len__ __repr__ __format__ __hash__ __bool__ __iter__ tolist item
    numpy __array__ __deepcopy__ __reduce_ex__ is_inference is_meta is_mps is_xpu
    """.split()
)
_RANDOM = frozenset(["dropout", "alpha_dropout", "feature_dropout", "dropout1d", "dropout2d", "dropout3d"])


@dataclass(eq=False, repr=False)
class Version:
    """One state of one tensor: in-place calls make new versions, history is never rewritten.

    `call` is None for tensors that came from outside; `output` is the position among its results.
    """

    kept: Tensor
    """Its numbers: a copy of the whole storage, shared by all versions that are views of it; see `values`."""
    view: tuple[tuple[int, ...], tuple[int, ...], int] | None
    """Shape, strides and offset in `kept`; None where `kept` is the tensor itself."""
    call: "Call | None" = None
    output: int = 0
    name: str = ""
    given_axes: tuple[str, ...] = ()
    by_reference: bool = False
    """True for more than a million elements: not copied, so a later in-place call can change them."""

    @property
    def values(self) -> Tensor:
        """The numbers, as they were when the version came to be."""
        with torch._C.DisableTorchFunction():
            return self.kept.detach() if self.view is None else self.kept.as_strided(*self.view)

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.kept.shape) if self.view is None else self.view[0]


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
    random_state: Tensor | None = None
    outputs: list[Version] = field(default_factory=list)

    @property
    def inputs(self) -> list[Version]:
        """The tensors that went in, in order."""
        return list(_versions((self.args, self.kwargs)))

    @property
    def spot(self) -> Spot:
        """Where it happened, in the source."""
        return spot(self.place)


class Tape(TorchFunctionMode):
    """What `record` remembers. Explanations and gradients are in `explain.py` and `gradient.py`."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[Call] = []
        self.inputs: list[Version] = []
        self._current: dict[int, tuple[Tensor, Version, int]] = {}
        self._copies: dict[tuple[int, int], Tensor] = {}
        self._last_writer: dict[int, tuple[Version, Tensor]] = {}

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Any,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        kwargs = kwargs or {}
        name, writes = _name_of(func)
        if name in _QUESTIONS:
            return func(*args, **kwargs)
        written = args[0] if writes else kwargs.get("out")
        writes = written is not None
        noted_args = tuple([self._note(value) for value in args])
        noted_kwargs = {key: self._note(value) for key, value in kwargs.items()} if kwargs else {}
        random = torch.get_rng_state() if name in _RANDOM else None
        result = func(*args, **kwargs)
        call = Call(name, func, noted_args, noted_kwargs, _place(), writes, random)
        if isinstance(written, Tensor):
            self._made(written, call, 0)
            self._last_writer[written.untyped_storage().data_ptr()] = (call.outputs[0], written)
        else:
            for position, tensor in enumerate((result,) if isinstance(result, Tensor) else _tensors(result)):
                known = self._current.get(id(tensor))
                # A call may give its input back (contiguous() of a contiguous tensor): nothing was made.
                if known is None or known[2] != tensor._version:
                    self._made(tensor, call, position)
        if call.outputs:
            self.calls.append(call)
        return result

    # ------------------------------------------------------------ reading

    def version(self, tensor: Tensor) -> Version:
        """The newest recorded version of a tensor. Raises `KeyError` when the tape has never seen it."""
        found = self._current.get(id(tensor))
        if found is None or found[0] is not tensor:
            raise KeyError(f"the tape has not seen this tensor of shape {tuple(tensor.shape)}")
        return found[1]

    def name(self, tensor: Tensor, name: str, axes: Sequence[str] = ()) -> None:
        """Names a tensor that comes from outside, and its axes, before or after it is used."""
        if axes and len(axes) != tensor.ndim:
            raise ValueError(f"{name}: expected {tensor.ndim} axis names, got {', '.join(axes)}")
        with torch._C.DisableTorchFunction():  # naming is no call of the program
            version = self._now(tensor)
        version.name = name
        version.given_axes = tuple(axes)

    def versions(self) -> Iterator[Version]:
        """Every recorded version: inputs first, then results in the order in which they were made."""
        yield from self.inputs
        for call in self.calls:
            yield from call.outputs

    # ------------------------------------------------------------ writing

    def _note(self, value: Any) -> Any:
        """An argument with versions in place of tensors."""
        if isinstance(value, Tensor):
            found = self._current.get(id(value))
            return found[1] if found is not None and found[2] == value._version else self._now(value)
        if isinstance(value, tuple | list):
            return tuple([self._note(item) for item in value])
        return value

    def _now(self, tensor: Tensor) -> Version:
        """The version of a tensor as it is now: known, new to the tape, or changed through another view."""
        found = self._current.get(id(tensor))
        if found is not None and found[2] == tensor._version:
            return found[1]
        if found is None:
            version = self._keep(tensor)
            self.inputs.append(version)
            return version
        return self._changed_elsewhere(tensor, found[1])

    def _changed_elsewhere(self, tensor: Tensor, before: Version) -> Version:
        """An in-place call on another view of the same storage changed this tensor too."""
        writer = self._last_writer.get(tensor.untyped_storage().data_ptr())
        version = self._keep(tensor)
        if writer is None or writer[0].call is None:
            self.inputs.append(version)  # changed outside of torch calls that could be seen
            return version
        written, view = writer
        call = Call(
            "shared storage", _shared_storage(view, tensor), (before, written), {}, writer[0].call.place
        )
        version.call = call
        version.name = before.name
        call.outputs.append(version)
        self.calls.append(call)
        return version

    def _made(self, tensor: Tensor, call: Call, position: int) -> None:
        version = self._keep(tensor)
        version.call = call
        version.output = position
        call.outputs.append(version)

    def _keep(self, tensor: Tensor) -> Version:
        storage = tensor.untyped_storage()
        key = (storage.data_ptr(), tensor._version)
        whole = storage.nbytes() // tensor.itemsize
        version = Version(tensor, None)
        if 0 < whole <= MAX_CLONED and tensor.layout == torch.strided:
            kept = self._copies.get(key)
            if kept is None or kept.dtype != tensor.dtype:
                kept = self._copies[key] = tensor.detach().as_strided((whole,), (1,), 0).clone()
            version.kept = kept
            version.view = (tuple(tensor.shape), tensor.stride(), int(tensor.storage_offset()))
        elif tensor.numel() <= MAX_CLONED:
            version.kept = tensor.detach().clone()
        else:
            version.by_reference = True
        # The tensor itself is held too: an id means nothing once its object is gone.
        self._current[id(tensor)] = (tensor, version, tensor._version)
        return version


@contextmanager
def record() -> Iterator[Tape]:
    """Records every torch call of the block. The tape can be read during the block and after it."""
    tape = Tape()
    with tape:
        yield tape


# Operator methods and in-place forms have the name of their function.
_OPERATORS = {"truediv": "div", "rtruediv": "rdiv", "itruediv": "div", "idiv": "div", "and": "bitwise_and"}
_OPERATORS |= {
    "or": "bitwise_or",
    "xor": "bitwise_xor",
    "invert": "bitwise_not",
    "radd": "add",
    "rmul": "mul",
}
_OPERATORS |= {"divide": "div", "true_divide": "div", "multiply": "mul", "subtract": "sub", "negative": "neg"}
_OPERATORS |= {
    "absolute": "abs",
    "clip": "clamp",
    "bmm": "matmul",
    "mm": "matmul",
    "mv": "matmul",
    "dot": "matmul",
}
_OPERATORS |= {
    "swapaxes": "transpose",
    "swapdims": "transpose",
    "t": "transpose",
    "concat": "cat",
    "special_expit": "sigmoid",
}
_KEPT = frozenset({"rsub", "rpow", "rmatmul", "rdiv"})
_names: dict[Any, tuple[str, bool]] = {}


def _name_of(func: Callable[..., Any]) -> tuple[str, bool]:
    """(name, writes into its first argument) of a torch function, method or property."""
    key = func
    known = _names.get(key)
    if known is not None:
        return known
    name = getattr(func, "__name__", str(func))
    writes = False
    if name == "__get__":
        name = getattr(getattr(func, "__self__", None), "__name__", "__get__")
    elif name in ("__setitem__", "__set__"):
        writes = True
        name = "setitem" if name == "__setitem__" else name
    elif name == "__getitem__":
        name = "getitem"
    elif name.startswith("__") and name.endswith("__") and name not in _QUESTIONS:
        name = name[2:-2]
        if name.startswith("i") and name[1:] in (
            "add",
            "sub",
            "mul",
            "truediv",
            "div",
            "pow",
            "and",
            "or",
            "xor",
        ):
            writes, name = True, name[1:]
    elif name.endswith("_") and not name.startswith("_") and name not in _QUESTIONS:
        writes, name = True, name[:-1]
    name = _OPERATORS.get(name, name)
    _names[key] = (name, writes)
    return name, writes


def _place() -> Place:
    """The innermost point of the program that is neither torch's nor ours."""
    frame: FrameType | None = sys._getframe(2)
    while frame is not None:
        file = frame.f_code.co_filename
        if not file.startswith(_TORCH) and file != _HERE:
            return Place(frame.f_code, frame.f_lasti)
        frame = frame.f_back
    raise RuntimeError("a torch call without a caller")


def _tensors(value: Any) -> Iterator[Tensor]:
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, tuple | list):
        for item in value:
            yield from _tensors(item)


def _versions(value: Any) -> Iterator[Version]:
    if isinstance(value, Version):
        yield value
    elif isinstance(value, tuple | list):
        for item in value:
            yield from _versions(item)
    elif isinstance(value, dict):
        for item in value.values():
            yield from _versions(item)


def _shared_storage(view: Tensor, tensor: Tensor) -> Callable[[Tensor, Tensor], Tensor]:
    """How `tensor` looks after `view` of the same storage was written: element by element of the storage."""
    with torch._C.DisableTorchFunction():
        size = max(_reach(view), _reach(tensor))
        positions = torch.full((size,), -1)
        positions.as_strided(view.shape, view.stride(), view.storage_offset()).copy_(
            torch.arange(view.numel()).reshape(view.shape)
        )
        source = positions.as_strided(tensor.shape, tensor.stride(), tensor.storage_offset()).clone()

    def function(before: Tensor, written: Tensor) -> Tensor:
        taken = written.flatten()[source.clamp(min=0).flatten()].reshape(source.shape)
        return torch.where(source >= 0, taken, before)

    return function


def _reach(tensor: Tensor) -> int:
    """One more than the last storage position that a tensor reads."""
    steps = zip(tensor.shape, tensor.stride(), strict=True)
    return int(tensor.storage_offset()) + sum((size - 1) * stride for size, stride in steps) + 1
