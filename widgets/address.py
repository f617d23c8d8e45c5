"""The state of an explorable as the query part of an address, and back. Strict: nothing is evaluated."""

from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qsl, quote

import traitlets as t
from torch import Tensor

from attnlab.engine import format_matrices, format_number
from attnlab.widgets.matrix import Matrix
from attnlab.widgets.number import Number
from attnlab.widgets.read_only import plain

__all__ = ["decode", "encode"]

MAX_LENGTH = 40_000


def encode(values: Mapping[str, Any]) -> str:
    """`q=1,0;0,1&causal=0`: rows by `;`, columns by `,`, matrices by `;;`, switches as 0 and 1."""
    return "&".join(f"{name}={quote(_text(value), safe=',;')}" for name, value in values.items())


def decode(
    search: str, traits: Mapping[str, t.TraitType], prefix: str = ""
) -> tuple[dict[str, Any], list[str]]:
    """The values in an address for the traits given, and a sentence for each that can't be used.

    Parameters of other names are left alone: an address may carry more than one explorable.
    """
    if len(search) > MAX_LENGTH:
        return {}, [
            f"This link is too long: expected at most {MAX_LENGTH:,} characters, got {len(search):,}."
        ]
    values: dict[str, Any] = {}
    problems = []
    for key, text in parse_qsl(search.removeprefix("?"), keep_blank_values=True):
        name = key.removeprefix(prefix)
        if not key.startswith(prefix) or name not in traits:
            continue
        try:
            values[name] = _value(traits[name], name, text)
        except (ValueError, t.TraitError) as error:
            problems.append(f"The link's {name} was not used: {error}.")
    return values, problems


def _text(value: Any) -> str:
    if isinstance(value, Tensor):
        value = plain(value)
        rows = value.shape[-2:] if value.ndim > 1 else (1, value.numel())
        return format_matrices(value.reshape(-1, *rows), row_separator=";", separator=",")
    if isinstance(value, float):
        return format_number(value)
    return str(int(value)) if isinstance(value, bool) else str(value)


def _value(trait: t.TraitType, name: str, text: str) -> Any:
    if isinstance(trait, Matrix | Number):
        return trait.validate(None, text)
    if isinstance(trait, t.Bool):
        if text not in ("0", "1"):
            raise ValueError(f"expected 0 or 1, got {text[:40]!r}")
        return text == "1"
    if isinstance(trait, t.Int):
        if not (text.isascii() and text.isdigit() and len(text) < 10):
            raise ValueError(f"expected a whole number, got {text[:40]!r}")
        number = int(text)
        least, most = trait.min, trait.max
        if (least is not None and number < least) or (most is not None and number > most):
            raise ValueError(f"expected {least} to {most}, got {number}")
        return number
    if isinstance(trait, t.Enum) and text not in (trait.values or ()):
        raise ValueError(f"expected one of {', '.join(trait.values or ())}, got {text[:40]!r}")
    return text
