"""Which width belongs under the root of the scale: that of one head, not the model's."""

import math
from dataclasses import dataclass

from jaxtyping import Float
from torch import Tensor

from attnlab.engine.sizes import require_whole
from attnlab.engine.trace import Trace, note
from attnlab.engine.vectors import MAX_D_K

__all__ = ["MAX_MODEL_HEADS", "HeadWidthTrace", "compare_head_width", "divide_by_root"]

MAX_MODEL_HEADS = 64
"""Most heads that a model's width may be divided among here."""


def divide_by_root(scores: Float[Tensor, "*shape"], width: int) -> Float[Tensor, "*shape"]:
    """scores / √width. The right width is the number of products in each score: that of one head."""
    require_whole(width, "width", 1, MAX_D_K * MAX_MODEL_HEADS)
    return scores / math.sqrt(width)


@dataclass(frozen=True, eq=False)
class HeadWidthTrace(Trace):
    """The same scores divided by the root of one head's width (right) and of the model's (mistake)."""

    scores: Float[Tensor, "*batch key"] = note("q · k of one head")
    scaled_by_head: Float[Tensor, "*batch key"] = note("÷ √d_head")
    weights_by_head: Float[Tensor, "*batch key"] = note("softmax, right")
    scaled_by_model: Float[Tensor, "*batch key"] = note("÷ √width, a mistake")
    weights_by_model: Float[Tensor, "*batch key"] = note("softmax, too even")
    d_head: int = note("width of one head")
    width: int = note("width of the model")


def compare_head_width(scores: Float[Tensor, "*batch key"], width: int, heads: int) -> HeadWidthTrace:
    """Which width belongs under the root: that of one head, width / heads, not the model's.

    `width`: 1 to 4096, `heads`: 1 to 64, width a multiple of heads. With one head both are the same.
    """
    require_whole(width, "width", 1, MAX_D_K)
    require_whole(heads, "heads", 1, MAX_MODEL_HEADS)
    if width % heads:
        raise ValueError(
            f"width: expected a multiple of heads; width {width} cannot be split into {heads} equal heads"
        )
    if not scores.is_floating_point() or scores.ndim == 0 or 0 in scores.shape:
        raise ValueError(
            f"scores: expected rows of floating-point numbers, got {scores.dtype} "
            f"of shape {tuple(scores.shape)}"
        )
    d_head = width // heads

    scaled_by_head = divide_by_root(scores, d_head)
    weights_by_head = scaled_by_head.softmax(dim=-1)
    scaled_by_model = divide_by_root(scores, width)
    weights_by_model = scaled_by_model.softmax(dim=-1)

    return HeadWidthTrace(
        scores=scores.clone(),
        scaled_by_head=scaled_by_head,
        weights_by_head=weights_by_head,
        scaled_by_model=scaled_by_model,
        weights_by_model=weights_by_model,
        d_head=d_head,
        width=width,
    )
