"""The wires of a kernel: who waits for an answer hears it, whatever is sent meanwhile."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from queue import Empty
from typing import Any

import pytest
import zmq
import zmq.asyncio
from jupyter_client.session import Session

from attnlab.explorables.channels import WakefulChannel
from helpers.loops import in_a_loop

SECONDS = 10


@dataclass
class Wire:
    """Both ends of a channel."""

    channel: WakefulChannel
    kernel: zmq.Socket[bytes]
    page: bytes

    def answer(self, kind: str) -> None:
        """The kernel sends, and the message has arrived when this returns."""
        self.channel.session.send(self.kernel, kind, ident=self.page)
        assert zmq.Socket.shadow(self.channel.socket.underlying).poll(1000 * SECONDS)

    def ask(self, kind: str) -> None:
        """The page sends."""
        self.channel.send(self.channel.session.msg(kind))


async def with_a_wire(work: Callable[[Wire], Awaitable[Any]]) -> Any:
    session = Session(key=b"test")
    with zmq.Context() as context, context.socket(zmq.ROUTER) as kernel:
        port = kernel.bind_to_random_port("tcp://127.0.0.1")
        with zmq.asyncio.Context.shadow(context.underlying).socket(zmq.DEALER) as socket:
            socket.connect(f"tcp://127.0.0.1:{port}")
            wire = Wire(WakefulChannel(socket, session), kernel, b"")
            wire.ask("hello")
            assert kernel.poll(1000 * SECONDS)
            wire.page = kernel.recv_multipart()[0]
            return await work(wire)


async def answered_while_it_sends(wire: Wire) -> str:
    """An answer comes, and before who waits for it has its turn, something is sent."""
    waiting = asyncio.ensure_future(wire.channel.get_msg(timeout=None))
    await asyncio.sleep(0)  # it waits now
    wire.answer("reply")
    wire.ask("state of a widget")
    try:
        async with asyncio.timeout(SECONDS):
            return str((await waiting)["msg_type"])
    except TimeoutError:
        return "overslept"


def test_an_answer_that_comes_while_something_is_sent_is_heard() -> None:
    assert in_a_loop(with_a_wire(answered_while_it_sends)) == "reply"


@pytest.mark.parametrize("timeout", [0, 0.01, 0.6])
def test_without_an_answer_it_says_so_in_time(timeout: float) -> None:
    async def work(wire: Wire) -> float:
        begin = time.monotonic()
        with pytest.raises(Empty):
            await wire.channel.get_msg(timeout=timeout)
        return time.monotonic() - begin

    assert timeout * 0.9 <= in_a_loop(with_a_wire(work)) < timeout + SECONDS


def test_messages_come_in_order() -> None:
    async def work(wire: Wire) -> list[str]:
        kinds = []
        for n in range(20):
            wire.answer(str(n))
            wire.ask("more")
            kinds.append((await wire.channel.get_msg(timeout=SECONDS))["msg_type"])
        return kinds

    assert in_a_loop(with_a_wire(work)) == [str(n) for n in range(20)]
