"""Every number explains itself: the formula recomputed from its operands is the recorded number."""

import math
from collections.abc import Callable, Iterator

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from torch import Tensor, nn

from attnlab.engine import Operand, Tape, attend, attention_row, causal, explain, record
from attnlab.engine.explain import stage_name
from attnlab.engine.formula import Cell, Formula, format_short
from attnlab.engine.index_maps import MOVES
from attnlab.engine.rules import RULES
from helpers.annotations import unchecked
from helpers.attention_facts import PRESETS, Preset
from helpers.hand_written import (
    HeadsInALoop,
    PackedAttention,
    TinyLanguageModel,
    einsum_attention,
    in_place_attention,
    rms_block,
)
from helpers.programs import programs, run
from helpers.recomputed import examined, places


@pytest.fixture(autouse=True)
def _annotations_are_checked() -> Iterator[None]:
    """Not here, where each number calls hundreds of small functions; test_recorder.py checks them."""
    with unchecked():
        yield


def randn(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64).to(dtype)


def recorded(program: Callable[[], object]) -> Tape:
    with record() as tape:
        program()
    return tape


def all_right(tape: Tape, without: set[str] | None = None) -> None:
    """Each number has a formula and it is right; but for calls `without` one."""
    assert examined(tape) == ([], without or set())


# ---------------------------------------------------------------- whole programs


@pytest.mark.parametrize("preset", PRESETS, ids=lambda preset: preset.name)
@pytest.mark.parametrize("drop_p", [0.0, 0.25])
def test_attend_and_attention_row(preset: Preset, drop_p: float) -> None:
    q, k, v = (torch.tensor(rows, dtype=torch.float64) for rows in (preset.q, preset.k, preset.v))
    allowed = causal(len(q), len(k)) if preset.causal else None
    keep = randn(len(q), len(k)) > -0.5 if drop_p else None
    with record() as tape:
        trace = attend(q, k, v, scale=preset.scale, allowed=allowed, keep=keep, drop_p=drop_p)
        row = attention_row(trace, preset.query)
    all_right(tape)
    stages = {tape.version(stage.tensor) for stage in (*trace.stages(), *row.stages())}
    assert all(stage.call is not None for stage in stages)


def test_a_row_without_a_key_is_explained_too() -> None:
    with record() as tape:
        attend(randn(3, 2), randn(2, 2), randn(2, 3), allowed=causal(3, 2))
    all_right(tape)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_packed_heads(dtype: torch.dtype) -> None:
    module = PackedAttention(6, 2, 0.3).to(dtype)
    all_right(recorded(lambda: module(randn(2, 3, 6, dtype=dtype))))


def test_einsum_heads() -> None:
    weights = [randn(2, 3, 2, seed=1), randn(2, 3, 2, seed=2), randn(2, 3, 1, seed=3), randn(2, 1, 3, seed=4)]
    all_right(recorded(lambda: einsum_attention(randn(2, 4, 3), *weights)))


def test_heads_in_a_loop() -> None:
    module = HeadsInALoop(4, 2, 0.4).double()
    all_right(recorded(lambda: module(randn(2, 3, 4))))


def test_in_place_heads() -> None:
    q, k, v = randn(2, 3, 4), randn(2, 3, 4, seed=1), randn(2, 3, 5, seed=2)
    bias = randn(3, 3, seed=3)
    tape = recorded(lambda: in_place_attention(q, k, v, bias))
    all_right(tape, {"empty_like", "max"})  # the positions of the largest


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_language_model_loss(dtype: torch.dtype) -> None:
    module = TinyLanguageModel(vocab=5, width=4, heads=2, longest=4, drop_p=0.2).to(dtype)
    tokens = torch.tensor([[0, 3, 1, 1], [4, 2, 0, 3]])
    all_right(recorded(lambda: module(tokens)))


def test_rms_norm() -> None:
    x, gain, gate = randn(2, 3, 4), randn(4, seed=1), randn(4, 3, seed=2)
    all_right(recorded(lambda: rms_block(x, gain, gate)))


@given(programs())
def test_programs_made_by_chance(program: object) -> None:
    tape = run(program).tape
    faults, without = examined(tape)
    assert faults == []
    assert without <= {"max", "min", "einsum"}  # positions; sums of ∞ in another order


# ---------------------------------------------------------------- one call at a time

X, Y, V, M = randn(2, 3), randn(2, 3, seed=1), randn(3, seed=2), randn(3, 3, seed=3)
CUBE = randn(2, 3, 4, seed=4)
HARD = torch.tensor([-math.inf, -1e200, -700.0, -1.5, -0.0, 0.0, 0.5, 1.0, 40.0, 1e200, math.inf, math.nan])
HARD = HARD.double()
INTS = torch.tensor([[1, -2, 3], [4, 0, -6]])
YES = torch.tensor([[True, False, True], [False, False, True]])

