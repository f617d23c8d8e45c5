"""Stateful: inputs, switches and options with presets, undo and a link. It computes and shows nothing."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, ClassVar

import ipywidgets
import traitlets as t
from torch import Tensor

from attnlab.widgets.address import encode
from attnlab.widgets.history import equal
from attnlab.widgets.matrix import Matrix

__all__ = ["Stateful"]


class Stateful(ipywidgets.VBox):
    """The state of an explorable.

    Traits tagged `state="input"` (and every `Matrix`) change the result, belong to presets and are
    undone; traits tagged `state="view"` only choose what is told. Both are constructor arguments,
    controls of the same name, and parameters of the address.
    """

    presets: ClassVar[Mapping[str, Mapping[str, Any]]]
    """Name → values; the first is the default. What a preset leaves out has its trait's default."""

    name = t.Unicode("", read_only=True)
    """Tells several explorables on one page apart in its address: parameters are called `name.q` then."""

    def _declare(self) -> None:
        """Finds what the class declares. The rest of this class relies on it."""
        self._ready = False
        self._depth = 0
        self._bases: dict[str, dict[str, Any]] = {}
        # In the order in which the class declares them; `traits()` sorts them by name.
        declared = [n for kind in reversed(type(self).__mro__) for n in vars(kind)]
        self._inputs = {n: trait for n in declared if isinstance(trait := self.traits().get(n), Matrix)}
        self._switches = [n for n, trait in self.traits().items() if trait.metadata.get("state") == "input"]
        self._options = [n for n, trait in self.traits().items() if trait.metadata.get("state") == "view"]

    def _refresh(self) -> None:
        """Called after every change."""
        raise NotImplementedError

    def follow(self, name: str) -> None:
        """After `name` was changed alone: changes what must follow it, for example a mask of its size."""

    # ------------------------------------------------------------ for people's own notebooks

    def assign(self, **values: Any) -> None:
        """Sets several traits at once, with one computation: `e.assign(k=…, v=…)` for matrices that must fit.

        Raises `TypeError` for an unknown name and `ValueError` for a value that is no matrix; the
        explorable is unchanged then.
        """
        self._require_known(values)
        # All of them, not only those in `values`: fewer queries also move the tracked query.
        before = {n: getattr(self, n) for n in [*self._inputs, *self._switches, *self._options]}
        with self._batch():
            try:
                self._apply_with_followers(values)
            except Exception:
                self._apply(before)
                raise

    def undo(self) -> None:
        """Takes the last edit back. Does nothing when there is none."""
        self._restore(self._history.undo())

    def redo(self) -> None:
        """Makes the last undone edit again. Does nothing when there is none."""
        self._restore(self._history.redo())

    def reset(self) -> None:
        """Back to the preset chosen last, also in what is told and which number is chosen."""
        with self._batch():
            self._apply(self._base(self.preset))

    @property
    def address(self) -> str:
        """The state as the query part of an address: `preset=…&q=…`, empty for the default."""
        return self._address_of(self._changed())

    def code(self) -> str:
        """The line of Python that makes this explorable in its present state."""
        arguments = [f"name={self.name!r}"] if self.name else []
        for n, value in self._changed().items():
            shown = value.tolist() if isinstance(value, Tensor) else value
            arguments.append(f"{n}={shown!r}")
        return f"{type(self).__name__}({', '.join(arguments)})"

    # ------------------------------------------------------------ values

    def _require_known(self, values: Mapping[str, Any]) -> None:
        known = [*self._inputs, *self._switches, *self._options]
        for n in values:
            if n not in known:
                expected = ", ".join(["preset", "name", *known])
                raise TypeError(f"{type(self).__name__} has no argument {n!r}; expected one of {expected}")

    def _addressed(self) -> list[str]:
        return ["preset", *self._inputs, *self._switches, *self._options]

    def _address_of(self, changed: Mapping[str, Any]) -> str:
        return encode({self._prefix + n: value for n, value in changed.items()})

    @property
    def _prefix(self) -> str:
        return self.name + "." * bool(self.name)

    def _preset_values(self, preset: str) -> dict[str, Any]:
        """All that a preset decides: its own values, and the defaults of the switches that it leaves out."""
        if preset not in self.presets:
            raise ValueError(f"preset: expected one of {', '.join(self.presets)}, got {preset!r}")
        defaults = {n: self.traits()[n].default() for n in self._switches}
        return {"preset": preset} | defaults | dict(self.presets[preset])

    def _undoable(self) -> dict[str, Any]:
        return {n: getattr(self, n) for n in ["preset", *self._inputs, *self._switches]}

    def _changed(self) -> dict[str, Any]:
        """What differs from the chosen preset, and the preset when it isn't the default."""
        base = self._base(self.preset)
        changed = {"preset": self.preset} if self.preset != next(iter(self.presets)) else {}
        values = {n: getattr(self, n) for n in base if n != "preset"}
        return changed | {n: value for n, value in values.items() if not equal(value, base[n])}

    def _base(self, preset: str) -> dict[str, Any]:
        """The state of a preset before anything is changed. Read once: every move of a drag asks for it."""
        if preset not in self._bases:
            options = {n: self.traits()[n].default() for n in self._options}
            given = options | self._preset_values(preset)
            matrices = {n: trait.validate(self, given[n]) for n, trait in self._inputs.items()}
            self._bases[preset] = {n: (given | matrices)[n] for n in self._addressed()}
        return self._bases[preset]

    def _apply(self, values: Mapping[str, Any]) -> None:
        # Matrices first: what is allowed for the rest (the tracked query) depends on their sizes.
        for n in sorted(values, key=lambda name: name not in self._inputs):
            setattr(self, n, values[n])

    def _apply_with_followers(self, values: Mapping[str, Any]) -> None:
        """As `_apply`, and what must follow these follows, unless it is among them."""
        before = {n: getattr(self, n) for n in values}
        self._apply(values)
        for n in values:
            if not equal(getattr(self, n), before[n]):
                self.follow(n)
        self._apply(values)

    def _restore(self, state: Mapping[str, Any] | None) -> None:
        if state is not None:
            with self._batch(record=False):
                other = state["preset"] != self.preset
                self._apply(state)
                # A preset also chose what is told; going back to it tells that again.
                told = self.presets[self.preset] if other else {}
                for n in self._options:
                    if n in told:
                        setattr(self, n, told[n])

    # ------------------------------------------------------------ changes

    @contextmanager
    def _batch(self, *, record: bool = True, gesture: Any = None) -> Iterator[None]:
        """Changes inside are one change: one computation, one step of undo."""
        self._depth += 1
        try:
            yield
        finally:
            self._depth -= 1
        # Not reached after an exception: whoever catches it decides what to show.
        if self._depth == 0:
            if self._ready and record:
                self._history.record(self._undoable(), gesture)
            self._refresh()

    def _on_trait(self, change: Any) -> None:
        if self._depth == 0:
            with self._batch():
                if change["name"] == "preset":
                    self._apply(self._preset_values(change["new"]))
                else:
                    self.follow(change["name"])
