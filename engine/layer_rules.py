"""More rules: activations with parameters, losses, norms, choices by order, and fused attention."""

import math
from collections.abc import Callable
from itertools import product

import torch

from attnlab.engine.call import Call, Version
from attnlab.engine.formula import (
    Apply,
    Because,
    Constant,
    Formula,
    Largest,
    Named,
    Power,
    Product,
    Quotient,
    Softmax,
    Sum,
)
from attnlab.engine.functions import finite, softplus
from attnlab.engine.rules import (
    RULES,
    Index,
    along,
    applied,
    argument,
    cell_of,
    line,
    negative,
    operand,
    rule,
)

__all__ = ["RULES"]


# ---------------------------------------------------------------- activations with parameters


@rule("leaky_relu", "elu", "celu", "softplus")
def _activation(call: Call, version: Version, index: Index) -> Formula | None:
    defaults = {"leaky_relu": ("negative_slope", 0.01), "softplus": ("beta", 1.0)}
    name, default = defaults.get(call.name, ("alpha", 1.0))
    parameter = float(argument(call, 1, name, default))
    functions: dict[str, Callable[[float], float]] = {
        "leaky_relu": lambda x: x if x >= 0 or math.isnan(x) else parameter * x,
        "elu": lambda x: x if x > 0 or math.isnan(x) else parameter * math.expm1(x),
        "celu": lambda x: x if x > 0 or math.isnan(x) else parameter * math.expm1(x / parameter),
        "softplus": lambda x: softplus(parameter * x) / parameter,
    }
    threshold = float(argument(call, 2, "threshold", 20.0))
    cell = operand(argument(call, 0, "input"), index)
    if call.name == "softplus" and cell.value() * parameter > threshold:
        return cell  # beyond the threshold torch takes the number itself
    if call.name == "elu" and len(call.args) + len(call.kwargs) > 3:
        return None  # the scales of the inner form
    told = call.name if parameter == default else f"{call.name} {parameter:g}"
    return Apply(told, cell, finite(functions[call.name]))


@rule("hardtanh", "clamp_min", "clamp_max")
def _limited(call: Call, version: Version, index: Index) -> Formula | None:
    formula = operand(argument(call, 0, "input"), index)
    if call.name != "clamp_max":
        name, least = ("min", None) if call.name == "clamp_min" else ("min_val", -1.0)
        formula = Largest((formula, operand(argument(call, 1, name, least), index)))
    if call.name != "clamp_min":
        place, name, most = (1, "max", None) if call.name == "clamp_max" else (2, "max_val", 1.0)
        formula = Largest((formula, operand(argument(call, place, name, most), index)), "min")
    return formula


@rule("hardswish")
def _hardswish(call: Call, version: Version, index: Index) -> Formula | None:
    cell = operand(argument(call, 0, "input"), index)
    sixth = Sum((Quotient(cell, Constant(6.0)), Constant(0.5)))
    return Product((cell, Largest((Largest((sixth, Constant(0.0))), Constant(1.0)), "min")))


@rule("glu")
def _glu(call: Call, version: Version, index: Index) -> Formula | None:
    tensor: Version = argument(call, 0, "input")
    axis = argument(call, 1, "dim", -1) % len(index)
    half = tensor.shape[axis] // 2
    gate = tuple(i + half if a == axis else i for a, i in enumerate(index))
    return Product((cell_of(tensor, index), applied("sigmoid", cell_of(tensor, gate))))


# ---------------------------------------------------------------- along an axis


@rule("prod")
def _prod(call: Call, version: Version, index: Index) -> Formula | None:
    return None if call.kwargs.get("dtype") is not None else Product(along(call, index))


@rule("cumprod")
def _cumprod(call: Call, version: Version, index: Index) -> Formula | None:
    if not index or call.kwargs.get("dtype") is not None:
        return None
    dim = argument(call, 1, "dim") % len(index)
    return Product(line(call.inputs[0], index, dim, index[dim] + 1))