CALLS: dict[str, Callable[[], object]] = {
    # arithmetic
    "add alpha": lambda: torch.add(X, Y, alpha=3),
    "sub alpha": lambda: torch.sub(X, Y, alpha=-2),
    "sub_ alpha": lambda: X.clone().sub_(Y, alpha=0.5),
    "rsub alpha": lambda: torch.rsub(X, Y, alpha=2),
    "1 − x": lambda: 1 - X,
    "x − 1": lambda: X - 1,
    "2 / x": lambda: 2 / X,
    "2 ** x": lambda: 2**X,
    "x ** y": lambda: X.abs() ** Y,
    "broadcast both": lambda: X[:, :1] - V,
    "broadcast a number": lambda: torch.tensor(2.0) * X,
    "leading axes": lambda: CUBE + X[..., None],
    "by name": lambda: torch.div(input=X, other=Y),
    "one by name": lambda: (torch.neg(input=X), torch.square(input=X), torch.logical_not(input=YES)),
    "atleast of several": lambda: (torch.atleast_2d(X, V), torch.atleast_1d(V, V[0]), torch.atleast_2d(V, Y)),
    "floor division": lambda: torch.div(X, Y, rounding_mode="floor"),
    "true + true": lambda: YES + YES,
    "bool · bool": lambda: YES * YES,
    "int + float": lambda: INTS + 0.5,
    "int / int": lambda: INTS / 7,
    "int ** 2": lambda: INTS**2,
    "0 ** −1": lambda: torch.tensor([2, 1]) ** torch.tensor([1, 0]),
    "int8 wraps": lambda: torch.tensor([100, 3], dtype=torch.int8) + torch.tensor([100, 4], dtype=torch.int8),
    "uint8 −x": lambda: -torch.tensor([5, 0], dtype=torch.uint8),
    "int64 wraps": lambda: torch.tensor([2**62, 3]) * 4,
    "float32 − 0.1": lambda: torch.tensor([0.1, 0.2]) - 0.1,
    "matmul of ints": lambda: INTS @ INTS.T,
    "addmm": lambda: torch.addmm(V, X, M, beta=2, alpha=-0.5),
    "addmm without input": lambda: torch.addmm(V * math.nan, X, M, beta=0),
    "baddbmm": lambda: torch.baddbmm(CUBE[:, :, :3], CUBE, CUBE.mT, alpha=2),
    "baddbmm by name": lambda: torch.baddbmm(input=CUBE[:, :, :3], batch1=CUBE, batch2=CUBE.mT),
    "addmm_": lambda: M.clone().addmm_(M, M.T),
    # element by element
    "hard pow": lambda: [HARD**p for p in (2, 3, 0, -1, -2, 0.5, -0.5, 1.5, -3)],
    "hard rpow": lambda: [b**HARD for b in (0, 1, 2, 0.5, -2)],
    "hard quotients": lambda: HARD[:, None] / HARD,
    "hard products": lambda: HARD[:, None] * HARD,
    "hard differences": lambda: HARD[:, None] - HARD,
    "hard maximum": lambda: (torch.maximum(HARD[:, None], HARD), torch.minimum(HARD[:, None], HARD)),
    "hard comparisons": lambda: (HARD[::2, None] < HARD, HARD[::2, None] == HARD, HARD[::3, None] != HARD),
    "gelu tanh": lambda: F.gelu(HARD, approximate="tanh"),
    "clamp": lambda: (X.clamp(-0.5, 0.5), X.clamp(min=0), torch.clamp(X, max=Y), HARD.clamp(-1, 1)),
    "clamp by tensors": lambda: X.clamp(min=V, max=Y),
    "0.1 in float32": lambda: [
        op(torch.tensor([0.1, 0.3]), 0.1) for op in (torch.eq, torch.lt, torch.le, torch.gt)
    ],
    "0-d float64": lambda: torch.tensor([0.1, 0.3]) == torch.tensor(0.1, dtype=torch.float64),
    "int < 0.5": lambda: INTS < 0.5,
    "logic": lambda: (YES & YES.flip(0), YES | ~YES, torch.logical_not(INTS), torch.logical_and(INTS, X)),
    "bitwise of ints": lambda: (INTS & 3, ~INTS),
    "masked_fill": lambda: (X.masked_fill(YES, -math.inf), X.masked_fill(YES, torch.tensor(2.0).double())),
    "masked_fill of ints": lambda: INTS.masked_fill(YES, 2.7),
    "masked_fill broadcast": lambda: V.masked_fill(YES, 7),
    "where": lambda: (torch.where(YES, X, 0.0), torch.where(X > 0, X, Y), torch.where(YES, 1.0, X)),
    "x.where": lambda: X.where(YES, Y),
    "where of one": lambda: torch.where(YES),
    "where by name": lambda: torch.where(condition=YES, input=X, other=Y),
    "fill": lambda: (X.clone().fill_(2), INTS.clone().fill_(2.7), X.clone().zero_()),
    "like": lambda: (torch.zeros_like(X), X.new_full((2,), 3), torch.full_like(INTS, 2), X.new_ones(2)),
    "copy_": lambda: (X.clone().copy_(V), INTS.clone().copy_(X * 3)),
    "relu in place": lambda: (F.relu(X.clone(), inplace=True), X.clone().relu_(), nn.ReLU(True)(X.clone())),
    # dropout
    "dropout": lambda: F.dropout(CUBE, 0.5),
    "dropout of zeros": lambda: F.dropout(torch.zeros(20), 0.5),
    "dropout of a transpose": lambda: F.dropout(torch.zeros(5, 4).T, 0.5),
    "dropout of infinities": lambda: F.dropout(torch.full((9,), math.inf), 0.5),
    "dropout of a transpose of infinities": lambda: F.dropout(torch.full((5, 4), math.inf).T, 0.5),
    "dropout of all": lambda: F.dropout(HARD, 1.0),
    "dropout of none": lambda: (F.dropout(X, 0.0), F.dropout(X, 0.5, training=False)),
    "dropout in place": lambda: F.dropout(X.clone(), 0.5, inplace=True),
    "torch.dropout": lambda: (torch.dropout(X, 0.5, True), torch.dropout(X, p=0.5, train=False)),
    # along an axis
    "sum": lambda: (X.sum(), X.sum(0), X.sum(-1, True), CUBE.sum((0, -1)), CUBE.sum([], keepdim=True)),
    "sum by axis": lambda: (X.sum(axis=1), torch.sum(X, axis=0, keepdims=True), CUBE.sum(axis=(1, 2))),
    "sum as int": lambda: X.sum(dtype=torch.int64),
    "sum of bools": lambda: (YES.sum(0), YES.any(-1), YES.all(), YES.all(0, keepdim=True)),
    "any of numbers": lambda: X.any(),
    "sum of a number": lambda: (torch.tensor(2.0).sum(), torch.tensor(2.0).sum(0), torch.zeros(0, 2).sum(0)),
    "huge sum": lambda: torch.tensor([1e308, 1e308, -1e308]).double().sum(),
    "mean": lambda: (X.mean(), X.mean(-2), CUBE.mean((1, 2), keepdim=True), torch.mean(X, axis=1)),
    "mean of nothing": lambda: torch.zeros(0).mean(),
    "var": lambda: (X.var(), X.var(1), X.var(1, unbiased=False), torch.var(X, dim=0, correction=0)),
    "var keepdim": lambda: (X.var(0, keepdim=True), X.var(axis=1, keepdims=True), X.var(1, correction=None)),
    "var by place": lambda: (X.var(0, False), X.var(False), X.var(1, True, True)),
    "var of one": lambda: X[:, :1].var(1, correction=0),
    "std": lambda: (X.std(), X.std(-1, keepdim=True), X.std(0, unbiased=False)),
    "max": lambda: (X.max(), X.amax(), X.amax((0, 1)), X.amin(-1, True), torch.amax(X, axis=0)),
    "max along": lambda: (X.max(1), X.min(dim=0, keepdim=True), torch.max(X, axis=1)),
    "max of two": lambda: (torch.max(X, Y), X.min(Y)),
    "max into": lambda: torch.amax(X, 1, out=torch.empty(2).double()),
    "max of nan": lambda: (HARD.max(), HARD[:-1].min()),
    "cumsum": lambda: (X.cumsum(0), CUBE.cumsum(-2), torch.tensor(2.0).cumsum(0)),
    "softmax": lambda: (X.softmax(0), F.softmax(CUBE, dim=1), torch.softmax(CUBE, -1), X.softmax(axis=1)),
    "hard softmax": lambda: (HARD[:-1].softmax(0), HARD[:-2].softmax(0), HARD.softmax(0)),
    "softmax of a number": lambda: torch.tensor(2.0).softmax(0),
    "log_softmax": lambda: (X.log_softmax(1), F.log_softmax(HARD[:-2], 0), (X * 400).log_softmax(0)),
    "empty row": lambda: torch.full((2, 2), -math.inf).softmax(-1),
    # products
    "matmul": lambda: (X @ M, X @ V, V @ M, V @ V, CUBE @ CUBE.mT, V @ CUBE, CUBE.mT @ V, X @ CUBE),
    "matmul broadcast": lambda: (CUBE[:, None] @ randn(3, 4, 2), CUBE[:1] @ randn(5, 4, 1)),
    "matmul swapped names": lambda: torch.matmul(other=M, input=X),
    "named products": lambda: (torch.mm(X, M), torch.mv(X, V), torch.dot(V, V), torch.mm(mat2=M, input=X)),
    "linear": lambda: (F.linear(X, M, V), F.linear(CUBE, CUBE[0]), F.linear(V, M), F.linear(X, V)),
    "linear bias of one": lambda: F.linear(X, M, V[:1]),
    "einsum": lambda: (
        torch.einsum("ij,jk->ik", X, M),
        torch.einsum("ij,jk", X, M),
        torch.einsum("ij,kj->ki", X, Y),
        torch.einsum("ba", X),
        torch.einsum("ii", M),
        torch.einsum("ii->i", M),
        torch.einsum("i,j->", V, V),
        torch.einsum("i,i,i->i", V, V, V),
        torch.einsum("...d,d->...", CUBE, CUBE[0, 0]),
        torch.einsum("b...->b", CUBE),
        torch.einsum("b...", CUBE),
        torch.einsum("...ij,...jk", CUBE, CUBE.mT),
        torch.einsum("a...,...c", X, CUBE),
        torch.einsum("ij,ij->j", X[:1], X),
        torch.einsum("Zb,ba->Za", X, M),
        torch.einsum("Za,aB", X, M),
        torch.einsum("ij,jk->ik", [X, M]),
        torch.einsum("ij,kj->ik", X[:, :0], M[:, :0]),
        torch.einsum("ij,jk->ik", HARD[:, None], HARD[None]),
    ),
    "einsum of infinities": lambda: torch.einsum("ij,k->ik", X, HARD),
    "einsum by numbers": lambda: torch.einsum(X, [0, 1], M, [1, 2], [0, 2]),
    # norms, embedding, loss
    "layer_norm": lambda: (
        F.layer_norm(X, (3,)),
        F.layer_norm(X, (2, 3), X, Y, 0.1),
        F.layer_norm(CUBE, [4], eps=1e-3),
        torch.layer_norm(X, [3], V, V),
    ),
    "layer_norm of equals": lambda: F.layer_norm(torch.ones(2, 3).double(), (3,)),
    "rms_norm": lambda: (F.rms_norm(X, (3,)), F.rms_norm(CUBE, (3, 4), CUBE[0], 0.5), F.rms_norm(X, [3], V)),
    "rms_norm in half": lambda: [F.rms_norm((X * 1e-2).to(t), (3,)) for t in (torch.half, torch.bfloat16)],
    "embedding": lambda: (F.embedding(INTS.clamp(0, 2), M), F.embedding(torch.tensor(1), M, padding_idx=1)),
    "embedding that rescales": lambda: F.embedding(torch.tensor([1]), M.clone(), max_norm=0.1),
    "torch.embedding": lambda: (
        torch.embedding(M, torch.tensor([1, 0])),
        torch.embedding(INTS, torch.tensor([1, 0, 1])),
        torch.embedding(indices=torch.tensor(1), weight=INTS),
    ),
    "cross_entropy": lambda: [
        F.cross_entropy(X, torch.tensor([2, -100]), reduction=r) for r in ("mean", "sum", "none")
    ],
    "cross_entropy ignoring": lambda: (
        F.cross_entropy(X, torch.tensor([1, 0]), ignore_index=1),
        F.cross_entropy(X, torch.tensor([1, 1]), ignore_index=1),
        F.cross_entropy(V, torch.tensor(0)),
        F.cross_entropy(V, torch.tensor(-100)),
    ),
    "cross_entropy other forms": lambda: (
        F.cross_entropy(X, torch.tensor([1, 0]), label_smoothing=0.1),
        F.cross_entropy(X, torch.tensor([1, 0]), V.abs()),
        F.cross_entropy(X, Y.softmax(1)),
        F.cross_entropy(CUBE, INTS[:, [0, 0, 0, 0]].abs() * 0 + 2),
    ),
    # casts
    "casts": lambda: [X.mul(3).to(t) for t in (torch.float32, torch.half, torch.int64, torch.bool)],
    "cast methods": lambda: (X.float(), X.half(), (X * 5).long(), (X * 5).int(), X.bool(), YES.double()),
    "casts of hard numbers": lambda: (HARD.float(), HARD.half(), HARD[2:9].bool(), INTS.to(X), YES.int()),
    "cast that wraps": lambda: torch.tensor([300, 3]).to(torch.uint8),
    "bits as ints": lambda: X.float().view(torch.int32),
    "type": lambda: (X.type(torch.float32), X.type_as(INTS), X.to("cpu", torch.half)),
}
NO_RULE = {
    "floor division": {"div"},
    "true + true": {"add"},
    "int8 wraps": {"add"},
    "uint8 −x": {"neg"},
    "int64 wraps": {"mul"},
    "bitwise of ints": {"bitwise_and", "bitwise_not"},
    "where of one": {"where"},
    "sum as int": {"sum"},
    "any of numbers": {"any"},
    "var by place": {"var"},
    "max along": {"max", "min"},
    "cumsum": {"cumsum"},
    "softmax of a number": {"softmax"},
    "embedding that rescales": {"embedding"},
    "cross_entropy other forms": {"cross_entropy"},
    "cast that wraps": {"to"},
    "einsum of infinities": {"einsum"},
    "bits as ints": {"view"},
}


