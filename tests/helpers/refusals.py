"""What a refusal has to say: expected, got, which input."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from helpers.annotations import unchecked

__all__ = ["refused"]


@contextmanager
def refused(*words: str, error: type[Exception] = ValueError) -> Iterator[pytest.ExceptionInfo[Exception]]:
    """The block raises exactly `error`, and its message contains each of `words`."""
    with unchecked(), pytest.raises(error) as caught:
        yield caught
    assert type(caught.value) is error
    message = str(caught.value)
    missing = [word for word in words if word not in message]
    assert not missing, f"{message!r} does not say {missing}"
