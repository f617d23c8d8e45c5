"""How each kind of torch call makes one element. One rule a kind of call; pages need none of their own.

A rule gets the call, the version it made and the place of the element, and returns a formula of cells
and constants. It returns None for a form of the call that it doesn't know: then nothing is claimed.
"""

import math
from collections.abc import Callable
from itertools import product
from typing import Any

import torch

from attnlab.engine.call import Call, Version
from attnlab.engine.formula import (
    Apply,
    Because,
    Cell,
    Compare,
    Constant,
    Formula,
    Largest,
    LogSoftmax,
    Named,
    Power,
    Product,
    Quotient,
    Softmax,
    Sum,
    atom,
    format_short,
)
from attnlab.engine.functions import FUNCTIONS, finite, gelu, gelu_tanh
from attnlab.engine.index_maps import MOVES, is_move, origin

__all__ = [
    "RULES",
    "Index",
    "along",
    "applied",
    "argument",
    "cell_of",
    "has_name",
    "line",
    "looked_up",
    "negative",
    "operand",
    "rule",
]

Index = tuple[int, ...]
Rule = Callable[[Call, Version, Index], Formula | None]
RULES: dict[str, Rule] = {}


def rule(*names: str) -> Callable[[Rule], Rule]:
    """Registers a rule for the calls of these names."""

    def register(function: Rule) -> Rule:
        RULES.update(dict.fromkeys(names, function))
        return function

    return register


def negative(formula: Formula) -> Formula:
    """The number with the other sign."""
    return Apply("negative", formula, lambda x: -x)


def applied(name: str, formula: Formula) -> Formula:
    """One of `FUNCTIONS` of a number."""
    return Apply(name, formula, finite(FUNCTIONS[name]))


def cell_of(version: Version, index: Index, number: float | None = None) -> Cell:
    """The cell of a version, under the name that the program gives it.

    A tensor without a name that only moves elements (the `k.mT` of `q @ k.mT`) is seen through: the cell is
    that of the tensor it came from, which the reader knows.
    """
    if number is None:
        version, index = _seen_through(version, index)
    return Cell(_name(version), index, version.number(index) if number is None else number, version)


def _name(version: Version) -> str:
    """What the program calls a tensor: its variable, or the expression that made it."""
    call = version.call
    if version.name or call is None:
        return version.name or ("not recorded" if version.unrecorded else "input")
    names, text = call.spot.names, call.spot.text
    before = call.before(version.output)
    if before is not None and (call.name == "shared storage" or not any(names)):
        return _name(before)  # written to, but still the same variable
    last = len(names) - 1
    several = len(call.outputs) > 1
    if several and (last < 1 or (version.output >= last and len(call.outputs) > last + 1)):
        # One name for all, or for all the rest (`a, *rest = …`).
        if not names and call.function is torch.Tensor.unbind and len(call.args) == 1:
            text = _name(call.inputs[0])
        name = names[-1] if names and names[-1] else text or call.name
        return f"{atom(name)}[{version.output - max(last, 0)}]"
    if names and names[min(version.output, last)]:
        return names[min(version.output, last)]
    return text or call.name


def has_name(version: Version) -> bool:
    """Does a variable of the program hold this state, or is it what a function returns?

    What is written into a variable makes the next state of that variable, however it was written.
    """
    while not version.name and version.call is not None:
        call = version.call
        names = call.spot.names
        if len(names) == len(call.outputs):  # of `m = x.max(-1).values` only the one has a variable
            names = names[version.output : version.output + 1]
        of_others = call.spot.item is not None and call.spot.item % len(call.outputs) != version.output
        if call.name != "shared storage" and (any(names) or (call.spot.returned and not of_others)):
            return True
        before = call.before(version.output)
        if before is None:
            return False
        version = before
    return bool(version.name)


def _seen_through(version: Version, index: Index) -> tuple[Version, Index]:
    while not version.name and version.call is not None and version.call.name in MOVES:
        call = version.call
        if call.in_place or has_name(version):
            break
        found = origin(call, version.output, index)
        if found is None or found[0].values.dtype != version.values.dtype:
            break
        version, index = found
    return version, index


