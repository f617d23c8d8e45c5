"""Functions of one number, with the values of torch at their edges."""

import math
from collections.abc import Callable

__all__ = ["FUNCTIONS", "finite", "gelu", "gelu_tanh", "softplus"]


def finite(function: Callable[[float], float]) -> Callable[[float], float]:
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


def gelu(x: float) -> float:
    # erfc keeps the digits that 1 + erf(x) loses for negative x.
    return 0.5 * x * math.erfc(-x / math.sqrt(2))


def gelu_tanh(x: float) -> float:
    return 0.5 * x * (1 + math.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x * x * x)))


def _silu(x: float) -> float:
    return x * _sigmoid(x) if x > -math.inf else math.nan


def softplus(x: float) -> float:
    """log(1 + eˣ)."""
    return max(x, 0.0) + math.log1p(math.exp(-abs(x)))


def _whole(function: Callable[[float], float]) -> Callable[[float], float]:
    """A function that makes integers of finite numbers, and leaves the others as they are."""
    return lambda x: float(function(x)) if math.isfinite(x) else x


def _selu(x: float) -> float:
    scale, alpha = 1.0507009873554805, 1.6732632423543772
    return scale * (x if x > 0 or math.isnan(x) else alpha * math.expm1(x))


def _between(x: float, low: float, high: float) -> float:
    return x if math.isnan(x) else min(max(x, low), high)


FUNCTIONS: dict[str, Callable[[float], float]] = {
    "exp": math.exp,
    "log": _log,
    "log2": lambda x: -math.inf if x == 0 else math.log2(x),
    "log1p": lambda x: -math.inf if x == -1 else math.log1p(x),
    "expm1": math.expm1,
    "sqrt": math.sqrt,
    "rsqrt": lambda x: math.copysign(math.inf, x) if x == 0 else 1 / math.sqrt(x),
    "reciprocal": lambda x: math.copysign(math.inf, x) if x == 0 else 1 / x,
    "abs": abs,
    "sin": math.sin,
    "cos": math.cos,
    "tanh": math.tanh,
    "erf": math.erf,
    "sigmoid": _sigmoid,
    "relu": lambda x: x if x > 0 or math.isnan(x) else 0.0,
    "silu": _silu,
    "log10": lambda x: -math.inf if x == 0 else math.log10(x),
    "exp2": lambda x: 2.0**x,
    "tan": math.tan,
    "sinh": math.sinh,
    "cosh": math.cosh,
    "asin": math.asin,
    "acos": math.acos,
    "atan": math.atan,
    "asinh": math.asinh,
    "acosh": math.acosh,
    "erfc": math.erfc,
    "floor": _whole(math.floor),
    "ceil": _whole(math.ceil),
    "trunc": _whole(math.trunc),
    "sign": lambda x: float((x > 0) - (x < 0)),
    "selu": _selu,
    "mish": lambda x: x * math.tanh(softplus(x)) if x > -math.inf else math.nan,
    "softsign": lambda x: x / (1 + abs(x)),
    "tanhshrink": lambda x: x - math.tanh(x),
    "log_sigmoid": lambda x: -softplus(-x),
    "relu6": lambda x: _between(x, 0.0, 6.0),
    "hardsigmoid": lambda x: _between(x / 6 + 0.5, 0.0, 1.0),
}