@pytest.mark.parametrize("name", CALLS)
def test_call(name: str) -> None:
    tape = recorded(CALLS[name])
    assert tape.calls or name == "dropout of none"
    all_right(tape, NO_RULE.get(name))


@pytest.mark.parametrize(
    "name", "exp log log2 log1p expm1 sqrt rsqrt reciprocal abs sin cos tanh erf sigmoid neg square".split()
)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_function_at_its_edges(name: str, dtype: torch.dtype) -> None:
    all_right(recorded(lambda: getattr(HARD.to(dtype), name)()))


@pytest.mark.parametrize("name", ["relu", "gelu", "silu", "sigmoid", "tanh"])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_activation(name: str, dtype: torch.dtype) -> None:
    x = HARD.to(dtype)
    if name == "gelu" and F.gelu(x)[x == math.inf].isnan().any():
        x = x[x != math.inf]  # the library that torch takes on some processors has no value there
    all_right(recorded(lambda: getattr(F, name)(x)))


def test_no_other_axis_of_the_same_size() -> None:
    """Where all sizes are equal, a wrong axis has the right shape."""
    x = randn(2, 2, 2)
    calls = [
        lambda: [x.sum(d) for d in range(-3, 3)],
        lambda: [x.softmax(d) for d in range(-3, 3)],
        lambda: [x.cumsum(d) for d in range(-3, 3)],
        lambda: [x.amax(d, keepdim=True) for d in range(-3, 3)],
        lambda: [x.transpose(a, b).contiguous() for a in range(3) for b in range(3)],
        lambda: [torch.stack([x, x * 2], d) for d in range(-4, 4)],
        lambda: [torch.cat([x, x * 2], d) for d in range(3)],
        lambda: (x @ x, x.mT @ x, x @ x[0], x[0] @ x, F.linear(x, x[0]), torch.einsum("bij,bkj->bki", x, x)),
    ]
    for call in calls:
        all_right(recorded(call))