# Names of arguments that torch takes too.
_ALIASES = {
    "dim": ("axis",),
    "keepdim": ("keepdims",),
    "input": ("self", "x", "a", "x1"),
    "other": ("x2", "mat2", "vec", "tensor"),
    "training": ("train",),
}


def argument(call: Call, position: int, name: str, default: Any = None) -> Any:
    """An argument that may have been given by place or by name."""
    if len(call.args) > position:
        return call.args[position]
    for known in (name, *_ALIASES.get(name, ())):
        if known in call.kwargs:
            return call.kwargs[known]
    return default


def operand(value: Any, index: Index) -> Formula:
    """A tensor argument at `index`, broadcast as torch does (from the last axis), or a number of the code."""
    if isinstance(value, Version):
        shape = value.shape
        own = index[len(index) - len(shape) :]
        return cell_of(value, tuple(0 if size == 1 else i for i, size in zip(own, shape, strict=True)))
    return Constant(float(value))


def converted(formula: Formula, source: torch.dtype | None, target: torch.dtype) -> Formula | None:
    """A number moved into a tensor of another dtype; None where it doesn't fit.

    Rounding is shown where it can be seen, and so is overflow.
    """
    if source == target:
        return formula
    if target.is_floating_point:

        def rounded(x: float) -> float:
            return float(torch.tensor(x, dtype=torch.float64).to(target))

        number = formula.value()
        if isinstance(formula, Constant) or format_short(number) == format_short(rounded(number)):
            return formula
        return Apply(str(target).removeprefix("torch."), formula, rounded)
    if target == torch.bool:
        return Compare("≠", formula, Constant(0.0), lambda a, b: a != b)
    number, limits = formula.value(), torch.iinfo(target)
    if not limits.min <= number <= limits.max:
        return None
    return formula if number == int(number) else Apply("truncate", formula, lambda x: float(math.trunc(x)))


def _dtype(value: Any) -> torch.dtype | None:
    return value.values.dtype if isinstance(value, Version) else None


# ---------------------------------------------------------------- moving elements


def _moved(call: Call, version: Version, index: Index) -> Formula | None:
    if not is_move(call, version.output):
        return None
    found = origin(call, version.output, index)
    if found is not None:
        return converted(cell_of(*found), found[0].values.dtype, version.values.dtype)
    if call.name == "as_strided":
        return None  # from memory that its input doesn't show
    number = call.args[2] if call.name == "setitem" else 0
    return converted(Constant(float(number)), None, version.values.dtype)


RULES.update(dict.fromkeys(MOVES, _moved))


def looked_up(call: Call) -> tuple[Version, Version]:
    """The tokens and the weight of an embedding; `torch.embedding` has them the other way round."""
    if call.function is torch.embedding:
        return argument(call, 1, "indices"), argument(call, 0, "weight")
    return argument(call, 0, "input"), argument(call, 1, "weight")


@rule("embedding")
def _embedding(call: Call, version: Version, index: Index) -> Formula | None:
    token, weight = looked_up(call)
    if call.function is not torch.embedding and argument(call, 3, "max_norm") is not None:
        return None  # changes the weight
    chosen = int(token.values[index[:-1]])
    return cell_of(weight, (chosen, index[-1]))


# ---------------------------------------------------------------- element by element


@rule("add", "sub", "rsub")
def _add(call: Call, version: Version, index: Index) -> Formula | None:
    factor = argument(call, 2, "alpha", 1)
    if version.values.dtype == torch.bool or isinstance(factor, Version):
        return None  # True + True is True; the old form add(input, alpha, other)
    left, right = (operand(argument(call, i, n), index) for i, n in enumerate(("input", "other")))
    if call.name == "rsub":
        left, right = right, left
    if factor != 1:
        right = Product((Constant(float(factor)), right))
    return Sum((left, right if call.name == "add" else negative(right)))


