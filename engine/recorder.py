"""Remembers which torch call, on which line, made each tensor from which tensors.

    with record() as tape:
        weights = (q @ k.mT).softmax(-1)
    explain(tape, weights, (1, 0))     # the formula with its numbers
    gradient(tape, weights, (1, 0))    # how much each earlier number matters

It works on any PyTorch code: nothing has to be declared, and nothing is slower when it is off.
Source: `torch.overrides.TorchFunctionMode`, PyTorch documentation, "Extending PyTorch".
"""

import contextlib
import gc
import math
import operator
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from types import CodeType, FrameType, MethodDescriptorType, WrapperDescriptorType
from typing import TYPE_CHECKING, Any

import jaxtyping
import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from attnlab.engine.source import Place, Spot, spot

if TYPE_CHECKING:
    from attnlab.engine.explain import Explanation

__all__ = ["Call", "Tape", "Version", "record", "unrecorded"]

MAX_CLONED = 1_000_000
"""Tensors with more elements are kept by reference, with a note, so that memory is bounded."""

MAX_CALLERS = 4
"""A tensor that is returned through more functions has no name of a variable."""

_TORCH = str(Path(torch.__file__).parent) + os.sep

# Frames of these files are not the program: torch, this recorder, and wrappers that check annotations.
_NOT_THE_PROGRAM = (_TORCH, str(Path(jaxtyping.__file__ or "").parent) + os.sep, __file__)

# Reading a property makes no number; these say only what a tensor is.
_QUESTIONS = frozenset(
    """
    shape dtype device layout requires_grad grad grad_fn is_leaf ndim itemsize nbytes size dim
    stride numel is_floating_point is_complex is_contiguous storage_offset data_ptr untyped_storage
    element_size requires_grad_ retain_grad backward register_hook is_sparse is_cuda is_quantized
    is_nested names _version __len__ __repr__ __format__ __hash__ __bool__ tolist item
    numpy __array__ __dlpack__ __deepcopy__ __reduce_ex__ is_inference is_meta is_mps is_xpu set_property
    """.split()
)
# Through what these give back, others than torch may write into the tensor.
_EXPOSING = frozenset(["numpy", "__array__", "__dlpack__", "data_ptr", "untyped_storage", "share_memory"])
# Calls that draw: the state of the generator is kept, so that the same draws can be made again.
_RANDOM = frozenset(
    """
    dropout alpha_dropout feature_dropout feature_alpha_dropout native_dropout dropout1d dropout2d
    dropout3d bernoulli multinomial normal uniform random exponential cauchy geometric log_normal
    poisson binomial gumbel_softmax rrelu rand_like randn_like randint_like trunc_normal
    kaiming_uniform kaiming_normal xavier_uniform xavier_normal scaled_dot_product_attention
    multi_head_attention_forward rnn_tanh rnn_relu lstm gru
    """.split()
)
# Calls that write into what they are given, and torch doesn't count it: running means.
_UNCOUNTED = frozenset(["batch_norm", "instance_norm", "native_batch_norm"])

# What they give back is a tuple, also when there is one tensor in it.
_LISTING = frozenset(["multi_head_attention_forward", "_native_multi_head_attention"])
_COMPARISONS = frozenset(["lt", "le", "gt", "ge", "eq", "ne"])
_PLAIN = frozenset([int, float, bool, str, type(...), torch.dtype])
_METHODS = (MethodDescriptorType, WrapperDescriptorType)

Geometry = tuple[tuple[int, ...], tuple[int, ...], int]
"""Shape, strides and offset in a storage."""


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
        if self.by_reference and _changes(self.kept) != self.changes:
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
        return list(_versions((self.args, self.kwargs)))

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


