"""Live checks of a `ProjectionTrace`, and the mistakes that run without an error."""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from attnlab.engine.checks import Check
from attnlab.engine.packing import pack, unpack
from attnlab.engine.projections import ProjectionTrace

__all__ = [
    "by_linear",
    "check_projection",
    "heads_in_a_loop",
    "linear_layout",
    "linear_weight",
    "module_agreement",
    "one_packed_projection",
    "separate_projections",
    "untransposed",
]


def linear_weight(w: Float[Tensor, "d_in d_out"]) -> Float[Tensor, "d_out d_in"]:
    """The weight of the `nn.Linear` that does the same as x @ w: its transpose, out × in."""
    return w.mT.clone()


def by_linear(x: Float[Tensor, "*batch d_in"], weight: Float[Tensor, "d_out d_in"]) -> Tensor:
    """x through an `nn.Linear` with this weight, stored out × in: x @ weight transposed."""
    return F.linear(x, weight)


def untransposed(x: Float[Tensor, "*batch d_in"], w: Float[Tensor, "d_in d_out"]) -> Tensor:
    """The mistake: `w` of x @ w given to `nn.Linear` as it is, so that x is multiplied with its transpose.

    Only a square matrix lets it pass. Raises `ValueError`, with both numbers, for any other.
    """
    if w.shape[0] != w.shape[1]:
        raise ValueError(
            f"a weight of {w.shape[0]} × {w.shape[1]} is refused by nn.Linear, which reads it as out × in: "
            f"it expects {w.shape[1]} numbers in a row of x, and there are {w.shape[0]}"
        )
    return F.linear(x, w)