@rule("mul")
def _mul(call: Call, version: Version, index: Index) -> Formula | None:
    return Product(tuple(operand(argument(call, i, n), index) for i, n in enumerate(("input", "other"))))


@rule("div", "rdiv")
def _div(call: Call, version: Version, index: Index) -> Formula | None:
    if call.kwargs.get("rounding_mode") is not None:
        return None
    above, below = (operand(argument(call, i, n), index) for i, n in enumerate(("input", "other")))
    return Quotient(below, above) if call.name == "rdiv" else Quotient(above, below)


@rule("pow", "rpow", "square", "float_power")
def _pow(call: Call, version: Version, index: Index) -> Formula | None:
    if call.name == "square":
        return Power(operand(argument(call, 0, "input"), index), Constant(2.0))
    base, exponent = (operand(argument(call, i, n), index) for i, n in enumerate(("input", "exponent")))
    if call.name == "rpow":
        return Power(exponent, base)
    if exponent == Constant(0.5):  # as torch does; it differs at −∞
        return Apply("sqrt", base, finite(math.sqrt))
    if exponent == Constant(-0.5):
        return Apply("rsqrt", base, finite(FUNCTIONS["rsqrt"]))
    return Power(base, exponent)


def _function(call: Call, version: Version, index: Index) -> Formula | None:
    return applied(call.name, operand(argument(call, 0, "input"), index))


RULES.update(dict.fromkeys(FUNCTIONS, _function))


@rule("gelu")
def _gelu_rule(call: Call, version: Version, index: Index) -> Formula | None:
    tanh = argument(call, 1, "approximate", "none") == "tanh"
    cell = operand(argument(call, 0, "input"), index)
    return Apply("gelu tanh" if tanh else "gelu", cell, gelu_tanh if tanh else gelu)


@rule("neg")
def _neg(call: Call, version: Version, index: Index) -> Formula | None:
    return negative(operand(argument(call, 0, "input"), index))


@rule("clamp")
def _clamp(call: Call, version: Version, index: Index) -> Formula | None:
    formula = operand(argument(call, 0, "input"), index)
    low, high = argument(call, 1, "min"), argument(call, 2, "max")
    if low is not None:
        formula = Largest((formula, operand(low, index)))
    if high is not None:
        formula = Largest((formula, operand(high, index)), "min")
    return formula


COMPARISONS: dict[str, tuple[str, Callable[[float, float], bool]]] = {
    "eq": ("=", lambda a, b: a == b),
    "ne": ("≠", lambda a, b: a != b),
    "lt": ("<", lambda a, b: a < b),
    "le": ("≤", lambda a, b: a <= b),
    "gt": (">", lambda a, b: a > b),
    "ge": ("≥", lambda a, b: a >= b),
    "bitwise_and": ("and", lambda a, b: bool(a) and bool(b)),
    "logical_and": ("and", lambda a, b: bool(a) and bool(b)),
    "bitwise_or": ("or", lambda a, b: bool(a) or bool(b)),
    "logical_or": ("or", lambda a, b: bool(a) or bool(b)),
}


def _compare(call: Call, version: Version, index: Index) -> Formula | None:
    if call.name.startswith("bitwise") and version.values.dtype != torch.bool:
        return None
    both = tuple(argument(call, i, n) for i, n in enumerate(("input", "other")))
    left, right = (operand(value, index) for value in both)
    sign, holds = COMPARISONS[call.name]
    dtype = _compared_as(*both)

    def rounded(a: float, b: float) -> bool:
        # In float32 the 0.1 of `x == 0.1` is another number than in Python.
        return holds(*torch.tensor((a, b), dtype=torch.float64).to(dtype).tolist())

    exact = dtype == torch.float64 or not dtype.is_floating_point
    return Compare(sign, left, right, holds if exact else rounded)


def _compared_as(*both: Any) -> torch.dtype:
    """The dtype to which torch takes both sides."""
    left, right = (value.values if isinstance(value, Version) else value for value in both)
    return torch.result_type(left, right)


RULES.update(dict.fromkeys(COMPARISONS, _compare))