class Tape(TorchFunctionMode):
    """What `record` remembers. Explanations and gradients are in `explain.py` and `gradient.py`."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[Call] = []
        self.inputs: list[Version] = []
        self.failed: Call | None = None
        """The call that raised, with what went into it; the tape ends before it."""
        # id → (tensor, its newest version, torch's count of its changes then, our count of writes then)
        self._current: dict[int, tuple[Tensor, Version, int | None, int]] = {}
        # Address of a storage → the storage. Held: an address means nothing once another may have it.
        self._storages: dict[int, torch.UntypedStorage] = {}
        # Address of a storage → (torch's count of changes, copy of the whole)
        self._copies: dict[int, tuple[int | None, Tensor]] = {}
        # Address of a storage → what was written into it, in order, and where
        self._writes: dict[int, list[tuple[Version, Geometry]]] = {}
        # Addresses of storages into which others than torch may write
        self._foreign: set[int] = set()
        # Tensors first seen as an argument: were they there before the block?
        self._first_seen: list[tuple[Tensor, Version]] = []
        # Ids of what has been made since the block began, as far as Python's collector has told it
        self._young: set[int] = set()
        # What a call gave back as it was (`.to` of its own dtype), and how many calls there were then: a line
        # may name it only there.
        self._passed_on: list[tuple[Version, Call, int]] = []
        # The function of torch's own that runs, and how many have run. Held, so that the next one is another.
        self._running: FrameType | None = None
        self._runs = 0
        # Where the block stands: what is outside of it made nothing in it.
        self._block: FrameType | None = None
        self._counts_all = True
        """False from the first tensor on whose changes torch doesn't count (`.data`, inference mode)."""

    def __enter__(self) -> "Tape":
        # What is there before the block is old from now on, so that what is young was made in it.
        gc.collect(0)
        self._young.clear()
        gc.callbacks.append(self._collecting)
        self._block = _block_around(sys._getframe(1))
        super().__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)
        self._block = None
        gc.callbacks.remove(self._collecting)
        self.settle()

    def _collecting(self, phase: str, _: Mapping[str, int]) -> None:
        if phase == "start":  # before what is young becomes old
            self._young |= _young_tensors()

    def settle(self) -> None:
        """Finds out what only the whole of the block tells: whose name a result has, what was made unseen."""
        self._running = None
        steps: dict[int, list[Call]] = {}
        for call in self.calls:
            if call.inside:
                steps.setdefault(call.inside, []).append(call)
        for version, passing, earlier in self._passed_on:
            assert version.call is not None
            inside = passing.inside
            # In torch's own functions only what comes out of them is the program's.
            if not inside or all(call.inside != inside for call in (version.call, *self.calls[earlier:])):
                version.call.passed += (passing.place,)
        self._passed_on.clear()
        for run in steps.values():
            if len(run) > 1:
                _name_results_only(run)
        # Autograd begins anew at a leaf that learns, and at numbers that come from outside of torch.
        doubtful = [
            (tensor, version)
            for tensor, version in self._first_seen
            if not version.name and not (tensor.is_leaf and (tensor.requires_grad or _foreign(tensor)))
        ]
        young = gc.get_objects(generation=0) if doubtful else ()
        for tensor, version in doubtful:
            if id(tensor) in self._young or id(tensor) in map(id, young):
                version.unrecorded = "made by something that was not recorded"
        self._first_seen.clear()

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Any,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        kwargs = kwargs or {}
        name, writes = _names.get(func) or _name_of(func)
        if name in _EXPOSING:
            self._foreign.add(_address(args[0]))
        # Inside torch.func.vmap or grad a tensor stands for others that can't be kept.
        if name in _QUESTIONS or torch._C._functorch.peek_interpreter_stack() is not None:
            return func(*args, **kwargs)
        if name == "__iter__" and args[0].ndim:
            # What torch does inside, where we wouldn't see it: `q, k, v = x`, `for row in x`.
            return iter(self.__torch_function__(Tensor.unbind, types, args))
        # A recorder around this one must see the call, not what is done here to remember it.
        # A tensor of another class is looked at as it is, not as its class shows itself.
        around = torch._C._len_torch_function_stack()
        quiet = torch._C.DisableTorchFunction if around else torch._C.DisableTorchFunctionSubclass
        with quiet():
            note = self._note
            noted_args = tuple([note(value) for value in args])
            noted_kwargs = (
                {key: note(value) for key, value in kwargs.items() if key != "out"} if kwargs else {}
            )
            random = _random_state(kwargs) if name in _RANDOM else None
        writes = writes or bool(kwargs.get("inplace"))
        place, within, running, preparing = _place(self._block)
        if running is not None and running is not self._running:
            self._running = running
            self._runs += 1
        inside = self._runs if running is not None else 0
        differentiated = torch.is_grad_enabled()
        autocast = torch.get_autocast_dtype("cpu") if torch.is_autocast_enabled("cpu") else None
        call = Call(
            name,
            func,
            noted_args,
            noted_kwargs,
            place,
            writes,
            within,
            random,
            inside,
            preparing,
            differentiated,
            autocast,
        )
        try:
            result = func(*args, **kwargs)
        except Exception:
            self.failed = call
            raise
        with quiet():
            made = (args[0] if args else next(_tensors([*kwargs.values()]))) if writes else result
            written = writes or kwargs.get("out") is not None
            for position, tensor in enumerate((made,) if isinstance(made, Tensor) else _tensors(made)):
                known = self._current.get(id(tensor))
                # A call may give its input back (contiguous() of a contiguous tensor): nothing was made.
                if written or known is None or known[2] != _changes(tensor):
                    self._made(tensor, call, position, written=written or known is not None)
                elif known[1].call is not None:
                    self._passed_on.append((known[1], call, len(self.calls)))
            if call.outputs:
                self.calls.append(call)
                if name == "data":
                    self._counts_all = False
                if name in _UNCOUNTED:
                    for tensor in _tensors((*args, *kwargs.values())):
                        self._doubt(_address(tensor))
        return result

    # ------------------------------------------------------------ reading

    def explain(self, tensor: "Tensor | Version", index: Sequence[int] = ()) -> "Explanation":
        """How the element of `tensor` at `index` was made: see `attnlab.engine.explain`."""
        # Imported here because explanations are made of what is recorded, not the other way round.
        from attnlab.engine.explain import explain

        return explain(self, tensor, index)

    def gradient(self, tensor: "Tensor | Version", index: Sequence[int] = ()) -> "dict[Version, Tensor]":
        """∂ tensor[index] / ∂ every earlier tensor: see `attnlab.engine.gradient`."""
        from attnlab.engine.gradient import gradient

        return gradient(self, tensor, index)

    def version(self, tensor: Tensor) -> Version:
        """The newest recorded version of a tensor. Raises `KeyError` when the tape has never seen it."""
        with torch._C.DisableTorchFunction():
            found = self._current.get(id(tensor))
            if found is None:
                raise KeyError(f"the tape has not seen this tensor of shape {tuple(tensor.shape)}")
            if found[2] == -1:
                return self._now(tensor)  # written to by something that doesn't say so
            rewritten = self._rewritten(*found)
            return found[1] if rewritten is None else self._accept(tensor, rewritten)

    def name(self, tensor: Tensor, name: str, axes: Sequence[str] = ()) -> None:
        """Names a tensor that comes from outside, and its axes, before or after it is used."""
        if axes and len(axes) != tensor.ndim:
            raise ValueError(f"{name}: expected {tensor.ndim} axis names, got {', '.join(axes)}")
        with torch._C.DisableTorchFunction():  # naming is no call of the program
            version = self.version(tensor) if id(tensor) in self._current else self._now(tensor)
        version.name = name
        version.given_axes = tuple(axes)

    def tensors(self) -> list[Tensor]:
        """Every tensor that was seen, in the order in which they were."""
        return [tensor for tensor, *_ in self._current.values()]

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
            if self._foreign and _address(value) in self._foreign:
                self._copies.pop(_address(value), None)
                return self._now(value)
            return found[1] if found is not None and found[2] == _changes(value) else self._now(value)
        if isinstance(value, tuple):
            return tuple([self._note(item) for item in value])
        if value is None or type(value) in _PLAIN:
            return value
        # x[[0, 1]] takes two rows and x[0, 1] one number: a list has to stay a list.
        if isinstance(value, list):
            return [self._note(item) for item in value]
        # What the program may change later is noted as it is now.
        if isinstance(value, slice):
            return slice(*(_whole(bound) for bound in (value.start, value.stop, value.step)))
        return value.copy() if type(value).__module__ == "numpy" and hasattr(value, "copy") else value

    def _now(self, tensor: Tensor) -> Version:
        """The version of a tensor as it is now: known, new to the tape, or changed through another view."""
        found = self._current.get(id(tensor))
        if found is None:
            version = self._keep(tensor)
            self._first_seen.append((tensor, version))
        else:
            rewritten = self._rewritten(*found)
            version = rewritten or found[1]
            if _same(version.values, tensor.detach()):
                if rewritten is not None:
                    return self._accept(tensor, rewritten)
                self._seen(tensor, version)
                return version
            counted = found[2] not in (-1, _changes(tensor))
            version = self._keep(tensor)  # changed outside of the calls that could be seen
            version.name = _variable(found[1])
            if counted:  # by torch; it doesn't count what is no part of a gradient, as running means
                version.unrecorded = "changed by something that was not recorded"
        self.inputs.append(version)
        return version

    def _rewritten(self, tensor: Tensor, before: Version, _: int | None, writes: int) -> Version | None:
        """The version of a tensor after recorded calls wrote to other views of its storage; else None."""
        since = self._writes.get(_address(tensor), [])[writes:]
        if not since or any(version.kept.dtype != tensor.dtype for version, _ in since):
            return None
        source = _overlaid(_geometry(tensor), [geometry for _, geometry in since])
        if source is None:
            return None
        parts = [before, *(version for version, _ in since)]
        writer = since[-1][0].call
        assert writer is not None
        call = Call("shared storage", _shared_storage(source), tuple(parts), {}, writer.place)
        values = call.function(*(part.values for part in parts))
        version = Version(values, None, call, name=before.name)
        if before.by_reference:
            version.kept, version.by_reference, version.changes = tensor.detach(), True, _changes(tensor)
        call.outputs.append(version)
        return version

    def _accept(self, tensor: Tensor, version: Version) -> Version:
        assert version.call is not None
        # It was so from the moment on when the other view was written.
        writer = version.call.args[-1].call
        behind = next(i for i in range(len(self.calls), 0, -1) if self.calls[i - 1] is writer)
        self.calls.insert(behind, version.call)
        self._seen(tensor, version)
        return version

    def _made(self, tensor: Tensor, call: Call, position: int, *, written: bool) -> None:
        if written:
            address = _address(tensor)
            self._copies.pop(address, None)
            writes = self._writes.setdefault(address, [])
        version = self._keep(tensor, fresh=not written)
        version.call, version.output = call, position
        call.outputs.append(version)
        if written:
            writes.append((version, _geometry(tensor)))
            self._seen(tensor, version)
            if not self._counts_all:
                known = self._current[id(tensor)]
                self._doubt(address)
                self._current[id(tensor)] = known

    def _doubt(self, address: int) -> None:
        """Has the tensors of a storage looked at again, where torch doesn't count for all of them."""
        self._copies.pop(address, None)
        for key, (tensor, version, _, writes) in list(self._current.items()):
            if _address(tensor) == address:
                self._current[key] = (tensor, version, -1, writes)

    def _keep(self, tensor: Tensor, *, fresh: bool = False) -> Version:
        """A new version, with a copy of the numbers. `fresh`: a call has just made the tensor."""
        changes = _changes(tensor)
        if changes is None:
            self._counts_all = False
        if tensor.layout is torch.strided and not tensor.is_nested:
            version = self._keep_memory(tensor, changes, fresh=fresh)
        else:
            version = self._keep_apart(tensor, changes)
        self._seen(tensor, version)
        return version

    def _keep_memory(self, tensor: Tensor, changes: int | None, *, fresh: bool) -> Version:
        """With a copy of all of its memory, which is that of its views too."""
        storage = tensor.untyped_storage()
        address = storage._cdata
        if address not in self._storages:
            self._storages[address] = storage
            if not storage.resizable():
                self._foreign.add(address)
                fresh = False
        else:
            fresh = False  # a view of what was there
        # A conjugate has the memory of its tensor, and other numbers.
        if tensor.is_conj() or tensor.is_neg():
            return self._keep_apart(tensor, changes)
        known = self._copies.get(address)
        if known is not None and known[0] == changes and known[1].dtype is tensor.dtype:
            return Version(known[1], _geometry(tensor))
        whole = storage.nbytes() // tensor.itemsize
        if not 0 < whole <= MAX_CLONED:
            return self._keep_apart(tensor, changes)
        kept = tensor.detach()
        if tensor.numel() != whole or not tensor.is_contiguous():
            kept = kept.as_strided((whole,), (1,), 0)
        # Nobody else knows where fresh numbers are, so they are copied when torch first writes there.
        kept = _lazy_clone(kept) if fresh else kept.clone()
        self._copies[address] = (changes, kept)
        return Version(kept, _geometry(tensor))

    def _keep_apart(self, tensor: Tensor, changes: int | None) -> Version:
        """Alone; by reference, where it is large."""
        kept = tensor.detach()
        if tensor.numel() > MAX_CLONED:
            return Version(kept, None, by_reference=True, changes=changes)
        return Version(kept.resolve_conj().resolve_neg().clone(), None)

    def _seen(self, tensor: Tensor, version: Version) -> None:
        # The tensor itself is held too: an id means nothing once its object is gone.
        writes = self._writes.get(_address(tensor), ()) if self._writes else ()
        self._current[id(tensor)] = (tensor, version, _changes(tensor), len(writes))