def heads_in_a_loop(trace: ProjectionTrace) -> Check:
    """Largest |Δ| between the heads at once and one head after the other on its slice of q, k and v.

    0 when the library multiplies matrices in the same order wherever they lie in memory; it needn't.
    """
    heads, kv_heads = trace.q_heads.shape[-3], trace.k_heads.shape[-3]
    shared = heads // kv_heads
    d_k = trace.q_heads.shape[-1]
    one_by_one = []
    for head in range(heads):
        own = slice(head * d_k, (head + 1) * d_k)
        common = slice(head // shared * d_k, (head // shared + 1) * d_k)
        # An axis of one head is kept, and copied, so that torch multiplies in the same way as all at once.
        q, k, v = (
            part[..., columns].unsqueeze(-3).contiguous()
            for part, columns in ((trace.q, own), (trace.k, common), (trace.v, common))
        )
        masked = (q @ k.mT / d_k**0.5).masked_fill(~trace.allowed, -torch.inf)
        one_by_one.append((masked.softmax(dim=-1) @ v).squeeze(-3))
    return Check(
        "heads in a loop agree",
        _difference((torch.cat(one_by_one, dim=-1), trace.concat)),
        _rounding_of_heads(trace),
        f"{heads} heads one after the other, from slices of q, k and v, against all at once",
    )


def separate_projections(trace: ProjectionTrace) -> Check:
    """Largest |Δ| between one wide projection and one for each head, side by side.

    0 when the library adds up in the same order for narrow matrices as for wide ones; it needn't.
    """
    heads, d_k = trace.q_heads.shape[-3], trace.q_heads.shape[-1]
    narrow = [trace.x @ trace.w_q[:, head * d_k : (head + 1) * d_k] for head in range(heads)]
    return Check(
        "separate projections agree",
        _difference((torch.cat(narrow, dim=-1), trace.q)),
        _rounding_of_product(trace.x, trace.w_q),
        f"q from {heads} matrices of {d_k} columns against q from one of {heads * d_k}",
    )


def one_packed_projection(trace: ProjectionTrace) -> Check | None:
    """Largest |Δ| between q, k and v and the same from one matrix, packed by blocks.

    None where k and v are narrower than q, because then they aren't three equal parts.
    """
    if trace.k.shape != trace.q.shape:
        return None
    heads = trace.q_heads.shape[-3]
    packed = trace.x @ pack(trace.w_q, trace.w_k, trace.w_v, heads, "blocks")
    parts = unpack(packed, heads, "blocks")
    pairs = ((parts.q, trace.q), (parts.k, trace.k), (parts.v, trace.v))
    weights = (trace.w_q, trace.w_k, trace.w_v)
    return Check(
        "one packed projection agrees",
        _difference(*pairs),
        max(_rounding_of_product(trace.x, w) for w in weights),
        f"x @ one matrix of {packed.shape[-1]} columns, cut in three, against three products",
    )


def linear_layout(trace: ProjectionTrace) -> Check:
    """Largest |Δ| between x @ w and `F.linear` with the transposed weight, for q, k and v."""
    made = ((trace.w_q, trace.q), (trace.w_k, trace.k), (trace.w_v, trace.v))
    return Check(
        "nn.Linear agrees once transposed",
        _difference(*((F.linear(trace.x, linear_weight(w)), result) for w, result in made)),
        max(_rounding_of_product(trace.x, w) for w, _ in made),
        "F.linear(x, w transposed: out × in) against x @ w",
    )


def module_agreement(trace: ProjectionTrace) -> Check:
    """Largest |Δ| of the output against torch's own attention with the same weights.

    `nn.MultiheadAttention`, or, where that can't have these sizes (d_in or d_out other than the width, shared
    key and value heads), `F.scaled_dot_product_attention`. The bound is rounding at the trace's dtype, as
    the sizes of the inputs pass it on.
    """
    width = trace.q.shape[-1]
    square = trace.x.shape[-1] == width == trace.output.shape[-1] and trace.k.shape == trace.q.shape
    output = _by_module(trace) if square else _by_fused_call(trace)
    called = "nn.MultiheadAttention" if square else "F.scaled_dot_product_attention(enable_gqa=True)"
    without = "" if trace.w_o is not None else ", without output projection"
    return Check(
        "torch multi-head agrees",
        _difference((output, trace.output)),
        _rounding_of_output(trace),
        f"{called} with the same weights{without}, {str(trace.x.dtype).removeprefix('torch.')}",
    )


PROJECTION_CHECKS: tuple[Callable[[ProjectionTrace], Check | None], ...] = (
    heads_in_a_loop,
    separate_projections,
    one_packed_projection,
    linear_layout,
    module_agreement,
)


def check_projection(trace: ProjectionTrace) -> list[Check]:
    """All checks that apply to a projection trace, in the order in which they are shown."""
    return [found for check in PROJECTION_CHECKS if (found := check(trace)) is not None]


def _by_module(trace: ProjectionTrace) -> Tensor:
    width, heads = trace.q.shape[-1], trace.q_heads.shape[-3]
    module = nn.MultiheadAttention(width, heads, bias=False, batch_first=True, device="meta")
    w_o = torch.eye(width, dtype=trace.x.dtype) if trace.w_o is None else trace.w_o
    # From the meta device, so that no random numbers are drawn (and nobody's generator moves on).
    module.in_proj_weight = nn.Parameter(torch.cat([w.mT for w in (trace.w_q, trace.w_k, trace.w_v)]))
    module.out_proj.weight = nn.Parameter(linear_weight(w_o))
    # True means the opposite there: may not be read.
    output, _ = module(trace.x, trace.x, trace.x, attn_mask=~trace.allowed, need_weights=False)
    return output.detach()


def _by_fused_call(trace: ProjectionTrace) -> Tensor:
    heads, kv_heads = trace.q_heads.shape[-3], trace.k_heads.shape[-3]
    q, k, v = (
        F.linear(trace.x, linear_weight(w)).unflatten(-1, (count, -1)).movedim(-2, -3)
        for w, count in ((trace.w_q, heads), (trace.w_k, kv_heads), (trace.w_v, kv_heads))
    )
    mixed = F.scaled_dot_product_attention(q, k, v, attn_mask=trace.allowed, enable_gqa=True)
    concat = mixed.movedim(-3, -2).flatten(-2)
    return concat if trace.w_o is None else F.linear(concat, linear_weight(trace.w_o))


def _difference(*pairs: tuple[Tensor, Tensor]) -> float:
    """Largest |Δ| of all pairs; NaN if there is one (Python's own `max` would lose it)."""
    return torch.stack([(one - other).abs().max() for one, other in pairs]).max().item()


def _rounding_of_product(x: Tensor, w: Tensor) -> float:
    """How far two ways to add up x @ w may be apart: 2 · terms · eps · max Σ|x||w|."""
    sizes = x.double().abs() @ w.double().abs()
    return 2 * x.shape[-1] * torch.finfo(x.dtype).eps * sizes.max().item()


def _rounding_of_heads(trace: ProjectionTrace) -> float:
    """How far two ways to compute the heads may be apart: 4 · terms · eps · max(1, max Σ|x||w_v|).

    The terms are those of the scores and projections, weighed by the largest score that could be, masked or
    not (the exponential passes its rounding on), and of the sum over the keys. In float64: in half precision
    this bound could overflow and then hold for anything.
    """
    x, w_q, w_k, w_v = (t.double().abs() for t in (trace.x, trace.w_q, trace.w_k, trace.w_v))
    heads, d_k = trace.q_heads.shape[-3], trace.q_heads.shape[-1]
    shared = heads // trace.k_heads.shape[-3]
    q, k = (part.unflatten(-1, (-1, d_k)).movedim(-2, -3) for part in (x @ w_q, x @ w_k))
    largest = (q @ k.repeat_interleave(shared, dim=-3).mT).max().item() / d_k**0.5
    d_in, keys = x.shape[-1], trace.allowed.shape[-1]
    terms = (2 * d_in + d_k + 2) * largest + d_in + keys
    return 4 * terms * torch.finfo(trace.x.dtype).eps * max(1.0, (x @ w_v).max().item())


def _rounding_of_output(trace: ProjectionTrace) -> float:
    """The same after the output projection, with the rounding of its own sum."""
    heads = _rounding_of_heads(trace)
    if trace.w_o is None:
        return heads
    w_o = trace.w_o.double().abs()
    size = (trace.x.double().abs() @ trace.w_v.double().abs()).max().item()
    own = 2 * w_o.shape[0] * torch.finfo(trace.x.dtype).eps * max(1.0, size)
    return (heads + own) * max(1.0, w_o.sum(dim=0).max().item())