@rule("bitwise_not", "logical_not")
def _not(call: Call, version: Version, index: Index) -> Formula | None:
    if version.values.dtype != torch.bool:
        return None
    return Apply("not", operand(argument(call, 0, "input"), index), lambda x: float(not x))


@rule("maximum", "minimum")
def _maximum(call: Call, version: Version, index: Index) -> Formula | None:
    both = tuple(operand(argument(call, i, n), index) for i, n in enumerate(("input", "other")))
    return Largest(both, call.name[:3])


@rule("masked_fill")
def _masked_fill(call: Call, version: Version, index: Index) -> Formula | None:
    tensor, mask, value = (argument(call, i, n) for i, n in enumerate(("input", "mask", "value")))
    condition = operand(mask, index)
    taken = value if condition.value() else tensor
    formula = converted(operand(taken, index), _dtype(taken), version.values.dtype)
    return formula and Because(formula, condition)


@rule("where")
def _where(call: Call, version: Version, index: Index) -> Formula | None:
    if len(call.args) + len(call.kwargs) != 3:
        return None
    if call.function is torch.Tensor.where:  # x.where(condition, y)
        yes, condition_of = argument(call, 0, "input"), argument(call, 1, "condition")
    else:
        condition_of, yes = argument(call, 0, "condition"), argument(call, 1, "input")
    condition = operand(condition_of, index)
    taken = yes if condition.value() else argument(call, 2, "other")
    return Because(operand(taken, index), condition)


@rule("fill", "zero")
def _fill(call: Call, version: Version, index: Index) -> Formula | None:
    value = argument(call, 1, "value") if call.name == "fill" else 0
    return converted(operand(value, index), _dtype(value), version.values.dtype)


@rule("zeros_like", "ones_like", "full_like", "new_zeros", "new_ones", "new_full")
def _filled(call: Call, version: Version, index: Index) -> Formula | None:
    if call.name in ("full_like", "new_full"):
        value = argument(call, 1 if call.name == "full_like" else 2, "fill_value")
    else:
        value = int("ones" in call.name)
    return converted(operand(value, index), _dtype(value), version.values.dtype)


@rule("copy")
def _copy(call: Call, version: Version, index: Index) -> Formula | None:
    source = argument(call, 1, "src")
    if not isinstance(source, Version):
        return None
    return converted(operand(source, index), source.values.dtype, version.values.dtype)


@rule("dropout")
def _dropout(call: Call, version: Version, index: Index) -> Formula | None:
    tensor = argument(call, 0, "input")
    p, training = argument(call, 1, "p", 0.5), argument(call, 2, "training", True)
    cell = operand(tensor, index)
    if not training or p == 0:
        return cell
    finite = cell.value() and math.isfinite(cell.value())
    kept = bool(float(version.values[index])) if finite else _was_kept(call, index)
    return Product((cell, Quotient(Constant(1.0), Constant(1 - p)) if kept else Constant(0.0)))


def _was_kept(call: Call, index: Index) -> bool:
    """For an input of exactly 0, or infinite, the result doesn't tell: the same draw on ones does."""
    with torch.random.fork_rng(devices=[]):
        torch.set_rng_state(call.random_state)  # type: ignore[arg-type]
        # Laid out in memory alike, because draws are made in that order.
        ones = torch.ones_like(call.inputs[0].values)
        return bool(torch.nn.functional.dropout(ones, argument(call, 1, "p", 0.5))[index])


# ---------------------------------------------------------------- products


@rule("matmul", "rmatmul")
def _matmul(call: Call, version: Version, index: Index) -> Formula | None:
    left, right = argument(call, 0, "input"), argument(call, 1, "other")
    return _dot(left, right, index) if call.name == "matmul" else _dot(right, left, index)