@contextlib.contextmanager
def record() -> Iterator[Tape]:
    """Records every torch call of the block. The tape can be read during the block and after it."""
    tape = Tape()
    with tape:
        yield tape


def unrecorded() -> contextlib.AbstractContextManager[None]:
    """What is called in this block is no part of what is being recorded: preparations, and looks at it."""
    return torch._C.DisableTorchFunction()


def _pairs(text: str) -> dict[str, str]:
    return dict(pair.split(":") for pair in text.split())


# Operator methods (`__rand__` is no `torch.rand`) and other spellings have the name of their function.
_OPERATORS = _pairs(
    """
    truediv:div rtruediv:rdiv rmul:mul radd:add and:bitwise_and rand:bitwise_and or:bitwise_or
    ror:bitwise_or xor:bitwise_xor rxor:bitwise_xor invert:bitwise_not pos:positive
    """
)
_SPELLINGS = _pairs(
    """
    divide:div true_divide:div multiply:mul subtract:sub negative:neg absolute:abs clip:clamp
    linalg_matmul:matmul bmm:matmul mm:matmul mv:matmul dot:matmul
    swapaxes:transpose swapdims:transpose t:transpose
    concat:cat concatenate:cat special_expit:sigmoid special_softmax:softmax
    special_log_softmax:log_softmax greater:gt greater_equal:ge less:lt less_equal:le not_equal:ne
    """
)
_IN_PLACE_OPERATORS = frozenset(
    """
    iadd isub imul itruediv idiv ifloordiv imod ipow iand ior ixor ilshift irshift
    """.split()
)
_names: dict[Any, tuple[str, bool]] = {}


