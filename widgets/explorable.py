"""Explorable: controls → engine → trace → view. What a page declares, and how it is computed and shown.

A page's own class declares its inputs and switches as traits, its presets, and one method,
`compute`. Everything a reader can do with numbers is in the classes below it, once, for all pages:
`Stateful` (presets, undo, link) and `Edited` (requests of the reader).
"""

import logging
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

import ipywidgets
import traitlets as t
from IPython.display import display
from torch import Tensor

from attnlab.engine import Stage, Trace, record
from attnlab.widgets.chosen import Chosen, cell_of, word_of
from attnlab.widgets.control_bar import Command, Control, ControlBar, Link, Menu, Select, Stepper, Toggle
from attnlab.widgets.edited import Edited
from attnlab.widgets.explaining import is_place, panel
from attnlab.widgets.history import History
from attnlab.widgets.later import Later
from attnlab.widgets.matrix import Mask
from attnlab.widgets.measure_text import measured
from attnlab.widgets.plotter import Picture, Plotter
from attnlab.widgets.read_only import plain, read_only_trace
from attnlab.widgets.result import Result
from attnlab.widgets.still import beside_widget, numbers_text, still_html
from attnlab.widgets.trace_view import TraceView, answer

if TYPE_CHECKING:
    from attnlab.widgets.figure import StageFigure

__all__ = ["Explorable"]

_log = logging.getLogger("attnlab")

# Longer than a frame: in a drag the numbers come first, and the link when the hand rests.
_ADDRESS_SECONDS = 0.03


