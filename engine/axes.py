"""Axis names of recorded tensors: given by somebody, carried through calls, or else numbered.

A wrong name would link cells that don't belong together, so a name is carried only where it is sure.
"""

from collections.abc import Sequence
from typing import Any

import torch

from attnlab.engine.call import Call, Version
from attnlab.engine.index_maps import CASTS, MOVES, traced
from attnlab.engine.rules import argument, looked_up

__all__ = ["axes_of", "is_unnamed"]

_REDUCTIONS = frozenset(
    """
    sum mean var std max min amax amin argmax argmin prod norm logsumexp any all var_mean std_mean
    median nanmedian nanmean nansum count_nonzero aminmax mode
    """.split()
)
# Calls that make each element from those at its place (or at its place and along an axis that stays).
_ELEMENTWISE = frozenset(
    """
    add sub rsub mul div rdiv floordiv floor_divide rfloordiv mod rmod remainder fmod pow rpow square
    float_power neg abs sign sgn exp exp2 expm1 log log2 log10 log1p logit sqrt rsqrt reciprocal sin
    cos tan asin acos atan atan2 sinh cosh tanh erf erfc erfinv sigmoid relu relu6 silu gelu elu selu
    celu leaky_relu prelu softplus softsign mish hardtanh hardsigmoid hardswish tanhshrink threshold
    logsigmoid logaddexp lerp addcmul addcdiv clamp clamp_min clamp_max clip ceil floor round trunc
    frac nan_to_num eq ne lt le gt ge isclose isnan isinf isfinite isneginf isposinf maximum minimum
    fmax fmin bitwise_and bitwise_or bitwise_xor bitwise_not logical_and logical_or logical_xor
    logical_not masked_fill masked_scatter where heaviside copysign hypot xlogy rand_like randn_like
    zeros_like ones_like full_like empty_like bernoulli dropout alpha_dropout feature_dropout softmax
    log_softmax softmin cumsum cumprod cummax cummin logcumsumexp layer_norm rms_norm batch_norm
    group_norm instance_norm normalize tril triu setitem index_fill index_add index_copy scatter
    scatter_add max min fill_diagonal
    """.split()
) | {"shared storage"}
_SORTED = {"sort": 1, "argsort": 1, "msort": 9, "topk": 2}
"""Calls that put one axis in another order, and the place of `dim` among their arguments."""
# Calls whose result shares the memory of its source: of these even axes of one element can be told apart.
_VIEWS = frozenset(
    """
    transpose permute movedim moveaxis T mT H mH getitem select narrow unsqueeze squeeze expand
    expand_as broadcast_to unbind chunk split split_with_sizes tensor_split
    """.split()
)


def is_unnamed(axis: str) -> bool:
    """Is this a numbered axis? Such names say nothing: equal ones don't belong together."""
    return axis.startswith("axis") and axis[4:].isdigit()


def axes_of(version: Version) -> tuple[str, ...]:
    """One name for each axis. Names within a tensor differ: a second `time` is `time′`."""
    if version.given_axes:
        return version.given_axes
    known: tuple[str, ...] | None = getattr(version, "_axes", None)
    if known is None:
        names = list(_carried(version)) if version.call is not None else []
        if len(names) != len(version.shape):
            names = [""] * len(version.shape)
        known = _distinct(names)
        version._axes = known  # type: ignore[attr-defined]
    return known


def _distinct(names: Sequence[str]) -> tuple[str, ...]:
    found: list[str] = []
    for position, name in enumerate(names):
        name = f"axis{position}" if not name or is_unnamed(name) else name
        while name in found:
            name += "′"
        found.append(name)
    return tuple(found)


