"""Edited: what the reader does with numbers and controls becomes a change of state, or a refusal."""

import logging
import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
import traitlets as t

from attnlab.engine import MatrixError, parse_number
from attnlab.widgets.address import decode
from attnlab.widgets.read_only import plain
from attnlab.widgets.stateful import Stateful
from attnlab.widgets.words import AXIS_NAMES, sentence

if TYPE_CHECKING:
    from attnlab.widgets.control_bar import ControlBar

__all__ = ["Edited", "Refusal"]

_log = logging.getLogger("attnlab")


@dataclass(frozen=True)
class Refusal:
    """An input that was not taken, and why."""

    message: str
    input: str | None = None
    index: Any = None
    text: str = ""
    row: int | None = None
    partly: bool = False
    """The rest was taken: what is shown is the result of it, not an earlier one."""

    def sent(self) -> dict[str, Any]:
        """As the view reads it: what was refused stays where it was typed."""
        return {"input": self.input, "index": self.index, "text": self.text, "row": self.row}


class Edited(Stateful):
    """Requests of the view and of the bar, as data: nothing in them is trusted, nothing is executed."""

    bar: "ControlBar"
    chosen: str

    def _declare(self) -> None:
        super()._declare()
        self._refused: Refusal | None = None
        self._answered = (0, "")
        self._gesture: Any = None
        self._taken_back: Any = None

    def commands(self) -> dict[str, Callable[[], None]]:
        """Buttons of this page's own, by name."""
        return {}

    def export(self, name: str, value: Any) -> None:
        """Takes something along."""
        raise NotImplementedError

    def _is_there(self, chosen: str) -> bool:
        """Is there such a number, now?"""
        raise NotImplementedError

    # ------------------------------------------------------------ numbers

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
        gesture = _gesture(edit, self._answered[1])
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
            self._refused = Refusal(
                self._sentence(str(error)),
                input=edit.get("input"),
                index=edit.get("index"),
                text=str(edit.get("text", edit.get("value", ""))),
                row=getattr(error, "row", None),
            )
        except (LookupError, TypeError, ValueError, ArithmeticError, AttributeError):
            # A request that no script of ours makes. It changes nothing.
            _log.warning("a request was not understood: %r", str(edit)[:200])
        except Exception:
            self._not_done(edit)

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
        matrix = plain(getattr(self, name)).clone().double()  # a 0.5 would be true in a mask
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
            most = trait.max_sizes[dim]
            if not 1 <= size <= most:
                raise MatrixError(f"{trait.label}: expected 1 to {most} along {axis}, got {size}")
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

    def _not_done(self, edit: Mapping[str, Any]) -> None:
        """A fault of ours must not leave the page without an answer."""
        _log.exception("a request could not be dealt with: %r", str(edit)[:200])
        self._refused = Refusal("This could not be done; the fault is ours. Your numbers are as they were.")

    # ------------------------------------------------------------ controls and code

    def _on_trait(self, change: Any) -> None:
        if self._depth == 0:
            self._refused = None
        super()._on_trait(change)

    def _on_bar_request(self, change: Any) -> None:
        number, nonce, edits = _received(change["new"])
        self._refused = None
        with self.bar.hold_sync():  # what changed and that it was dealt with: one message, one frame
            for edit in edits:
                name = str(edit.get("name"))
                if name in self.bar.disabled and self._is_button(name):
                    continue  # pressed before the page knew
                try:
                    self._change(edit, nonce)
                except Exception:
                    self._not_done(edit)
                    self._refresh()
            self.bar.ack = {"id": number, "nonce": nonce}

    def _is_button(self, name: str) -> bool:
        """Does it ask for something to be done once?"""
        return name in ("undo", "redo", "reset") or name in self.commands()

    def _change(self, edit: Mapping[str, Any], nonce: str) -> None:
        name, value = str(edit.get("name")), edit.get("value")
        pressed = self._is_button(name)
        if pressed or name == "preset":
            # The last moves of a drag may still be on their way from the view: what was pressed, or chosen,
            # after them must not be undone by them.
            self._taken_back = self._gesture
        try:
            if pressed:
                with self._batch(record=name not in ("undo", "redo")):
                    self._command(name)
            elif name == "preset":
                with self._batch():
                    self._apply(self._preset_values(str(value)))
            elif name in self._switches or name in self._options:
                with self._batch(gesture=_gesture(edit, nonce)):
                    setattr(self, name, value)
                    self.follow(name)
            else:
                self.export(name, value)
        except MatrixError as error:
            # Typed by the reader: told on the page, with the number that was refused.
            self._refused = Refusal(self._as_sentence(str(error)), input=name, text=str(value))
            self._refresh()
        except (KeyError, TypeError, ValueError, t.TraitError) as error:
            _log.warning("a change of %r was refused: %s", name, error)
            self._refresh()

    def _sentence(self, message: str) -> str:
        return sentence(message)

    def _as_sentence(self, message: str) -> str:
        """A message of the engine as a sentence of the page, with the names that stand on the screen.

        The engine says q, as in code; the grid is called Q. A symbol stays as it is: p is not P, rho is ρ.
        """
        controls = {c["name"]: c["label"] for row in self.bar.controls for c in row if c.get("label")}
        labels = {n: trait.label for n, trait in self._inputs.items()}
        # Words such as "time" mean more than a control; names with an underscore are names.
        labels |= {n: label for n, label in controls.items() if "_" in n}
        for n, label in labels.items():
            message = re.sub(rf"\b{n}\b", label, message)
        name, colon, rest = message.partition(":")
        if colon and len(controls.get(name, "")) == 1:
            return f"{controls[name]}:{rest.rstrip('.')}."
        return sentence(message)

    # ------------------------------------------------------------ the link

    def _on_search(self, change: Any) -> None:
        """The visitor's link. Warm kernels compute a page before its visitor comes, so it arrives late."""
        if not change["new"]:
            return
        traits = {n: self.traits()[n] for n in self._addressed()}
        values, problems = decode(change["new"], traits, self._prefix)
        if not values and not problems:
            return  # of others, such as a token: what the notebook says stays as it is
        preset = values.pop("preset", next(iter(self.presets)))
        if preset not in self.presets:
            problems.append(f"The link's preset was not used: there is none called {preset[:40]!r}.")
            preset = next(iter(self.presets))
        with self._batch(record=False):
            self._apply(self._base(preset))
            for n, value in sorted(values.items(), key=lambda item: item[0] not in self._inputs):
                try:
                    setattr(self, n, value)
                except (ValueError, t.TraitError) as error:
                    problems.append(f"The link's {n} was not used: {error}.")
            if problems:
                self._refused = Refusal(" ".join(problems), partly=True)
            self._history.start(self._undoable())  # a link is where undo ends
        if self.chosen and not self._is_there(self.chosen):
            problems.append(f"The link's chosen number was not found: {self.chosen[:40]!r}.")
            with self._batch(record=False):
                self.chosen = ""
                self._refused = Refusal(" ".join(problems), partly=True)
        self._refused = None


def _received(request: Mapping[str, Any]) -> tuple[int, str, list[Mapping[str, Any]]]:
    """Number, nonce and edits of a request; what no script of ours sends is left out."""
    number, nonce, edits = request.get("id"), request.get("nonce"), request.get("edits")
    return (
        number if isinstance(number, int) else 0,
        nonce if isinstance(nonce, str) else "",
        [edit for edit in edits if isinstance(edit, Mapping)] if isinstance(edits, list) else [],
    )


def _gesture(edit: Mapping[str, Any], nonce: str) -> tuple[str, Any] | None:
    """The gesture of an edit, with its page: another window, or this one reloaded, counts from 0 too."""
    return (nonce, edit["gesture"]) if "gesture" in edit else None
