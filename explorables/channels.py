"""The wires of a kernel: to its page messages leave at once; who runs its notebook oversleeps none."""

import asyncio
import math
import time
from queue import Empty
from typing import Any

from jupyter_client.asynchronous import AsyncKernelClient
from jupyter_client.channels import AsyncZMQSocketChannel
from jupyter_server.services.kernels.connection.channels import ZMQChannelsWebsocketConnection
from traitlets import Type

__all__ = ["PromptChannels", "WakefulChannel", "WakefulClient"]

_LOOK_SECONDS = 0.25


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


class WakefulChannel(AsyncZMQSocketChannel):
    """Jupyter's channel, which looks again now and then whether a message is there.

    A socket tells of a message once. Jupyter sends on the socket on which it waits for an answer, and if the
    answer comes just then, sending uses up what would wake the one who waits. A notebook with an `Output`
    widget, such as that of `interact`, sends while its cell runs, and its page never came to an end.
    """

    async def get_msg(self, timeout: float | None = None) -> dict[str, Any]:  # type: ignore[override]
        """The next message. Raises `queue.Empty` when none comes for `timeout` seconds (None: it waits)."""
        end = math.inf if timeout is None else time.monotonic() + timeout
        while True:
            left = max(0.0, end - time.monotonic())
            try:
                message: dict[str, Any] = await super().get_msg(min(left, _LOOK_SECONDS))
                return message
            except Empty:
                if left <= _LOOK_SECONDS:
                    raise


class WakefulClient(AsyncKernelClient):
    """Runs a notebook, and hears every answer."""

    shell_channel_class = Type(WakefulChannel)
    iopub_channel_class = Type(WakefulChannel)
    stdin_channel_class = Type(WakefulChannel)
    control_channel_class = Type(WakefulChannel)
