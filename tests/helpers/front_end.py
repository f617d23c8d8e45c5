"""Plays the scripts of a widget without a browser: sends what they send, reads what they get."""

import itertools
import json
from collections.abc import Mapping
from typing import Any

import torch
from ipywidgets import Widget
from ipywidgets.widgets.widget import _remove_buffers
from torch import Tensor

from attnlab.widgets import Explorable

__all__ = ["FrontEnd", "assert_strict_json", "decoded", "receive", "same_numbers"]

DTYPES = {"float64": torch.float64, "float32": torch.float32, "bool": torch.bool}


class FrontEnd:
    """The page of one explorable: numbered requests, the newest answer."""

    def __init__(self, explorable: Explorable, nonce: str = "page") -> None:
        self.explorable = explorable
        self.nonce = nonce
        self._ids = itertools.count(1)

    def edit(self, *edits: Any, **more: Any) -> dict[str, Any]:
        """One request of the view with these edits; the answer must name it."""
        return self.request({"id": next(self._ids), "nonce": self.nonce, "edits": list(edits), **more})

    def request(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """A request of the view exactly as given."""
        receive(self.explorable.view, request=request)
        return self.answer

    def value(self, name: str, index: list[int], value: float, **more: Any) -> dict[str, Any]:
        """What a drag sends for one cell."""
        return self.edit({"input": name, "index": index, "value": value, **more})

    def text(self, name: str, text: str, index: list[int] | None = None) -> dict[str, Any]:
        """What typing or pasting sends, for one cell or the whole matrix."""
        return self.edit({"input": name, "text": text} | ({} if index is None else {"index": index}))

    def resize(self, axis: str, by: int) -> dict[str, Any]:
        """What the buttons of the sizes send."""
        return self.edit({"resize": axis, "by": by})

    def command(self, name: str) -> dict[str, Any]:
        """What Ctrl+Z and Escape send."""
        return self.edit({"command": name})

    def control(self, name: str, value: Any = True) -> None:
        """What a control of the bar sends."""
        number = next(self._ids)
        edits = [{"name": name, "value": value, "key": name}]
        receive(self.explorable.bar, request={"id": number, "nonce": self.nonce, "edits": edits})
        assert self.explorable.bar.ack == {"id": number, "nonce": self.nonce}

    def select(self, stage: Any, index: Any) -> dict[str, Any] | None:
        """What a click on a cell sends; the panel that comes back."""
        receive(self.explorable.view, selected={"stage": stage, "index": index})
        panel: dict[str, Any] | None = self.answer["explanation"]
        return panel

    def open(self, search: str) -> None:
        """What the page sends first, when its address has a query part."""
        receive(self.explorable.bar, search=search)

    @property
    def answer(self) -> dict[str, Any]:
        """The newest answer."""
        return self.explorable.view.answer

    @property
    def numbers(self) -> dict[str, Tensor]:
        """The arrays of the newest answer as tensors."""
        return {name: decoded(array) for name, array in self.answer["arrays"].items()}


def receive(widget: Widget, **state: Any) -> None:
    """A message of the front end, as it comes through the wire: as JSON."""
    data = {"method": "update", "state": json.loads(json.dumps(state)), "buffer_paths": []}
    widget.comm.handle_msg({"content": {"data": data}, "buffers": []})


def decoded(array: Mapping[str, Any]) -> Tensor:
    """The tensor of one array of an answer."""
    sent = torch.uint8 if array["dtype"] == "bool" else DTYPES[array["dtype"]]
    return (
        torch.frombuffer(bytearray(array["data"]), dtype=sent)
        .reshape(array["shape"])
        .to(DTYPES[array["dtype"]])
    )


def same_numbers(a: Tensor, b: Tensor) -> bool:
    """Same dtype, shape and bits; NaN equals NaN, −0 does not equal 0."""
    return a.dtype == b.dtype and a.shape == b.shape and _bits(a) == _bits(b)


def assert_strict_json(state: Mapping[str, Any]) -> int:
    """Everything but the buffers is JSON that a browser reads. Returns the size in bytes with the buffers."""
    plain, _, buffers = _remove_buffers(dict(state))
    text = json.dumps(plain, allow_nan=False, ensure_ascii=False)
    return len(text.encode()) + sum(memoryview(buffer).nbytes for buffer in buffers)


def _bits(tensor: Tensor) -> bytes:
    plain = tensor.detach().as_subclass(Tensor)
    if plain.is_floating_point():
        # One NaN for all: which of its many bit patterns comes out of a conversion is nobody's business.
        plain = plain.double().masked_fill(plain.isnan(), torch.nan)
    return plain.contiguous().numpy().tobytes()
