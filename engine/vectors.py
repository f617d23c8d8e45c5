"""Random queries and keys whose components have mean 0 and variance 1, and the variance of q · k."""

import math
from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Generator, Tensor

from attnlab.engine.sizes import MAX_SEED, require_whole

__all__ = ["DISTRIBUTIONS", "MAX_D_K", "dot_product_variance", "sample_queries_and_keys", "sample_vectors"]

MAX_D_K = 4096
MAX_VECTORS = 1024


def _normal(n: int, d_k: int, generator: Generator) -> Tensor:
    return torch.randn(n, d_k, generator=generator, dtype=torch.float64)


def _uniform(n: int, d_k: int, generator: Generator) -> Tensor:
    # A uniform distribution from −√3 to √3 has variance (2√3)²/12 = 1.
    return (torch.rand(n, d_k, generator=generator, dtype=torch.float64) * 2 - 1) * math.sqrt(3)


def _signs(n: int, d_k: int, generator: Generator) -> Tensor:
    return torch.randint(2, (n, d_k), generator=generator).double() * 2 - 1


DISTRIBUTIONS: dict[str, Callable[[int, int, Generator], Tensor]] = {
    "normal": _normal,
    "uniform": _uniform,
    "signs": _signs,
    "correlated": _normal,
}
"""Of a component. All have mean 0 and variance 1; all but "correlated" are independent."""


def sample_vectors(
    distribution: str, n: int, d_k: int, seed: int, *, rho: float = 0.5
) -> Float[Tensor, "vector d_k"]:
    """Proposes n vectors of d_k components with mean 0 and variance 1, in float64.

    - `distribution`: "normal", "uniform" (from −√3 to √3), "signs" (±1), or "correlated":
      √ρ · c + √(1 − ρ) · z with normal c, common to the components of one vector, and normal z of each.
    - `n`: 1 to 1024, `d_k`: 1 to 4096, `seed`: 0 to 2⁶³ − 1.
    - `rho`: correlation ρ of any two components of a vector, 0 to 1; ignored unless "correlated".

    A seed only proposes: another machine or version of torch can draw others. The generator is our own.
    """
    if distribution not in DISTRIBUTIONS:
        raise ValueError(f"distribution: expected one of {', '.join(DISTRIBUTIONS)}; got {distribution!r}")
    require_whole(n, "n", 1, MAX_VECTORS)
    require_whole(d_k, "d_k", 1, MAX_D_K)
    require_whole(seed, "seed", 0, MAX_SEED)
    _require_rho(rho)
    generator = torch.Generator().manual_seed(seed)
    vectors = DISTRIBUTIONS[distribution](n, d_k, generator)
    if distribution == "correlated":
        common = torch.randn(n, 1, generator=generator, dtype=torch.float64)
        vectors.mul_(math.sqrt(1 - rho)).add_(common, alpha=math.sqrt(rho))
    return vectors


def sample_queries_and_keys(
    distribution: str, seed: int, *, n: int = 256, d_k: int = MAX_D_K, rho: float = 0.5
) -> tuple[Float[Tensor, "query d_k"], Float[Tensor, "key d_k"]]:
    """n queries and n keys of one draw, so that no query is a key (as with one seed used twice).

    `n` is 1 to 512; the rest as in `sample_vectors`. The first d components serve every smaller width d.
    """
    require_whole(n, "n", 1, MAX_VECTORS // 2)
    vectors = sample_vectors(distribution, 2 * n, d_k, seed, rho=rho)
    return vectors[:n], vectors[n:]


def dot_product_variance(d_k: int, rho: float = 0.0) -> float:
    """Variance of q · k, for independent q and k: d_k · (1 + (d_k − 1) ρ²).

    It is Σᵢⱼ E[qᵢqⱼ] E[kᵢkⱼ]: d_k terms of 1, and d_k (d_k − 1) terms of ρ², when any two components of one
    vector have the correlation ρ. Independent components, ρ = 0, give d_k; that is the argument of Vaswani
    et al. 2017, footnote 4, and with ρ > 0 it fails: 1/√d_k leaves the variance 1 + (d_k − 1) ρ².
    """
    require_whole(d_k, "d_k", 1, MAX_D_K)
    _require_rho(rho)
    return d_k * (1 + (d_k - 1) * rho**2)


def _require_rho(rho: float) -> None:
    # Written so that NaN is refused too.
    if isinstance(rho, bool) or not isinstance(rho, int | float) or not 0 <= rho <= 1:
        raise ValueError(f"rho: expected a number with 0 ≤ rho ≤ 1, got {rho!r}")