# ---------------------------------------------------------------- calls without a rule


@pytest.mark.parametrize(
    ("name", "call"),
    [
        ("linalg_inv", lambda: torch.linalg.inv(M)),
        ("logcumsumexp", lambda: M.logcumsumexp(0)),
        ("pad", lambda: F.pad(M, (1, 0))),
        ("argmax", lambda: M.argmax(0)),
    ],
)
def test_unknown_call_lists_its_inputs_and_invents_nothing(name: str, call: Callable[[], object]) -> None:
    with record() as tape:
        tape.name(M, "M")
        call()
    made = tape.calls[-1]
    assert made.name == name
    for version in made.outputs:
        for place in places(version):
            found = explain(tape, version, place)
            assert found.formula is None
            assert found.note == found.text == f"made by torch.{name}; no rule yet"
            assert found.mathml == ""
            assert found.value == version.values[place].item()
            assert [operand.version for operand in found.operands] == made.inputs
            assert [operand.stage for operand in found.operands] == [stage_name(v) for v in made.inputs]
            assert all(math.isnan(o.value) and o.coefficient is None for o in found.operands)
    assert name not in RULES


def test_made_from_nothing() -> None:
    with record() as tape:
        noise = torch.randn(2)
    assert explain(tape, noise, (1,)).text == "made by torch.randn, from no other tensor"


