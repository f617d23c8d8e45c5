"""The recorder remembers each state of each tensor, and changes nothing of the program."""

import math
import threading
import warnings
from collections.abc import Callable

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from torch import Tensor, nn

from attnlab.engine import Tape, Version, explain, gradient, record
from attnlab.engine.explain import stage_name
from helpers.hand_written import HeadsInALoop, PackedAttention
from helpers.programs import Program, programs, run


def names(tape: Tape) -> list[str]:
    return [call.name for call in tape.calls]


def same(a: Tensor, b: Tensor) -> bool:
    return torch.allclose(a, b, rtol=0, atol=0, equal_nan=True)


# ---------------------------------------------------------------- the program is unchanged


def test_the_program_computes_the_same() -> None:
    for module in (PackedAttention(6, 2, 0.5), HeadsInALoop(6, 2, 0.5)):
        x = torch.randn(2, 3, 6)
        torch.manual_seed(1)
        bare = module(x)
        torch.manual_seed(1)
        with record():
            recorded = module(x)
        for a, b in zip(bare, recorded, strict=True):
            assert torch.equal(a, b)


def test_training_inside_the_block() -> None:
    """Gradients, optimiser steps and modules made inside."""
    torch.manual_seed(1)
    with record() as tape:
        module = nn.Sequential(nn.Linear(3, 4), nn.ReLU(inplace=True), nn.LayerNorm(4))
        x = torch.ones(2, 3)
        before = module[0].weight.detach().clone()
        module(x)[0, 0].backward()
        with torch.no_grad():
            for weight in module.parameters():
                weight -= 0.1 * weight.grad
        y = module(x)
    assert module[0].weight.grad is not None
    assert not torch.equal(before, module[0].weight)
    assert same(tape.version(y).values, y.detach())
    assert same(tape.version(module[0].weight).values, module[0].weight.detach())
    explain(tape, y, (0, 0))


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode, torch.enable_grad])
def test_modes(mode: type) -> None:
    with mode(), record() as tape:
        x = torch.ones(3)
        y = x[:2]
        y.add_(1)
        z = x * 2
    assert tape.version(x).values.tolist() == [2, 2, 1]
    assert tape.version(z).values.tolist() == [4, 4, 2]
    assert next(v.values.tolist() for v in tape.versions()) == [1, 1, 1]


def test_inference_mode_where_torch_counts_no_changes() -> None:
    with torch.inference_mode(), record() as tape:
        x = torch.ones(2)
        a, b = x.split(1)
        torch.add(a, 5, out=b)
        F.relu(a.sub_(3), inplace=True)
        y = x * 2
    assert y.tolist() == [0, 12]
    assert [explain(tape, y, (i,)).text for i in range(2)] == ["0 · 2 = 0", "6 · 2 = 12"]
    assert gradient(tape, y, (1,))[tape.version(a)].tolist() == [0]


@pytest.mark.parametrize(
    "program",
    [
        lambda: torch.vmap(lambda u: u * 2 + 1)(torch.ones(3, 2)),
        lambda: (torch.eye(3).to_sparse() * 2).to_dense(),
        lambda: torch.view_as_complex(torch.ones(3, 2)) * 2j,
        lambda: nn.TransformerEncoderLayer(4, 2, batch_first=True)(torch.ones(1, 2, 4)),
        lambda: nn.LSTM(2, 3)(torch.ones(4, 2)),
        lambda: torch.empty(0) + torch.zeros(3, 0).sum(0),
        lambda: torch.ones(3).view(torch.int32).add_(1),
        lambda: torch.zeros(2, dtype=torch.bool).logical_not_(),
        lambda: nn.init.xavier_uniform_(torch.empty(2, 3)),
        lambda: torch.nn.utils.clip_grad_norm_([torch.ones(2, requires_grad=True)], 1.0),
        lambda: torch.ones(3).numpy().sum(),
        lambda: (torch.ones(3) @ torch.ones(3)).item(),
        lambda: [float(x) for x in torch.ones(3)],
        lambda: {torch.ones(1): 1},
    ],
)
def test_nothing_breaks(program: object) -> None:
    with record() as tape:
        program()
    assert names(tape)


