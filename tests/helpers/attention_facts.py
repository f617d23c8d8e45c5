"""The presets of the attention page and their right values: plain data for engine, widget and browser tests.

The numbers stand in the design's facts (section attention), rounded to four digits; `PRINTED` is what
rounding may take. `expected` maps a stage to the rows that are known, by number.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import inf, log

__all__ = ["PRESETS", "PRINTED", "Matrix", "Preset", "by_name"]

Matrix = tuple[tuple[float, ...], ...]

# Half a unit in the fourth digit, the last one that the facts print.
PRINTED = 5e-5


@dataclass(frozen=True)
class Preset:
    """Inputs of one head, the tracked query, and rows of stages that must come out."""

    name: str
    q: Matrix
    k: Matrix
    v: Matrix
    query: int
    scale: bool = True
    causal: bool = False
    expected: Mapping[str, Mapping[int, tuple[float, ...]]] = field(default_factory=dict)


_POSITIONS: Matrix = ((1, 0), (0, 1), (1, 1))
_THIRD = 1 / 3

PRESETS: tuple[Preset, ...] = (
    Preset(
        "three positions, causal",
        _POSITIONS,
        _POSITIONS,
        _POSITIONS,
        query=1,
        causal=True,
        expected={
            "scores": {0: (1, 0, 1), 1: (0, 1, 1), 2: (1, 1, 2)},
            "scaled": {1: (0, 0.7071, 0.7071), 2: (0.7071, 0.7071, 1.4142)},
            "masked": {0: (0.7071, -inf, -inf), 1: (0, 0.7071, -inf)},
            "weights": {0: (1, 0, 0), 1: (0.3302, 0.6698, 0), 2: (0.2483, 0.2483, 0.5035)},
            "output": {0: (1, 0), 1: (0.3302, 0.6698), 2: (0.7517, 0.7517)},
        },
    ),
    Preset(
        "plain dot product",
        _POSITIONS,
        _POSITIONS,
        _POSITIONS,
        query=1,
        scale=False,
        expected={
            "scores": {1: (0, 1, 1)},
            "scaled": {1: (0, 1, 1)},
            "masked": {1: (0, 1, 1)},
            "weights": {1: (0.1554, 0.4223, 0.4223)},
            "output": {1: (0.5777, 0.8446)},
        },
    ),
    Preset(
        "two keys",
        ((1, 0),),
        ((1, 0), (0, 1)),
        ((10,), (20,)),
        query=0,
        expected={
            "scores": {0: (1, 0)},
            "weights": {0: (0.6698, 0.3302)},
            "output": {0: (13.3024,)},
        },
    ),
    Preset(
        "two keys, unscaled",
        ((1, 0),),
        ((1, 0), (0, 1)),
        ((10,), (20,)),
        query=0,
        scale=False,
        expected={
            "scores": {0: (1, 0)},
            "weights": {0: (0.7311, 0.2689)},
            "output": {0: (12.6894,)},
        },
    ),
    Preset(
        "all scores zero",
        ((0, 0), (0, 0), (0, 0)),
        _POSITIONS,
        _POSITIONS,
        query=2,
        causal=True,
        expected={
            "scores": {0: (0, 0, 0), 1: (0, 0, 0), 2: (0, 0, 0)},
            "weights": {0: (1, 0, 0), 1: (0.5, 0.5, 0), 2: (_THIRD, _THIRD, _THIRD)},
            "output": {0: (1, 0), 1: (0.5, 0.5), 2: (2 * _THIRD, 2 * _THIRD)},
        },
    ),
    Preset(
        "a huge future score",
        ((1,), (1,), (1,)),
        ((0,), (log(2),), (100,)),
        ((1, 0, 0), (0, 1, 0), (0, 0, 1)),
        query=1,
        causal=True,
        expected={
            "scores": {1: (0, 0.6931, 100)},
            "masked": {1: (0, 0.6931, -inf)},
            "weights": {1: (_THIRD, 2 * _THIRD, 0)},
            "output": {1: (_THIRD, 2 * _THIRD, 0)},
        },
    ),
    Preset(
        "a huge future score, mask off",
        ((1,), (1,), (1,)),
        ((0,), (log(2),), (100,)),
        ((1, 0, 0), (0, 1, 0), (0, 0, 1)),
        query=1,
        expected={
            "scores": {1: (0, 0.6931, 100)},
            "weights": {1: (0, 0, 1)},
            "output": {1: (0, 0, 1)},
        },
    ),
    Preset(
        # The facts ask for 2 queries, 5 keys and d_v ≠ d_k; the numbers follow from e^{1/√2} = 2.0281.
        "cross lengths",
        ((1, 0), (0, 1)),
        ((1, 0), (0, 1), (1, 1), (0, 0), (-1, 0)),
        ((1, 0, 0), (0, 1, 0), (0, 0, 1), (1, 1, 1), (2, 0, -2)),
        query=0,
        expected={
            "scores": {0: (1, 0, 1, 0, -1), 1: (0, 1, 1, 0, 0)},
            "weights": {
                0: (0.3097, 0.1527, 0.3097, 0.1527, 0.0753),
                1: (0.1417, 0.2874, 0.2874, 0.1417, 0.1417),
            },
            "output": {0: (0.6129, 0.3054, 0.3118), 1: (0.5669, 0.4291, 0.1457)},
        },
    ),
)


def by_name(name: str) -> Preset:
    """The preset called `name`."""
    return next(preset for preset in PRESETS if preset.name == name)
