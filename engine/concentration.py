"""How concentrated a row of attention weights is, and how much gradient its softmax still passes on."""

import torch
from jaxtyping import Float
from torch import Tensor

from attnlab.engine.weights import require_weights

__all__ = ["entropy", "jacobian_norm", "softmax_jacobian"]


def entropy(weights: Float[Tensor, "*batch key"]) -> Float[Tensor, "*batch"]:
    """−Σ a ln a over key, in nats: ln(keys) for equal weights, 0 when one key has everything.

    0 ln 0 is 0, its limit; the gradient there is given as 0 (the limit of its slope is +∞).
    Raises `ValueError` where `weights` are no rows with sum 1.
    """
    require_weights(weights)
    logs = weights.masked_fill(weights == 0, 1).log()
    return -(weights * logs).sum(dim=-1)


def softmax_jacobian(weights: Float[Tensor, "*batch key"]) -> Float[Tensor, "*batch key other_key"]:
    """∂ weight of `key` / ∂ score of `other_key` = diag(a) − a aᵀ, from the weights a alone.

    Every row and column sums to 0: a constant added to all scores changes nothing.
    Raises `ValueError` where `weights` are no rows with sum 1.
    """
    require_weights(weights)
    return torch.diag_embed(weights) - weights[..., :, None] * weights[..., None, :]


def jacobian_norm(weights: Float[Tensor, "*batch key"]) -> Float[Tensor, "*batch"]:
    """Frobenius norm of `softmax_jacobian`: the root of the sum of its squares.

    √(keys − 1)/keys for equal weights, 0 when one key has everything: then no gradient passes. It isn't
    largest for equal weights: (½, ½, 0, …) has ½.
    """
    return softmax_jacobian(weights).square().sum(dim=(-2, -1)).sqrt()
