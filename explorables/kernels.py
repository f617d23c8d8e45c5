"""Kernels for visitors: a few are kept warm, their number is limited, forgotten ones are ended."""

import asyncio
import math
import os
import tempfile
import time
from datetime import UTC, datetime, timedelta
from typing import Any

from ipykernel.kernelspec import RESOURCES
from jupyter_client.asynchronous import AsyncKernelClient
from jupyter_client.kernelspec import NATIVE_KERNEL_NAME, KernelSpec, KernelSpecManager
from jupyter_server.services.kernels.kernelmanager import AsyncMappingKernelManager, ServerKernelManager
from traitlets import Float, Integer, Type, default

from attnlab.explorables.channels import WakefulClient
from attnlab.explorables.fork_server import SLOW
from attnlab.explorables.forks import PROVISIONER, ForkServer, can_fork

_CONNECT_SECONDS = 60.0  # a page that is complete may take so long to connect, on a slow line too

_START_SECONDS = 5.0  # how long the end of the server waits for kernels that are just starting


class BusyError(Exception):
    """Every place for a visitor is taken."""


class ThisPython(KernelSpecManager):
    """Only one kernel, the Python that serves the pages, whatever kernels the user has installed.

    Where the system allows it, it is forked from one that has imported everything (`forks.py`).
    """

    def find_kernel_specs(self) -> dict[str, str]:
        """Name and folder of the one kernel."""
        return {NATIVE_KERNEL_NAME: RESOURCES}

    def get_kernel_spec(self, kernel_name: str) -> KernelSpec:
        """The one kernel, also for notebooks that were saved with another one."""
        spec: KernelSpec = self._get_kernel_spec_by_name(NATIVE_KERNEL_NAME, RESOURCES)
        if can_fork():
            spec.metadata["kernel_provisioner"] = {"provisioner_name": PROVISIONER}
        return spec


class VisitorKernel(ServerKernelManager):
    """Jupyter's kernel of a server, with a client of ours."""

    client_factory = Type(WakefulClient, klass=AsyncKernelClient, config=True)


