"""How much each number matters: autograd run directly, and finite differences, say the same."""

from collections.abc import Callable, Iterator, Sequence

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from torch import Tensor, nn

from attnlab.engine import Tape, Version, attend, attention_row, causal, gradient, record
from helpers.annotations import unchecked
from helpers.hand_written import (
    HeadsInALoop,
    PackedAttention,
    TinyLanguageModel,
    einsum_attention,
    in_place_attention,
    in_place_twin,
    rms_block,
)
from helpers.programs import Program, programs, run
from helpers.recomputed import places


@pytest.fixture(autouse=True)
def _annotations_are_checked() -> Iterator[None]:
    with unchecked():
        yield


def randn(*shape: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator, dtype=torch.float64)


def close(actual: Tensor, expected: Tensor, *, slack: float = 1e-10) -> None:
    torch.testing.assert_close(actual, expected, rtol=slack, atol=slack, equal_nan=True)


def chosen_places(tensor: Tensor) -> list[tuple[int, ...]]:
    """First, last and a middle one."""
    every = (
        [tuple(place) for place in torch.cartesian_prod(*map(torch.arange, tensor.shape)).tolist()]
        if tensor.ndim > 1
        else [(i,) for i in range(len(tensor))]
        if tensor.ndim
        else [()]
    )
    return sorted({every[0], every[len(every) // 2], every[-1]})


def agrees(
    function: Callable[..., Tensor], inputs: Sequence[Tensor], *, twin: Callable[..., Tensor] | None = None
) -> Tape:
    """The gradient of some numbers of the result to every input, against autograd run directly."""
    torch.manual_seed(3)
    with record() as tape:
        for i, x in enumerate(inputs):
            tape.name(x, f"input {i}")
        result = function(*inputs)
    leaves = [x.detach().clone().requires_grad_(x.is_floating_point()) for x in inputs]
    torch.manual_seed(3)
    direct = (twin or function)(*leaves)
    close(result, direct)
    tracked = [i for i, x in enumerate(inputs) if x.is_floating_point()]
    versions = inputs_of(tape, len(inputs))
    for place in chosen_places(result):
        ours = gradient(tape, result, place)
        theirs = torch.autograd.grad(
            direct[place], [leaves[i] for i in tracked], retain_graph=True, allow_unused=True
        )
        for i, slope in zip(tracked, theirs, strict=True):
            close(ours[versions[i]], torch.zeros_like(inputs[i]) if slope is None else slope)
    return tape


def inputs_of(tape: Tape, count: int) -> list[Version]:
    named = {version.name: version for version in tape.inputs}
    return [named[f"input {i}"] for i in range(count)]


def with_weights(module: nn.Module, pick: Callable[[object], Tensor] = lambda out: out) -> tuple:
    """(function of weights and input, the weights): a module whose weights are inputs like any others."""
    names, values = zip(*module.named_parameters(), strict=True)

    def function(x: Tensor, *weights: Tensor) -> Tensor:
        return pick(torch.func.functional_call(module, dict(zip(names, weights, strict=True)), (x,)))

    return function, [value.detach() for value in values]


PROGRAMS = {
    "packed heads with dropout": (*with_weights(PackedAttention(6, 2, 0.4).double()), randn(2, 3, 6)),
    "heads in a loop": (
        *with_weights(HeadsInALoop(4, 2, 0.4).double(), lambda out: out[0]),
        randn(2, 3, 4),
    ),
    "maps of heads in a loop": (
        *with_weights(HeadsInALoop(4, 2).double(), lambda out: out[1]),
        randn(2, 3, 4),
    ),
    "loss of a language model": (
        *with_weights(TinyLanguageModel(5, 4, 2, 4, 0.3).double(), lambda out: out[1]),
        torch.tensor([[0, 3, 1, 1], [4, 2, 0, 3]]),
    ),
    "einsum heads": (
        einsum_attention,
        [randn(2, 3, 4, seed=1), randn(2, 3, 4, seed=2), randn(2, 3, 5, seed=3), randn(2, 5, 3, seed=4)],
        randn(2, 4, 3),
    ),
    "rms norm": (rms_block, [randn(4, seed=1), randn(4, 3, seed=2)], randn(2, 3, 4)),
    "attend": (
        lambda q, k, v: attention_row(attend(q, k, v, allowed=causal(3)), 1).row_output,
        [randn(3, 2, seed=1), randn(3, 4, seed=2)],
        randn(3, 2),
    ),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_against_autograd(name: str) -> None:
    function, weights, x = PROGRAMS[name]
    agrees(function, [x, *weights])


@pytest.mark.parametrize("name", PROGRAMS)
def test_against_finite_differences_of_every_stage(name: str) -> None:
    """A changed stage, and everything after it computed again: nothing of autograd takes part."""
    function, weights, x = PROGRAMS[name]
    torch.manual_seed(3)
    with torch.no_grad(), record() as tape:
        result = function(x, *weights)
    place = chosen_places(result)[-1]
    target = tape.version(result)
    slopes = gradient(tape, result, place)
    assert set(slopes) == {
        v for v in tape.versions() if v.values.is_floating_point() and not_after(tape, v, target)
    }
    for version in list(slopes)[:: max(1, len(slopes) // 12)]:
        for at in chosen_places(version.values)[:2]:
            numbers = []
            for step in (1e-6, -1e-6):
                values = version.values.clone()
                values[at] += step
                numbers.append(rerun(tape, {version: values}, target)[place].item())
            difference = (numbers[0] - numbers[1]) / 2e-6
            assert slopes[version][at].item() == pytest.approx(difference, rel=1e-5, abs=1e-7)


def not_after(tape: Tape, version: Version, target: Version) -> bool:
    order = list(tape.versions())
    assert target.call is not None
    return order.index(version) <= max(order.index(v) for v in target.call.outputs)


def rerun(tape: Tape, given: dict[Version, Tensor], target: Version) -> Tensor:
    """Another way to compute a version than that of `gradient`: only what it needs, from recorded numbers."""
    known: dict[Version, Tensor] = dict(given)

    def value(version: Version) -> Tensor:
        if version not in known:
            call = version.call
            if call is None or not call.inputs or not any(depends(v) for v in call.inputs):
                known[version] = version.values
            else:
                args = noted(call.args)
                kwargs = {key: noted(item) for key, item in call.kwargs.items()}
                if call.random_state is not None:
                    torch.set_rng_state(call.random_state)
                if call.in_place:
                    args = (args[0].clone(), *args[1:])
                result = call.function(*args, **kwargs)
                result = args[0] if call.in_place else result
                made = result if isinstance(result, tuple | list) else [result]
                known[version] = made[version.output]
        return known[version]

    def depends(version: Version) -> bool:
        return version in given or (version.call is not None and any(map(depends, version.call.inputs)))

    def noted(item: object) -> object:
        if isinstance(item, Version):
            return value(item)
        return type(item)(noted(part) for part in item) if isinstance(item, tuple | list) else item

    return value(target)


def test_every_intermediate_stage_against_autograd() -> None:
    x, w = randn(3, 4), randn(4, 4, seed=1)
    with record() as tape:
        scores = x @ w @ x.T
        weights = scores.softmax(-1)
        output = weights @ x
    leaves = [t.clone().requires_grad_() for t in (x, w)]
    a = leaves[0] @ leaves[1] @ leaves[0].T
    b = a.softmax(-1)
    c = b @ leaves[0]
    for place in places(tape.version(output)):
        ours = gradient(tape, output, place)
        theirs = torch.autograd.grad(c[place], (*leaves, a, b, c), retain_graph=True)
        for tensor, slope in zip((x, w, scores, weights, output), theirs, strict=True):
            close(ours[tape.version(tensor)], slope)


@given(programs(smooth=True, most=5))
def test_programs_made_by_chance(program: Program) -> None:
    found = run(program)
    result = next((t for t in reversed(found.pool[len(program.inputs) :]) if t.is_floating_point()), None)
    if result is None or not result.numel():
        return
    place = chosen_places(result)[-1]
    target = found.tape.version(result)
    if target.call is None:
        return
    slopes = gradient(found.tape, target, place)
    # Finite differences of the whole program: in place or not, it's run as it is.
    for i, x in enumerate(program.inputs):
        version = first_of(found, i)
        if version is None or not x.numel():
            continue
        at = chosen_places(x)[0]
        numbers = []
        for step in (1e-6, -1e-6):
            changed = [t.clone() for t in program.inputs]
            changed[i][at] += step
            again = run(program, changed).pool
            numbers.append(again[index_of(found.pool, result)][place].item())
        difference = (numbers[0] - numbers[1]) / 2e-6
        scale = 1 + abs(difference)
        assert slopes[version][at].item() == pytest.approx(difference, rel=1e-4, abs=1e-5 * scale)


def index_of(pool: list[Tensor], tensor: Tensor) -> int:
    return next(i for i, other in enumerate(pool) if other is tensor)


def first_of(found: object, i: int) -> Version | None:
    """The version of an input as it came in, if the tape saw it."""
    tensor, version = found.pool[i], found.tape._current.get(id(found.pool[i]))
    if version is None:
        return None
    version = version[1]
    while version.call is not None:
        version = version.call.inputs[0]
    return version if version.shape == tuple(tensor.shape) else None


# ---------------------------------------------------------------- code that autograd alone refuses, or cuts


def test_in_place_code_where_autograd_fails() -> None:
    q, k, v, bias = randn(2, 3, 4), randn(2, 3, 4, seed=1), randn(2, 3, 5, seed=2), randn(3, 3, seed=3)
    with pytest.raises(RuntimeError):
        in_place_attention(*(x.clone().requires_grad_() for x in (q, k, v, bias))).sum().backward()
    agrees(in_place_attention, (q, k, v, bias), twin=in_place_twin)


def test_writing_through_views() -> None:
    def program(x: Tensor, y: Tensor) -> Tensor:
        buffer = torch.zeros(2, 3, dtype=torch.float64)
        first, second = buffer
        first += x
        second.copy_(first * y)
        buffer.T[0].mul_(x[0])
        return buffer.exp()

    def twin(x: Tensor, y: Tensor) -> Tensor:
        rows = torch.stack([x, x * y])
        return torch.cat([rows[:, :1] * x[0], rows[:, 1:]], 1).exp()

    agrees(program, (randn(3), randn(3, seed=1)), twin=twin)


def test_no_grad_and_inference_mode() -> None:
    def program(x: Tensor, w: Tensor) -> Tensor:
        return (x @ w).softmax(-1)

    for mode in (torch.no_grad, torch.inference_mode):

        def hidden(x: Tensor, w: Tensor, mode: Callable = mode) -> Tensor:
            with mode():
                y = x @ w
                y.add_(0)
                return y.softmax(-1)

        agrees(hidden, (randn(2, 3), randn(3, 4, seed=1)), twin=program)


def test_in_place_arguments() -> None:
    def program(x: Tensor) -> Tensor:
        y = x * 1
        F.relu(y, inplace=True)
        z = nn.ReLU(inplace=True)(y - 0.1)
        torch.mul(z, y, out=y) if not y.requires_grad else None
        return y

    agrees(program, (randn(2, 3),), twin=lambda x: F.relu(x) * F.relu(F.relu(x) - 0.1))


@pytest.mark.parametrize("layout", ["plain", "transposed"])
def test_dropout_draws_the_same(layout: str) -> None:
    def program(x: Tensor) -> Tensor:
        x = x.T if layout == "transposed" else x
        y = F.dropout(x * 2, 0.5)
        noise = torch.rand_like(y)
        return F.dropout(y + noise * x, 0.25).sin()

    before = torch.get_rng_state()
    agrees(program, (randn(4, 5),))
    torch.set_rng_state(before)
    with record() as tape:
        y = program(randn(4, 5))
    state = torch.get_rng_state()
    gradient(tape, y, (0, 0))
    assert torch.equal(torch.get_rng_state(), state), "asking for a gradient has drawn"


def test_a_generator_of_its_own() -> None:
    def program(p: Tensor) -> Tensor:
        generator = torch.Generator().manual_seed(5)
        return p * torch.bernoulli(p, generator=generator) + torch.empty(3).double().normal_(
            generator=generator
        )

    agrees(program, (torch.tensor([0.2, 0.5, 0.8]).double(),))


def test_made_from_nothing_counts_as_a_stage() -> None:
    with record() as tape:
        noise = torch.randn(3, dtype=torch.float64)
        y = noise.square()
    slopes = gradient(tape, y, (1,))
    close(slopes[tape.version(noise)], torch.tensor([0, 2 * noise[1].item(), 0], dtype=torch.float64))


def test_detached_stages_start_anew() -> None:
    x = randn(3)
    with record() as tape:
        largest = x.max().detach()
        y = x - largest
    slopes = gradient(tape, y, (0,))
    close(slopes[tape.version(x)], torch.tensor([1.0, 0, 0]).double())
    close(slopes[tape.version(largest)], torch.tensor(-1.0).double())


def test_uninitialised_memory_that_is_filled() -> None:
    def program(x: Tensor) -> Tensor:
        out = torch.empty_like(x)
        for i in range(len(x)):
            out[i] = x[i] ** 2 + (out[i - 1] if i else 0)
        return out

    def twin(x: Tensor) -> Tensor:
        return x.square().cumsum(0)

    agrees(program, (randn(4),), twin=twin)


def test_what_does_not_run_again_alike_is_refused() -> None:
    x = randn(2)
    with record() as tape:
        y = x * 2
    tape.calls[-1].function = lambda a, b: a * b + 1
    with pytest.raises(ValueError, match=r"no gradient through mul in line \d+: it gave other numbers"):
        gradient(tape, y, (0,))


def test_what_cannot_run_with_gradients_is_refused() -> None:
    with record() as tape:
        y = randn(2).apply_(lambda number: number + 1) * 2
    with pytest.raises(ValueError, match=r"no gradient through apply in line \d+: Can't call apply_"):
        gradient(tape, y, (0,))


# ---------------------------------------------------------------- zeros, and refusals


def test_causality_is_exactly_zero() -> None:
    module = PackedAttention(6, 2).double()
    x = randn(1, 5, 6)
    with record() as tape:
        y = module(x)
    for time in range(5):
        slope = gradient(tape, y, (0, time, 3))[tape.version(x)][0]
        assert (slope[time + 1 :] == 0.0).all()
        assert (slope[: time + 1] != 0.0).all()


def test_unused_inputs_are_exactly_zero() -> None:
    x, unused, later = randn(2), randn(3, seed=1), randn(2, seed=2)
    with record() as tape:
        _ = unused * 2
        y = x * 3
        _ = y + later
    slopes = gradient(tape, y, (0,))
    assert slopes[tape.version(unused)].tolist() == [0.0, 0.0, 0.0]
    assert slopes[tape.version(later)].tolist() == [0.0, 0.0]
    assert slopes[tape.version(x)].tolist() == [3.0, 0.0]
    assert slopes[tape.version(y)].tolist() == [1.0, 0.0]


def test_an_input_depends_on_itself_alone() -> None:
    x, w = randn(2), randn(2, seed=1)
    with record() as tape:
        _ = x * w
    slopes = gradient(tape, x, (1,))
    assert slopes[tape.version(x)].tolist() == [0.0, 1.0]
    assert slopes[tape.version(w)].tolist() == [0.0, 0.0]


@pytest.mark.parametrize("make", [lambda x: x > 0, lambda x: x.long(), lambda x: x.argmax(0)])
def test_targets_without_a_gradient(make: Callable[[Tensor], Tensor]) -> None:
    with record() as tape:
        y = make(randn(3, 2))
    with pytest.raises(ValueError, match="expected floating-point numbers, got torch"):
        gradient(tape, y, (0,) * y.ndim)


def test_only_numbers_with_slopes_are_listed() -> None:
    x, tokens = randn(3, 2), torch.tensor([0, 2])
    with record() as tape:
        y = F.embedding(tokens, x).masked_fill(torch.tensor([True, False]), 0)
    slopes = gradient(tape, y, (1, 1))
    assert all(version.values.is_floating_point() for version in slopes)
    assert slopes[tape.version(x)].tolist() == [[0, 0], [0, 0], [0, 1]]
    assert all(slope.shape == version.values.shape for version, slope in slopes.items())
    assert not any(slope.requires_grad for slope in slopes.values())


@pytest.mark.parametrize("place", [(2, 0), (0,), (), (-1, 0)])
def test_no_such_place(place: tuple[int, ...]) -> None:
    with record() as tape:
        y = randn(2, 3) * 2
    with pytest.raises(IndexError, match="expected a place in 2 × 3"):
        gradient(tape, y, place)


def test_during_the_block() -> None:
    x = randn(2, 3)
    with record() as tape:
        y = (x * 2).exp()
        count = len(tape.calls)
        slope = gradient(tape, y, (1, 1))[tape.version(x)]
        assert len(tape.calls) == count
        z = y + 1
    close(slope[1, 1], 2 * y[1, 1])
    assert tape.version(z).call is tape.calls[-1]


def test_nothing_recorded_is_changed() -> None:
    x = randn(2, 3).requires_grad_()
    with record() as tape:
        y = x * 2
        y += 1
        z = y.softmax(-1)
    before = [version.values.clone() for version in tape.versions()]
    gradient(tape, z, (0, 0))
    assert x.grad is None
    assert all(torch.equal(a, version.values) for a, version in zip(before, tape.versions(), strict=True))


def test_half_precision() -> None:
    x = randn(3).to(torch.bfloat16)
    with record() as tape:
        y = x.float() ** 2
    slope = gradient(tape, y, (1,))[tape.version(x)]
    assert slope.dtype == torch.bfloat16
    close(slope[1].double(), 2 * x[1].double(), slack=1e-2)


# ---------------------------------------------------------------- as autograd does


class TestWithoutGradients:
    def test_a_part_is_a_constant(self) -> None:
        x = torch.tensor([2.0, -1.0], requires_grad=True)

        def straight_through(x: Tensor) -> Tensor:
            with torch.no_grad():
                step = x.round() - x
            return (x + step) * x

        agrees(straight_through, [x])

    def test_a_whole_program_is_asked_all_the_same(self) -> None:
        x = torch.tensor([2.0, -1.0], dtype=torch.float64)
        for mode in (torch.no_grad, torch.inference_mode):
            with record() as tape:
                tape.name(x, "x")
                with mode():
                    y = x * x
            close(gradient(tape, y, (0,))[tape.version(x)], torch.tensor([4.0, 0.0], dtype=torch.float64))


NET = nn.BatchNorm1d(3, dtype=torch.float64)
HALF = torch.tensor([0.5, 2.0, 1.0], dtype=torch.float64)
TARGET = torch.tensor([0, 2, 1, 1])


@pytest.mark.parametrize(
    "function",
    [
        lambda x: F.batch_norm(x, torch.zeros_like(HALF), HALF.clone(), training=True)[1],
        lambda x: F.batch_norm(x, HALF.clone(), HALF.clone(), weight=HALF, training=False)[1],
        lambda x: F.instance_norm(x.mT[None], HALF.clone(), HALF.clone(), use_input_stats=False)[0, 1],
        lambda x: F.cross_entropy(x, TARGET, weight=HALF)[None],
        lambda x: F.cross_entropy(x, TARGET, HALF)[None],
        lambda x: F.nll_loss(x.log_softmax(-1), TARGET, weight=HALF)[None],
        lambda x: F.binary_cross_entropy(x.sigmoid(), x.sigmoid().detach(), weight=HALF)[None],
        lambda x: F.binary_cross_entropy_with_logits(x, x.detach().sigmoid(), pos_weight=HALF)[None],
        lambda x: F.multi_margin_loss(x, TARGET, weight=HALF)[None],
    ],
)
def test_arguments_without_a_derivative(function: Callable[[Tensor], Tensor]) -> None:
    agrees(function, [randn(4, 3)])


def test_running_means_are_left_alone() -> None:
    x, before = randn(4, 3), NET.running_mean
    assert before is not None
    with record() as tape:
        y = NET(x)
    after = before.clone()
    gradient(tape, y, (0, 0))
    assert torch.equal(before, after)


def test_a_call_without_a_derivative_says_so() -> None:
    x = randn(2)
    with record() as tape:
        y = x // 0.7 + x
    with pytest.raises(ValueError, match=r"no gradient: .*floor_divide"):
        gradient(tape, y, (0,))


def test_under_autocast() -> None:
    def program(x: Tensor, w: Tensor) -> Tensor:
        with torch.autocast("cpu", torch.bfloat16):
            return (x @ w).float().softmax(-1)

    x, w = randn(2, 3).float(), randn(3, 4, seed=1).float()
    x.requires_grad_()
    with record() as tape:
        y = program(x, w)
    (right,) = torch.autograd.grad(y[0, 1], x)
    close(gradient(tape, y, (0, 1))[tape.version(x)], right, slack=1e-6)
