"""Forked kernels: as good as launched ones, alone with their numbers, and gone with where they came from."""

import asyncio
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest
from jupyter_client.asynchronous import AsyncKernelClient

from attnlab.explorables.forks import can_fork
from attnlab.explorables.kernels import ThisPython, WarmKernels
from helpers.loops import in_a_loop

# Whole processes: beside the pages, not among the unit tests.
pytestmark = pytest.mark.browser

forked = pytest.mark.skipif(not can_fork(), reason="kernels are launched on this system")

SECONDS = 60
TELL = """
import sys
there = [name in sys.modules for name in ("torch", "attnlab.widgets", "matplotlib.figure")]
import json, multiprocessing, os, random
import numpy, torch
print(json.dumps({
    "there": there,
    "random": [random.random(), numpy.random.rand(), torch.rand(1).item()],
    "threads": torch.get_num_threads(),
    "folder": os.getcwd(),
    "path": sys.path,
    "child of a child": multiprocessing.get_context("fork").Pool(1).apply(int, ("7",)),
    "leads": os.getsid(0) == os.getpid(),
    "stdin": sys.stdin is not None and os.read(0, 1).decode(),
}))
"""


class Kernels:
    """The kernels of a server, and their clients."""

    def __init__(self) -> None:
        self.manager = WarmKernels(warm=0, kernel_spec_manager=ThisPython())
        self._clients: list[AsyncKernelClient] = []

    async def start(self) -> tuple[str, AsyncKernelClient]:
        kernel_id = await self.manager.start_kernel()
        client = self.manager.get_kernel(kernel_id).client()
        client.start_channels()
        self._clients.append(client)
        await client.wait_for_ready(timeout=SECONDS)
        return kernel_id, client

    def process(self, kernel_id: str) -> Any:
        return self.manager.get_kernel(kernel_id).provisioner.process

    async def gone(self, kernel_id: str) -> int:
        async with asyncio.timeout(SECONDS):
            while (status := await self.manager.get_kernel(kernel_id).provisioner.poll()) is None:
                await asyncio.sleep(0.02)
        return int(status)

    async def close(self) -> None:
        for client in self._clients:
            client.stop_channels()
        await self.manager.shutdown_all()


async def run(client: AsyncKernelClient, code: str) -> tuple[dict[str, Any], str]:
    """The reply, and what was printed."""
    printed = ""

    def hook(message: dict[str, Any]) -> None:
        nonlocal printed
        printed += message["content"].get("text", "")

    reply = await client.execute_interactive(code, output_hook=hook, timeout=SECONDS)
    return reply["content"], printed


async def everything() -> dict[str, Any]:
    """What is to be known, found out with as few imports of PyTorch as can be."""
    found: dict[str, Any] = {}
    kernels = Kernels()
    try:
        (one, first), (two, second) = await asyncio.gather(kernels.start(), kernels.start())
        found["told"] = [json.loads((await run(client, TELL))[1]) for client in (first, second)]
        found["shared"] = {psutil.Process(kernels.process(name).pid).ppid() for name in (one, two)}

        sleeping = asyncio.ensure_future(run(first, "import time\ntime.sleep(600)"))
        while not sleeping.done():  # one that comes too early finds nothing to interrupt
            await kernels.manager.interrupt_kernel(one)
            await asyncio.wait([sleeping], timeout=0.2)
        found["interrupted"] = sleeping.result()[0].get("ename")
        found["goes on"] = (await run(first, "print(6 * 7)"))[1]

        kernels.process(one).kill()
        found["killed"] = await kernels.gone(one)
        found["the other"] = (await run(second, "print(2 + 3)"))[1]

        (parent,) = found["shared"]
        os.kill(parent, signal.SIGKILL)
        found["orphan"] = await kernels.gone(two)
        three, third = await kernels.start()
        found["afterwards"] = (await run(third, "print(1 + 1)"))[1]
        last = psutil.Process(kernels.process(three).pid)
        found["last"] = [last, last.parent()]
    finally:
        await kernels.close()
    found["left"] = psutil.wait_procs(found.pop("last"), timeout=10)[1]
    return found


@pytest.fixture(scope="module")
def found() -> dict[str, Any]:
    return in_a_loop(everything())


@forked
def test_what_is_slow_to_import_is_there_and_shared(found: dict[str, Any]) -> None:
    assert all(all(told["there"]) for told in found["told"])
    assert len(found["shared"]) == 1
    assert found["shared"] != {os.getpid()}


@forked
def test_each_is_a_process_of_its_own(found: dict[str, Any]) -> None:
    for told in found["told"]:
        assert told["leads"]
        assert told["threads"] == 1
        assert told["stdin"] == ""
        assert told["child of a child"] == 7


@forked
def test_no_two_draw_the_same_numbers(found: dict[str, Any]) -> None:
    one, two = (told["random"] for told in found["told"])
    assert all(a != b for a, b in zip(one, two, strict=True))


@forked
def test_modules_come_from_the_environment_and_from_an_empty_folder(found: dict[str, Any]) -> None:
    for told in found["told"]:
        assert str(Path.cwd()) not in told["path"]
        assert set(told["path"]) - {""} <= set(sys.path)
        assert Path(told["folder"]).name.startswith("attnlab-")


@forked
def test_it_is_interrupted_and_goes_on(found: dict[str, Any]) -> None:
    assert found["interrupted"] == "KeyboardInterrupt"
    assert found["goes on"] == "42\n"


@forked
def test_a_killed_one_says_so_and_the_others_go_on(found: dict[str, Any]) -> None:
    assert found["killed"] == -signal.SIGKILL
    assert found["the other"] == "5\n"


@forked
def test_without_its_parent_it_ends_and_the_next_visitor_is_served(found: dict[str, Any]) -> None:
    assert found["orphan"] != 0
    assert found["afterwards"] == "2\n"


@forked
def test_nothing_is_left(found: dict[str, Any]) -> None:
    assert found["left"] == []


@forked
def test_a_server_that_ends_does_not_wait_for_imports() -> None:
    async def ended() -> bool:
        kernels = Kernels()
        kernels.manager.warm = 1
        kernels.manager.fill()
        await asyncio.sleep(0)
        (waiting,) = kernels.manager._waiting
        await kernels.close()
        return waiting.cancelled() or waiting.exception() is not None

    assert in_a_loop(ended())


def test_where_no_fork_is_safe_a_kernel_is_launched(monkeypatch: pytest.MonkeyPatch) -> None:
    async def told() -> tuple[dict[str, Any], int]:
        kernels = Kernels()
        try:
            kernel_id, client = await kernels.start()
            parent = psutil.Process(kernels.process(kernel_id).pid).ppid()
            return json.loads((await run(client, TELL))[1]), parent
        finally:
            await kernels.close()

    monkeypatch.setattr("attnlab.explorables.kernels.can_fork", lambda: False)
    found, parent = in_a_loop(told())
    assert parent == os.getpid()
    assert all(found["there"])
    assert found["threads"] == 1
