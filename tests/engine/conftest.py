"""The annotations of the engine are checked at run time in every test of this folder."""

from collections.abc import Iterator

import pytest

from helpers.annotations import checked


@pytest.fixture(autouse=True)
def _annotations_are_checked() -> Iterator[None]:
    with checked():
        yield