class WarmKernels(AsyncMappingKernelManager):
    """Hands every visitor a fresh kernel, if possible one that has imported everything already.

    One pool serves all notebooks. (Voilà's own preheating keeps a pool per notebook, which runs each
    notebook before its visitor is there: with ten notebooks that is ten idle copies of PyTorch.)
    A kernel is never told anything about its visitor, so warm and cold ones behave alike.
    """

    warm = Integer(1, help="How many kernels wait for visitors.").tag(config=True)
    limit = Integer(20, help="How many visitors may have a kernel at once.").tag(config=True)
    refill_delay = Float(
        3.0, help="Seconds before a used warm kernel is replaced, so that its page gets the processor first."
    ).tag(config=True)
    patience = Float(
        3.0, help="Seconds to wait for a place when all are taken; who changes pages frees one just then."
    ).tag(config=True)
    connected_idle_timeout = Integer(
        7200, help="Seconds after which a kernel that nobody uses ends although its page is still open."
    ).tag(config=True)

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._waiting: list[asyncio.Task[str]] = []
        self._taken: set[str] = set()
        self._arriving = 0
        self._silent: dict[str, float] = {}  # since when a page is complete that has not connected yet
        self._closed = False
        self._refill: asyncio.TimerHandle | None = None
        self.fork_server = ForkServer()
        # An empty folder: the working directory is on a kernel's module path.
        self._folder = tempfile.TemporaryDirectory(prefix="attnlab-")

    @default("kernel_manager_class")
    def _default_kernel_manager_class(self) -> str:
        return f"{__name__}.{VisitorKernel.__name__}"

    @property
    def visitors(self) -> int:
        """How many kernels belong to visitors, those on their way included."""
        self._taken.intersection_update(self.list_kernel_ids())
        return len(self._taken) + self._arriving

    def fill(self) -> None:
        """Start kernels until as many are waiting as should."""
        while not self._closed and len(self._waiting) < self.warm:
            self._waiting.append(asyncio.ensure_future(self._launch()))

    async def start_kernel(self, **kwargs: Any) -> str:  # type: ignore[override]
        """A kernel for a visitor; returns its id.

        Raises:
            BusyError: if `limit` visitors have a kernel already and none leaves.
        """
        deadline = time.monotonic() + self.patience
        while self.visitors >= self.limit:
            if time.monotonic() > deadline:
                raise BusyError(f"expected fewer than {self.limit} visitors, got {self.visitors}")
            await asyncio.sleep(0.1)
        self._arriving += 1
        try:
            kernel_id = await self._next()
            # Its idle time begins now: one that has waited for long must not end in its visitor's hands.
            self.get_kernel(kernel_id).last_activity = datetime.now(UTC)  # type: ignore[attr-defined]
            self._taken.add(kernel_id)
        finally:
            self._arriving -= 1
            if self._refill:
                self._refill.cancel()
            self._refill = asyncio.get_running_loop().call_later(self.refill_delay, self.fill)
        return kernel_id

    async def _next(self) -> str:
        while self._waiting:
            try:
                kernel_id = await self._waiting.pop(0)
            except Exception:
                self.log.exception("A warm kernel did not start.")
                continue
            if kernel_id not in self:
                continue
            if await self.is_alive(kernel_id):
                return kernel_id
            await self.shutdown_kernel(kernel_id, now=True)  # it died: its files and sockets go too
        return await self._launch()

    async def _launch(self) -> str:
        lines = [] if can_fork() else [f"__import__({module!r})" for module in SLOW]
        environment = {"OMP_NUM_THREADS": "1", **os.environ}  # tiny tensors, many kernels
        kernel_id: str = await super().start_kernel(
            kernel_name=NATIVE_KERNEL_NAME,
            cwd=self._folder.name,
            env=environment,
            extra_arguments=[
                f"--IPKernelApp.exec_lines={lines}",
                "--IPKernelApp.log_level=ERROR",
                "--HistoryManager.enabled=False",
            ],
        )
        return kernel_id

    def start_watching_activity(self, kernel_id: str) -> None:
        """Note when a kernel works. What widgets say is not read for it: each time, "busy" and "idle" are."""
        super().start_watching_activity(kernel_id)
        socket = self._kernels[kernel_id]._activity_stream.socket
        socket.unsubscribe(b"")
        socket.subscribe(b"kernel.")

    def page_sent(self, kernel_id: str) -> None:
        """Its page is complete; what fetched it may be no browser and never connect."""
        if kernel_id in self._taken and not self._kernel_connections.get(kernel_id):
            self._silent[kernel_id] = time.monotonic()

    def notify_connect(self, kernel_id: str) -> None:
        """Its page has connected."""
        self._silent.pop(kernel_id, None)
        super().notify_connect(kernel_id)

    async def cull_kernel_if_idle(self, kernel_id: str) -> None:
        """End a visitor's kernel that is idle or has no page; leave the waiting ones alone."""
        if kernel_id not in self._taken:
            return
        if time.monotonic() - self._silent.get(kernel_id, math.inf) > _CONNECT_SECONDS:
            await self.shutdown_kernel(kernel_id, now=True)
            return
        await super().cull_kernel_if_idle(kernel_id)
        if kernel_id not in self:
            return
        kernel = self.get_kernel(kernel_id)
        last_activity = getattr(kernel, "last_activity", None)
        longest = timedelta(seconds=self.connected_idle_timeout)
        if last_activity and datetime.now(UTC) - last_activity > longest:
            await self.shutdown_kernel(kernel_id)

    async def shutdown_kernel(self, kernel_id: str, *args: Any, **kwargs: Any) -> None:  # type: ignore[override]
        """End a kernel; its place is free at once, though the process may take a moment."""
        self._taken.discard(kernel_id)
        self._silent.pop(kernel_id, None)
        await super().shutdown_kernel(kernel_id, *args, **kwargs)

    async def shutdown_all(self, now: bool = False) -> None:  # type: ignore[override]
        """End all kernels, those that are just starting too."""
        self._closed = True
        if self._refill:
            self._refill.cancel()
        waiting, self._waiting = self._waiting, []
        await self.fork_server.close()
        await asyncio.gather(*waiting, return_exceptions=True)
        # A visitor's kernel may be just starting too. Without the fork server it fails at once, or is there
        # soon; asked to end in between, it has no answer.
        starting = [task for task in self._pending_kernels.values() if isinstance(task, asyncio.Future)]
        if starting:
            await asyncio.wait(starting, timeout=_START_SECONDS)
        self._pending_kernels.clear()  # those that will never be
        for kernel_id, kernel in list(self._kernels.items()):
            if not kernel.ready.done():
                self.remove_kernel(kernel_id)
        # Without asking first: nobody's work is in them, and one that is just starting would print how
        # it was interrupted.
        await super().shutdown_all(now=True)
        self._folder.cleanup()