@rule("logsumexp")
def _logsumexp(call: Call, version: Version, index: Index) -> Formula | None:
    cells = along(call, index)
    # Torch takes the largest out first; without that, e to a large number is infinite.
    if not all(abs(cell.value()) < 700 for cell in cells):
        return None
    return applied("log", Sum(tuple(Apply("exp", cell, math.exp) for cell in cells)))


def _length(cells: tuple[Formula, ...]) -> Formula:
    return Apply("sqrt", Sum(tuple(Power(cell, Constant(2.0)) for cell in cells)), finite(math.sqrt))


@rule("norm", "linalg_vector_norm")
def _norm(call: Call, version: Version, index: Index) -> Formula | None:
    order = argument(call, 1, "ord" if call.name.startswith("linalg") else "p", 2)
    if order not in (2, 2.0, "fro", None) or call.kwargs.get("dtype") is not None:
        return None
    dims = argument(call, 2, "dim"), bool(argument(call, 3, "keepdim", False))
    return _length(along(call, index, *dims))


@rule("normalize")
def _normalize(call: Call, version: Version, index: Index) -> Formula | None:
    if argument(call, 1, "p", 2.0) != 2:
        return None
    tensor: Version = argument(call, 0, "input")
    axis = argument(call, 2, "dim", 1) % len(index)
    length = Named("‖x‖", _length(line(tensor, index, axis)))
    return Quotient(
        cell_of(tensor, index), Largest((length, Constant(float(argument(call, 3, "eps", 1e-12)))))
    )


@rule("sort", "topk", "kthvalue", "mode", "median")
def _chosen(call: Call, version: Version, index: Index) -> Formula | None:
    """Each value was taken from where the second result says."""
    if version.output != 0 or len(call.outputs) != 2:
        return None
    tensor, taken = call.inputs[0], call.outputs[1]
    position = {"topk": 2, "kthvalue": 2}.get(call.name, 1)
    dim = argument(call, position, "dim", -1)
    if not isinstance(dim, int) or not tensor.shape:
        return None
    own = int(taken.values[index])
    dim %= len(tensor.shape)
    if len(index) < len(tensor.shape):
        return cell_of(tensor, (*index[:dim], own, *index[dim:]))
    return cell_of(tensor, tuple(own if axis == dim else i for axis, i in enumerate(index)))


# ---------------------------------------------------------------- products


@rule("outer")
def _outer(call: Call, version: Version, index: Index) -> Formula | None:
    left, right = argument(call, 0, "input"), argument(call, 1, "vec2")
    return Product((operand(left, index[:1]), operand(right, index[1:])))


@rule("addcmul", "addcdiv")
def _addc(call: Call, version: Version, index: Index) -> Formula | None:
    if len(call.args) > 3:
        return None  # the old form, with the factor in the middle
    added, left, right = (
        operand(argument(call, i, n), index) for i, n in enumerate(("input", "tensor1", "tensor2"))
    )
    factor = Constant(float(call.kwargs.get("value", 1)))
    factors = (left, right) if call.name == "addcmul" else (Quotient(left, right),)
    return Sum((added, Product((factor, *factors))))


@rule("lerp")
def _lerp(call: Call, version: Version, index: Index) -> Formula | None:
    start, end, weight = (
        operand(argument(call, i, n), index) for i, n in enumerate(("input", "end", "weight"))
    )
    return Sum((start, Product((weight, Sum((end, negative(start)))))))


# ---------------------------------------------------------------- losses


@rule("mse_loss", "l1_loss", "binary_cross_entropy", "binary_cross_entropy_with_logits")
def _loss(call: Call, version: Version, index: Index) -> Formula | None:
    """A loss for each element, added up or averaged."""
    plain = all(call.kwargs.get(name) is None for name in ("weight", "pos_weight", "size_average", "reduce"))
    guess, target = argument(call, 0, "input"), argument(call, 1, "target")
    if not plain or len(call.args) > 2 or guess.shape != target.shape:
        return None
    element = _LOSSES[call.name]
    reduction = call.kwargs.get("reduction", "mean")
    if reduction == "none":
        return element(cell_of(guess, index), cell_of(target, index))
    places = list(product(*map(range, guess.shape)))
    total = Sum(tuple(element(cell_of(guess, place), cell_of(target, place)) for place in places))
    return total if reduction == "sum" else Quotient(total, Constant(float(len(places))))


