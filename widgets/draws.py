"""The trait of drawn dropout masks: the masks themselves, in order, one character each."""

from typing import Any

import torch
import traitlets
from torch import Tensor

from attnlab.engine import MatrixError

__all__ = ["MAX_DRAWS", "Draws", "as_masks", "as_text"]

_CHARACTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
MAX_DRAWS = 30_000
"""As many as a link can carry."""


class Draws(traitlets.TraitType[str, Any]):
    """Masks of up to 6 bits, each as the character of its number in base64url (A = 0 drops all).

    Text, so that a link holds the masks that were drawn and not a seed: the same seed gives other
    masks on another machine.
    """

    info_text = "drawn masks"
    default_value = ""

    def validate(self, obj: Any, value: Any) -> str:
        if not isinstance(value, str):
            raise MatrixError(f"draws: expected text, got {type(value).__name__}")
        if len(value) > MAX_DRAWS:
            raise MatrixError(
                f"draws: expected at most {MAX_DRAWS:,} masks, got {len(value):,}; forget them first"
            )
        wrong = set(value) - set(_CHARACTERS)
        if wrong:
            raise MatrixError(f"draws: expected letters, digits, - and _, got {min(wrong)!r}")
        return value


def as_masks(draws: str, keys: int) -> Tensor:
    """Boolean `draw × key`. Raises `MatrixError` for a mask of more bits than `keys`."""
    numbers = torch.tensor([_NUMBER[character] for character in draws], dtype=torch.int64)
    over = next((character for character in draws if _NUMBER[character] >= 2**keys), "")
    if over:
        last = _CHARACTERS[2**keys - 1]
        raise MatrixError(
            f"draws: expected masks over {keys} keys, each a character from A to {last}, got {over!r}"
        )
    return (numbers[:, None] >> torch.arange(keys - 1, -1, -1)) & 1 == 1


def as_text(masks: Tensor) -> str:
    """The masks of `draw × key` as text."""
    places = 2 ** torch.arange(masks.shape[1] - 1, -1, -1)
    return "".join(map(_CHARACTERS.__getitem__, (masks * places).sum(dim=1).tolist()))


_NUMBER = {character: number for number, character in enumerate(_CHARACTERS)}
