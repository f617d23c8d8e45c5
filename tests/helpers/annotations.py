"""Run-time checks of the engine's annotations (installed by tests/conftest.py), on and off."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager

from beartype import BeartypeConf, beartype
from jaxtyping import config

__all__ = ["check", "checked", "unchecked"]

# An int is welcome where a float is annotated, as for every static type checker.
check = beartype(conf=BeartypeConf(is_pep484_tower=True))


def checked() -> AbstractContextManager[None]:
    """Annotations of `attnlab.engine` are checked inside."""
    return _disabled(False)


def unchecked() -> AbstractContextManager[None]:
    """Not checked inside: wrong input meets the engine's own refusal, as it does for users."""
    return _disabled(True)


@contextmanager
def _disabled(value: bool) -> Iterator[None]:
    before = config.jaxtyping_disable
    config.update("jaxtyping_disable", value)
    try:
        yield
    finally:
        config.update("jaxtyping_disable", before)