def test_an_input_says_so() -> None:
    with record() as tape:
        _ = X * 2
    found = explain(tape, X, (1, 2))
    assert (found.formula, found.operands, found.mathml) == (None, (), "")
    assert found.text == "an input: nothing computed it"
    assert found.value == X[1, 2].item()


def test_complex_numbers_have_no_rule() -> None:
    with record() as tape:
        turned = torch.view_as_complex(randn(2, 2)) * 1j
        size = turned.abs()
    assert explain(tape, turned, (0,)).formula is None
    assert explain(tape, size, (0,)).formula is None


@pytest.mark.parametrize("place", [(2, 0), (0, 3), (-1, 0), (0,), (), (0, 0, 0)])
def test_no_such_place(place: tuple[int, ...]) -> None:
    with record() as tape:
        y = X * 2
    with pytest.raises(IndexError, match=r"expected a place in 2 × 3, got \("):
        explain(tape, y, place)


def test_a_tensor_that_was_not_seen() -> None:
    with record() as tape:
        _ = X * 2
    with pytest.raises(KeyError, match=r"not seen this tensor of shape \(2, 3\)"):
        explain(tape, X.clone(), (0, 0))


def test_explaining_during_the_block_records_nothing() -> None:
    with record() as tape:
        y = F.dropout(X @ M, 0.5)
        before = len(tape.calls), len(tape.inputs)
        for place in places(tape.version(y)):
            explain(tape, y, place)
        assert (len(tape.calls), len(tape.inputs)) == before


# ---------------------------------------------------------------- operands


def computed_anew(formula: Formula) -> float:
    """The value, with nothing kept from before: a named part computes its own only once."""
    parts = [formula]
    for part in parts:
        vars(part).pop("_value", None)
        parts += part.parts()
    return formula.value()


def changed(formula: Formula, operand: Operand, number: float) -> float:
    """The value of a formula with another number in one cell."""
    cells = [c for c in formula.cells() if c.origin is operand.version and c.index == operand.index]
    before = [cell.number for cell in cells]
    for cell in cells:
        object.__setattr__(cell, "number", number)
    value = computed_anew(formula)
    for cell, old in zip(cells, before, strict=True):
        object.__setattr__(cell, "number", old)
    computed_anew(formula)
    return value


