"""Activations with parameters, losses, norms, choices by order, fused attention."""

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from attnlab.engine import attend, causal, explain, gradient, record
from attnlab.engine.functions import FUNCTIONS
from helpers.recomputed import examined


def randn(*shape: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64)


X, Y, V = randn(2, 3), randn(2, 3, seed=1), randn(3, seed=2)
CUBE = randn(2, 3, 4, seed=3)
HARD = torch.tensor(
    [-torch.inf, -50.0, -3.0, -1.5, -0.5, -0.0, 0.0, 0.4, 0.5, 1.0, 2.5, 6.5, 50.0, torch.inf]
)
HARD = torch.cat([HARD, torch.tensor([torch.nan])]).double()
LABELS = torch.tensor([2, 0])
Q, K = randn(2, 5, 4), randn(2, 3, 4, seed=1)

CALLS: dict[str, Callable[[], object]] = {
    "leaky_relu": lambda: (F.leaky_relu(HARD), F.leaky_relu(X, 0.3), nn.LeakyReLU(0.2)(X)),
    "elu": lambda: (F.elu(HARD), F.elu(X, 0.5), F.celu(HARD), F.celu(X, alpha=2.0), nn.ELU()(X)),
    "softplus": lambda: (F.softplus(HARD), F.softplus(X * 9, beta=2, threshold=5), nn.Softplus()(X)),
    "limits": lambda: (F.hardtanh(HARD), F.hardtanh(X, -0.2, 0.3), HARD.clamp_min(0.1), X.clamp_max(Y)),
    "hardswish": lambda: F.hardswish(HARD[1:-2]),
    "glu": lambda: (F.glu(CUBE), F.glu(CUBE.mT[:, :, :2], dim=2), F.glu(CUBE[:, :2], 1)),
    "prod": lambda: (X.prod(), X.prod(0), CUBE.prod(-1, keepdim=True), X.cumprod(1)),
    "logsumexp": lambda: (X.logsumexp(1), CUBE.logsumexp((0, 2)), torch.logsumexp(X, 0, keepdim=True)),
    "norm": lambda: (
        X.norm(),
        X.norm(dim=1),
        torch.linalg.vector_norm(CUBE, dim=(0, 1)),
        X.norm(2, -1, True),
    ),
    "normalize": lambda: (F.normalize(X), F.normalize(CUBE, dim=-1), F.normalize(X * 0, dim=0, eps=0.1)),
    "sort": lambda: (X.sort()[0], X.sort(0, descending=True)[0], X.topk(2)[0], CUBE.topk(1, dim=1)[0]),
    "order": lambda: (X.kthvalue(2)[0], X.kthvalue(1, 0, True)[0], X.median(1)[0], X.mode(0, True)[0]),
    "outer": lambda: (torch.outer(V, X[0]), V.outer(vec2=V)),
    "addc": lambda: (
        torch.addcmul(X, Y, V),
        X.addcmul(Y, Y, value=-0.5),
        torch.addcdiv(X, Y, Y.exp(), value=2),
    ),
    "lerp": lambda: (torch.lerp(X, Y, 0.25), X.lerp(Y, V.abs())),
    "losses": lambda: [
        loss(X, Y, reduction=r) for loss in (F.mse_loss, F.l1_loss) for r in ("mean", "sum", "none")
    ],
    "binary": lambda: [
        (
            F.binary_cross_entropy(X.sigmoid(), Y.sigmoid(), reduction=r),
            F.binary_cross_entropy_with_logits(X * 9, Y.sigmoid(), reduction=r),
        )
        for r in ("mean", "sum", "none")
    ],
    "binary at its ends": lambda: F.binary_cross_entropy(
        torch.tensor([0.0, 1.0, 1.0]), torch.tensor([0.0, 1.0, 0.0])
    ),
    "modules": lambda: (nn.MSELoss()(X, Y), nn.L1Loss()(X, Y), nn.BCEWithLogitsLoss()(X, Y.sigmoid())),
    "nll_loss": lambda: [F.nll_loss(X.log_softmax(1), LABELS, reduction=r) for r in ("mean", "sum", "none")],
    "nll_loss ignoring": lambda: F.nll_loss(X.log_softmax(1), LABELS, ignore_index=2),
    "moves": lambda: (
        X.fliplr(),
        X.hsplit([1]),
        torch.dstack([X, Y]),
        V.diag(),
        (X.T @ X).diag(),
        V.diag_embed(),
    ),
    "more moves": lambda: (
        torch.take_along_dim(X, X.argsort(1), 1),
        torch.column_stack([V, X.T]),
        X.adjoint(),
    ),
    "fused": lambda: (
        F.scaled_dot_product_attention(Q, K, K),
        F.scaled_dot_product_attention(Q[:, :3], K, K[..., :2], is_causal=True),
        F.scaled_dot_product_attention(Q, K[:1], K[:1], scale=0.3),
        F.scaled_dot_product_attention(Q, K, K, attn_mask=randn(5, 3)),
        F.scaled_dot_product_attention(Q, K, K, causal(5, 3, offset=0)),
        F.scaled_dot_product_attention(Q[None], K[None], K[None], attn_mask=causal(5, 3, offset=1)),
    ),
}
# Positions are no numbers made of others.
NO_RULE: dict[str, set[str]] = {
    "sort": {"sort", "topk"},
    "order": {"kthvalue", "median", "mode"},
    "more moves": {"argsort"},
}
DECLINED: dict[str, Callable[[], object]] = {
    "logsumexp": lambda: (X * 1e4).logsumexp(0),
    "norm": lambda: X.norm(1),
    "normalize": lambda: F.normalize(X, p=1),
    "mse_loss": lambda: F.mse_loss(X, Y, weight=Y.abs()),
    "nll_loss": lambda: F.nll_loss(X.log_softmax(1), LABELS, V.abs()),
    "binary_cross_entropy": lambda: F.binary_cross_entropy(X.sigmoid(), Y.sigmoid(), Y.abs()),
    "median": lambda: X.median(),
    "prod": lambda: X.prod(dtype=torch.float32),
    "scaled_dot_product_attention": lambda: F.scaled_dot_product_attention(Q, K, K, torch.zeros(5, 3).bool()),
}


