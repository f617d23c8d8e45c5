"""The process that kernels are forked from: imports what they need, then forks one for each line it reads.

A line of its input is JSON: `arguments`, `folder` and `environment` of a kernel. It answers with a line
`{"pid": …}` and, when that kernel has ended, another with its `status` (−n: by signal n); or with
`{"refused": errno}` when the system gives no further process. It ends with its input, that is with the
server. Run as `python -m attnlab.explorables.fork_server`, see `forks.py`.
"""

import contextlib
import gc
import json
import os
import select
import signal
import sys
from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import Any

from attnlab.explorables.answers import answers_only

SLOW = (
    "torch",
    "attnlab.widgets",
    "attnlab.widgets.plots",
    "matplotlib.backends.backend_svg",
    "ipykernel.kernelapp",
    "ipykernel.ipkernel",
)
"""What a kernel imports before its visitor comes."""


def main() -> None:
    """Fork kernels until the input ends; in a forked process, be the kernel until it is told to end."""
    answers = answers_only()
    for module in SLOW:
        import_module(module)
    sys.stdout.flush()  # else each fork would print again what was printed until now
    # What was imported stays; a kernel that looked for garbage among it would get a copy of that memory.
    gc.collect()
    gc.freeze()
    woken, wake = os.pipe()
    os.set_blocking(wake, False)
    signal.set_wakeup_fd(wake)
    signal.signal(signal.SIGCHLD, lambda *_: None)  # only a signal that is handled wakes
    for wish in _wishes(woken, answers):
        try:
            pid = os.fork()
        except OSError as error:  # too many processes or too little memory: this visitor's bad luck alone
            _tell(answers, refused=error.errno)
            continue
        if pid == 0:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            for pipe in (woken, wake, answers):
                os.close(pipe)
            return _be_kernel(**wish)
        _tell(answers, pid=pid)
    return None


def _wishes(woken: int, answers: int) -> Iterator[dict[str, Any]]:
    """Each kernel that is wanted; between them, tells of those that have ended."""
    read = b""
    while True:
        ready, _, _ = select.select([0, woken], [], [])
        if woken in ready:
            os.read(woken, 1024)
            _tell_of_the_ended(answers)
        if 0 in ready:
            if not (more := os.read(0, 1 << 16)):
                return
            *lines, read = (read + more).split(b"\n")
            yield from map(json.loads, lines)


def _tell_of_the_ended(answers: int) -> None:
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:  # none is left
            return
        if pid == 0:  # the others run
            return
        _tell(answers, pid=pid, status=os.waitstatus_to_exitcode(status))


def _tell(answers: int, **message: int | None) -> None:
    with contextlib.suppress(BrokenPipeError):  # nobody listens any more; the input has ended too
        os.write(answers, json.dumps(message).encode() + b"\n")


def _be_kernel(arguments: list[str], folder: str, environment: Mapping[str, str]) -> None:
    os.setsid()
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    # The pipe is between the two servers.
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    _reseed()

    from ipykernel.kernelapp import IPKernelApp

    # The environment names the parent too, but was read when this was imported.
    IPKernelApp.launch_instance([*arguments, f"--IPKernelApp.parent_handle={os.getppid()}"])


def _reseed() -> None:
    """Random numbers of its own: else a fork goes on with its parent's (except for Python's `random`)."""
    import numpy as np
    import torch

    np.random.seed()
    torch.seed()


if __name__ == "__main__":
    main()
