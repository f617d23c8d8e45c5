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
import operator
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from types import FrameType
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from attnlab.engine.call import MAX_CLONED, Call, Version, each
from attnlab.engine.call_names import EXPOSING, QUESTIONS, RANDOM, UNCOUNTED, name_of
from attnlab.engine.call_place import block_around, place_of_call
from attnlab.engine.memory import (
    Geometry,
    address_of,
    changes_of,
    geometry_of,
    is_foreign,
    overlaid,
    same_numbers,
    shared_storage,
)

if TYPE_CHECKING:
    from attnlab.engine.explain import Explanation

__all__ = ["Tape", "record", "unrecorded"]

_PLAIN = frozenset([int, float, bool, str, type(...), torch.dtype])


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
        self._block = block_around(sys._getframe(1))
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
            if not version.name and not (tensor.is_leaf and (tensor.requires_grad or is_foreign(tensor)))
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
        name, writes = name_of(func)
        if name in EXPOSING:
            self._foreign.add(address_of(args[0]))
        # Inside torch.func.vmap or grad a tensor stands for others that can't be kept.
        if name in QUESTIONS or torch._C._functorch.peek_interpreter_stack() is not None:
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
            noted_kwargs = {key: note(value) for key, value in kwargs.items() if key != "out"}
            random = _random_state(kwargs) if name in RANDOM else None
        writes = writes or bool(kwargs.get("inplace"))
        place, within, running, preparing = place_of_call(self._block)
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
            made = (args[0] if args else next(each(Tensor, [*kwargs.values()]))) if writes else result
            written = writes or kwargs.get("out") is not None
            for position, tensor in enumerate(each(Tensor, made)):
                known = self._current.get(id(tensor))
                # A call may give its input back (contiguous() of a contiguous tensor): nothing was made.
                if written or known is None or known[2] != changes_of(tensor):
                    self._made(tensor, call, position, written=written or known is not None)
                elif known[1].call is not None:
                    self._passed_on.append((known[1], call, len(self.calls)))
            if call.outputs:
                self.calls.append(call)
                if name == "data":
                    self._counts_all = False
                if name in UNCOUNTED:
                    for tensor in each(Tensor, (*args, *kwargs.values())):
                        self._doubt(address_of(tensor))
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
            if self._foreign and address_of(value) in self._foreign:
                self._copies.pop(address_of(value), None)
                return self._now(value)
            return found[1] if found is not None and found[2] == changes_of(value) else self._now(value)
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
            if same_numbers(version.values, tensor.detach()):
                if rewritten is not None:
                    return self._accept(tensor, rewritten)
                self._seen(tensor, version)
                return version
            counted = found[2] not in (-1, changes_of(tensor))
            version = self._keep(tensor)  # changed outside of the calls that could be seen
            version.name = _variable(found[1])
            if counted:  # by torch; it doesn't count what is no part of a gradient, as running means
                version.unrecorded = "changed by something that was not recorded"
        self.inputs.append(version)
        return version

    def _rewritten(self, tensor: Tensor, before: Version, _: int | None, writes: int) -> Version | None:
        """The version of a tensor after recorded calls wrote to other views of its storage; else None."""
        since = self._writes.get(address_of(tensor), [])[writes:]
        if not since or before.shape != tensor.shape:  # `set_` and `data` give it other memory
            return None
        if any(version.kept.dtype != tensor.dtype for version, _ in since):
            return None
        source = overlaid(geometry_of(tensor), [geometry for _, geometry in since])
        if source is None:
            return None
        parts = [before, *(version for version, _ in since)]
        writer = since[-1][0].call
        assert writer is not None
        call = Call("shared storage", shared_storage(source), tuple(parts), {}, writer.place)
        values = call.function(*(part.values for part in parts))
        version = Version(values, None, call, name=before.name)
        if before.by_reference:
            version.kept, version.by_reference, version.changes = tensor.detach(), True, changes_of(tensor)
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
            address = address_of(tensor)
            self._copies.pop(address, None)
            writes = self._writes.setdefault(address, [])
        version = self._keep(tensor)
        version.call, version.output = call, position
        call.outputs.append(version)
        if written:
            writes.append((version, geometry_of(tensor)))
            self._seen(tensor, version)
            if not self._counts_all:
                known = self._current[id(tensor)]
                self._doubt(address)
                self._current[id(tensor)] = known

    def _doubt(self, address: int) -> None:
        """Has the tensors of a storage looked at again, where torch doesn't count for all of them."""
        self._copies.pop(address, None)
        for key, (tensor, version, _, writes) in list(self._current.items()):
            if address_of(tensor) == address:
                self._current[key] = (tensor, version, -1, writes)

    def _keep(self, tensor: Tensor) -> Version:
        """A new version, with a copy of the numbers."""
        changes = changes_of(tensor)
        if changes is None:
            self._counts_all = False
        if tensor.layout is torch.strided and not tensor.is_nested:
            version = self._keep_memory(tensor, changes)
        else:
            version = self._keep_apart(tensor, changes)
        self._seen(tensor, version)
        return version

    def _keep_memory(self, tensor: Tensor, changes: int | None) -> Version:
        """With a copy of all of its memory, which is that of its views too.

        At once: torch's own lazy copy (`_lazy_clone`) ends programs that write in threads or resize.
        """
        storage = tensor.untyped_storage()
        address, whole = storage.data_ptr(), storage.nbytes() // tensor.itemsize
        if not storage.resizable():
            self._foreign.add(address)
        # A conjugate has the memory of its tensor, and other numbers.
        if not 0 < whole <= MAX_CLONED or tensor.is_conj() or tensor.is_neg():
            return self._keep_apart(tensor, changes)
        known = self._copies.get(address)
        if known is not None and known[0] == changes and known[1].dtype is tensor.dtype:
            return Version(known[1], geometry_of(tensor))
        kept = tensor.detach()
        if tensor.numel() != whole or not tensor.is_contiguous():
            kept = kept.as_strided((whole,), (1,), 0)
        kept = kept.clone()
        self._copies[address] = (changes, kept)
        return Version(kept, geometry_of(tensor))

    def _keep_apart(self, tensor: Tensor, changes: int | None) -> Version:
        """Alone; by reference, where it is large."""
        kept = tensor.detach()
        if tensor.numel() > MAX_CLONED:
            return Version(kept, None, by_reference=True, changes=changes)
        return Version(kept.resolve_conj().resolve_neg().clone(), None)

    def _seen(self, tensor: Tensor, version: Version) -> None:
        # The tensor itself is held too: an id means nothing once its object is gone.
        writes = self._writes.get(address_of(tensor), ()) if self._writes else ()
        self._current[id(tensor)] = (tensor, version, changes_of(tensor), len(writes))


@contextlib.contextmanager
def record() -> Iterator[Tape]:
    """Records every torch call of the block. The tape can be read during the block and after it."""
    tape = Tape()
    with tape:
        yield tape


def unrecorded() -> contextlib.AbstractContextManager[None]:
    """What is called in this block is no part of what is being recorded: preparations, and looks at it."""
    return torch._C.DisableTorchFunction()


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


def _young_tensors() -> set[int]:
    """The tensors that Python's collector has not yet had to look at."""
    young = gc.get_objects(generation=0)
    kinds = {kind for kind in set(map(type, young)) if issubclass(kind, Tensor)}
    return {id(thing) for thing in young if type(thing) in kinds}


def _whole(bound: Any) -> Any:
    """A bound of a slice as a number."""
    return None if bound is None else operator.index(bound)


def _variable(version: Version) -> str:
    """The name of a tensor that has been written to since it got it."""
    while not version.name and version.call and (before := version.call.before(version.output)):
        version = before
    return version.name or (version.call.spot.names[0] if version.call and version.call.spot.names else "")


def _random_state(kwargs: Mapping[str, Any]) -> Tensor:
    generator = kwargs.get("generator")
    return torch.get_rng_state() if generator is None else generator.get_state()
