"""Kernels that are forked from one process which has imported PyTorch already.

Importing PyTorch takes seconds of a processor and some hundred megabytes. A class that opens a page at the
same moment would pay that once for each of its members. A forked kernel starts in a fraction of a second and
shares the memory of what was imported before. Otherwise it is like one that was launched: a process, a
session and an environment of its own.
"""

import asyncio
import json
import logging
import os
import signal
import sys
from collections import deque
from collections.abc import Mapping, Sequence
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any, cast

from jupyter_client.connect import KernelConnectionInfo
from jupyter_client.provisioning import KernelProvisionerFactory, LocalProvisioner

__all__ = ["PROVISIONER", "ForkServer", "Forked", "ForkedProvisioner", "can_fork"]

PROVISIONER = "attnlab-forked"
"""The name by which the specification of a kernel asks for a fork."""

_LAUNCHER = "ipykernel_launcher"
# -P: what a visitor sees must not depend on the folder we are started in.
_COMMAND = (sys.executable, "-P", "-m", "attnlab.explorables.fork_server")


def can_fork() -> bool:
    """Whether this system forks safely: Windows has no fork, macOS none after its own frameworks ran."""
    return sys.platform == "linux"


class Forked:
    """A forked process, with the names of `subprocess.Popen` that Jupyter uses."""

    stdin = stdout = stderr = None

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.returncode: int | None = None

    def poll(self) -> int | None:
        """How it ended (−n: by signal n); None while it runs."""
        return self.returncode

    def wait(self) -> int | None:
        """The same: Jupyter calls this only after `poll` has said that it is over."""
        return self.returncode

    def send_signal(self, number: int) -> None:
        """To the process, if it runs."""
        if self.returncode is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        """Ask it to end."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """End it."""
        self.send_signal(signal.SIGKILL)


class ForkServer:
    """Our end of the process that kernels are forked from; it is started when the first one is wanted."""

    def __init__(self) -> None:
        self._process: asyncio.subprocess.Process | None = None
        self._starting = asyncio.Lock()
        self._wanted: deque[asyncio.Future[Forked]] = deque()
        self._running: dict[int, Forked] = {}
        self._listener: asyncio.Task[None] | None = None
        self._closed = False

    async def fork(self, arguments: Sequence[str], folder: str, environment: Mapping[str, str]) -> Forked:
        """A kernel with these command line arguments, working folder and environment.

        Raises:
            OSError: if the system gives no further process.
            RuntimeError: if the process that kernels are forked from has ended.
        """
        async with self._starting:
            if self._closed:
                raise asyncio.CancelledError
            if self._process is None:
                self._process = await self._start(environment)
        wish = {"arguments": list(arguments), "folder": folder, "environment": dict(environment)}
        answer: asyncio.Future[Forked] = asyncio.get_running_loop().create_future()
        self._wanted.append(answer)
        assert self._process.stdin
        self._process.stdin.write(json.dumps(wish).encode() + b"\n")
        return await answer

    async def close(self) -> None:
        """End it at once, even while it imports; its kernels end with it, who waits for one is cancelled."""
        self._closed = True
        async with self._starting:
            if self._process and self._listener:
                self._process.kill()
                await self._process.wait()
                await self._listener

    async def _start(self, environment: Mapping[str, str]) -> asyncio.subprocess.Process:
        process = await asyncio.create_subprocess_exec(
            *_COMMAND,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            env=environment,  # some of it is read by what is imported
            start_new_session=True,  # the keyboard of the terminal is the server's
        )
        self._listener = asyncio.ensure_future(self._listen(process))
        return process

    async def _listen(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdout
        try:
            while line := await process.stdout.readline():
                self._hear(json.loads(line))
        except Exception:
            logging.getLogger(__name__).exception("Expected an answer about a kernel, got something else.")
            process.kill()
        finally:
            self._forget()

    def _hear(self, told: Mapping[str, int]) -> None:
        if "status" in told:
            self._running.pop(told["pid"]).returncode = told["status"]
            return
        answer = self._wanted.popleft()
        if "refused" in told:
            if not answer.cancelled():
                answer.set_exception(OSError(told["refused"], os.strerror(told["refused"])))
            return
        kernel = self._running[told["pid"]] = Forked(told["pid"])
        if answer.cancelled():
            kernel.kill()
        else:
            answer.set_result(kernel)

    def _forget(self) -> None:
        """It has ended. Its kernels see that and end too; the next visitor's has a new one to come from."""
        self._process = None
        for kernel in self._running.values():
            kernel.returncode = 1
        self._running.clear()
        wanted, self._wanted = self._wanted, deque()
        for answer in wanted:
            if self._closed:
                answer.cancel()
            elif not answer.cancelled():
                answer.set_exception(RuntimeError("the process that kernels are forked from has ended"))


class ForkedProvisioner(LocalProvisioner):
    """Jupyter's way to start a local kernel, with a fork in place of a new Python.

    For kernels of a manager that has a `fork_server`, such as `WarmKernels`.
    """

    async def launch_kernel(self, cmd: list[str], **kwargs: Any) -> KernelConnectionInfo:
        """Fork a kernel that reads the arguments after `ipykernel_launcher` in `cmd`."""
        arguments = cmd[cmd.index(_LAUNCHER) + 1 :]
        self.cwd = kwargs.get("cwd", Path.cwd())
        manager: Any = self.parent  # of this kernel; its parent is that of all
        server: ForkServer = manager.parent.fork_server
        kernel = await server.fork(arguments, str(self.cwd), kwargs.get("env", os.environ))
        self.process = cast("Any", kernel)  # has what is used of a `Popen`
        self.pid = self.pgid = kernel.pid  # it leads a session, so a group too
        return self.connection_info


# Told to Jupyter here and not by the package: another Jupyter in the same environment has no fork server.
KernelProvisionerFactory.provisioners[PROVISIONER] = EntryPoint(
    PROVISIONER, f"{__name__}:{ForkedProvisioner.__name__}", KernelProvisionerFactory.GROUP_NAME
)
