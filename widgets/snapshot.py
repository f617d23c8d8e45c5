"""What a notebook cell can see by name, kept as it was: no run starts where the last one ended."""

from collections.abc import Iterator, Mapping
from types import CodeType, FunctionType
from typing import Any

import numpy as np
import torch
from torch import Tensor

from attnlab.engine import unrecorded
from attnlab.widgets.read_only import ReadOnlyTensor

__all__ = ["copied", "names_in"]


def names_in(code: CodeType, namespace: Mapping[str, Any]) -> set[str]:
    """Every name that `code` reads or writes, also in functions and classes of `namespace` that it names."""
    found: set[str] = set()
    waiting = [code]
    while waiting:
        code = waiting.pop()
        waiting += [constant for constant in code.co_consts if isinstance(constant, CodeType)]
        for name in code.co_names:
            if name not in found:
                found.add(name)
                waiting += _code_of(namespace.get(name), namespace)
    return found


def _code_of(value: Any, namespace: Mapping[str, Any]) -> Iterator[CodeType]:
    """The code of a function, class or instance of a class that was made in `namespace`."""
    if isinstance(value, FunctionType):
        if value.__globals__ is namespace:
            yield value.__code__
        return
    for kind in value.__mro__ if isinstance(value, type) else type(value).__mro__:
        for member in vars(kind).values():
            if isinstance(member, FunctionType) and member.__globals__ is namespace:
                yield member.__code__


def copied(values: Mapping[str, Any]) -> dict[str, Any]:
    """`values` with copies of the tensors, arrays and plain containers in them; all else is shared.

    What was one object is one afterwards, and views of one storage still share it. Modules and other objects
    are no plain containers: what a cell changes in them stays changed.
    """
    known: dict[Any, Any] = {}
    with unrecorded():
        return {name: _copy(value, known) for name, value in values.items()}


def _copy(value: Any, known: dict[Any, Any]) -> Any:
    if id(value) in known:
        return known[id(value)]
    made: Any
    if isinstance(value, Tensor):
        made = _tensor(value, known)
    elif type(value) in (np.ndarray, bytearray):
        made = value.copy()
    elif type(value) is list:
        made = known[id(value)] = []  # known before its items: a list may hold itself
        made.extend(_copy(item, known) for item in value)
    elif type(value) is dict:
        made = known[id(value)] = {}
        made.update((key, _copy(item, known)) for key, item in value.items())
    elif type(value) in (tuple, set):
        made = type(value)(_copy(item, known) for item in value)
    else:
        return value
    known[id(value)] = made
    return made


def _tensor(tensor: Tensor, known: dict[Any, Any]) -> Tensor:
    if isinstance(tensor, ReadOnlyTensor):
        return tensor
    if not tensor.is_leaf or type(tensor) not in (Tensor, torch.nn.Parameter):
        return tensor.clone()
    if tensor.layout != torch.strided or tensor.is_nested or tensor.is_conj() or tensor.is_neg():
        made = tensor.detach().clone()
    else:
        storage = tensor.untyped_storage()
        key = ("storage", storage.data_ptr(), storage.nbytes())
        if key not in known:
            known[key] = storage.clone()
        place = (tensor.storage_offset(), tensor.shape, tensor.stride())
        made = torch.empty(0, dtype=tensor.dtype, device=tensor.device).set_(known[key], *place)
    if isinstance(tensor, torch.nn.Parameter):
        made = torch.nn.Parameter(made, tensor.requires_grad)
    elif tensor.requires_grad:
        made.requires_grad_()
    if tensor.grad is not None:
        made.grad = _copy(tensor.grad, known)
    return made