@pytest.mark.parametrize(
    "call",
    [
        lambda: X - Y,
        lambda: torch.sub(X, Y, alpha=3) / 7,
        lambda: X @ M,
        lambda: M @ M,
        lambda: X * X,
        lambda: X * X[:, :1],
        lambda: X / Y,
        lambda: X / X,
        lambda: 3 / Y,
        lambda: -X,
        lambda: X.mean(0),
        lambda: F.linear(X, M, V),
        lambda: F.dropout(X, 0.5),
        lambda: X.masked_fill(YES, 0.5),
        lambda: torch.where(YES, X, Y),
        lambda: X.exp(),
        lambda: X.softmax(-1),
        lambda: X.var(1),
        lambda: torch.einsum("ij,jk,k->i", X, M, V),
        lambda: torch.addmm(V, X, M, alpha=2, beta=3),
        lambda: X.clone().add_(X),
        lambda: F.layer_norm(X, (3,), V, V),
        lambda: (X + X.clone()).cumsum(1),
    ],
)
def test_a_coefficient_is_what_a_cell_is_multiplied_by(call: Callable[[], Tensor]) -> None:
    with record() as tape:
        made = call()
    for place in places(tape.version(made)):
        found = explain(tape, made, place)
        assert found.formula is not None
        for operand in found.operands:
            values = [changed(found.formula, operand, x) for x in (-2.0, 0.25, 1.0, 3.5)]
            slopes = [(b - a) / h for a, b, h in zip(values, values[1:], (2.25, 0.75, 2.5), strict=False)]
            straight = all(s == pytest.approx(slopes[0], rel=1e-9, abs=1e-12) for s in slopes)
            if operand.coefficient is not None:
                assert straight
                assert operand.coefficient == pytest.approx(slopes[0], rel=1e-9, abs=1e-12)
            elif straight and slopes[0] != 0:
                pytest.fail(f"{operand.stage}{operand.index} has a coefficient: {slopes[0]}")


@pytest.mark.parametrize(
    "call",
    [
        lambda x, y: 2 * x.sum(0) / 3,
        lambda x, y: x.mean(-1),
        lambda x, y: x - y,
        lambda x, y: x.flip(0).clone(),
        lambda x, y: F.linear(x, M, V),
        lambda x, y: torch.cat([x, y]),
    ],
)
def test_linear_formulas_are_the_sum_of_their_operands(call: Callable[[Tensor, Tensor], Tensor]) -> None:
    with record() as tape:
        made = call(X, Y)
    for place in places(tape.version(made)):
        found = explain(tape, made, place)
        assert found.formula is not None
        of = [o for o in found.operands if o.version.call is not None or o.version.shape == (2, 3)]
        total = sum(o.coefficient * o.value for o in of if o.coefficient is not None)
        constant = changed_all(found.formula, of)
        assert total + constant == pytest.approx(found.value, rel=1e-12)


def changed_all(formula: Formula, operands: list[Operand]) -> float:
    """The value with 0 in each of these cells."""
    cells = list(formula.cells())
    before = [cell.number for cell in cells]
    for cell in cells:
        if any(cell.origin is o.version and cell.index == o.index for o in operands):
            object.__setattr__(cell, "number", 0.0)
    value = computed_anew(formula)
    for cell, old in zip(cells, before, strict=True):
        object.__setattr__(cell, "number", old)
    computed_anew(formula)
    return value


def test_two_unnamed_inputs_stay_apart() -> None:
    a, b = torch.ones(2), torch.ones(2)
    with record() as tape:
        c = a + b
    found = explain(tape, c, (0,))
    assert [o.version for o in found.operands] == [tape.version(a), tape.version(b)]
    assert [o.coefficient for o in found.operands] == [1.0, 1.0]


def test_two_versions_of_one_tensor_stay_apart() -> None:
    x = torch.ones(2)
    with record() as tape:
        tape.name(x, "x")
        old = x.clone()
        x.add_(0)
        both = old + x
    versions = [o.version for o in explain(tape, both, (0,)).operands]
    assert len(versions) == 2


def test_a_nan_is_one_operand() -> None:
    with record() as tape:
        y = torch.tensor([math.nan, 1.0]) * 2
        z = y + y
    (operand,) = explain(tape, z, (0,)).operands
    assert operand.coefficient == 2.0


# ---------------------------------------------------------------- index maps