def _carried(version: Version) -> Sequence[str]:
    call = version.call
    assert call is not None
    if call.name in CASTS:
        return axes_of(call.inputs[0])
    if call.name in MOVES and call.name not in ("tril", "triu", "setitem", "shared storage"):
        return _moved(call, version)
    if call.name in ("matmul", "rmatmul"):
        left, right = argument(call, 0, "input"), argument(call, 1, "other")
        return _product(left, right) if call.name == "matmul" else _product(right, left)
    if call.name in ("addmm", "baddbmm") and len(call.inputs) == 3:
        names = ("mat1", "mat2") if call.name == "addmm" else ("batch1", "batch2")
        return _product(*(argument(call, i, name) for i, name in enumerate(names, 1)))
    if call.name in _SORTED and call.inputs:
        dim = argument(call, _SORTED[call.name], "dim", 0 if call.name == "msort" else -1)
        own = axes_of(call.inputs[0])
        return ["" if isinstance(dim, bool) or i == dim % len(own) else name for i, name in enumerate(own)]
    if call.name == "scaled_dot_product_attention":
        return (*axes_of(argument(call, 0, "query"))[:-1], axes_of(argument(call, 2, "value"))[-1])
    if call.name == "linear":
        weight = argument(call, 1, "weight")
        return (*axes_of(argument(call, 0, "input"))[:-1], axes_of(weight)[0])
    if call.name == "embedding":
        token, weight = looked_up(call)
        return (*axes_of(token), axes_of(weight)[-1])
    if call.name == "einsum":
        return _einsum(call, version)
    if call.name in _REDUCTIONS and len(call.inputs) == 1:
        return _reduced(call, version)
    if call.name == "pad":
        pairs = argument(call, 1, "pad")
        own = axes_of(call.inputs[0])
        kept = [not any(pairs[2 * i : 2 * i + 2]) for i in reversed(range(len(own)))]
        return [name if keep else "" for name, keep in zip(own, kept, strict=True)]
    before = call.before(version.output)
    if before is not None and call.name not in _ELEMENTWISE and before.shape == version.shape:
        return axes_of(before)  # written to, but still the same tensor
    return _broadcast(call, version) if call.name in _ELEMENTWISE else []


def _broadcast(call: Call, version: Version) -> list[str]:
    """Element by element: each axis is called as in the first input that has it in full size."""
    if max((len(source.shape) for source in call.inputs), default=0) != len(version.shape):
        return []  # not element by element: axes came or went
    return _common([(source.shape, axes_of(source)) for source in call.inputs], version.shape)


def _common(sources: Sequence[tuple[Sequence[int], Sequence[str]]], shape: Sequence[int]) -> list[str]:
    """The names of what is broadcast to `shape`, axis by axis from the last."""
    names = [""] * len(shape)
    for sizes, own in sources:
        for back in range(1, min(len(own), len(names)) + 1):
            if sizes[-back] == shape[-back] and not names[-back] and not is_unnamed(own[-back]):
                names[-back] = own[-back]
    return names


def _product(left: Version, right: Version) -> list[str]:
    a, b = axes_of(left), axes_of(right)
    rows, columns = a[-2:-1] if len(a) > 1 else (), b[-1:] if len(b) > 1 else ()
    shapes = left.shape[:-2], right.shape[:-2]
    leading = _common([(shapes[0], a[:-2]), (shapes[1], b[:-2])], torch.broadcast_shapes(*shapes))
    return [*leading, *rows, *columns]


def _reduced(call: Call, version: Version) -> list[str]:
    source = call.inputs[0]
    dim = argument(call, 2 if call.name == "norm" else 1, "dim")
    if dim is None or isinstance(dim, bool):
        return []
    axes = len(source.shape)
    over = {d % axes for d in ([dim] if isinstance(dim, int) else dim)}
    keep = len(version.shape) == axes
    return [name for i, name in enumerate(axes_of(source)) if keep or i not in over]