# ---------------------------------------------------------------- what is a call, and what isn't


def test_nothing_outside_the_block() -> None:
    x = torch.ones(2) * 1
    with record() as tape:
        y = x + 1
    z = y + 1
    y.add_(5)
    assert names(tape) == ["add"]
    assert tape.version(y).values.tolist() == [2, 2]
    with pytest.raises(KeyError):
        tape.version(z)


def test_nothing_of_other_threads() -> None:
    with record() as tape:
        x = torch.ones(2)
        other = threading.Thread(target=lambda: x * 3)
        other.start()
        other.join()
        _ = x * 2
    assert names(tape) == ["ones", "mul"]


def test_questions_are_no_calls() -> None:
    x = torch.ones(2, 3)
    with record() as tape:
        _ = (x.shape, x.dtype, x.device, x.ndim, x.size(0), x.dim(), x.numel(), x.stride(), x.is_contiguous())
        _ = (
            x.requires_grad,
            x.grad,
            x.is_leaf,
            len(x),
            x.data_ptr(),
            x.tolist(),
            x[0, 0].item(),
            x.is_floating_point(),
        )
        x.requires_grad_(True)
        x.requires_grad = False
        x.grad = None
        repr(x)
        bool(x.sum() > 0)
        torch.equal(x, x)
    assert names(tape) == ["getitem", "sum", "gt"]
    assert len(tape.inputs) == 1


def test_an_input_given_back_is_no_new_stage() -> None:
    x = torch.ones(2, 3)
    with record() as tape:
        tape.name(x, "x")
        y = x.contiguous()
        z = F.dropout(y.float(), 0.5, training=False)
    assert names(tape) == []
    assert z is x
    assert stage_name(tape.version(z)) == "x"


@pytest.mark.parametrize(
    ("program", "name", "in_place"),
    [
        (lambda x: x + 1, "add", False),
        (lambda x: 1 + x, "add", False),
        (lambda x: 1 - x, "rsub", False),
        (lambda x: 1 / x, "rdiv", False),
        (lambda x: x / 2, "div", False),
        (lambda x: torch.true_divide(x, 2), "div", False),
        (lambda x: x.add_(1), "add", True),
        (lambda x: x.__iadd__(1), "add", True),
        (lambda x: x.__imul__(2), "mul", True),
        (lambda x: x.__itruediv__(2), "div", True),
        (lambda x: x @ x, "matmul", False),
        (lambda x: x.mm(x), "matmul", False),
        (lambda x: x.T, "T", False),
        (lambda x: x.t(), "transpose", False),
        (lambda x: x.swapaxes(0, 1), "transpose", False),
        (lambda x: x[0], "getitem", False),
        (lambda x: x.__setitem__(0, 1.0), "setitem", True),
        (lambda x: -x, "neg", False),
        (lambda x: x**2, "pow", False),
        (lambda x: 2**x, "rpow", False),
        (lambda x: x.masked_fill_(x > 0, 0), "masked_fill", True),
        (lambda x: F.relu(x, inplace=True), "relu", True),
        (lambda x: F.relu(x), "relu", False),
        (lambda x: torch.relu_(x), "relu", True),
        (lambda x: nn.init.constant_(x, 2.0), "constant", True),
        (lambda x: torch.add(x, 1, out=torch.empty(0)), "add", False),
        (lambda x: F.softmax(x, dim=0), "softmax", False),
        (lambda x: ~(x > 0), "bitwise_not", False),
        (lambda x: (x > 0) & (x > 1), "bitwise_and", False),
        (lambda x: x.clip(0, 1), "clamp", False),
        (lambda x: True & (x > 0), "bitwise_and", False),
        (lambda x: torch.rand(2), "rand", False),
        (lambda x: F.relu(inplace=True, input=x), "relu", True),
    ],
)
def test_names_of_calls(program: object, name: str, in_place: bool) -> None:
    with record() as tape:
        program(torch.full((2, 2), 3.0))
    assert (tape.calls[-1].name, tape.calls[-1].in_place) == (name, in_place)