MOVING: dict[str, Callable[[Tensor], object]] = {
    "view": lambda x: (x.view(6, 4), x.view(-1), x.view_as(x.clone()), x.reshape(4, 6), x.reshape(3, -1, 2)),
    "view of a view": lambda x: (x[:, 1:].view(2, 2, 2, 2), x.transpose(0, 1).view(3, 2, 2, 2)),
    "reshape that copies": lambda x: x.transpose(0, 2).reshape(-1),
    "transpose": lambda x: (x.transpose(0, -1), x.mT, x.permute(2, 0, 1), x[0].T, x[0].t(), x.movedim(0, -1)),
    "swap": lambda x: (x.swapaxes(0, 1), torch.swapdims(x, 1, 2), torch.transpose(x, dim0=0, dim1=1)),
    "split": lambda x: (
        x.chunk(2, -1),
        x.split(2, 1),
        x.split([1, 3], dim=2),
        x.unbind(1),
        x.tensor_split(3, 2),
    ),
    "join": lambda x: (torch.cat([x, x], 1), torch.cat((x[:1], x), dim=0), torch.stack([x, x.flip(0)], -1)),
    "hstack": lambda x: (torch.hstack([x, x]), torch.vstack((x, x)), torch.cat(tensors=[x, x], dim=-1)),
    "index": lambda x: (x[0], x[-1, 1:], x[..., -1], x[:, None, 1], x[None], x[::2, ::2, 1::2], x[1, 2, 3]),
    "index by list": lambda x: (
        x[[0, 1]],
        x[[1, 0], [2, 1]],
        x[:, [2, 0]],
        x[[True, False]],
        x[0, [0, 1], 1:],
    ),
    "index by tensor": lambda x: (
        x[torch.tensor([1, 0, 1])],
        x[:, torch.tensor([[0, 1]])],
        x[torch.tensor(1)],
    ),
    "index by mask": lambda x: (x[x > 0], x[:, torch.tensor([True, False, True])], x[x[..., 0] > 0]),
    "pick": lambda x: (
        x.gather(1, torch.tensor([[[0, 1]], [[2, 2]]])),
        x.index_select(-1, torch.tensor([3, 0])),
        x.take(torch.tensor([5, 7])),
        x.select(1, -1),
        x.narrow(2, 1, 2),
        x.masked_select(x > 0),
        x.diagonal(0, 0, 1),
    ),
    "grow": lambda x: (
        x[:, :1].expand(2, 5, 4),
        x[0].expand_as(x),
        x.repeat(2, 1, 1),
        x.tile(2),
        x[None, :, None],
    ),
    "repeat": lambda x: (x.repeat_interleave(2, 1), x.repeat_interleave(torch.tensor([1, 2]), dim=0)),
    "squeeze": lambda x: (x[:, :1].squeeze(1), x[:1].squeeze(), x.unsqueeze(-1), x.flatten(1), x.ravel()),
    "unflatten": lambda x: (x.unflatten(2, (2, 2)), torch.flatten(x, end_dim=1), torch.atleast_2d(x[0, 0])),
    "turn": lambda x: (x.flip(0, 2), x.roll(1, -1), x.roll((1, 2), (0, 1)), torch.rot90(x, 1, (0, 1))),
    "triangle": lambda x: (x.tril(), x.triu(1), torch.tril(x, diagonal=-1), x.clone().tril_()),
    "windows": lambda x: (x.unfold(1, 2, 1), F.unfold(x[None], 2)),
    "copies": lambda x: (x.contiguous(), x.transpose(0, 1).contiguous(), x.detach(), x.clone(), x.data, +x),
    "apart": lambda x: ([row * 1 for row in x], list(x.unbind(-1)), dict(enumerate(x))),
    "in place": lambda x: (x.clone().transpose_(0, 1), x.clone().unsqueeze_(0), x[:, :1].clone().squeeze_(1)),
    "by the memory": lambda x: (
        x.as_strided((4, 6), (6, 1)),
        x.transpose(0, 2).as_strided((24,), (1,), 0),
        x.permute(1, 2, 0).as_strided((2, 3), (2, 5), 1),
        torch.as_strided(x.mT, (2, 4), (1, 3)),
        x.as_strided((3, 2), (0, 1), 4),  # elements more than once
        x[:, 1:].as_strided((2, 2), (12, 1)),
        x[1].as_strided((3,), (2,)),
        x[0, 0].expand(3, 4).as_strided((2, 2), (1, 1)),
    ),
    "into": lambda x: torch.cat([x, x], out=torch.empty(4, 3, 4)),
}


@pytest.mark.parametrize("name", MOVING)
def test_where_elements_come_from(name: str) -> None:
    """Each element of the input is another number, so its value tells where it was."""
    x = torch.arange(1, 25).reshape(2, 3, 4) * torch.tensor([[[1], [-1], [1]]])
    x = x.float()
    with record() as tape:
        MOVING[name](x)
    moving = [call for call in tape.calls if call.name in MOVES]
    assert moving
    all_right(tape)
    for call in moving:
        for version in call.outputs:
            for place in places(version):
                operands = explain(tape, version, place).operands
                value = version.values[place].item()
                assert [o.value for o in operands] == ([value] if value else []), call.name
                if value:
                    root = operands[0]
                    while root.version.call is not None:
                        (root,) = explain(tape, root.version, root.index).operands
                    assert root.version is tape.version(x) or root.version.call is None
                    assert root.version.values[root.index].item() == value


def test_memory_that_the_input_does_not_show_is_no_zero() -> None:
    x = torch.arange(1, 13).reshape(3, 4).float()
    with record() as tape:
        y = x[1].as_strided((3,), (2,), 2)
    version = tape.version(y)
    assert y.tolist() == [3, 5, 7]
    outside, *inside = (explain(tape, version, (i,)) for i in range(3))
    assert outside.formula is None
    assert outside.value == 3
    assert [found.formula.value() for found in inside if found.formula] == [5, 7]