def _squared(guess: Formula, target: Formula) -> Formula:
    return Power(Sum((guess, negative(target))), Constant(2.0))


def _absolute(guess: Formula, target: Formula) -> Formula:
    return Apply("abs", Sum((guess, negative(target))), abs)


def _binary(guess: Formula, target: Formula) -> Formula:
    def limited(formula: Formula) -> Formula:
        return Largest((applied("log", formula), Constant(-100.0)))  # torch lets no logarithm be lower

    rest_of_target = Sum((Constant(1.0), negative(target)))
    rest_of_guess = Sum((Constant(1.0), negative(guess)))
    return negative(
        Sum((Product((target, limited(guess))), Product((rest_of_target, limited(rest_of_guess)))))
    )


def _binary_of_logit(guess: Formula, target: Formula) -> Formula:
    rest_of_target = Sum((Constant(1.0), negative(target)))
    return Sum((Product((rest_of_target, guess)), Apply("softplus", negative(guess), softplus)))


_LOSSES: dict[str, Callable[[Formula, Formula], Formula]] = {
    "mse_loss": _squared,
    "l1_loss": _absolute,
    "binary_cross_entropy": _binary,
    "binary_cross_entropy_with_logits": _binary_of_logit,
}


@rule("nll_loss")
def _nll_loss(call: Call, version: Version, index: Index) -> Formula | None:
    scores, target = argument(call, 0, "input"), argument(call, 1, "target")
    plain = all(call.kwargs.get(name) is None for name in ("weight", "size_average", "reduce"))
    if not plain or len(call.args) > 2 or len(scores.shape) != 2:
        return None
    ignored = call.kwargs.get("ignore_index", -100)
    chosen = target.values.tolist()

    def loss(row: int) -> Formula:
        return Constant(0.0) if chosen[row] == ignored else negative(cell_of(scores, (row, chosen[row])))

    reduction = call.kwargs.get("reduction", "mean")
    if reduction == "none":
        return loss(index[0])
    total = Sum(tuple(map(loss, range(len(chosen)))))
    counted = sum(own != ignored for own in chosen)
    return total if reduction == "sum" else Quotient(total, Constant(float(counted)))


# ---------------------------------------------------------------- fused attention


@rule("scaled_dot_product_attention")
def _attention(call: Call, version: Version, index: Index) -> Formula | None:
    """Σ weight · value, with the weights that torch doesn't give out: softmax of query · key · scale."""
    q, k, v, mask = (argument(call, i, n) for i, n in enumerate(("query", "key", "value", "attn_mask")))
    drop_p, is_causal = argument(call, 4, "dropout_p", 0.0), argument(call, 5, "is_causal", False)
    if drop_p or argument(call, 7, "enable_gqa", False) or len(index) < 2:
        return None
    scale = argument(call, 6, "scale")
    factor = Constant(1 / math.sqrt(q.shape[-1]) if scale is None else float(scale))
    *leading, i, column = index
    read: list[tuple[int, Formula]] = []
    for j in range(k.shape[-2]):
        dot = Sum(
            tuple(
                Product((operand(q, (*leading, i, e)), operand(k, (*leading, j, e))))
                for e in range(q.shape[-1])
            )
        )
        score: Formula = Product((dot, factor))
        if is_causal and j > i:
            continue
        if mask is not None:
            own = operand(mask, (*leading, i, j))
            if mask.values.dtype == torch.bool:
                if not own.value():
                    continue
                score = Because(score, own)
            else:
                score = Sum((score, own))
        read.append((j, score))
    if not read or not all(math.isfinite(score.value()) for _, score in read):
        return None  # torch gives zeros where nothing may be read
    row = tuple(score for _, score in read)
    return Sum(
        tuple(
            Product((Named(f"weight {j}", Softmax(row, n)), operand(v, (*leading, j, column))))
            for n, (j, _) in enumerate(read)
        )
    )