def test_arguments_stand_as_versions() -> None:
    x, index = torch.ones(2, 3), torch.tensor([1])
    with record() as tape:
        joined = torch.cat([x, x * 2], dim=1)
        _ = joined[index, [0, 1]]
    cat, getitem = tape.calls[1:]
    first, second = cat.args[0]
    assert isinstance(first, Version)
    assert second.call is tape.calls[0]
    assert cat.kwargs == {"dim": 1}
    assert getitem.args[1] == (tape.version(index), [0, 1])
    assert getitem.inputs == [tape.version(joined), tape.version(index)]


def test_iterating_takes_apart() -> None:
    x = torch.arange(6.0).reshape(3, 2)
    with record() as tape:
        a, b, c = x
        rows = list(x)
        total = sum(row for row in x)
    assert names(tape)[:3] == ["unbind"] * 3
    assert [tape.version(t).output for t in (a, b, c)] == [0, 1, 2]
    assert len(rows) == 3
    assert total.tolist() == [6, 9]
    assert len(tape.inputs) == 1
    with record() as tape, pytest.raises(TypeError, match="0-d"):
        iter(torch.tensor(1.0))


# ---------------------------------------------------------------- history


def test_in_place_calls_make_new_versions() -> None:
    x = torch.zeros(3)
    with record() as tape:
        states = [x.clone()]
        x += 1
        states.append(x.clone())
        x.mul_(3)
        states.append(x.clone())
        x[0] = -1
        states.append(x.clone())
        F.relu(x, inplace=True)
        states.append(x.clone())
        torch.sub(x, 1, out=x)
        states.append(x.clone())
    written = [call.args[0] for call in tape.calls if call.name == "clone"]
    assert len({id(version) for version in written}) == 6
    for version, state in zip(written, states, strict=True):
        assert torch.equal(version.values, state)
    assert written[0].call is None
    assert [version.call.name for version in written[1:]] == ["add", "mul", "setitem", "relu", "sub"]


@given(programs(most=8))
def test_history_of_programs_made_by_chance(program: Program) -> None:
    """`run` itself checks that no version changes and that the tape is never behind."""
    run(program)


def test_writing_through_another_view() -> None:
    x = torch.zeros(2, 3)
    with record() as tape:
        tape.name(x, "x")
        row, column = x[0], x[:, 1]
        row.fill_(1)
        column.mul_(5)
        y = x + 0
    assert tape.version(y).values.tolist() == [[1, 5, 1], [0, 0, 0]]
    assert names(tape)[-2:] == ["shared storage", "add"]
    assert stage_name(tape.version(x)) == "x"
    cells = {place: explain(tape, x, place).operands[0] for place in ((0, 0), (0, 1), (1, 1), (1, 2))}
    assert [(o.stage, o.index, o.value) for o in cells.values()] == [
        ("row", (0,), 1),
        ("column", (0,), 5),
        ("column", (1,), 0),
        ("x", (1, 2), 0),
    ]
    assert tape.version(row).values.tolist() == [1, 5, 1]


def test_two_writes_before_the_next_look() -> None:
    x = torch.zeros(4)
    with record() as tape:
        tape.name(x, "x")
        for i, part in enumerate(x.split(1)):
            part.fill_(i)
        y = x * 1
    assert [explain(tape, y, (i,)).operands[0].value for i in range(4)] == [0, 1, 2, 3]
    version = tape.version(x)
    assert version.call.name == "shared storage"
    assert len(version.call.inputs) == 5


def test_a_write_elsewhere_in_the_storage_changes_nothing() -> None:
    x = torch.zeros(4)
    with record() as tape:
        left, right = x[:2], x[2:]
        left.add_(1)
        _ = right * 2
        left.add_(1)
    assert names(tape) == ["getitem", "getitem", "add", "mul", "add"]
    assert tape.version(right).call.name == "getitem"