def _name_of(func: Callable[..., Any]) -> tuple[str, bool]:
    """(name, writes into its first argument) of a torch function, method or property."""
    known = _names.get(func)
    if known is not None:
        return known
    name = getattr(func, "__name__", str(func))
    writes = False
    if name in ("__get__", "__set__", "__delete__"):
        own = getattr(getattr(func, "__self__", None), "__name__", name)
        writes = name == "__set__" and own == "data"
        # Setting `requires_grad` or `grad` changes no number; setting `data` changes them all.
        name = own if name == "__get__" else "set_data" if writes else "set_property"
    elif name == "__setitem__":
        writes, name = True, "setitem"
    elif name == "__iter__" or name in _QUESTIONS:
        pass
    elif name.startswith("__") and name.endswith("__"):
        name = name[2:-2]
        if name in _IN_PLACE_OPERATORS:
            writes, name = True, name[1:]
        name = _OPERATORS.get(name, name)
    elif name.endswith("_") and not name.startswith("_"):
        writes, name = True, name[:-1]
    if not name.startswith("__"):
        name = _SPELLINGS.get(name, name)
    _names[func] = (name, writes)
    return name, writes


def _block_around(frame: FrameType | None) -> FrameType | None:
    """The frame of the program that enters the block, through a context manager or by itself."""
    while frame is not None:
        file = frame.f_code.co_filename
        if file != contextlib.__file__ and _owner(file) == "program":
            break
        frame = frame.f_back
    return frame


