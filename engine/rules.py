"""How each kind of torch call makes one element. One rule a kind of call; pages need none of their own.

A rule gets the call, the version it made and the place of the element, and returns a formula of cells
and constants. It returns None for a form of the call that it doesn't know: then nothing is claimed.
"""

import math
from collections.abc import Callable
from itertools import product
from typing import Any

import torch

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
)
from attnlab.engine.index_maps import MOVES, origin
from attnlab.engine.recorder import Call, Version

__all__ = ["RULES", "cell_of"]

Index = tuple[int, ...]
Rule = Callable[[Call, Version, Index], Formula | None]
RULES: dict[str, Rule] = {}


def rule(*names: str) -> Callable[[Rule], Rule]:
    """Registers a rule for the calls of these names."""

    def register(function: Rule) -> Rule:
        RULES.update(dict.fromkeys(names, function))
        return function

    return register


def cell_of(version: Version, index: Index, number: float | None = None) -> Cell:
    """The cell of a version, under the name that the program gives it.

    A tensor without a name that only moves elements (the `k.mT` of `q @ k.mT`) is seen through: the cell is
    that of the tensor it came from, which the reader knows.
    """
    if number is None:
        version, index = _seen_through(version, index)
    if version.name:
        name = version.name
    elif version.call is None:
        name = "input"
    else:
        spot = version.call.spot
        name = (
            spot.names[min(version.output, len(spot.names) - 1)]
            if spot.names
            else spot.text or version.call.name
        )
        if len(spot.names) <= 1 and len(version.call.outputs) > 1:
            name = f"{name}[{version.output}]"
    return Cell(name, index, float(version.values[index]) if number is None else number, version)


def _seen_through(version: Version, index: Index) -> tuple[Version, Index]:
    while not version.name and version.call is not None and version.call.name in MOVES:
        call = version.call
        if call.in_place or call.spot.names or call.spot.returned:
            break
        found = origin(call, version.output, index)
        if found is None or found[0].values.dtype != version.values.dtype:
            break
        version, index = found
    return version, index


def argument(call: Call, position: int, name: str, default: Any = None) -> Any:
    """An argument that may have been given by place or by name."""
    if name in call.kwargs:
        return call.kwargs[name]
    return call.args[position] if len(call.args) > position else default


def operand(value: Any, index: Index) -> Formula:
    """A tensor argument at `index`, broadcast as torch does (from the last axis), or a number of the code."""
    if isinstance(value, Version):
        shape = value.shape
        own = index[len(index) - len(shape) :]
        return cell_of(value, tuple(0 if size == 1 else i for i, size in zip(own, shape, strict=True)))
    return Constant(float(value))


# ---------------------------------------------------------------- moving elements


def _moved(call: Call, version: Version, index: Index) -> Formula | None:
    found = origin(call, version.output, index)
    return Constant(0.0) if found is None else cell_of(*found)


RULES.update(dict.fromkeys(MOVES, _moved))


@rule("embedding")
def _embedding(call: Call, version: Version, index: Index) -> Formula | None:
    token, weight = argument(call, 0, "input"), argument(call, 1, "weight")
    chosen = int(token.values[index[:-1]])
    return cell_of(weight, (chosen, index[-1]))


# ---------------------------------------------------------------- element by element


@rule("add", "sub", "rsub")
def _add(call: Call, version: Version, index: Index) -> Formula | None:
    left, right = (operand(argument(call, i, n), index) for i, n in enumerate(("input", "other")))
    if call.name == "rsub":
        left, right = right, left
    factor = argument(call, 2, "alpha", 1)
    if factor != 1:
        right = Product((Constant(float(factor)), right))
    return Sum((left, right if call.name == "add" else Apply("negative", right, lambda x: -x)))


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
        return Power(operand(call.args[0], index), Constant(2.0))
    base, exponent = (operand(argument(call, i, n), index) for i, n in enumerate(("input", "exponent")))
    return Power(exponent, base) if call.name == "rpow" else Power(base, exponent)


