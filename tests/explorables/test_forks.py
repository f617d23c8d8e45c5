"""Forked kernels: as good as launched ones, alone with their numbers, and gone with where they came from."""

import asyncio
import errno
import json
import os
import signal
import sys
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from jupyter_client.asynchronous import AsyncKernelClient

from attnlab.explorables.channels import WakefulChannel
from attnlab.explorables.forks import Forked, ForkServer, can_fork
from attnlab.explorables.kernels import ThisPython, WarmKernels
from helpers.loops import Run, in_a_loop, one_loop

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

    def parent(self, kernel_id: str) -> psutil.Process:
        return psutil.Process(self.process(kernel_id).pid).parent()

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


@pytest.fixture(scope="module")
def in_loop() -> Iterator[Run]:
    with one_loop() as run_:
        yield run_


@pytest.fixture(scope="module")
def kernels(in_loop: Run) -> Iterator[Kernels]:
    """Kernels of one fork server, which imports PyTorch once for all tests that leave it alive."""

    async def made() -> Kernels:
        return Kernels()

    kernels = in_loop(made())
    yield kernels
    in_loop(kernels.close())


@pytest.fixture(scope="module")
def told(in_loop: Run, kernels: Kernels) -> list[dict[str, Any]]:
    """What two kernels that start at the same moment know of themselves."""

    async def tell() -> list[dict[str, Any]]:
        pair = await asyncio.gather(kernels.start(), kernels.start())
        told = [json.loads((await run(client, TELL))[1]) for _, client in pair]
        return [
            {**known, "parent": kernels.parent(name).pid} for known, (name, _) in zip(told, pair, strict=True)
        ]

    found: list[dict[str, Any]] = in_loop(tell())
    return found


@forked
def test_what_is_slow_to_import_is_there_and_shared(told: list[dict[str, Any]]) -> None:
    assert all(all(known["there"]) for known in told)
    (parent,) = {known["parent"] for known in told}
    assert parent != os.getpid()


@forked
def test_each_is_a_process_of_its_own(told: list[dict[str, Any]]) -> None:
    for known in told:
        assert known["leads"]
        assert known["threads"] == 1
        assert known["stdin"] == ""
        assert known["child of a child"] == 7


@forked
def test_no_two_draw_the_same_numbers(told: list[dict[str, Any]]) -> None:
    one, two = (known["random"] for known in told)
    assert all(a != b for a, b in zip(one, two, strict=True))


@forked
def test_modules_come_from_the_environment_and_from_an_empty_folder(told: list[dict[str, Any]]) -> None:
    for known in told:
        assert str(Path.cwd()) not in known["path"]
        assert set(known["path"]) - {""} <= set(sys.path)
        assert Path(known["folder"]).name.startswith("attnlab-")


@forked
def test_who_runs_a_notebook_on_it_hears_every_answer(in_loop: Run, kernels: Kernels) -> None:
    _, client = in_loop(kernels.start())
    assert isinstance(client.shell_channel, WakefulChannel)


def test_it_is_interrupted_and_goes_on(in_loop: Run, kernels: Kernels, tmp_path: Path) -> None:
    begun = tmp_path / "begun"
    code = f"import pathlib, time\npathlib.Path({str(begun)!r}).touch()\ntime.sleep(600)"

    async def interrupted() -> tuple[str, str]:
        kernel_id, client = await kernels.start()
        sleeping = asyncio.ensure_future(run(client, code))
        # Too early it finds nothing to interrupt, and a second one could meet the answer on its way.
        while not begun.exists():
            await asyncio.sleep(0.05)
        await kernels.manager.interrupt_kernel(kernel_id)
        await sleeping
        return sleeping.result()[0].get("ename"), (await run(client, "print(6 * 7)"))[1]

    assert in_loop(interrupted()) == ("KeyboardInterrupt", "42\n")