def test_writing_after_the_tape_has_ended() -> None:
    x = torch.zeros(3)
    with record() as tape:
        tape.name(x, "x")
        half = x[:2]
        y = x + 1
        half.add_(7)
    x.fill_(9)
    y.fill_(9)
    assert tape.version(x).values.tolist() == [7, 7, 0]
    assert tape.version(half).values.tolist() == [7, 7]
    assert tape.version(y).values.tolist() == [1, 1, 1]
    assert [v.values.tolist() for v in tape.inputs] == [[0, 0, 0]]
    assert gradient(tape, x, (0,))[tape.inputs[0]].tolist() == [1, 0, 0]


def test_data_and_detached_share_their_storage() -> None:
    """`.data` has its own count of changes: torch doesn't tell that the weight has changed."""
    layer = nn.Linear(2, 2, bias=False)
    x = torch.ones(2)
    with record() as tape:
        _ = layer(x)
        layer.weight.data.fill_(3)
        y = layer(x)
        layer.weight.detach().mul_(2)
        layer.weight.data.add_(1)
        z = layer(x)
    assert y.tolist() == [6, 6]
    assert z.tolist() == [14, 14]
    for tensor, weight in ((y, 3), (z, 7)):
        found = explain(tape, tensor, (0,))
        assert found.formula.value() == found.value
        assert {o.value for o in found.operands} == {1.0, weight}


def test_data_replaced() -> None:
    x = torch.zeros(2)
    with record() as tape:
        _ = x * 1
        x.data = torch.ones(3)
        y = x * 2
    assert tape.version(y).values.tolist() == [2, 2, 2]
    assert explain(tape, y, (2,)).operands[0].value == 1
    assert tape.inputs[0].values.tolist() == [0, 0]


def test_writes_that_are_not_seen() -> None:
    """A running mean, changed inside batch_norm: what it is now is an input again, nothing is invented."""
    x, mean, var = torch.tensor([[1.0], [3.0]]), torch.zeros(1), torch.ones(1)
    with record() as tape:
        tape.name(mean, "mean")
        mean.add_(0)
        mean.view(1, 1).mul_(1)
        F.batch_norm(x, mean, var, training=True)
        y = mean * 1
    found = explain(tape, y, (0,))
    assert found.formula.value() == found.value == pytest.approx(0.2)
    (operand,) = found.operands
    assert operand.version.call is None
    assert operand.stage == "mean"


def test_a_view_of_other_bits_is_not_mixed_up() -> None:
    x = torch.ones(2)
    with record() as tape:
        bits = x.view(torch.int32)
        bits.zero_()
        y = x + 1
    assert tape.version(y).values.tolist() == [1, 1]
    assert explain(tape, y, (0,)).formula.value() == 1


def test_strides_of_all_kinds_are_kept() -> None:
    x = torch.arange(24.0).reshape(2, 3, 4)
    with record() as tape:
        made = [x.mT, x[:, ::2, 1::2], x.expand(5, 2, 3, 4)[3:], x.permute(2, 0, 1)[1], x[1, 2, 3], x[:, :0]]
        made += [x.flip(0), x.diagonal(0, 1, 2), x.unfold(2, 2, 1)]
    for tensor in made:
        version = tape.version(tensor)
        assert version.shape == tuple(tensor.shape)
        assert torch.equal(version.values, tensor)
        if tensor.numel():
            last = tuple(size - 1 for size in tensor.shape)
            assert version.number(last) == tensor[last].item()


def test_freed_tensors_are_not_mistaken_for_new_ones() -> None:
    with record() as tape:
        for i in range(60):
            x = torch.full((2,), float(i))
            y = x * 2
            assert tape.version(y).values.tolist() == [2 * i, 2 * i]
            assert explain(tape, y, (0,)).operands[0].value == i
            del x, y
    assert len({id(version) for version in tape.versions()}) == 120


def test_a_new_tensor_at_an_old_address_is_not_known() -> None:
    with record() as tape:
        _ = torch.ones(3) * 2
    for _ in range(50):
        with pytest.raises(KeyError):
            tape.version(torch.zeros(3))