class Explorable(Edited):
    """Base of all explorables.

    States: *ready*, *stopped* (the code raised: everything up to there is shown), *invalid* (the last
    good result stays, marked as such; `message` names the field) and *failed* (a fault of ours; the
    detail is in the log).
    """

    cover: ClassVar[tuple[str, ...]] = ()
    """The stages that `figure` draws when none is named: the first of them that there is."""

    chosen = Chosen("").tag(state="view")
    """The number that is explained, `"weights,1,2"`: a stage, and a place in it. Empty for none."""
    state = t.Enum(("ready", "stopped", "invalid", "failed"), "ready", read_only=True)
    message = t.Unicode("", read_only=True)

    def __init__(self, *, preset: str | None = None, name: str = "", **values: Any) -> None:
        self._declare()
        self._sent = 0
        self._last: Result | None = None
        self._require_known(values)
        if not re.fullmatch(r"[\w-]*", name):
            raise ValueError(f"name: expected letters, digits, - and _, got {name[:40]!r}")
        self.bar = ControlBar(
            controls=self.controls(), address_names=[name + "." * bool(name) + n for n in self._addressed()]
        )
        self.view = TraceView(stages=self.stages(), layout_blocks=self.layout_blocks())
        self.plotter = Plotter(self._show_plots)
        self._address_later = Later(self._show_address, _ADDRESS_SECONDS)
        super().__init__()
        self.set_trait("name", name)
        self.add_class("attnlab-explorable")
        self.add_class(f"attnlab-drawn-{self.model_id}")
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
        if self._last is not None:  # computed once, above: code of a reader's own runs once for what is shown
            self._show(self._last, None, stale=False)
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

    def stages(self) -> dict[str, dict[str, Any]]:
        """How each stage is drawn."""
        raise NotImplementedError

    def layout_blocks(self) -> list[dict[str, Any]]:
        """The blocks of the view from top to bottom."""
        raise NotImplementedError

    def compute(self) -> Result:
        """The result of the present inputs. Raises `ValueError` with a message for the reader."""
        raise NotImplementedError

    # ------------------------------------------------------------ what all pages share

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
                "maxSizes": list(trait.max_sizes),
            }
            for name, trait in self._inputs.items()
        }

    def matrices(self) -> dict[str, Tensor]:
        """The inputs as ordinary tensors, for `compute`."""
        return self._plain

    # ------------------------------------------------------------ computing

    def _refresh(self) -> None:
        """Computes and shows. Observers swallow errors, so every one must end in a visible state."""
        wrong: dict[str, Any] | None = None
        stale = True
        self.view.set_trait("selected", cell_of(self.chosen))
        try:
            self._last = self._computed()
            for n, value in self._last.published.items():
                self.set_trait(n, read_only_trace(value) if isinstance(value, Trace) else value)
            stale = False
            state, message = "ready", self._last.message
            if self._last.stopped:
                state, message = "stopped", self._last.stopped
        except ValueError as error:
            state, message = "invalid", self._as_sentence(str(error))
            wrong = {"inputs": self._inputs_named_in(str(error))}
        except Exception:
            _log.exception("%s could not compute", type(self).__name__)
            state, message = (
                "failed",
                "This could not be computed; the fault is ours. Undo brings the last state back.",
            )
        if self._refused:
            state, message = "invalid", self._refused.message
            stale = stale or not self._refused.partly
            wrong = {"inputs": [self._refused.input], "row": self._refused.row}
        self.set_trait("state", state)
        self.set_trait("message", message)
        if self._last is not None and self._ready:
            self._show(self._last, wrong, stale=stale)

    def _computed(self) -> Result:
        self._plain = {n: plain(getattr(self, n)) for n in self._inputs}
        result = self._recorded() if self.chosen else self.compute()
        return replace(result, checks=[*result.checks, *result.make_checks()])

    def _recorded(self) -> Result:
        with record() as tape:
            for n, trait in self._inputs.items():
                tape.name(self._plain[n], n, trait.axes)
            result = self.compute()
        return replace(result, tape=tape)

    def _inputs_named_in(self, message: str) -> list[str]:
        """The inputs that a message of the engine names: 'q and k: expected …'."""
        named = message.split(":", 1)[0].split(" and ")
        return [n for n in self._inputs if n in named]

    # ------------------------------------------------------------ showing

    def _show(self, last: Result, wrong: Mapping[str, Any] | None, *, stale: bool) -> None:
        """Sends everything: the numbers in one message, then the controls, then the plots."""
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
                {**last.tensors, **self._plain},
                ack=ack,
                nonce=nonce,
                state=self.state,
                stale=stale,
                message=self.message,
                refused=self._refused.sent() if self._refused else None,
                wrong=wrong,
                texts=last.texts,
                tags=last.tags,
                checks=[
                    {"name": c.name, "text": measured(c), "how": c.how, "holds": c.holds, "step": step}
                    for c, step in last.checks
                ],
                **(self._explained(last) if self.state in ("ready", "stopped") else {}),
            )
        self._show_controls(last)
        self.plotter.draw(last.plots)

    def _show_plots(self, pictures: Mapping[str, Picture]) -> None:
        with self.view.hold_sync():  # what is as before isn't sent
            self.view.grounds = {n: picture.ground for n, picture in pictures.items()}
            self.view.plots = {n: {"marks": p.marks, "name": p.name} for n, p in pictures.items()}

    def _explained(self, last: Result) -> dict[str, Any]:
        """The panel of the chosen number; nothing where it can't be explained: the numbers matter more."""
        try:
            return self._explanation(last)
        except Exception:
            _log.exception("%r could not be explained", self.view.selected)
            return {}

    def _explanation(self, last: Result) -> dict[str, Any]:
        if last.tape is None or self.view.selected is None:
            return {}
        shown = {n: x for n, x in {**last.tensors, **self._plain}.items() if n in self.view.stages}
        versions = last.versions or {n: last.tape.version(tensor) for n, tensor in shown.items()}
        return panel(last.tape, versions, self.view.selected, slopes=getattr(self, "gradient", False))

    def _show_controls(self, last: Result) -> None:
        values = {n: getattr(self, n) for n in ["preset", *self._switches, *self._options]}
        disabled = [
            n for n, can in (("undo", self._history.can_undo), ("redo", self._history.can_redo)) if not can
        ]
        changed = self._changed()
        edited = changed.keys() & {*self._inputs, *self._switches}
        shown = {
            "values": values,
            "limits": dict(last.limits),
            "disabled": [*disabled, *last.disabled],
            "notes": {"preset": "edited" if edited else ""},
            "refused": self._refused_field(),
        }
        if all(getattr(self.bar, n) == value for n, value in shown.items()):
            self._address_later.ask()
            return
        with self.bar.hold_sync():
            for n, value in shown.items():
                setattr(self.bar, n, value)
            self._address_later.stop()
            self.bar.address = self._address_of(changed)

    def _refused_field(self) -> dict[str, str]:
        refused = self._refused
        if refused is None or refused.input is None or refused.input not in self._switches:
            return {}
        return {refused.input: refused.text}

    def _show_address(self) -> None:
        self.bar.address = self.address

    def _on_selected(self, change: Any) -> None:
        self.chosen = word_of(change["new"])

    def _is_there(self, chosen: str) -> bool:
        cell = cell_of(chosen)
        return cell is not None and cell["stage"] in self.view.stages and self._number_at(cell) is not None

    def _number_at(self, cell: Mapping[str, Any] | None) -> Tensor | None:
        """The number of a cell in the last good result; None where there is no such cell."""
        if cell is None or self._last is None:
            return None
        numbers = {**self._last.tensors, **self._plain}.get(cell["stage"])
        if numbers is None or not is_place(cell["index"], numbers.shape):
            return None
        return numbers[tuple(cell["index"])]

    # ------------------------------------------------------------ taking along

    def __repr__(self) -> str:
        # What a saved notebook shows where no widgets can be drawn.
        return self.code() if "_history" in vars(self) else object.__repr__(self)

    def _repr_mimebundle_(self, **kwargs: Any) -> dict[str, Any]:
        bundle: dict[str, Any] = super()._repr_mimebundle_(**kwargs)
        # For places that draw no widgets, such as an exported page: never an empty box.
        return bundle | {"text/html": self.still()}

    def _ipython_display_(self, **kwargs: Any) -> None:
        """Shows the widget, and a still beside it for when the widget was kept and can't be drawn."""
        bundle = super()._repr_mimebundle_(**kwargs)
        display(bundle, raw=True)
        still = beside_widget(self.still(), self.model_id)
        # Marked, so that a page which always draws the widget can leave it out.
        display({"text/html": still, "text/plain": ""}, metadata={"attnlab_still": True}, raw=True)

    def still(self) -> str:
        """What is shown where no widgets can be drawn, as HTML: the numbers, and how to make them move."""
        return still_html(self.code(), self.still_stages())

    def still_stages(self) -> Iterator[Stage]:
        """The stages of `still`."""
        yield from ()

    def all_stages(self) -> Iterator[Stage]:
        """The stages whose numbers can be copied."""
        return self.still_stages()

    def figure(self, stage: str = "") -> "StageFigure":
        """A matplotlib figure of one stage of the last good result, for slides: titled, with its numbers.

        Default: the stage that tells most of the page (`cover`). Leading axes become a picture each. Raises
        `KeyError` for a stage that there isn't.
        """
        from attnlab.widgets.figure import stage_figure  # matplotlib is slow to load, and needed only here

        stages = {found.name: found for found in self.all_stages()}
        wanted = stage or self._covered(stages)
        if wanted not in stages:
            raise KeyError(f"expected one of the stages {', '.join(stages)}, got {wanted!r}")
        whole = self.view.stages.get(wanted, {}).get("whole", False)
        return stage_figure(stages[wanted], decimals=0 if whole else getattr(self, "decimals", 4))

    def _covered(self, stages: Iterable[str]) -> str:
        there = set(stages)
        return next((n for n in self.cover if n in there), "")

    def numbers(self) -> str:
        """All stages of the last good result as tab-separated text at full precision."""
        return numbers_text(self.all_stages())

    def export(self, name: str, value: Any) -> None:
        """Takes something along: the link (in a notebook: as code), numbers, a picture."""
        if name == "link" or value == "python":
            self._copy(self.code())
        elif value == "numbers":
            self._copy(self.numbers())
        elif value == "svg":
            page = type(self).__name__.removesuffix("Explorable").lower()
            stage = self._covered([found.name for found in self.all_stages()])
            self._save(f"{page}-{stage.replace(' ', '-')}.svg", "image/svg+xml", self.figure(stage).svg())
        else:
            raise ValueError(f"expected a known export, got {name!r}")

    def _copy(self, text: str) -> None:
        self._sent += 1
        self.bar.clipboard = {"text": text, "id": self._sent}

    def _save(self, filename: str, mime: str, text: str) -> None:
        self._sent += 1
        self.bar.download = {"filename": filename, "mime": mime, "text": text, "id": self._sent}

    def close(self) -> None:
        """Frees the widgets of both sides."""
        # Python also closes an explorable whose constructor was refused before it had any parts.
        parts = [vars(self)[part] for part in ("bar", "view") if part in vars(self)]
        if "plotter" in vars(self):
            self.plotter.stop()
            self._address_later.stop()
        for widget in (*parts, self):
            widget.unobserve_all()
            if isinstance(widget.layout, ipywidgets.Layout):
                widget.layout.close()
        for part in parts:
            part.close()
        super().close()
