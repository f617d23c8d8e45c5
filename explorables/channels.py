"""The wire between a page and its kernel: every message leaves at once."""

import asyncio

from jupyter_server.services.kernels.connection.channels import ZMQChannelsWebsocketConnection

__all__ = ["PromptChannels"]


class PromptChannels(ZMQChannelsWebsocketConnection):
    """Jupyter's connection without the wait of Nagle's algorithm.

    A kernel answers in several small messages. The operating system holds each back until the browser has
    confirmed the one before, and the browser's system confirms with a delay, about 40 ms: longer than
    all the rest of an update. Also for other servers, as `ServerApp.kernel_websocket_connection_class`.
    """

    def connect(self) -> "asyncio.Future[None] | None":  # type: ignore[override] # as in the class above
        """Begin; messages wait for nothing from now on."""
        self.websocket_handler.set_nodelay(True)
        return super().connect()
