"""ControlBar: native controls with real labels, declared here as data and drawn by its script."""

from collections.abc import Sequence
from typing import Any

import anywidget
import traitlets as t

from attnlab.engine import format_number
from attnlab.widgets._script import script, style
from attnlab.widgets.words import BAR_WORDS

__all__ = [
    "Command",
    "Control",
    "ControlBar",
    "Link",
    "Menu",
    "Select",
    "Slider",
    "Stepper",
    "Steps",
    "Toggle",
]

Control = dict[str, Any]


def Select(  # noqa: N802
    name: str, label: str, options: Sequence[tuple[str | int, str]], *, hide_label: bool = False
) -> Control:
    """One of several named options: (value, text)."""
    return {
        "kind": "select",
        "name": name,
        "label": label,
        "options": [list(o) for o in options],
        "hideLabel": hide_label,
    }


def Toggle(name: str, label: str) -> Control:  # noqa: N802
    """On or off."""
    return {"kind": "toggle", "name": name, "label": label}


def Stepper(name: str, label: str, *, less: str, more: str, minimum: int = 0) -> Control:  # noqa: N802
    """A whole number from `minimum` to the bar's limit of that name, by two buttons: `less` and `more`."""
    return {"kind": "stepper", "name": name, "label": label, "less": less, "more": more, "minimum": minimum}


def Slider(  # noqa: N802
    name: str, label: str, values: Sequence[float], *, texts: Sequence[str] = (), typed: bool = False
) -> Control:
    """One of `values` by dragging; `typed` adds a field that takes any number."""
    return {
        "kind": "slider",
        "name": name,
        "label": label,
        "values": list(values),
        "texts": list(texts or map(format_number, values)),
        "typed": typed,
    }


def Text(name: str, label: str) -> Control:  # noqa: N802
    """A line of text, taken when it is left or Enter is pressed."""
    return {"kind": "text", "name": name, "label": label}


def Chain(name: str, label: str, choices: Sequence[str], *, separator: str = " | ") -> Control:  # noqa: N802
    """A list of texts in order, to be edited, moved, removed and added to from `choices`.

    Its value is one text, the items joined by `separator`.
    """
    return {
        "kind": "chain",
        "name": name,
        "label": label,
        "choices": list(choices),
        "separator": separator,
    }


def Steps(name: str, label: str, options: Sequence[tuple[int, str]]) -> Control:  # noqa: N802
    """The steps of a computation, in order: (number, text)."""
    return {"kind": "steps", "name": name, "label": label, "options": [list(o) for o in options]}


def Command(name: str, label: str, *, end: bool = True) -> Control:  # noqa: N802
    """A button that asks the explorable to do something once."""
    return {"kind": "command", "name": name, "label": label, "end": end}


def Link(name: str, label: str) -> Control:  # noqa: N802
    """Copies the page's address; a notebook has none of its own, so there the explorable is asked."""
    return {"kind": "link", "name": name, "label": label, "end": True}


def Menu(name: str, label: str, options: Sequence[tuple[str, str]]) -> Control:  # noqa: N802
    """A button that opens a list of commands: (value, text)."""
    return {"kind": "menu", "name": name, "label": label, "options": [list(o) for o in options], "end": True}


class ControlBar(anywidget.AnyWidget):
    """Rows of controls. What the reader does arrives as `request`; `values` is what is shown."""

    _esm = script("control_bar")
    _css = style("control_bar")

    controls: t.List[Any] = t.List().tag(sync=True)
    """Rows of controls, top to bottom."""
    values = t.Dict().tag(sync=True)
    """Control name → value."""
    limits = t.Dict().tag(sync=True)
    """Name of a stepper → its largest value."""
    notes = t.Dict().tag(sync=True)
    """Control name → a word beside it, for example that a preset has been edited."""
    disabled: t.List[Any] = t.List().tag(sync=True)
    """Names of commands that would do nothing now."""
    refused = t.Dict().tag(sync=True)
    """Control name → what was typed and refused; it stays in its field."""
    request = t.Dict().tag(sync=True, echo_update=False)
    """The newest changes of the reader: {id, edits: [{name, value, gesture}]}; a gesture is one undo step."""
    ack = t.Dict({"id": 0, "nonce": ""}).tag(sync=True, echo_update=False)
    """The request that has been dealt with."""
    search = t.Unicode(None, allow_none=True).tag(sync=True, echo_update=False)
    """The query part of the page's address when the page was opened; None until a page says it."""
    address = t.Unicode().tag(sync=True)
    """The explorable's state as the query part of an address, empty for its default."""
    address_names: t.List[Any] = t.List().tag(sync=True)
    """The parameters of the address that belong to this explorable."""
    clipboard = t.Dict().tag(sync=True)
    """Text to be copied: {text, id}."""
    download = t.Dict().tag(sync=True)
    """A file to be saved: {filename, mime, text, id}."""
    words = t.Dict(BAR_WORDS).tag(sync=True)