def _dot(left: Version, right: Version, index: Index) -> Formula:
    """Σⱼ left[…, i, j] · right[…, j, k], with torch's rules for vectors and for leading axes."""
    rows, columns = len(left.shape) > 1, len(right.shape) > 1
    leading = index[: len(index) - rows - columns]
    i = (index[len(leading)],) if rows else ()
    k = (index[-1],) if columns else ()
    terms = []
    for j in range(left.shape[-1]):
        a = operand(left, (*leading, *i, j))
        b = operand(right, (*leading, j, *k))
        terms.append(Product((a, b)))
    return Sum(tuple(terms))


@rule("linear")
def _linear(call: Call, version: Version, index: Index) -> Formula | None:
    tensor, weight, bias = (argument(call, i, n) for i, n in enumerate(("input", "weight", "bias")))
    rows = len(weight.shape) - 1  # a weight of one axis makes one number
    leading, row = index[: len(index) - rows], index[len(index) - rows :]
    terms: list[Formula] = [
        Product((cell_of(tensor, (*leading, j)), cell_of(weight, (*row, j)))) for j in range(tensor.shape[-1])
    ]
    if bias is not None:
        terms.append(operand(bias, index))
    return Sum(tuple(terms))


@rule("addmm", "baddbmm")
def _addmm(call: Call, version: Version, index: Index) -> Formula | None:
    names = ("input", "mat1", "mat2") if call.name == "addmm" else ("input", "batch1", "batch2")
    added, left, right = (argument(call, i, n) for i, n in enumerate(names))
    if not all(isinstance(value, Version) for value in (added, left, right)):
        return None
    beta, alpha = call.kwargs.get("beta", 1), call.kwargs.get("alpha", 1)
    first, second = operand(added, index), _dot(left, right, index)
    scaled = second if alpha == 1 else Product((Constant(float(alpha)), second))
    if beta == 0:  # then torch doesn't read `input`, not even its NaN
        return scaled
    return Sum((first if beta == 1 else Product((Constant(float(beta)), first)), scaled))


@rule("einsum")
def _einsum(call: Call, version: Version, index: Index) -> Formula | None:
    equation = call.args[0]
    if not isinstance(equation, str):
        return None
    tensors = call.inputs
    left, arrow, right = equation.replace(" ", "").partition("->")
    terms = left.split(",")
    extra = max(len(v.shape) - len(t.replace("...", "")) for v, t in zip(tensors, terms, strict=True))
    dots = [f"…{n}" for n in range(extra)]

    def letters(term: str, axes: int) -> list[str]:
        before, dotted, after = term.partition("...")
        own = axes - len(before) - len(after)
        return [*before, *(dots[extra - own :] if dotted else []), *after]

    names = [letters(term, len(v.shape)) for term, v in zip(terms, tensors, strict=True)]
    if arrow:
        target = letters(right, len(index))
    else:
        flat = [letter for term in names for letter in term]
        target = [
            *dots[extra - sum("…" in letter for letter in set(flat)) :],
            *sorted({c for c in flat if flat.count(c) == 1 and "…" not in c}),
        ]
    sizes: dict[str, int] = {}
    for v, own in zip(tensors, names, strict=True):
        for letter, size in zip(own, v.shape, strict=True):
            sizes[letter] = size if size != 1 else sizes.get(letter, 1)
    fixed = dict(zip(target, index, strict=True))
    summed = [letter for letter in sizes if letter not in fixed]
    products: list[Formula] = []
    for places in product(*(range(sizes[letter]) for letter in summed)):
        at = fixed | dict(zip(summed, places, strict=True))
        cells = [
            operand(v, tuple(at[letter] for letter in own)) for v, own in zip(tensors, names, strict=True)
        ]
        products.append(Product(tuple(cells)) if len(cells) > 1 else cells[0])
    # Torch sums first what only one tensor has, and multiplies two at a time: with ∞ that isn't the same.
    shared = all(sum(_has(v, own, x) for v, own in zip(tensors, names, strict=True)) != 1 for x in summed)
    if (len(tensors) > 2 or (len(tensors) == 2 and not shared)) and not all(
        math.isfinite(cell.number) for formula in products for cell in formula.cells()
    ):
        return None
    return Sum(tuple(products)) if len(products) != 1 else products[0]