@forked
def test_a_killed_one_says_so_and_the_others_go_on(in_loop: Run, kernels: Kernels) -> None:
    async def killed() -> tuple[int, str]:
        (one, _), (_, other) = await asyncio.gather(kernels.start(), kernels.start())
        kernels.process(one).kill()
        return await kernels.gone(one), (await run(other, "print(2 + 3)"))[1]

    assert in_loop(killed()) == (-signal.SIGKILL, "5\n")


@forked
def test_without_its_parent_it_ends_the_next_visitor_is_served_and_nothing_is_left() -> None:
    async def orphaned() -> tuple[int, str, list[psutil.Process]]:
        kernels = Kernels()
        try:
            one, _ = await kernels.start()
            kernels.parent(one).send_signal(signal.SIGKILL)
            status = await kernels.gone(one)
            two, client = await kernels.start()
            printed = (await run(client, "print(1 + 1)"))[1]
            last = [kernels.parent(two), psutil.Process(kernels.process(two).pid)]
        finally:
            await kernels.close()
        return status, printed, psutil.wait_procs(last, timeout=10)[1]

    status, printed, left = in_a_loop(orphaned())
    assert status != 0
    assert printed == "2\n"
    assert left == []


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


# ---------------------------------------------------------------- when something goes wrong

LIGHT = """
import errno, os
from attnlab.explorables import fork_server
fork_server.SLOW = ()
fork_server._be_kernel = lambda **wish: None
{change}
fork_server.main()
"""
"""A process to fork from that imports nothing, and whose kernels end at once."""

REFUSED_ONCE = f"""
def fork(fork=os.fork, refusals=[{errno.EAGAIN}]):
    if refusals:
        raise OSError(refusals.pop(), "as when there are too many processes")
    return fork()
os.fork = fork
"""


@pytest.fixture
def come_from(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Says which program kernels are forked from."""
    return lambda program: monkeypatch.setattr(
        "attnlab.explorables.forks._COMMAND", (sys.executable, "-c", program)
    )


def with_a_fork_server(work: Callable[[ForkServer], Awaitable[Any]]) -> Any:
    async def worked() -> Any:
        server = ForkServer()
        try:
            async with asyncio.timeout(SECONDS):
                return await work(server)
        finally:
            await server.close()

    return in_a_loop(worked())


def wanted(server: ForkServer) -> Awaitable[Forked]:
    return server.fork([], ".", os.environ)


@forked
def test_a_refused_fork_is_the_loss_of_one_visitor(come_from: Callable[[str], None]) -> None:
    come_from(LIGHT.format(change=REFUSED_ONCE))
    one, two = with_a_fork_server(
        lambda server: asyncio.gather(wanted(server), wanted(server), return_exceptions=True)
    )
    assert isinstance(one, OSError)
    assert one.errno == errno.EAGAIN
    assert isinstance(two, Forked)


@forked
def test_what_imports_print_is_no_answer(come_from: Callable[[str], None]) -> None:
    come_from(LIGHT.format(change="fork_server.SLOW = ('this',)"))
    assert isinstance(with_a_fork_server(wanted), Forked)


@forked
def test_after_an_answer_without_sense_the_next_visitor_is_served(come_from: Callable[[str], None]) -> None:
    async def two_visitors(server: ForkServer) -> Forked:
        come_from("print('The Zen of Python', flush=True); input()")
        with pytest.raises(RuntimeError, match="has ended"):
            await wanted(server)
        come_from(LIGHT.format(change=""))
        return await wanted(server)

    assert isinstance(with_a_fork_server(two_visitors), Forked)


@forked
def test_a_warm_kernel_that_died_is_let_go(in_loop: Run, kernels: Kernels) -> None:
    async def died() -> tuple[str, str]:
        kernels.manager.warm = 1
        kernels.manager.fill()
        kernels.manager.warm = 0  # no other one
        warm = await kernels.manager._waiting[0]
        kernels.process(warm).kill()
        await kernels.gone(warm)
        return warm, await kernels.manager.start_kernel()

    warm, next_one = in_loop(died())
    assert next_one != warm
    assert warm not in kernels.manager
