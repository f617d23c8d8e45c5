"""The number that is chosen: a stage and a place in it, in one word that fits into an address."""

import re
from collections.abc import Mapping
from typing import Any

import traitlets as t

__all__ = ["Chosen", "cell_of", "word_of"]

_WORD = re.compile(r"(?P<stage>[^,].*?)(?P<index>(,\d{1,6})*)", re.DOTALL)


class Chosen(t.Unicode[str, str]):
    """`weights,1,2`: the stage, and a number for each of its axes. Empty: none is chosen."""

    def validate(self, obj: Any, value: Any) -> str:
        word: str = super().validate(obj, value)
        if word and not _WORD.fullmatch(word):
            raise t.TraitError(f"expected a stage and a place in it, such as weights,1,2, got {word[:40]!r}")
        return word


def cell_of(word: str) -> dict[str, Any] | None:
    """As the view has it: `{"stage": "weights", "index": [1, 2]}`; None for the empty word."""
    found = _WORD.fullmatch(word)
    return found and {
        "stage": found["stage"],
        "index": [int(part) for part in found["index"].split(",")[1:]],
    }


def word_of(cell: Mapping[str, Any] | None) -> str:
    """The other way round. Empty for what is no cell: a page may send anything."""
    stage, index = (cell or {}).get("stage"), (cell or {}).get("index")
    if not isinstance(stage, str) or not isinstance(index, list | tuple):
        return ""
    word = ",".join([stage, *map(str, index)])
    return word if cell_of(word) == {"stage": stage, "index": list(index)} else ""
