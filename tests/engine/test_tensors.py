"""What is no tensor, or has other axes than were expected, is refused by name wherever it is handed in."""

from collections.abc import Callable

import numpy as np
import pytest
import torch

from attnlab.engine import (
    attend,
    bidirectional,
    causal,
    combine,
    drop,
    empty_rows,
    from_ignored,
    mask_probability,
    to_additive,
)
from attnlab.engine.multi_head import multi_head
from attnlab.engine.packing import pack, unpack
from attnlab.engine.projections import tile_heads
from helpers.refusals import refused

X = torch.full((2, 2), 0.5)
FOREIGN = ([[0.5, 0.5], [0.5, 0.5]], np.full((2, 2), 0.5), None, 0.5)


@pytest.mark.parametrize("value", FOREIGN, ids=lambda value: type(value).__name__)
@pytest.mark.parametrize(
    ("name", "call"),
    [
        ("q", lambda value: attend(value, X, X)),
        ("v", lambda value: attend(X, X, value)),
        ("allowed", lambda value: attend(X, X, X, allowed=1 if value is None else value)),
        ("keep", lambda value: attend(X, X, X, keep=1 if value is None else value, drop_p=0.5)),
        ("weights", lambda value: drop(value, X > 0, 0.5)),
        ("keep", lambda value: drop(X, value, 0.5)),
        ("keep", lambda value: mask_probability(value, 0.5)),
        ("mask 1", lambda value: combine(X > 0, value)),
        ("allowed", empty_rows),
        ("ignored", from_ignored),
        ("allowed", to_additive),
        ("q", lambda value: pack(value, X, X, 1, "blocks")),
        ("k", lambda value: pack(X, value, X, 1, "blocks")),
        ("packed", lambda value: unpack(value, 1, "blocks")),
        ("x", lambda value: multi_head(value, 1, causal=True)),
        ("w_k", lambda value: multi_head(X[None], 1, causal=True, w_k=3 if value is None else value)),
    ],
)
def test_what_is_no_tensor(name: str, call: Callable[[object], object], value: object) -> None:
    with refused(f"{name}: expected a tensor, got "):
        call(value)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: tile_heads(X, 2), "k: expected … kv_head × time × d_head, got shape (2, 2)"),
        (lambda: causal(2.5), "queries: expected a whole number, got 2.5"),
        (lambda: causal(True), "queries: expected a whole number, got True"),
        (lambda: causal(2, "3"), "keys: expected a whole number, got '3'"),
        (lambda: causal(2, offset=1.5), "offset: expected a whole number, got 1.5"),
        (lambda: bidirectional(None), "queries: expected a whole number, got None"),
        (lambda: attend(X, X, X, drop_p=None), "drop_p: expected a number with 0 ≤ p < 1, got None"),
    ],
)
def test_other_axes_and_sizes(call: Callable[[], object], words: str) -> None:
    with refused(words):
        call()
