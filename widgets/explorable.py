"""Explorable: controls → engine → trace → view, with its states, undo, presets and address.

A page's own class declares its inputs and switches as traits, its presets, and one method,
`compute`. Everything a reader can do with numbers is here, once, for all pages.
"""

import html
import logging
import operator
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar

import ipywidgets
import torch
import traitlets as t
from torch import Tensor

from attnlab.engine import Check, MatrixError, Stage, Tape, Version, format_matrix, parse_number, record
from attnlab.widgets.address import decode, encode
from attnlab.widgets.control_bar import Command, Control, ControlBar, Link, Menu, Select, Stepper, Toggle
from attnlab.widgets.explaining import explain_cell, gradients
from attnlab.widgets.history import History, equal
from attnlab.widgets.matrix import Mask, Matrix
from attnlab.widgets.measure_text import measured
from attnlab.widgets.plotter import Plot, Plotter
from attnlab.widgets.read_only import plain
from attnlab.widgets.trace_view import TraceView, answer
from attnlab.widgets.words import AXIS_NAMES

if TYPE_CHECKING:
    from attnlab.widgets.figure import StageFigure

__all__ = ["Explorable", "Result"]

_log = logging.getLogger("attnlab")


@dataclass(frozen=True)
class Result:
    """What `compute` found: tensors by stage name, and what is said of them."""

    tensors: Mapping[str, Tensor]
    checks: Sequence[tuple[Check, int]] = ()
    """Each check with the step from which on it can be made; 0 = always."""
    texts: Mapping[str, str] = field(default_factory=dict)
    message: str = ""
    limits: Mapping[str, int] = field(default_factory=dict)
    """Name of a stepper → its largest value."""
    tracked: Mapping[str, int] = field(default_factory=dict)
    tape: Tape | None = None
    """What was recorded, when a number has been chosen to explain itself."""
    versions: Mapping[str, Version] | None = None
    """Stage → recorded version, where a tensor was changed in place and so has several."""
    stages: Mapping[str, Mapping[str, Any]] | None = None
    """How each stage is drawn, where that depends on the result."""
    layout_blocks: Sequence[Mapping[str, Any]] | None = None
    """The blocks of the view, where they depend on the result."""
    disabled: Sequence[str] = ()
    """Commands that would do nothing now."""
    labels: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Axis name → label of each position; numbered by default."""
    plots: Mapping[str, Plot] = field(default_factory=dict)
    """Plots by name, drawn after the numbers have been sent."""
    tags: Sequence[Mapping[str, Any]] = ()
    """Elements that are followed from stage to stage: {label, cells: {stage: index}}."""
    stopped: str = ""
    """Why the computation ended early; what came before is shown."""


class Explorable(ipywidgets.VBox):
    """Base of all explorables.

    Traits tagged `state="input"` (and every `Matrix`) change the result, belong to presets and are
    undone; traits tagged `state="view"` only choose what is told. Both are constructor arguments,
    controls of the same name, and parameters of the address.

    States: *ready*, *stopped* (the code raised: everything up to there is shown), *invalid* (the last
    good result stays, marked as such; `message` names the field) and *failed* (a fault of ours; the
    detail is in the log).
    """

    presets: ClassVar[Mapping[str, Mapping[str, Any]]]
    """Name → values; the first is the default. What a preset leaves out has its trait's default."""

    cover: ClassVar[str] = ""
    """The stage that `figure` draws when none is named."""

    state = t.Enum(("ready", "stopped", "invalid", "failed"), "ready", read_only=True)
    message = t.Unicode("", read_only=True)
    name = t.Unicode("", read_only=True)
    """Tells several explorables on one page apart in its address: parameters are called `name.q` then."""

    def __init__(self, *, preset: str | None = None, name: str = "", **values: Any) -> None:
        self._ready = False
        self._depth = 0
        self._refused: dict[str, Any] | None = None
        self._refusal = ""
        self._answered = (0, "")
        self._gesture: Any = None
        self._taken_back: Any = None
        self._sent = 0
        self._last: Result | None = None
        # In the order in which the class declares them; `traits()` sorts them by name.
        declared = [n for kind in reversed(type(self).__mro__) for n in vars(kind)]
        self._inputs = {n: trait for n in declared if isinstance(trait := self.traits().get(n), Matrix)}
        self._switches = [n for n, trait in self.traits().items() if trait.metadata.get("state") == "input"]
        self._options = [n for n, trait in self.traits().items() if trait.metadata.get("state") == "view"]
        self._require_known(values)
        self.bar = ControlBar(
            controls=self.controls(), address_names=[name + "." * bool(name) + n for n in self._addressed()]
        )
        self.view = TraceView(stages=self.stages(), layout_blocks=self.layout_blocks())
        self.plotter = Plotter(self._show_plots)
        super().__init__()
        self.set_trait("name", name)
        self.add_class("attnlab-explorable")
        try:
            with self._batch():
                self._apply(self._preset_values(preset or next(iter(self.presets))))
                self._apply_with_followers(values)
            if self.state not in ("ready", "stopped"):
                raise ValueError(self.message)
        except Exception as error:
            self.close()
            if isinstance(error, t.TraitError):
                raise ValueError(str(error)) from None
            raise
        self._history = History(self._undoable())
        self._ready = True
        self._refresh()
        self.children = (self.bar, self.view)
        self.observe(self._on_trait, [*self._inputs, *self._switches, *self._options, "preset"])
        self.view.observe(self._on_view_request, "request")
        self.view.observe(self._on_selected, "selected")
        self.bar.observe(self._on_bar_request, "request")
        self.bar.observe(self._on_search, "search")

    # ------------------------------------------------------------ what a page declares

    def controls(self) -> list[list[Control]]:
        """Rows of controls, each named after a trait or a command."""
        raise NotImplementedError

    def preset_control(self) -> Control:
        """Which preset, at the beginning of the first row."""
        return Select("preset", "Preset", [(name, name) for name in self.presets], hide_label=True)

    def gradient_control(self) -> Control:
        """Whether the gradient of the chosen number lies over the others."""
        return Toggle("gradient", "gradient of the chosen number")

    def number_controls(self) -> list[Control]:
        """How numbers are shown: digits, and the gradient."""
        digits = Stepper("decimals", "digits", less="fewer digits", more="more digits", minimum=2)
        return [digits, self.gradient_control()]

    def common_controls(self) -> list[Control]:
        """What stands at the end of the first row on every page."""
        return [
            Command("undo", "Undo"),
            Command("redo", "Redo"),
            Command("reset", "Reset"),
            Link("link", "Copy link"),
            Menu(
                "export",
                "Export",
                [
                    ("python", "Copy as Python"),
                    ("numbers", "Copy all numbers"),
                    *([("svg", "Save picture (SVG)")] if self.cover else []),
                ],
            ),
        ]

    def stages(self) -> dict[str, dict[str, Any]]:
        """How each stage is drawn."""
        raise NotImplementedError

    def input_stages(self) -> dict[str, dict[str, Any]]:
        """How the inputs are drawn: grids that can be edited, masks that can be switched."""
        return {
            name: {
                "title": trait.label,
                "role": trait.role,
                "axes": list(trait.axes),
                "editable": True,
                "toggle": isinstance(trait, Mask),
                "plainText": isinstance(trait, Mask) or len(trait.axes) != 2,
                "limit": trait.limit,
                "maxSize": trait.max_size,
            }
            for name, trait in self._inputs.items()
        }

    def layout_blocks(self) -> list[dict[str, Any]]:
        """The blocks of the view from top to bottom."""
        raise NotImplementedError

    def compute(self) -> Result:
        """The result of the present inputs. Raises `ValueError` with a message for the reader."""
        raise NotImplementedError

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
        """Back to the values of the preset chosen last."""
        with self._batch():
            self._apply(self._preset_values(self.preset))

    @property
    def address(self) -> str:
        """The state as the query part of an address: `preset=…&q=…`, empty for the default."""
        return encode({self._prefix + n: value for n, value in self._changed().items()})

    def code(self) -> str:
        """The line of Python that makes this explorable in its present state."""
        arguments = [f"name={self.name!r}"] if self.name else []
        for n, value in self._changed().items():
            shown = value.tolist() if isinstance(value, Tensor) else value
            arguments.append(f"{n}={shown!r}")
        return f"{type(self).__name__}({', '.join(arguments)})"

    def __repr__(self) -> str:
        # What a saved notebook shows where no widgets can be drawn.
        return self.code() if "_history" in vars(self) else object.__repr__(self)

    def _repr_mimebundle_(self, **kwargs: Any) -> dict[str, Any]:
        bundle: dict[str, Any] = super()._repr_mimebundle_(**kwargs)
        # For places that draw no widgets, such as an exported page: never an empty box.
        return bundle | {"text/html": self.still()}

    def still(self) -> str:
        """What is shown where no widgets can be drawn, as HTML: the numbers, and how to make them move."""
        tables = "".join(self.still_table(stage) for stage in self.still_stages())
        return f"<p><code>{html.escape(self.code())}</code> shows this when its notebook runs:</p>{tables}"

    def still_stages(self) -> Iterator[Stage]:
        """The stages of `still`."""
        yield from ()

    def all_stages(self) -> Iterator[Stage]:
        """The stages whose numbers can be copied."""
        return self.still_stages()

    def figure(self, stage: str = "") -> "StageFigure":
        """A matplotlib figure of one stage of the last good result, for slides: titled, with its numbers.

        Default: the stage that tells most of the page (`cover`). Raises `KeyError` for a stage that there
        isn't, `ValueError` for one of more than two axes.
        """
        from attnlab.widgets.figure import stage_figure  # matplotlib is slow to load, and needed only here

        stages = {found.name: found for found in self.all_stages()}
        wanted = stage or self.cover
        if wanted not in stages:
            raise KeyError(f"expected one of the stages {', '.join(stages)}, got {wanted!r}")
        whole = self.view.stages.get(wanted, {}).get("whole", False)
        return stage_figure(stages[wanted], decimals=0 if whole else getattr(self, "decimals", 4))

    def still_table(self, stage: Stage) -> str:
        """One stage as an HTML table."""
        rows = stage.tensor.reshape(-1, stage.tensor.shape[-1] if stage.axes else 1).tolist()
        shape = " × ".join(f"{axis} {n}" for axis, n in zip(stage.axes, stage.tensor.shape, strict=True))
        cells = "".join(f"<tr>{''.join(f'<td>{x:.4g}</td>' for x in row)}</tr>" for row in rows)
        return f"<table><caption>{html.escape(stage.name)} · {html.escape(shape)}</caption>{cells}</table>"

    def close(self) -> None:
        """Frees the widgets of both sides."""
        # Python also closes an explorable whose constructor was refused before it had any parts.
        parts = [vars(self)[part] for part in ("bar", "view") if part in vars(self)]
        if "plotter" in vars(self):
            self.plotter.stop()
        for widget in (*parts, self):
            widget.unobserve_all()
            if isinstance(widget.layout, ipywidgets.Layout):
                widget.layout.close()
        for part in parts:
            part.close()
        super().close()

    # ------------------------------------------------------------ state

    def _require_known(self, values: Mapping[str, Any]) -> None:
        known = [*self._inputs, *self._switches, *self._options]
        for n in values:
            if n not in known:
                expected = ", ".join(["preset", "name", *known])
                raise TypeError(f"{type(self).__name__} has no argument {n!r}; expected one of {expected}")

    def _addressed(self) -> list[str]:
        return ["preset", *self._inputs, *self._switches, *self._options]

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
        base = {n: self.traits()[n].default() for n in self._options} | self._preset_values(self.preset)
        changed = {"preset": self.preset} if self.preset != next(iter(self.presets)) else {}
        for n in [*self._inputs, *self._switches, *self._options]:
            value = getattr(self, n)
            default = self.traits()[n].validate(self, base[n]) if isinstance(value, Tensor) else base[n]
            if not equal(value, default):
                changed[n] = value
        return changed

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
            self._refused = None
            with self._batch():
                if change["name"] == "preset":
                    self._apply(self._preset_values(change["new"]))
                else:
                    self.follow(change["name"])

    def follow(self, name: str) -> None:
        """After `name` was changed alone: changes what must follow it, for example a mask of its size."""

    # ------------------------------------------------------------ computing and showing

    def _refresh(self) -> None:
        """Computes and shows. Observers swallow errors, so every one must end in a visible state."""
        wrong: dict[str, Any] | None = None
        try:
            self._last = self._computed()
            state, message = "ready", self._last.message
            if self._last.stopped:
                state, message = "stopped", self._last.stopped
        except ValueError as error:
            state, message = "invalid", _sentence(self._with_labels(str(error)))
            wrong = {"inputs": self._inputs_named_in(str(error))}
        except Exception:
            _log.exception("%s could not compute", type(self).__name__)
            state, message = (
                "failed",
                "This could not be computed; the fault is ours. Undo brings the last state back.",
            )
        if self._refused:
            state, message = "invalid", self._refusal
            wrong = {"inputs": [self._refused["input"]], "row": self._refused.get("row")}
        self.set_trait("state", state)
        self.set_trait("message", message)
        if self._last is None or not self._ready:
            return
        last = self._last
        tensors = {**last.tensors, **self._plain}
        ack, nonce = self._answered
        with self.view.hold_sync():
            self.view.tracked = dict(last.tracked)
            self.view.labels = {axis: list(names) for axis, names in last.labels.items()}
            if last.stages is not None:
                self.view.stages = {n: dict(spec) for n, spec in last.stages.items()}
            if last.layout_blocks is not None:
                self.view.layout_blocks = [dict(block) for block in last.layout_blocks]
            for n in ("step", "decimals"):
                if self.has_trait(n):
                    setattr(self.view, n, getattr(self, n))
            self.view.answer = answer(
                tensors,
                ack=ack,
                nonce=nonce,
                state=state,
                message=message,
                refused=self._refused,
                wrong=wrong,
                texts=last.texts,
                tags=last.tags,
                checks=[
                    {"name": c.name, "text": measured(c), "how": c.how, "holds": c.holds, "step": step}
                    for c, step in last.checks
                ],
                **(self._explained(last) if state in ("ready", "stopped") else {}),
            )
        self._show_controls(last)
        self.plotter.draw(last.plots)

    def _show_plots(self, svgs: Mapping[str, str]) -> None:
        self.view.plots = dict(svgs)

    def matrices(self) -> dict[str, Tensor]:
        """The inputs as ordinary tensors, for `compute`."""
        return self._plain

    def _computed(self) -> Result:
        self._plain = {n: plain(getattr(self, n)) for n in self._inputs}
        if not self._ready or self.view.selected is None:
            return self.compute()
        return self._recorded()

    def _recorded(self) -> Result:
        with record() as tape:
            for n, trait in self._inputs.items():
                tape.name(self._plain[n], n, trait.axes)
            result = self.compute()
        return replace(result, tape=tape)

    def _explained(self, last: Result) -> dict[str, Any]:
        """The panel of the chosen number; nothing where it can't be explained: the numbers matter more."""
        try:
            return self._explanation(last)
        except Exception:
            _log.exception("%r could not be explained", self.view.selected)
            return {}

    def _explanation(self, last: Result) -> dict[str, Any]:
        chosen = self.view.selected
        if last.tape is None or chosen is None:
            return {}
        shown = {n: x for n, x in {**last.tensors, **self._plain}.items() if n in self.view.stages}
        versions = last.versions or {n: last.tape.version(tensor) for n, tensor in shown.items()}
        explanation = explain_cell(last.tape, versions, chosen["stage"], chosen["index"])
        if explanation is None or not getattr(self, "gradient", False):
            return {"explanation": explanation}
        if not versions[chosen["stage"]].values.is_floating_point():
            return {"explanation": explanation}
        slopes = gradients(last.tape, versions, chosen["stage"], chosen["index"])
        return {"explanation": explanation, "gradients": slopes}

    def _show_controls(self, last: Result) -> None:
        values = {n: getattr(self, n) for n in ["preset", *self._switches, *self._options]}
        disabled = [
            n for n, can in (("undo", self._history.can_undo), ("redo", self._history.can_redo)) if not can
        ]
        with self.bar.hold_sync():
            self.bar.values = values
            self.bar.limits = dict(last.limits)
            self.bar.disabled = [*disabled, *last.disabled]
            self.bar.address = self.address
            self.bar.notes = {"preset": "edited" if self._is_edited() else ""}

    def _is_edited(self) -> bool:
        return bool(self._changed().keys() & {*self._inputs, *self._switches})

    def _inputs_named_in(self, message: str) -> list[str]:
        """The inputs that a message of the engine names: 'q and k: expected …'."""
        named = message.split(":", 1)[0].split(" and ")
        return [n for n in self._inputs if n in named]

    def _with_labels(self, message: str) -> str:
        """The engine says q, as in code; the page says Q, as on its grids."""
        labels = {n: trait.label for n, trait in self._inputs.items()}
        # Words such as "time" mean more than a control; names with an underscore are names.
        controls = [control for row in self.bar.controls for control in row]
        labels |= {c["name"]: c["label"] for c in controls if "_" in c["name"] and c.get("label")}
        for n, label in labels.items():
            message = re.sub(rf"\b{n}\b", label, message)
        return message

    # ------------------------------------------------------------ what the reader does

    def _on_selected(self, change: Any) -> None:
        self._refresh()

    def _on_view_request(self, change: Any) -> None:
        number, nonce, edits = _received(change["new"])
        self._answered = (number, nonce)
        self._refused = None
        with self._batch(record=False):
            for edit in edits:
                self._act(edit)
        # At most one request waits behind another: what comes after it is new.
        self._taken_back = None

    def _act(self, edit: Mapping[str, Any]) -> None:
        # With the nonce: another window, or this one reloaded, counts its gestures from 0 too.
        gesture = (self._answered[1], edit["gesture"]) if "gesture" in edit else None
        if gesture is not None and gesture == self._taken_back:
            return
        self._gesture = gesture
        try:
            if "command" in edit:
                self._command(edit["command"])
            elif "resize" in edit:
                self._resize(edit["resize"], 1 if edit["by"] > 0 else -1)
            else:
                self._edit(edit)
            self._history.record(self._undoable(), gesture)
        except (MatrixError, t.TraitError) as error:
            self._refused = {
                "input": edit.get("input"),
                "index": edit.get("index"),
                "text": str(edit.get("text", edit.get("value", ""))),
                "row": getattr(error, "row", None),
            }
            self._refusal = _sentence(str(error))
        except (LookupError, TypeError, ValueError, ArithmeticError, AttributeError):
            # A request that no script of ours makes. It changes nothing.
            _log.warning("a request was not understood: %r", str(edit)[:200])

    def _edit(self, edit: Mapping[str, Any]) -> None:
        name = edit["input"]
        trait = self._inputs[name]
        if edit.get("index") is None:
            if not isinstance(edit["text"], str):
                raise TypeError("expected text")
            setattr(self, name, edit["text"])
            self.follow(name)
            return
        index = tuple(operator.index(i) for i in edit["index"])
        if min(index, default=0) < 0:
            raise IndexError("a cell is counted from the first row and column")
        matrix = getattr(self, name).clone().double()  # a 0.5 would be true in a mask
        # Named as on the screen, where positions count from 0; rows of a text count from 1.
        places = (f"{AXIS_NAMES.get(axis, axis)} {n}" for axis, n in zip(trait.axes, index, strict=True))
        where = f"{trait.label}[{', '.join(places)}]"
        try:
            text = edit["text"] if "text" in edit else repr(float(edit["value"]))
            matrix[index] = parse_number(text, name=where, limit=trait.limit)
        except MatrixError as error:
            raise MatrixError(str(error), *(index[-2:] if len(index) > 1 else ())) from None
        setattr(self, name, matrix)
        self.follow(name)

    def _resize(self, axis: str, by: int) -> None:
        """One more or one less along `axis`, in every input that has it: Q and K keep a common width."""
        resized = {}
        for name, trait in self._inputs.items():
            if axis not in trait.axes or trait.shape is not None:
                continue
            matrix = getattr(self, name)
            dim = trait.axes.index(axis)
            size = matrix.shape[dim] + by
            if not 1 <= size <= trait.max_size:
                raise MatrixError(f"{trait.label}: expected 1 to {trait.max_size} along {axis}, got {size}")
            if by < 0:
                matrix = matrix.narrow(dim, 0, size)
            else:
                shape = list(matrix.shape)
                shape[dim] = 1
                matrix = torch.cat([matrix, torch.full(shape, trait.blank, dtype=matrix.dtype)], dim)
            resized[name] = matrix
        self._apply(resized)
        for name in resized:
            self.follow(name)

    def _command(self, name: str) -> None:
        # "revert" gives a refused input up; every request begins by forgetting it.
        commands = {"undo": self.undo, "redo": self.redo, "reset": self.reset, "revert": lambda: None}
        (commands | self.commands())[name]()

    def commands(self) -> dict[str, Callable[[], None]]:
        """Buttons of this page's own, by name."""
        return {}

    def _on_bar_request(self, change: Any) -> None:
        number, nonce, edits = _received(change["new"])
        self._refused = None
        for edit in edits:
            name, value = str(edit.get("name")), edit.get("value")
            try:
                if name in ("undo", "redo", "reset") or name in self.commands():
                    # The last moves of a drag may still be on their way from the view: what was pressed
                    # after them must not be undone by them.
                    self._taken_back = self._gesture
                    with self._batch(record=name not in ("undo", "redo")):
                        self._command(name)
                elif name == "preset":
                    with self._batch():
                        self._apply(self._preset_values(str(value)))
                elif name in self._switches or name in self._options:
                    gesture = (nonce, edit["gesture"]) if "gesture" in edit else None
                    with self._batch(gesture=gesture):
                        setattr(self, name, value)
                        self.follow(name)
                else:
                    self.export(name, value)
            except MatrixError as error:
                # Typed by the reader: told on the page, with the number that was refused.
                self._refused = {"input": name, "index": None, "text": str(value), "row": None}
                self._refusal = _sentence(str(error))
                self._refresh()
            except (KeyError, TypeError, ValueError, t.TraitError) as error:
                _log.warning("a change of %r was refused: %s", name, error)
                self._refresh()
        self.bar.ack = {"id": number, "nonce": nonce}

    def export(self, name: str, value: Any) -> None:
        """Takes something along: the link (in a notebook: as code), numbers, a picture."""
        if name == "link" or value == "python":
            self._copy(self.code())
        elif value == "numbers":
            self._copy(self.numbers())
        elif value == "svg":
            page = type(self).__name__.removesuffix("Explorable").lower()
            self._save(f"{page}-{self.cover.replace(' ', '-')}.svg", "image/svg+xml", self.figure().svg())
        else:
            raise ValueError(f"expected a known export, got {name!r}")

    def numbers(self) -> str:
        """All stages of the last good result as tab-separated text at full precision."""
        blocks = []
        for stage in self.all_stages():
            sizes = " × ".join(f"{axis} {n}" for axis, n in zip(stage.axes, stage.tensor.shape, strict=True))
            rows = stage.tensor.double().reshape(-1, stage.tensor.shape[-1] if stage.axes else 1)
            blocks.append(f"{stage.name} · {sizes}\n{format_matrix(rows, separator=chr(9))}")
        return "\n\n".join(blocks)

    def _copy(self, text: str) -> None:
        self._sent += 1
        self.bar.clipboard = {"text": text, "id": self._sent}

    def _save(self, filename: str, mime: str, text: str) -> None:
        self._sent += 1
        self.bar.download = {"filename": filename, "mime": mime, "text": text, "id": self._sent}

    def _on_search(self, change: Any) -> None:
        """The visitor's link. Warm kernels compute a page before its visitor comes, so it arrives late."""
        traits = {n: self.traits()[n] for n in self._addressed()}
        values, problems = decode(change["new"], traits, self._prefix)
        preset = values.pop("preset", next(iter(self.presets)))
        if preset not in self.presets:
            problems.append(f"The link's preset was not used: there is none called {preset[:40]!r}.")
            preset = next(iter(self.presets))
        with self._batch(record=False):
            self._apply(self._preset_values(preset))
            for n, value in sorted(values.items(), key=lambda item: item[0] not in self._inputs):
                try:
                    setattr(self, n, value)
                except (ValueError, t.TraitError) as error:
                    problems.append(f"The link's {n} was not used: {error}.")
            if problems:
                self._refused = {"input": None, "index": None, "text": ""}
                self._refusal = " ".join(problems)
        self._refused = None
        self._history.start(self._undoable())
        if self._last is not None:
            self._show_controls(self._last)


def _received(request: Mapping[str, Any]) -> tuple[int, str, list[Mapping[str, Any]]]:
    """Number, nonce and edits of a request; what no script of ours sends is left out."""
    number, nonce, edits = request.get("id"), request.get("nonce"), request.get("edits")
    return (
        number if isinstance(number, int) else 0,
        nonce if isinstance(nonce, str) else "",
        [edit for edit in edits if isinstance(edit, Mapping)] if isinstance(edits, list) else [],
    )


def _sentence(text: str) -> str:
    """An error as a sentence on the page."""
    text = text.rstrip(".")
    return f"{text[:1].upper()}{text[1:]}."