def test_what_is_written_behind_the_tape() -> None:
    """Bounds of slices and indices of NumPy are kept as they were; memory of NumPy is looked at again."""
    x = torch.tensor([10.0, 20.0, 30.0])
    before = torch.from_numpy(np.zeros(3, "float32"))
    with record() as tape:
        tape.name(x, "x")
        start = torch.tensor(1)
        tail = x[start:]
        start += 1
        places = np.array([0, 1])
        taken = x[places]
        places[0] = 2
        numbers = np.zeros(3, "float32")
        inside = torch.from_numpy(numbers)
        first = inside + before + x
        numbers[0] = 100
        before.numpy()[0] = 5
        second = inside + before + x
        x.numpy()[1] = -1
        third = x * 1
    assert explain(tape, tail, (0,)).text == "x[1] = 20"
    assert explain(tape, taken, (0,)).text == "x[0] = 10"
    assert [explain(tape, t, (0,)).text for t in (first, second)] == ["0 + 10 = 10", "105 + 10 = 115"]
    assert explain(tape, third, (1,)).text == "(−1) · 1 = −1"
    for call in tape.calls:
        for version in call.outputs:
            found = explain(tape, version, (0,) * len(version.shape))
            assert found.formula is None or found.formula.value() == found.value


# ---------------------------------------------------------------- blocks


def test_reading_during_the_block() -> None:
    with record() as tape:
        x = torch.ones(2)
        y = x * 3
        assert tape.version(y).values.tolist() == [3, 3]
        assert explain(tape, y, (0,)).text == "1 · 3 = 3"
        z = y + 1
    assert names(tape) == ["ones", "mul", "add"]
    assert tape.version(z).call is tape.calls[-1]


def test_one_block_in_another() -> None:
    x = torch.ones(2)
    with record() as outer:
        y = x + 1
        with record() as inner:
            z = y * 2
            z.add_(1)
            first, _ = z
        w = z - 1
    assert names(outer) == ["add", "mul", "add", "unbind", "sub"]
    assert names(inner) == ["mul", "add", "unbind"]
    assert inner.version(y).call is None
    assert outer.version(z).values.tolist() == inner.version(z).values.tolist() == [5, 5]
    assert stage_name(outer.version(first)) == stage_name(inner.version(first)) == "first"
    assert outer.version(w).call.spot.names == ("w",)
    with pytest.raises(KeyError):
        inner.version(w)


def test_two_blocks_one_after_the_other() -> None:
    with record() as first:
        x = torch.ones(2) * 2
    with record() as second:
        y = x + 1
    assert names(first) == ["ones", "mul"]
    assert names(second) == ["add"]
    assert second.version(x).call is None
    with pytest.raises(KeyError):
        first.version(y)


def test_a_failing_call_leaves_the_tape_intact() -> None:
    tape = Tape()
    x = torch.ones(2, 3)
    tape.name(x, "x")
    with tape:
        y = x * 2
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"), tape:
        y @ y
    assert names(tape) == ["mul"]
    assert tape.failed is not None
    assert (tape.failed.name, tape.failed.inputs) == ("matmul", [tape.version(y)] * 2)
    assert tape.failed.spot.text == "y @ y"
    assert tape.failed.outputs == []
    assert explain(tape, y, (0, 0)).text == "1 · 2 = 2"
    z = y + 1
    with pytest.raises(KeyError):
        tape.version(z)


def test_a_failing_write_leaves_the_tape_intact() -> None:
    x = torch.ones(2, 3)
    with record() as tape:
        x.mul_(2)
        with pytest.raises(RuntimeError):
            x.add_(torch.ones(5))
        y = x + 1
    assert names(tape) == ["mul", "ones", "add"]
    assert explain(tape, y, (0, 0)).text == "2 + 1 = 3"


# ---------------------------------------------------------------- names


def test_naming_inputs() -> None:
    q, k = torch.ones(2, 3), torch.ones(4, 3)
    with record() as tape:
        tape.name(q, "q", ("query", "d_k"))
        scores = q @ k.T
        tape.name(k, "keys")
    assert names(tape) == ["T", "matmul"]
    assert [(v.name, v.given_axes) for v in tape.inputs] == [("q", ("query", "d_k")), ("keys", ())]
    cells = {cell.stage for cell in explain(tape, scores, (0, 0)).formula.cells()}
    assert cells == {"q", "keys"}
    with pytest.raises(ValueError, match="q: expected 2 axis names, got query"):
        tape.name(q, "q", ("query",))