def _has(version: Version, letters: list[str], letter: str) -> bool:
    """Does a tensor of an einsum have this axis, in more than size 1?"""
    return any(own == letter and size > 1 for own, size in zip(letters, version.shape, strict=True))


# ---------------------------------------------------------------- along an axis


def reduced(call: Call, index: Index, dim: Any, keepdim: bool) -> list[Index]:
    """The places of the first input that a reduction over `dim` takes together for one result."""
    shape = call.inputs[0].shape
    axes = len(shape)
    if hasattr(dim, "__index__"):  # also a whole number of NumPy
        dim = [dim]
    dims = dim if dim is not None and len(dim) else range(axes)
    over = {d % axes for d in dims} if axes else set()
    rest = iter(index)
    own: list[Any] = []
    for axis in range(axes):
        if axis in over:
            own.append(range(shape[axis]))
            if keepdim:
                next(rest)
        else:
            own.append((next(rest),))
    return list(product(*own))


def line(tensor: Version, index: Index, axis: int, count: int | None = None) -> tuple[Formula, ...]:
    """The cells of `tensor` along one axis through `index`: all of them, or the first `count`."""
    sizes = range(tensor.shape[axis] if count is None else count)
    return tuple(cell_of(tensor, (*index[:axis], j, *index[axis + 1 :])) for j in sizes)


def _cuts_first(call: Call) -> bool:
    """Is each number made an integer, by `dtype`, before they are taken together?"""
    dtype = call.kwargs.get("dtype")
    return dtype is not None and not dtype.is_floating_point and call.inputs[0].values.is_floating_point()


def along(call: Call, index: Index, *dims: Any) -> tuple[Formula, ...]:
    """The cells that a reduction takes together; `dims`: `dim` and `keepdim` where they stand elsewhere."""
    dim, keepdim = dims or (argument(call, 1, "dim"), bool(argument(call, 2, "keepdim", False)))
    return tuple(cell_of(call.inputs[0], place) for place in reduced(call, index, dim, keepdim))


@rule("sum")
def _sum(call: Call, version: Version, index: Index) -> Formula | None:
    return None if _cuts_first(call) else Sum(along(call, index))


@rule("mean")
def _mean(call: Call, version: Version, index: Index) -> Formula | None:
    cells = along(call, index)
    return Quotient(Sum(cells), Constant(float(len(cells))))


@rule("var", "std")
def _var(call: Call, version: Version, index: Index) -> Formula | None:
    named = call.kwargs.keys() & {"correction", "unbiased"}
    if len(call.args) > 2 or (len(call.args) == 2 and isinstance(call.args[1], bool)):
        return None  # the old positional `unbiased`, which stands in three different places
    correction = call.kwargs[named.pop()] if named else None
    correction = 1.0 if correction is None else float(correction)
    places = reduced(call, index, argument(call, 1, "dim"), bool(argument(call, 2, "keepdim", False)))
    variance = _variance(tuple(cell_of(call.inputs[0], place) for place in places), correction)
    return variance if call.name == "var" else Apply("sqrt", variance, finite(math.sqrt))


def _variance(cells: tuple[Formula, ...], correction: float, mean: Formula | None = None) -> Formula:
    mean = mean or Named("μ", Quotient(Sum(cells), Constant(float(len(cells)))))
    less_mean = negative(mean)
    squares = tuple(Power(Sum((cell, less_mean)), Constant(2.0)) for cell in cells)
    return Quotient(Sum(squares), Constant(max(0.0, len(cells) - correction)))


@rule("max", "min", "amax", "amin")
def _max(call: Call, version: Version, index: Index) -> Formula | None:
    if version.output == 1:
        return None  # the position of the largest, not a number made of others
    if isinstance(argument(call, 1, "other"), Version):
        return _maximum(call, version, index)
    return Largest(along(call, index), "max" if "max" in call.name else "min")


