"""Programs made by chance: chains of torch calls on odd shapes, some in place and through other views."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from hypothesis import strategies as st
from torch import Tensor

from attnlab.engine import Tape, Version, record

__all__ = ["Program", "Run", "programs", "run"]

Pool = list[Tensor]
Step = Callable[[Pool], object]
Draw = st.DrawFn
MOST = 48
"""Numbers in one tensor: what keeps the tests fast."""


@dataclass(frozen=True)
class Program:
    """Steps that read tensors of a pool, write into them, or return new ones that join it."""

    inputs: tuple[Tensor, ...]
    steps: tuple[tuple[str, Step], ...]

    def __repr__(self) -> str:
        shapes = ", ".join(str(tuple(x.shape)) for x in self.inputs)
        return f"Program({shapes}: {', '.join(name for name, _ in self.steps)})"


@dataclass(frozen=True)
class Run:
    """A program that has run; `snapshots` are the numbers of versions as they were when first seen."""

    tape: Tape
    pool: Pool
    snapshots: dict[Version, Tensor]


def run(program: Program, inputs: Sequence[Tensor] | None = None, *, seed: int = 0) -> Run:
    """Runs a program under a recorder; checks after each step that the tape knows every tensor as it is."""
    torch.manual_seed(seed)
    pool = [x.clone() for x in (program.inputs if inputs is None else inputs)]
    snapshots: dict[Version, Tensor] = {}
    with record() as tape:
        for name, step in program.steps:
            made = step(pool)
            pool += _tensors(made, pool)
            with torch._C.DisableTorchFunction():
                for tensor in pool:
                    if id(tensor) in tape._current:
                        version = tape.version(tensor)
                        assert _same(version.values, tensor.detach()), f"{name}: the tape is behind"
                for version in tape.versions():
                    snapshots.setdefault(version, version.values.clone())
    for version, values in snapshots.items():
        assert _same(version.values, values), "history was rewritten"
    return Run(tape, pool, snapshots)


@st.composite
def programs(draw: Draw, *, smooth: bool = False, most: int = 6) -> Program:
    """`smooth`: only steps that have a slope everywhere, on numbers that are no ties."""
    seed = draw(st.integers(0, 999))
    generator = torch.Generator().manual_seed(seed)
    shapes = draw(st.lists(st.lists(st.sampled_from([1, 2, 3]), max_size=3), min_size=2, max_size=3))
    inputs = tuple(torch.randn(shape, generator=generator, dtype=torch.float64) for shape in shapes)
    if not smooth and draw(st.booleans()):
        hard = torch.tensor([0.0, -0.0, 1.0, -2.0, torch.inf, -torch.inf, torch.nan, 700.0, 0.5])
        inputs = tuple(
            torch.where(
                torch.rand(x.shape, generator=generator) < 0.5,
                x,
                hard[torch.randint(9, x.shape, generator=generator)].double(),
            )
            for x in inputs
        )
    pool = [x.clone() for x in inputs]
    steps: list[tuple[str, Step]] = []
    names = sorted(SMOOTH if smooth else SMOOTH | ROUGH)
    for _ in range(draw(st.integers(1, most))):
        name = draw(st.sampled_from(names))
        step = (SMOOTH | ROUGH)[name](draw, pool)
        try:
            made = _tensors(step(pool), pool) if step else None
        except (RuntimeError, IndexError, ValueError, TypeError):
            continue  # shapes that don't fit, or a tensor that can't be written to
        if step and made is not None and all(t.numel() <= MOST and t.ndim <= 5 for t in made):
            steps.append((name, step))
            pool += made
    return Program(inputs, tuple(steps))


def _tensors(made: object, pool: Pool) -> Pool:
    if isinstance(made, Tensor):
        return [made] if all(made is not tensor for tensor in pool) else []
    return [t for part in made for t in _tensors(part, pool)] if isinstance(made, tuple | list) else []


def _same(a: Tensor, b: Tensor) -> bool:
    return a.dtype == b.dtype and torch.allclose(a, b, rtol=0, atol=0, equal_nan=True)


# ---------------------------------------------------------------- steps

Maker = Callable[[Draw, Pool], Step | None]
SMOOTH: dict[str, Maker] = {}
ROUGH: dict[str, Maker] = {}


def smooth(maker: Maker) -> Maker:
    SMOOTH[maker.__name__] = maker
    return maker


def rough(maker: Maker) -> Maker:
    ROUGH[maker.__name__] = maker
    return maker


def pick(draw: Draw, pool: Pool, *, dims: int = 0) -> int:
    """The position of a tensor of floating-point numbers with at least so many axes."""
    fit = [i for i, t in enumerate(pool) if t.is_floating_point() and t.ndim >= dims]
    return fit[-1 - draw(st.integers(0, len(fit) - 1))] if fit else -1


def axis(draw: Draw, tensor: Tensor) -> int:
    return draw(st.integers(-tensor.ndim, tensor.ndim - 1))


def apply(i: int, function: Callable[[Tensor], object]) -> Step | None:
    return None if i < 0 else lambda pool: function(pool[i])


def apply2(i: int, j: int, function: Callable[[Tensor, Tensor], object]) -> Step | None:
    return None if i < 0 or j < 0 else lambda pool: function(pool[i], pool[j])


@smooth
def unary(draw: Draw, pool: Pool) -> Step | None:
    functions = [torch.sin, torch.cos, torch.tanh, torch.sigmoid, torch.erf, F.gelu, F.silu, torch.neg]
    functions += [torch.square, lambda x: x**3, lambda x: 1 - x, lambda x: 2 * x, lambda x: x / 3]
    functions += [
        lambda x: x - 0.5,
        lambda x: (x * 0.1).exp(),
        lambda x: 1.5**x,
        lambda x: F.gelu(x, approximate="tanh"),
    ]
    return apply(pick(draw, pool), draw(st.sampled_from(functions)))


@rough
def hard_unary(draw: Draw, pool: Pool) -> Step | None:
    functions = [torch.exp, torch.log, torch.sqrt, torch.rsqrt, torch.reciprocal, torch.abs, torch.relu]
    functions += [
        torch.log1p,
        torch.expm1,
        lambda x: 2 / x,
        lambda x: x**-2,
        lambda x: x**0.5,
        lambda x: x.clamp(-1, 1),
    ]
    functions += [lambda x: x.float(), lambda x: x.half().double(), lambda x: x.bool().double()]
    return apply(pick(draw, pool), draw(st.sampled_from(functions)))


@smooth
def binary(draw: Draw, pool: Pool) -> Step | None:
    functions = [
        torch.add,
        torch.sub,
        torch.mul,
        lambda x, y: x + 2 * y,
        lambda x, y: torch.add(x, y, alpha=-3),
    ]
    functions += [lambda x, y: x / (y * y + 1), lambda x, y: torch.rsub(x, y, alpha=2)]
    return apply2(pick(draw, pool), pick(draw, pool), draw(st.sampled_from(functions)))


@rough
def hard_binary(draw: Draw, pool: Pool) -> Step | None:
    functions = [torch.div, torch.maximum, torch.minimum, lambda x, y: torch.where(x > y, x, y)]
    functions += [lambda x, y: x.masked_fill(x < y, -torch.inf), lambda x, y: torch.where(y != 0, x, 0.5)]
    functions += [
        lambda x, y: (x >= y) & ~(x == y),
        lambda x, y: torch.max(x, y),
        lambda x, y: x.where(y > 0, y),
    ]
    return apply2(pick(draw, pool), pick(draw, pool), draw(st.sampled_from(functions)))


@smooth
def product(draw: Draw, pool: Pool) -> Step | None:
    i, j = pick(draw, pool, dims=1), pick(draw, pool, dims=1)
    functions = [torch.matmul, lambda x, y: x @ y.mT, lambda x, y: x.mT @ y, lambda x, y: x[None] @ y]
    functions += [lambda x, y: F.linear(x, y[0] if y.ndim > 2 else y), lambda x, y: x.squeeze() @ y.squeeze()]
    return apply2(i, j, draw(st.sampled_from(functions)))


@smooth
def einsum(draw: Draw, pool: Pool) -> Step | None:
    equations = [
        "ij,jk->ik",
        "ij,jk",
        "...i,...i->...",
        "...i,...i",
        "i,j->ji",
        "...ij,...kj->...ik",
        "ij,ij",
    ]
    equations += ["bij,bjk->bki", "ab,cb->", "i...,j...->...ij", "iij,j->i", "xy,yx->x"]
    equation = draw(st.sampled_from(equations))
    return apply2(
        pick(draw, pool, dims=1), pick(draw, pool, dims=1), lambda x, y: torch.einsum(equation, x, y)
    )


@smooth
def reduction(draw: Draw, pool: Pool) -> Step | None:
    i = pick(draw, pool, dims=1)
    if i < 0:
        return None
    d, keep = axis(draw, pool[i]), draw(st.booleans())
    dims = draw(st.sampled_from([d, (d,), [d], None, tuple(range(pool[i].ndim))]))
    functions = [
        lambda x: x.sum(dims, keepdim=keep),
        lambda x: x.mean(dims, keep),
        lambda x: x.sum(axis=dims, keepdims=keep),
        lambda x: torch.var(x, dims, correction=0, keepdim=keep),
        lambda x: x.cumsum(d),
        lambda x: x.softmax(d),
        lambda x: F.log_softmax(x, dim=d),
    ]
    return apply(i, draw(st.sampled_from(functions)))


@rough
def hard_reduction(draw: Draw, pool: Pool) -> Step | None:
    i = pick(draw, pool, dims=1)
    if i < 0:
        return None
    d, keep = axis(draw, pool[i]), draw(st.booleans())
    functions = [
        lambda x: x.amax(d, keep),
        lambda x: x.amin((d,), keepdim=keep),
        lambda x: x.max(d, keepdim=keep),
        lambda x: x.min(),
        lambda x: x.std(d, keepdim=keep, correction=1 if x.shape[d] > 1 else 0),
        lambda x: torch.cat([x, x], d).var(axis=d, keepdims=keep),
        lambda x: (x > 0).any(d, keep),
        lambda x: (x > 0).sum(d),
    ]
    return apply(i, draw(st.sampled_from(functions)))


@smooth
def moving(draw: Draw, pool: Pool) -> Step | None:
    i = pick(draw, pool, dims=1)
    if i < 0:
        return None
    x = pool[i]
    a, b, n = axis(draw, x), axis(draw, x), draw(st.integers(1, 3))
    order = draw(st.permutations(range(x.ndim)))
    functions = [
        lambda x: x.transpose(a, b),
        lambda x: x.permute(*order),
        lambda x: x.reshape(-1),
        lambda x: x.view(1, *x.shape[::-1]) if x.ndim > 1 else x.view(-1, 1),
        lambda x: x.transpose(a, b).contiguous().view(*x.shape),
        lambda x: x.unsqueeze(a),
        lambda x: x.squeeze(),
        lambda x: x.flatten(),
        lambda x: x.unsqueeze(0).expand(n, *x.shape),
        lambda x: x.repeat(n, *[1] * (x.ndim - 1)),
        lambda x: x.chunk(n, a),
        lambda x: x.split(n, a),
        lambda x: x.unbind(a),
        lambda x: torch.cat([x, x * 2], a),
        lambda x: torch.stack([x, 1 - x], dim=a),
        lambda x: x.flip(a),
        lambda x: x.roll(1, a),
        lambda x: x.tril(),
        lambda x: x.clone(),
        lambda x: x.mT,
        lambda x: [row for row in x],  # noqa: C416
        lambda x: x.repeat_interleave(n, a),
    ]
    return apply(i, draw(st.sampled_from(functions)))


@smooth
def indexing(draw: Draw, pool: Pool) -> Step | None:
    i = pick(draw, pool)
    return None if i < 0 else apply(i, _getter(_places(draw, pool[i])))


def _getter(index: tuple[object, ...]) -> Callable[[Tensor], Tensor]:
    return lambda x: x[index]


def _places(draw: Draw, x: Tensor) -> tuple[object, ...]:
    """An index of any kind that fits."""
    found: list[object] = []
    for size in x.shape[: draw(st.integers(0, x.ndim))]:
        if size == 0:
            found.append(slice(None))
            continue
        kinds = [
            st.integers(-size, size - 1),
            st.slices(size).filter(lambda s: s.step is None or s.step > 0),
            st.just(slice(None)),
            st.lists(st.integers(0, size - 1), min_size=1, max_size=3).map(torch.tensor),
            st.lists(st.integers(0, size - 1), min_size=1, max_size=2),
            st.lists(st.booleans(), min_size=size, max_size=size).map(torch.tensor),
        ]
        if draw(st.integers(0, 4)) == 0:
            found.append(None)
        found.append(draw(st.one_of(kinds)))
    if draw(st.integers(0, 2)) == 0:
        found.append(Ellipsis)
    return tuple(found)


@smooth
def writing(draw: Draw, pool: Pool) -> Step | None:
    i, j = pick(draw, pool), pick(draw, pool)
    functions = [
        lambda x, y: x.add_(1),
        lambda x, y: x.mul_(0.5),
        lambda x, y: x.add_(y, alpha=2),
        lambda x, y: x.sub_(y),
        lambda x, y: x.tanh_(),
        lambda x, y: x.copy_(y),
        lambda x, y: x.zero_(),
        lambda x, y: x[..., :1].mul_(3),
        lambda x, y: x.T.add_(y) if x.ndim == 2 else x.add_(y),
        lambda x, y: x.masked_fill_(
            torch.ones(x.shape).tril().bool() if x.ndim > 1 else torch.tensor(True), 0.25
        ),
        lambda x, y: x.detach().add_(0) if False else x.div_(2),
        _add_to,
        _multiply_by,
        _fill_first,
    ]
    return apply2(i, j, draw(st.sampled_from(functions)))


def _add_to(x: Tensor, y: Tensor) -> None:
    x += y


def _multiply_by(x: Tensor, y: Tensor) -> None:
    x[..., -1:] *= 2


def _fill_first(x: Tensor, y: Tensor) -> None:
    for row in x:
        row.fill_(0.5)
        break


@smooth
def assigning(draw: Draw, pool: Pool) -> Step | None:
    i, j = pick(draw, pool), pick(draw, pool)
    if i < 0:
        return None
    index = _places(draw, pool[i])
    if draw(st.booleans()):
        return lambda pool: pool[i].__setitem__(index, 0.75)
    return lambda pool: pool[i].__setitem__(index, pool[j])


@rough
def into(draw: Draw, pool: Pool) -> Step | None:
    i, j, k = pick(draw, pool), pick(draw, pool), pick(draw, pool)
    function = draw(st.sampled_from([torch.add, torch.mul, torch.matmul, torch.maximum]))

    def step(pool: Pool) -> Tensor:
        if torch.broadcast_shapes(pool[i].shape, pool[j].shape) != pool[k].shape:
            raise ValueError
        if function is torch.matmul and k in (i, j):
            raise ValueError  # torch says nothing, and overwrites what it still reads
        return function(pool[i], pool[j], out=pool[k])

    return step


@smooth
def normalising(draw: Draw, pool: Pool) -> Step | None:
    functions = [
        lambda x: F.layer_norm(x, x.shape[-1:], eps=0.1),
        lambda x: F.rms_norm(x, x.shape[-2:], eps=0.1),
        lambda x: F.rms_norm(x, x.shape[-1:], x.flatten()[: x.shape[-1]], eps=0.1),
        lambda x: F.layer_norm(x, x.shape, x, x * 2, eps=0.5),
        lambda x: F.cross_entropy(x, torch.zeros(x.shape[0], dtype=torch.long)),
        lambda x: F.embedding(torch.zeros(2, 1, dtype=torch.long), x),
        lambda x: F.dropout(x, 0.5),
        lambda x: F.dropout(x.mT, 0.25),
    ]
    return apply(pick(draw, pool, dims=1), draw(st.sampled_from(functions)))
