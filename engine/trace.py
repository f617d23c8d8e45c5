"""Named intermediates with named axes: what a computation leaves behind to be looked at."""

import dataclasses
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

from torch import Tensor

__all__ = ["Stage", "Trace", "note"]


@dataclass(frozen=True, eq=False)
class Stage:
    """One intermediate of a computation.

    `name` is the field of the trace, `axes` names each axis of `tensor` in order,
    `note` says in a few words how the tensor was made.
    """

    name: str
    tensor: Tensor
    axes: tuple[str, ...]
    note: str


def note(text: str) -> Any:
    """A dataclass field of a `Trace` with the few words that a view shows beside its name."""
    return dataclasses.field(metadata={"note": text})


@dataclass(frozen=True, eq=False)
class Trace:
    """Base of all traces: a frozen dataclass whose tensor fields are annotated with jaxtyping.

    Traces are compared by identity (`eq=False`), because `==` of tensors has no single truth value.

    The annotation is the only place where the axes are named:
    `scores: Float[Tensor, "*batch query key"]` is a stage with the axes query and key, after any
    number of leading axes. Views link cells of two stages because their axes have the same name.
    """

    def stages(self) -> Iterator[Stage]:
        """The tensor fields in the order in which they were computed."""
        for name, axis_pattern, text in _tensor_fields(type(self)):  # type: ignore[arg-type]
            tensor = getattr(self, name)
            if tensor is not None:
                yield Stage(
                    name, tensor, _axes(axis_pattern, tensor.ndim, f"{type(self).__name__}.{name}"), text
                )

    def stage(self, name: str) -> Stage:
        """The stage called `name`.

        Raises `KeyError`, naming the stages that there are.
        """
        stages = {stage.name: stage for stage in self.stages()}
        if name not in stages:
            raise KeyError(f"expected one of the stages {', '.join(stages)}, got {name!r}")
        return stages[name]


@cache
def _tensor_fields(trace_type: type[Trace]) -> tuple[tuple[str, str, str], ...]:
    """(field name, axis pattern, note) of each field that is annotated as a tensor."""
    found = []
    for field in dataclasses.fields(trace_type):
        # `Float[Tensor, "query key"] | None` is a union; its tensor member carries the axes.
        members = getattr(field.type, "__args__", None) or (field.type,)
        for member in members:
            if hasattr(member, "dim_str"):
                found.append((field.name, member.dim_str, field.metadata.get("note", "")))
                break
    return tuple(found)


@cache
def _axes(axis_pattern: str, ndim: int, where: str) -> tuple[str, ...]:
    """The names of `ndim` axes: `*batch` stands for as many leading axes as are left over."""
    parts = axis_pattern.split()
    named = [part for part in parts if not part.startswith("*")]
    leading = ndim - len(named)
    if leading < 0 or (leading > 0 and len(named) == len(parts)):
        raise ValueError(f"{where} is annotated with the axes {axis_pattern!r}, got a tensor of {ndim} axes")
    names = iter(_leading_names(leading))
    axes: list[str] = []
    for part in parts:
        if part.startswith("*"):
            axes.extend(names)
        else:
            # "width=3" and "#width" are jaxtyping's spelling of checks on the axis; the name is what counts.
            axes.append(re.sub(r"^[#?_]*", "", part).split("=")[0])
    return tuple(axes)


def _leading_names(count: int) -> tuple[str, ...]:
    """One leading axis is the batch, two are `batch head`, as in the full shape `batch head query key`."""
    if count <= 1:
        return ("batch",) * count
    outer = ("batch",) if count == 2 else tuple(f"batch{i}" for i in range(count - 1))
    return (*outer, "head")