@pytest.mark.parametrize("name", CALLS)
def test_call(name: str) -> None:
    with record() as tape:
        CALLS[name]()
    assert examined(tape) == ([], NO_RULE.get(name, set()))


@pytest.mark.parametrize("name", DECLINED)
def test_a_form_that_is_not_known_is_not_told(name: str) -> None:
    with record() as tape:
        DECLINED[name]()
    assert examined(tape) == ([], {name})


@pytest.mark.parametrize("name", sorted(FUNCTIONS))
def test_function_at_its_edges(name: str) -> None:
    call = {"log_sigmoid": "logsigmoid"}.get(name, name)
    function = getattr(torch, call, None) or getattr(F, call)
    with record() as tape:
        function(HARD)
        function(X)
    assert examined(tape) == ([], set())
    assert {called.name for called in tape.calls} == {name}


@given(
    st.integers(1, 3),
    st.integers(1, 4),
    st.integers(1, 4),
    st.integers(1, 3),
    st.integers(1, 3),
    st.booleans(),
)
def test_fused_attention_is_the_attention_of_this_engine(
    batch: int, queries: int, keys: int, d_k: int, d_v: int, masked: bool
) -> None:
    q, k, v = randn(batch, queries, d_k), randn(batch, keys, d_k, seed=1), randn(batch, keys, d_v, seed=2)
    allowed = causal(queries, keys, offset=0) if masked else None
    right = attend(q, k, v, allowed=allowed)
    q.requires_grad_()
    with record() as tape:
        output = F.scaled_dot_product_attention(q, k, v, attn_mask=allowed)
    place = (batch - 1, queries - 1, 0)
    told = explain(tape, output, place)
    assert told.formula is not None
    assert told.formula.value() == pytest.approx(right.output[place].item(), rel=1e-12, abs=1e-12)
    read = {operand.index[1] for operand in told.operands if operand.version is tape.version(v)}
    assert read == {j for j in range(keys) if allowed is None or allowed[queries - 1, j]}
    (slope,) = torch.autograd.grad(output[place], q)
    torch.testing.assert_close(gradient(tape, output, place)[tape.version(q)], slope)


def test_weights_that_torch_keeps_to_itself_are_told() -> None:
    q, k = torch.tensor([[1.0, 0.0]]), torch.tensor([[1.0, 0.0], [0.0, 1.0]])
    with record() as tape:
        tape.name(v := torch.tensor([[10.0], [20.0]]), "v")
        output = F.scaled_dot_product_attention(q, k, v)
    assert explain(tape, output, (0, 0)).text == "0.6698 · 10 + 0.3302 · 20 = 13.3024"