def _finite(function: Callable[[float], float]) -> Callable[[float], float]:
    """A function of `math` with the values of torch at its edges: NaN outside its domain, ∞ on overflow."""

    def safe(x: float) -> float:
        try:
            return function(x)
        except ValueError:
            return math.nan
        except OverflowError:
            return math.inf

    return safe


def _log(x: float) -> float:
    return -math.inf if x == 0 else math.log(x)


def _sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(-x)) if x >= 0 else (e := math.exp(x)) / (1 + e)


def _gelu(x: float) -> float:
    if math.isinf(x):
        return x if x > 0 else 0.0
    # erfc keeps the digits that 1 + erf(x) loses for negative x.
    return 0.5 * x * math.erfc(-x / math.sqrt(2))


def _gelu_tanh(x: float) -> float:
    return 0.5 * x * (1 + math.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def _silu(x: float) -> float:
    return x * _sigmoid(x) if x > -math.inf else math.nan


FUNCTIONS: dict[str, Callable[[float], float]] = {
    "exp": math.exp,
    "log": _log,
    "log2": lambda x: -math.inf if x == 0 else math.log2(x),
    "log1p": lambda x: -math.inf if x == -1 else math.log1p(x),
    "expm1": math.expm1,
    "sqrt": math.sqrt,
    "rsqrt": lambda x: math.inf if x == 0 else 1 / math.sqrt(x),
    "reciprocal": lambda x: math.copysign(math.inf, x) if x == 0 else 1 / x,
    "abs": abs,
    "sin": math.sin,
    "cos": math.cos,
    "tanh": math.tanh,
    "erf": math.erf,
    "sigmoid": _sigmoid,
    "relu": lambda x: x if x > 0 or math.isnan(x) else 0.0,
    "silu": _silu,
}


def _function(call: Call, version: Version, index: Index) -> Formula | None:
    return Apply(call.name, operand(argument(call, 0, "input"), index), _finite(FUNCTIONS[call.name]))


RULES.update(dict.fromkeys(FUNCTIONS, _function))


@rule("gelu")
def _gelu_rule(call: Call, version: Version, index: Index) -> Formula | None:
    tanh = argument(call, 1, "approximate", "none") == "tanh"
    cell = operand(argument(call, 0, "input"), index)
    return Apply("gelu tanh" if tanh else "gelu", cell, _gelu_tanh if tanh else _gelu)


@rule("neg")
def _neg(call: Call, version: Version, index: Index) -> Formula | None:
    return Apply("negative", operand(call.args[0], index), lambda x: -x)


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
    left, right = (operand(argument(call, i, n), index) for i, n in enumerate(("input", "other")))
    return Compare(COMPARISONS[call.name][0], left, right, COMPARISONS[call.name][1])


RULES.update(dict.fromkeys(COMPARISONS, _compare))


@rule("bitwise_not", "logical_not")
def _not(call: Call, version: Version, index: Index) -> Formula | None:
    if version.values.dtype != torch.bool:
        return None
    return Apply("not", operand(call.args[0], index), lambda x: float(not x))


@rule("maximum", "minimum")
def _maximum(call: Call, version: Version, index: Index) -> Formula | None:
    both = tuple(operand(argument(call, i, n), index) for i, n in enumerate(("input", "other")))
    return Largest(both, call.name[:3])


@rule("masked_fill")
def _masked_fill(call: Call, version: Version, index: Index) -> Formula | None:
    tensor, mask, value = (argument(call, i, n) for i, n in enumerate(("input", "mask", "value")))
    condition = operand(mask, index)
    return Because(operand(value if condition.value() else tensor, index), condition)


@rule("where")
def _where(call: Call, version: Version, index: Index) -> Formula | None:
    if len(call.args) + len(call.kwargs) != 3:
        return None
    condition = operand(argument(call, 0, "condition"), index)
    taken = argument(call, 1, "input") if condition.value() else argument(call, 2, "other")
    return Because(operand(taken, index), condition)


@rule("fill", "zero")
def _fill(call: Call, version: Version, index: Index) -> Formula | None:
    return operand(argument(call, 1, "value") if call.name == "fill" else 0, index)


@rule("copy")
def _copy(call: Call, version: Version, index: Index) -> Formula | None:
    return operand(call.args[1], index)


@rule("dropout")
def _dropout(call: Call, version: Version, index: Index) -> Formula | None:
    tensor = argument(call, 0, "input")
    p, training = argument(call, 1, "p", 0.5), argument(call, 2, "training", True)
    cell = operand(tensor, index)
    if not training or p == 0:
        return cell
    kept = bool(float(version.values[index])) if cell.value() else _was_kept(call, index)
    return Product((cell, Quotient(Constant(1.0), Constant(1 - p)) if kept else Constant(0.0)))


def _was_kept(call: Call, index: Index) -> bool:
    """For an input of exactly 0 the result doesn't tell: the same draw on ones does."""
    with torch.random.fork_rng(devices=[]):
        torch.set_rng_state(call.random_state)  # type: ignore[arg-type]
        ones = torch.ones(call.inputs[0].shape, dtype=call.inputs[0].values.dtype)
        return bool(torch.nn.functional.dropout(ones, argument(call, 1, "p", 0.5))[index])


# ---------------------------------------------------------------- products


@rule("matmul", "rmatmul")
def _matmul(call: Call, version: Version, index: Index) -> Formula | None:
    left, right = call.inputs[:2] if call.name == "matmul" else call.inputs[1::-1]
    return _dot(left, right, index)


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
    *leading, row = index
    terms: list[Formula] = [
        Product(
            (cell_of(tensor, (*leading, j)), cell_of(weight, (row, j) if len(weight.shape) > 1 else (j,)))
        )
        for j in range(tensor.shape[-1])
    ]
    if bias is not None:
        terms.append(cell_of(bias, (row,)))
    return Sum(tuple(terms))


@rule("addmm", "baddbmm")
def _addmm(call: Call, version: Version, index: Index) -> Formula | None:
    added, left, right = (argument(call, i, n) for i, n in enumerate(("input", "mat1", "mat2")))
    if left is None:
        left, right = call.kwargs["batch1"], call.kwargs["batch2"]
    beta, alpha = call.kwargs.get("beta", 1), call.kwargs.get("alpha", 1)
    first, second = operand(added, index), _dot(left, right, index)
    return Sum(
        (
            first if beta == 1 else Product((Constant(float(beta)), first)),
            second if alpha == 1 else Product((Constant(float(alpha)), second)),
        )
    )


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
            sizes[letter] = max(size, sizes.get(letter, 1))
    fixed = dict(zip(target, index, strict=True))
    summed = [letter for letter in sizes if letter not in fixed]
    products: list[Formula] = []
    for places in product(*(range(sizes[letter]) for letter in summed)):
        at = fixed | dict(zip(summed, places, strict=True))
        cells = [
            operand(v, tuple(at[letter] for letter in own)) for v, own in zip(tensors, names, strict=True)
        ]
        products.append(Product(tuple(cells)) if len(cells) > 1 else cells[0])
    return Sum(tuple(products)) if len(products) != 1 else products[0]


# ---------------------------------------------------------------- along an axis


def reduced(call: Call, index: Index, dim: Any, keepdim: bool) -> list[Index]:
    """The places of the first input that a reduction over `dim` takes together for one result."""
    shape = call.inputs[0].shape
    axes = len(shape)
    dims = range(axes) if dim is None or dim == () else [dim] if isinstance(dim, int) else dim
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


def _along(call: Call, index: Index) -> tuple[Formula, ...]:
    places = reduced(call, index, argument(call, 1, "dim"), bool(argument(call, 2, "keepdim", False)))
    return tuple(cell_of(call.inputs[0], place) for place in places)


@rule("sum")
def _sum(call: Call, version: Version, index: Index) -> Formula | None:
    return Sum(_along(call, index))


@rule("mean")
def _mean(call: Call, version: Version, index: Index) -> Formula | None:
    cells = _along(call, index)
    return Quotient(Sum(cells), Constant(float(len(cells))))


@rule("var", "std")
def _var(call: Call, version: Version, index: Index) -> Formula | None:
    named = call.kwargs.keys() & {"correction", "unbiased"}
    if len(call.args) > 2 or (len(call.args) == 2 and isinstance(call.args[1], bool)):
        return None  # the old positional `unbiased`, which stands in three different places
    correction = float(call.kwargs[named.pop()]) if named else 1.0
    places = reduced(call, index, argument(call, 1, "dim"), bool(call.kwargs.get("keepdim", False)))
    variance = _variance(tuple(cell_of(call.inputs[0], place) for place in places), correction)
    return variance if call.name == "var" else Apply("sqrt", variance, _finite(math.sqrt))


def _variance(cells: tuple[Formula, ...], correction: float, mean: Formula | None = None) -> Formula:
    mean = mean or Named("μ", Quotient(Sum(cells), Constant(float(len(cells)))))
    negative = Apply("negative", mean, lambda x: -x)
    squares = tuple(Power(Sum((cell, negative)), Constant(2.0)) for cell in cells)
    return Quotient(Sum(squares), Constant(max(0.0, len(cells) - correction)))


@rule("max", "min", "amax", "amin")
def _max(call: Call, version: Version, index: Index) -> Formula | None:
    if version.output == 1:
        return None  # the position of the largest, not a number made of others
    if len(call.inputs) > 1:
        return _maximum(call, version, index)
    return Largest(_along(call, index), "max" if "max" in call.name else "min")


@rule("cumsum")
def _cumsum(call: Call, version: Version, index: Index) -> Formula | None:
    dim = argument(call, 1, "dim") % len(index)
    places = (tuple(j if axis == dim else i for axis, i in enumerate(index)) for j in range(index[dim] + 1))
    return Sum(tuple(cell_of(call.inputs[0], place) for place in places))


def _softmax_row(call: Call, index: Index) -> tuple[tuple[Formula, ...], int] | None:
    dim = argument(call, 1, "dim")
    if dim is None or not index:
        return None
    axis = dim % len(index)
    tensor = call.inputs[0]
    places = (tuple(j if a == axis else i for a, i in enumerate(index)) for j in range(tensor.shape[axis]))
    return tuple(cell_of(tensor, place) for place in places), index[axis]


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
        eps = torch.finfo(tensor.values.dtype).eps
    leading, own = index[: len(index) - axes], index[len(index) - axes :]
    places = product(*(range(size) for size in tensor.shape[len(leading) :]))
    cells = tuple(cell_of(tensor, (*leading, *place)) for place in places)
    cell: Formula = cell_of(tensor, index)
    if call.name == "layer_norm":
        mean = Named("μ", Quotient(Sum(cells), Constant(float(len(cells)))))
        spread: Formula = Named("σ²", _variance(cells, 0.0, mean))
        cell = Sum((cell, Apply("negative", mean, lambda x: -x)))
    else:
        squares = tuple(Power(c, Constant(2.0)) for c in cells)
        spread = Named("mean of x²", Quotient(Sum(squares), Constant(float(len(cells)))))
    formula: Formula = Quotient(cell, Apply("sqrt", Sum((spread, Constant(float(eps)))), _finite(math.sqrt)))
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
        return Apply("negative", LogSoftmax(cells, chosen), lambda x: -x)

    if reduction == "none" or len(logits.shape) == 1:
        return loss(*index)
    rows = [(i,) for i in range(logits.shape[0])]
    total = Sum(tuple(loss(*row) for row in rows))
    counted = sum(int(target.values[row]) != ignored for row in rows)
    return total if reduction == "sum" else Quotient(total, Constant(float(counted)))
