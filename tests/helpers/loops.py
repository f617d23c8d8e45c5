"""An event loop for a test: that of the tests' own thread may be the browser's."""

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, TypeVar

__all__ = ["Run", "in_a_loop", "one_loop"]

Result = TypeVar("Result")
Run = Callable[[Coroutine[Any, Any, Any]], Any]


@contextmanager
def one_loop() -> Iterator[Run]:
    """Runs one coroutine after the other in the same loop, for what is bound to the loop that it began in."""
    with ThreadPoolExecutor(1) as pool:
        runner = asyncio.Runner()
        try:
            yield lambda work: pool.submit(runner.run, work).result()
        finally:
            pool.submit(runner.close).result()


def in_a_loop(work: Coroutine[Any, Any, Result]) -> Result:
    """What the coroutine returns, or raises."""
    with one_loop() as run:
        result: Result = run(work)
        return result