def _place(block: FrameType | None) -> tuple[Place, str, FrameType | None, bool]:
    """The innermost point of the program, neither torch's nor ours; what it is in, as far as the block.

    That is the autograd function around, by name, the function of torch's own that the program called, and
    whether this makes a module.
    """
    frame: FrameType | None = sys._getframe(2)
    running = None
    preparing = False
    points: list[tuple[CodeType, int]] = []
    within = ""
    while frame is not None:
        code = frame.f_code
        if code is _APPLY:
            within = within or frame.f_locals["cls"].__name__
        else:
            whose = _whose.get(code.co_filename) or _owner(code.co_filename)
            if whose == "program":
                if len(points) <= MAX_CALLERS:
                    points.append((code, frame.f_lasti))
            elif whose == "torch" and not points:
                running = frame
                preparing = code.co_name == "__init__"
        if frame is block:
            break
        frame = frame.f_back
    if not points:
        raise RuntimeError("a torch call without a caller")
    # What a function returns has the name that its caller gives it.
    return Place(*points[0], tuple(points[1:])), within, running, preparing


_whose: dict[str, str] = {}
"""File → "program", "torch" or "neither". Known by heart: it is asked for each frame of each call."""


def _owner(file: str) -> str:
    owner = "program"
    if file.startswith(_NOT_THE_PROGRAM):
        owner = "torch" if file.startswith(_TORCH) else "neither"
    _whose[file] = owner
    return owner