def test_assigning_says_what_was_assigned() -> None:
    x = torch.arange(1.0, 13.0).reshape(3, 4)
    y = torch.arange(20.0, 24.0)
    with record() as tape:
        tape.name(x, "x")
        tape.name(y, "y")
        x[0] = 5.0
        x[1:, :2] = y[:2]
        x[2, torch.tensor([3, 2])] = y[2:]
        x[x > 22] = -torch.inf
        x[..., -1] = y[0]
    all_right(tape)
    (operand,) = explain(tape, x, (2, 0)).operands
    assert operand.stage == "x"
    first = tape.calls[0].outputs[0]
    assert explain(tape, first, (0, 3)).operands == ()
    assert explain(tape, first, (0, 3)).text == "5"
    cells = [explain(tape, x, (i, 3)).operands[0] for i in range(3)]
    assert {(o.stage, o.index) for o in cells} == {("y", (0,))}


def test_unnamed_moves_are_seen_through() -> None:
    with record() as tape:
        tape.name(X, "X")
        scores = X @ X.mT
    cells = {(cell.stage, cell.index) for cell in explain(tape, scores, (0, 1)).formula.cells()}
    assert cells == {("X", (i, j)) for i in (0, 1) for j in range(3)}


# ---------------------------------------------------------------- the whole text


def test_text_and_mathml_of_a_number() -> None:
    q, k = torch.tensor([[1.0, 2.0]]), torch.tensor([[3.0, -4.0]])
    with record() as tape:
        tape.name(q, "q")
        tape.name(k, "k")
        scores = q @ k.mT
    found = explain(tape, scores, (0, 0))
    assert found.note == "made by matmul"
    assert found.text == "1 · 3 + 2 · (−4) = −5"
    assert found.mathml.count("<mo>=</mo>") == 3
    assert 'aria-label="1 · 3 + 2 · (−4) = −5"' in found.mathml


def test_a_copy_does_not_say_the_same_twice() -> None:
    with record() as tape:
        tape.name(X, "X")
        copy = X.clone()
    found = explain(tape, copy, (0, 0))
    assert isinstance(found.formula, Cell)
    # "1.5410 = 1.5410" would say nothing; where it came from is what there is to tell.
    assert found.text == f"X[0, 0] = {format_short(found.value)}"
    assert found.mathml.count("<mo>=</mo>") == 2


def test_a_conversion_that_changes_the_number_says_so() -> None:
    y = torch.tensor([70000.0, 0.5, 0.1])
    with record() as tape:
        tape.name(y, "y")
        z = y.half()
    assert explain(tape, z, (0,)).text == "float16(70000) = ∞"
    assert [explain(tape, z, (i,)).text for i in (1, 2)] == ["y[1] = 0.5000", "y[2] = 0.1000"]
    all_right(tape)


def test_an_index_belongs_to_the_whole_expression() -> None:
    with record() as tape:
        tape.name(X, "X")
        first = (X * 2)[0]
        second = (X[0] + X[1])[1]
    assert explain(tape, first, (0,)).text.startswith("(X * 2)[0, 0] = ")
    assert "<mi>(X * 2)</mi>" in explain(tape, first, (0,)).mathml
    assert explain(tape, second).text.startswith("(X[0] + X[1])[1] = ")


def test_real_numbers_of_complex_ones_keep_their_value() -> None:
    with record() as tape:
        parts = torch.view_as_real(torch.view_as_complex(X[:, :2].contiguous()) * 1j)
    found = explain(tape, parts, (0, 1))
    assert found.value == parts[0, 1].item()
    assert found.formula is None


def test_a_place_is_of_whole_numbers() -> None:
    with record() as tape:
        y = X * 2
    with pytest.raises(IndexError, match="expected whole numbers"):
        explain(tape, y, (0.9, 0))
    assert explain(tape, y, tuple(torch.tensor([1, 2]))).index == (1, 2)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
@pytest.mark.parametrize("seed", [0, 1])
def test_every_dtype(dtype: torch.dtype, seed: int) -> None:
    x = randn(2, 3, seed=seed, dtype=dtype) * 3
    with record() as tape:
        scores = x @ x.mT * 0.3
        weights = scores.masked_fill(scores > 5, -torch.inf).softmax(-1)
        _ = F.gelu(weights @ x) + x.mean(0)
    all_right(tape)


def test_a_formula_that_torch_contradicts_is_not_told() -> None:
    byte = torch.tensor([1], dtype=torch.uint8)
    large = torch.tensor([2**53 + 1, 2**53])
    with record() as tape:
        wrapped, equal, plain = byte > -1, large[0] == large[1], byte > 0
    for tensor in (wrapped, equal):
        told = explain(tape, tensor, (0,) * tensor.ndim)
        assert told.formula is None
        assert "no rule yet" in told.note
    assert explain(tape, plain, (0,)).text == "1 > 0 = 1"


def test_an_axis_as_a_number_of_numpy() -> None:
    all_right(recorded(lambda: X.sum(np.int64(0))))  # type: ignore[call-overload]
