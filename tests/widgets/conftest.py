"""Every test of this folder closes its widgets, and can see the messages that they send."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import comm
import ipywidgets
import pytest
from comm.base_comm import BaseComm

from attnlab.widgets import AttentionExplorable
from helpers.front_end import FrontEnd


@dataclass
class Messages:
    """What was sent to the front end: (comm id, data, buffers)."""

    sent: list[tuple[str, dict[str, Any], list[Any]]] = field(default_factory=list)

    def of(self, widget: ipywidgets.Widget) -> list[dict[str, Any]]:
        """The states that were sent for `widget`."""
        return [
            data["state"] for number, data, _ in self.sent if number == widget.model_id and "state" in data
        ]


@pytest.fixture
def messages(monkeypatch: pytest.MonkeyPatch) -> Messages:
    """Records the messages of every widget made in the test."""
    recorded = Messages()

    class RecordingComm(BaseComm):
        def publish_msg(self, msg_type, data=None, metadata=None, buffers=None, **keys):
            recorded.sent.append((self.comm_id, data or {}, list(buffers or [])))

    monkeypatch.setattr(comm, "create_comm", RecordingComm)
    return recorded


@pytest.fixture(autouse=True)
def _close_widgets() -> Iterator[None]:
    yield
    ipywidgets.Widget.close_all()


@pytest.fixture
def open_page() -> Callable[..., FrontEnd]:
    """Makes an `AttentionExplorable` with the arguments given, and its page."""
    return lambda **arguments: FrontEnd(AttentionExplorable(**arguments))


@pytest.fixture
def page(open_page: Callable[..., FrontEnd]) -> FrontEnd:
    """The page of an explorable in its default state."""
    return open_page()