@rule("any", "all")
def _any(call: Call, version: Version, index: Index) -> Formula | None:
    cells = along(call, index) if call.inputs[0].values.dtype == torch.bool else ()
    return Largest(cells, call.name) if cells else None


@rule("cumsum")
def _cumsum(call: Call, version: Version, index: Index) -> Formula | None:
    if not index or _cuts_first(call):
        return None
    dim = argument(call, 1, "dim") % len(index)
    return Sum(line(call.inputs[0], index, dim, index[dim] + 1))


def _softmax_row(call: Call, index: Index) -> tuple[tuple[Formula, ...], int] | None:
    dim = argument(call, 1, "dim")
    if dim is None or not index:
        return None
    axis = dim % len(index)
    return line(call.inputs[0], index, axis), index[axis]


@rule("softmax")
def _softmax(call: Call, version: Version, index: Index) -> Formula | None:
    row = _softmax_row(call, index)
    return row and Softmax(*row)


@rule("log_softmax")
def _log_softmax(call: Call, version: Version, index: Index) -> Formula | None:
    row = _softmax_row(call, index)
    return row and LogSoftmax(*row)


# ---------------------------------------------------------------- normalising, and the loss


@rule("layer_norm", "rms_norm")
def _norm(call: Call, version: Version, index: Index) -> Formula | None:
    tensor = argument(call, 0, "input")
    axes = len(argument(call, 1, "normalized_shape"))
    weight, bias = (
        argument(call, 2, "weight"),
        argument(call, 3, "bias") if call.name == "layer_norm" else None,
    )
    eps = argument(call, 4, "eps", 1e-5) if call.name == "layer_norm" else argument(call, 3, "eps")
    if eps is None:
        # Half precision is computed in float32, and takes its eps too.
        dtype = tensor.values.dtype
        eps = torch.finfo(dtype if dtype.itemsize > 2 else torch.float32).eps
    leading, own = index[: len(index) - axes], index[len(index) - axes :]
    places = product(*(range(size) for size in tensor.shape[len(leading) :]))
    cells = tuple(cell_of(tensor, (*leading, *place)) for place in places)
    cell: Formula = cell_of(tensor, index)
    if call.name == "layer_norm":
        mean = Named("μ", Quotient(Sum(cells), Constant(float(len(cells)))))
        spread: Formula = Named("σ²", _variance(cells, 0.0, mean))
        cell = Sum((cell, negative(mean)))
    else:
        squares = tuple(Power(c, Constant(2.0)) for c in cells)
        spread = Named("mean of x²", Quotient(Sum(squares), Constant(float(len(cells)))))
    formula: Formula = Quotient(cell, Apply("sqrt", Sum((spread, Constant(float(eps)))), finite(math.sqrt)))
    if weight is not None:
        formula = Product((formula, cell_of(weight, own)))
    return formula if bias is None else Sum((formula, cell_of(bias, own)))


@rule("cross_entropy")
def _cross_entropy(call: Call, version: Version, index: Index) -> Formula | None:
    logits, target = argument(call, 0, "input"), argument(call, 1, "target")
    reduction = call.kwargs.get("reduction", "mean")
    plain = all(call.kwargs.get(name) is None for name in ("weight", "size_average", "reduce"))
    if not plain or call.kwargs.get("label_smoothing", 0.0) or len(call.args) > 2 or len(logits.shape) > 2:
        return None
    if target.values.is_floating_point():
        return None
    ignored = call.kwargs.get("ignore_index", -100)

    def loss(*row: int) -> Formula:
        chosen = int(target.values[row])
        if chosen == ignored:
            return Constant(0.0)
        cells = tuple(cell_of(logits, (*row, c)) for c in range(logits.shape[-1]))
        return negative(LogSoftmax(cells, chosen))

    if reduction == "none":
        return loss(*index)
    rows = [(i,) for i in range(logits.shape[0])] if len(logits.shape) > 1 else [()]
    total = Sum(tuple(loss(*row) for row in rows))
    counted = sum(int(target.values[row]) != ignored for row in rows)
    return total if reduction == "sum" else Quotient(total, Constant(float(counted)))
