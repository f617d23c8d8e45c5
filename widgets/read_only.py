"""Tensors that can be read and computed with, but not changed in place."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves, tree_map

from attnlab.engine import Trace, unrecorded

_REFUSAL = (
    "this tensor is shown on the screen and can't be changed in place; "
    "assign a new one (explorable.q = …), or work on a copy: tensor.clone()"
)
# Ways to the memory itself: they get a copy of it.
_MEMORY = frozenset("numpy __array__ __dlpack__ untyped_storage storage _typed_storage".split())

__all__ = ["ReadOnlyTensor", "read_only", "read_only_trace"]


AnyTrace = TypeVar("AnyTrace", bound=Trace)


class ReadOnlyTensor(Tensor):
    """A tensor whose in-place changes are refused: `w.q[0, 0] = 5` raises instead of being ignored.

    A widget can't notice a change inside a tensor, so the screen would go on showing the old number.
    Results of computations are ordinary tensors; views of it (`w.q[0]`) are read-only too. NumPy,
    and whoever else asks for its memory (`untyped_storage()`, DLPack), gets a copy.
    """

    @classmethod
    def __torch_function__(
        cls,
        func: Callable[..., Any],
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        kwargs = dict(kwargs or {})
        name = getattr(func, "__name__", "")
        if name == "__get__":  # a property, mostly a size or a dtype: asked for several times in every move
            with torch._C.DisableTorchFunctionSubclass():
                found = func(*args, **kwargs)
            if not isinstance(found, Tensor):
                return found
        written = [args[0]] if args and (_writes(name) or kwargs.get("inplace")) else []
        if any(isinstance(tensor, cls) for tensor in tree_leaves([*written, kwargs.get("out")])):
            raise TypeError(_REFUSAL)
        storages: set[int] = set()

        def opened(value: Any) -> Any:
            if isinstance(value, cls):
                value = plain(value)
                storages.add(value.untyped_storage().data_ptr())
            return value

        args, kwargs = tree_map(opened, (tuple(args), kwargs))
        if name in _MEMORY:
            args = (args[0].clone(), *args[1:])
        result = func(*args, **kwargs)

        def protect(value: Any) -> Any:
            if type(value) is Tensor and value.untyped_storage().data_ptr() in storages:
                return value.as_subclass(cls)
            return value

        return tree_map(protect, result)

    # Two that torch doesn't send through `__torch_function__`.

    def set_(self, *args: Any, **kwargs: Any) -> Any:
        """Refused: it would give this tensor another memory."""
        raise TypeError(_REFUSAL)

    def as_subclass(self, cls: Any) -> Any:
        """A copy of another class, which may be changed."""
        return self.clone().as_subclass(cls)


def plain(tensor: Tensor) -> Tensor:
    """The same numbers as an ordinary tensor, for code of ours that only reads: no call is intercepted."""
    with torch._C.DisableTorchFunctionSubclass():
        return Tensor.as_subclass(tensor, Tensor)


def read_only(tensor: Tensor) -> ReadOnlyTensor:
    """A read-only copy of `tensor`, cut off from autograd."""
    return tensor.detach().clone().as_subclass(ReadOnlyTensor)


def read_only_trace(trace: AnyTrace) -> AnyTrace:
    """`trace` with read-only views of its tensors."""
    fields = {field.name: getattr(trace, field.name) for field in dataclasses.fields(trace)}
    with unrecorded():
        protected = {
            n: v.detach().as_subclass(ReadOnlyTensor) for n, v in fields.items() if isinstance(v, Tensor)
        }
    return dataclasses.replace(trace, **protected)


def _writes(name: str) -> bool:
    """Does the torch call `name` write into its first argument? By torch's naming: `add_`, `__iadd__`, …"""
    if name in ("__setitem__", "__set__", "__delitem__"):
        return True
    if name.startswith("__"):
        return name.startswith("__i") and name not in ("__index__", "__int__", "__invert__")
    return name.endswith("_") and name not in ("requires_grad_",)