def _name_results_only(steps: Sequence[Call]) -> None:
    """Of the steps of one function of torch's own, the last ones made what the program gives its names to."""
    given: set[object] = set()
    for call in reversed(steps):
        found = call.spot
        if found.item is not None and call is not steps[-1]:
            # Only the last step can be the tuple of which a part is taken.
            found = call.spot = replace(found, names=(), returned=False, text=call.name)
        whole = len(found.names) == len(call.outputs)
        first = found.names[0] if found.names else None
        names = [found.names[n] if whole else first or n for n in range(len(call.outputs))]
        free = [name not in given for name in names]
        given.update(names)
        if not all(free):
            left = tuple(name if is_free else "" for name, is_free in zip(found.names, free, strict=False))
            call.spot = replace(
                found,
                names=left if whole and any(left) else (),
                text=call.name,
                returned=found.returned and any(free),
                each=found.each if any(free) else (),
            )


_APPLY = torch.autograd.Function.apply.__func__.__code__  # type: ignore[attr-defined]


def _young_tensors() -> set[int]:
    """The tensors that Python's collector has not yet had to look at."""
    young = gc.get_objects(generation=0)
    kinds = {kind for kind in set(map(type, young)) if issubclass(kind, Tensor)}
    return {id(thing) for thing in young if type(thing) in kinds}


def _foreign(tensor: Tensor) -> bool:
    """Is its memory another's than torch's, which may write there unseen?"""
    try:
        return not tensor.untyped_storage().resizable()
    except (RuntimeError, NotImplementedError):
        return False  # sparse


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


def _changes(tensor: Tensor) -> int | None:
    """Torch's count of the changes to a storage; None in inference mode, where it doesn't count."""
    try:
        return tensor._version
    except RuntimeError:
        return None


def _whole(bound: Any) -> Any:
    """A bound of a slice as a number."""
    return None if bound is None else operator.index(bound)


def _variable(version: Version) -> str:
    """The name of a tensor that has been written to since it got it."""
    while not version.name and version.call and (before := version.call.before(version.output)):
        version = before
    return version.name or (version.call.spot.names[0] if version.call and version.call.spot.names else "")


def _address(tensor: Tensor) -> int:
    """Of the storage, not of the numbers in it: asking for that would copy what is to be copied later."""
    try:
        return tensor.untyped_storage()._cdata
    except (RuntimeError, NotImplementedError):
        return 0  # sparse


_lazy_clone: Callable[[Tensor], Tensor] = getattr(torch, "_lazy_clone", torch.clone)
"""A copy that is made when one of the two is first written to, where torch has such a thing."""


def _geometry(tensor: Tensor) -> Geometry:
    return tensor.shape, tensor.stride(), int(tensor.storage_offset())


def _random_state(kwargs: Mapping[str, Any]) -> Tensor:
    generator = kwargs.get("generator")
    return torch.get_rng_state() if generator is None else generator.get_state()


def _same(a: Tensor, b: Tensor) -> bool:
    """Are all numbers equal, NaN with NaN?"""
    return a.shape == b.shape and bool(((a == b) | ((a != a) & (b != b))).all())


def _overlaid(own: Geometry, writes: Sequence[Geometry]) -> Tensor | None:
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


def _shared_storage(source: Tensor) -> Callable[..., Tensor]:
    """How a view looks after other views of its storage were written."""

    def function(before: Tensor, *written: Tensor) -> Tensor:
        all_written = torch.cat([part.flatten() for part in written])
        return torch.where(source >= 0, all_written[source.clamp(min=0)], before)

    return function


def _reach(geometry: Geometry) -> int:
    """One more than the last storage position that a view reads."""
    shape, strides, offset = geometry
    return offset + sum((size - 1) * stride for size, stride in zip(shape, strides, strict=True)) + 1