def _einsum(call: Call, version: Version) -> list[str]:
    equation = call.args[0]
    if not isinstance(equation, str):
        return []
    left, arrow, right = equation.replace(" ", "").partition("->")
    if not arrow:  # what stands there once is left, in the order of the alphabet
        right = "..." * ("..." in left) + "".join(
            sorted(c for c in left if c.isalpha() and left.count(c) == 1)
        )
    names: dict[str, str] = {}
    ones: dict[str, str] = {}
    leading = 0
    for term, source in zip(left.split(","), call.inputs, strict=True):
        own = axes_of(source)
        more = len(own) - len(term.replace("...", ""))
        leading = max(leading, more)
        for letter, name, size in zip(_spelled(term, more), own, source.shape, strict=True):
            if not is_unnamed(name):
                # Of axes that the dots stand for, one of size 1 may be broadcast to another.
                (ones if letter.isdigit() and size == 1 else names).setdefault(letter, name)
    return [
        names.get(letter, ones.get(letter, "") if size == 1 else "")
        for letter, size in zip(_spelled(right, leading), version.shape, strict=True)
    ]


def _spelled(term: str, more: int) -> list[str]:
    """The letters of a term of an einsum, with numbers for the axes that its dots stand for."""
    before, dots, after = term.partition("...")
    return [*before, *(str(i) for i in reversed(range(more)) if dots), *after]


def _moved(call: Call, version: Version) -> list[str]:
    """An axis keeps its name when it is one whole axis of the source: same steps, same size."""
    if version.values.numel() == 0:
        return []
    if call.name in _VIEWS and len(call.inputs) == 1:
        viewed = _viewed(call, version)
        if any(viewed):
            return viewed
    sources, outputs = traced(call)
    positions = outputs[version.output] - 1
    source = sources[0]
    sizes = source.shape
    own = axes_of(source)
    steps = [
        int(torch.tensor(sizes[axis + 1 :]).prod()) if sizes[axis + 1 :] else 1 for axis in range(len(sizes))
    ]
    names = []
    for axis, size in enumerate(version.shape):
        if size == 1:
            names.append(own[axis] if _same_place(axis, version.shape, sizes) else "")
            continue
        # Every element has to come from the place along the source's axis that it has along its own.
        own_place = torch.arange(size).view(-1, *[1] * (positions.ndim - axis - 1))
        match = [
            i
            for i, (full, stride) in enumerate(zip(sizes, steps, strict=True))
            if size == full and bool((positions // stride % full == own_place).all())
        ]
        names.append(own[match[0]] if len(match) == 1 else "")
    return names


def _same_place(axis: int, shape: Sequence[int], sizes: Sequence[int]) -> bool:
    """Is an axis of one, which has no step to tell it by, the one of the source at the same place?"""
    after = slice(axis + 1, axis + 2)
    return tuple(shape[: axis + 1]) == tuple(sizes[: axis + 1]) and (
        tuple(sizes[after]) != (1,) or tuple(shape[after]) == (1,)
    )


def _viewed(call: Call, version: Version) -> list[str]:
    """Of a view: each axis by its stride, in a source where each axis has a stride of its own."""
    source = call.inputs[0]
    strides = [10**9 + 7 * axis for axis in range(len(source.shape))]
    stand_in = torch.empty_strided(source.shape, strides, device="meta")

    def replace(value: Any) -> Any:
        return stand_in if value is source else value

    kwargs = {key: replace(value) for key, value in call.kwargs.items()}
    try:
        result = call.function(*map(replace, call.args), **kwargs)
    except (NotImplementedError, RuntimeError):  # an index that has to be computed: that is no view
        return []
    view = result[version.output] if isinstance(result, tuple | list) else result
    names = [""] * view.ndim
    # An axis made by unsqueeze has the stride of what stands behind it, so the last one is the true one.
    for axis, (size, stride) in enumerate(zip(view.shape, view.stride(), strict=True)):
        if stride in strides and size == source.shape[strides.index(stride)]:
            own = axes_of(source)[strides.index(stride)]
            names = ["" if name == own else name for name in names]
            names[axis] = own
    return names
