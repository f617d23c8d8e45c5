"""What a page must never do: log an error, throw one, or ask another machine for anything."""

from urllib.parse import urlsplit

from playwright.sync_api import BrowserContext, ConsoleMessage, Page, Request, WebError, WebSocket

__all__ = ["Watch", "Wire"]

_HERE = {"localhost", "127.0.0.1"}


class Watch:
    """Listens to every page of a context from its first request on."""

    def __init__(self, context: BrowserContext) -> None:
        self.faults: list[str] = []
        self._expected: tuple[str, ...] = ()
        context.on("console", self._on_console)
        context.on("weberror", self._on_error)
        context.on("request", self._on_request)

    def expect(self, *parts: str) -> None:
        """From now on faults that contain one of these texts are what the test is about."""
        self._expected += parts

    def take(self) -> list[str]:
        """The faults since the last call."""
        faults, self.faults = self.faults, []
        unexpected = [fault for fault in faults if not any(part in fault for part in self._expected)]
        self._expected = ()
        return unexpected

    def _on_console(self, message: ConsoleMessage) -> None:
        if message.type == "error":
            self.faults.append(f"console: {message.text} ({message.location.get('url', '')})")

    def _on_error(self, error: WebError) -> None:
        self.faults.append(f"uncaught: {error.error}")

    def _on_request(self, request: Request) -> None:
        parts = urlsplit(request.url)
        if parts.scheme not in ("data", "blob") and parts.hostname not in _HERE:
            self.faults.append(f"request to another machine: {request.url}")


class Wire:
    """The requests of one page's TraceView and the answers to them, in the order of the wire."""

    def __init__(self, page: Page) -> None:
        self.log: list[str] = []
        page.on("websocket", self._on_socket)

    def clear(self) -> None:
        """Forgets what was seen."""
        self.log.clear()

    @property
    def most_in_flight(self) -> int:
        """The largest number of requests that were under way without an answer."""
        largest = now = 0
        for kind in self.log:
            now = now + 1 if kind == "request" else max(0, now - 1)
            largest = max(largest, now)
        return largest

    def _on_socket(self, socket: WebSocket) -> None:
        socket.on("framesent", lambda frame: self._note(frame, b'"edits"', "request"))
        socket.on("framereceived", lambda frame: self._note(frame, b'"answer"', "answer"))

    def _note(self, frame: str | bytes, mark: bytes, kind: str) -> None:
        data = frame.encode() if isinstance(frame, str) else frame
        # An echo of the request would hold its mark too; the widget switches echoes off.
        if b"comm_msg" in data and mark in data:
            self.log.append(kind)