def test_versions_in_order() -> None:
    x = torch.ones(2, 4)
    with record() as tape:
        a, b = x.chunk(2, -1)
        y = a + b
    assert list(tape.versions()) == [tape.version(t) for t in (x, a, b, y)]


def test_special_numbers_are_kept() -> None:
    x = torch.tensor([math.nan, math.inf, -math.inf, -0.0])
    with record() as tape:
        y = x * 1
    assert same(tape.version(y).values, y)
    assert math.copysign(1, tape.version(y).number((3,))) == -1


# ---------------------------------------------------------------- what could not be recorded


with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)

    @torch.jit.script
    def scripted(t: Tensor) -> Tensor:
        return t * 2

    @torch.jit.script
    def scripted_in_place(t: Tensor) -> Tensor:
        return t.mul_(2)


class StraightThrough(torch.autograd.Function):
    @staticmethod
    def forward(ctx: object, t: Tensor) -> Tensor:
        return t.round()

    @staticmethod
    def backward(ctx: object, slope: Tensor) -> Tensor:
        return slope


@pytest.mark.parametrize(
    "unseen",
    [torch.vmap(lambda row: row * 2), scripted, StraightThrough.apply, lambda t: scripted_in_place(t * 1)],
)
@pytest.mark.parametrize("many", [0, 5000])
def test_what_is_made_unseen_is_no_input(unseen: Callable[[Tensor], Tensor], many: int) -> None:
    """Also when Python's collector has run in between."""
    x, given = torch.tensor([1.25, 2.5]), torch.ones(2)
    with record() as tape:
        y = unseen(x)
        _ = [[i] for i in range(many)], [[i] for i in range(many)]
        z = y * 3 + given
        other = x * given
    assert z.tolist() == (unseen(x) * 3 + 1).tolist()
    assert explain(tape, given, (0,)).note == "an input: nothing computed it"
    if tape.version(y).call is None:
        assert explain(tape, y, (0,)).note.endswith("by something that was not recorded")
    with pytest.raises(ValueError, match=r"no gradient: it depends on .* which was (made|changed) (by|in) "):
        gradient(tape, z, (0,))
    with pytest.raises(ValueError, match="no gradient"):
        gradient(tape, y, (0,))
    slopes = gradient(tape, other, (0,))
    assert slopes[tape.version(x)].tolist() == [1, 0]
    assert slopes[tape.version(given)].tolist() == [1.25, 0]


def test_inputs_stay_inputs() -> None:
    """What was there before, what learns, and what comes from outside of torch: no gradient is refused."""
    x, before = torch.ones(2), torch.full((2,), 3.0)
    with record() as tape:
        learnt = nn.Parameter(torch.ones(2))
        outside = torch.from_numpy(x.numpy() * 2)
        y = x * before * learnt * outside
        assert gradient(tape, y, (0,))[tape.version(before)].tolist() == [2, 0]  # also during the block
    slopes = gradient(tape, y, (0,))
    assert [slopes[tape.version(t)][0].item() for t in (x, before, learnt, outside)] == [6, 2, 6, 3]


def test_a_conjugate_has_numbers_of_its_own() -> None:
    z = torch.tensor([[1 + 2j, 3 + 4j]], dtype=torch.complex128)
    with record() as tape:
        conjugate, upper = z.conj(), z.imag
        lower = conjugate.imag
        doubled = lower * 2
    for tensor in (z, conjugate, upper, lower, doubled):
        assert torch.equal(tape.version(tensor).values, tensor.resolve_conj().resolve_neg())
    assert explain(tape, doubled, (0, 0)).text == "(−2) · 2 = −4"


def test_running_means_are_as_they_are_now() -> None:
    norm = nn.BatchNorm1d(2)
    with record() as tape:
        norm(torch.tensor([[1.0, 2.0], [3.0, 5.0]]))
    assert norm.running_mean is not None
    assert same(tape.version(norm.running_mean).values, norm.running_mean)
    assert explain(tape, norm.running_mean, (0,)).value == pytest.approx(0.2)
