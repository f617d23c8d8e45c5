"""What torch calls are named, and what is known of a call by its name."""

import functools
from collections.abc import Callable
from typing import Any

__all__ = ["EXPOSING", "QUESTIONS", "RANDOM", "UNCOUNTED", "name_of"]

# Reading a property makes no number; these say only what a tensor is.
QUESTIONS = frozenset(
    """
    shape dtype device layout requires_grad grad grad_fn is_leaf ndim itemsize nbytes size dim
    stride numel is_floating_point is_complex is_contiguous storage_offset data_ptr untyped_storage
    element_size requires_grad_ retain_grad backward register_hook is_sparse is_cuda is_quantized
    is_nested names _version __len__ __repr__ __format__ __hash__ __bool__ tolist item
    numpy __array__ __dlpack__ __deepcopy__ __reduce_ex__ is_inference is_meta is_mps is_xpu set_property
    """.split()
)
# Through what these give back, others than torch may write into the tensor.
EXPOSING = frozenset(["numpy", "__array__", "__dlpack__", "data_ptr", "untyped_storage", "share_memory"])
# Calls that draw: the state of the generator is kept, so that the same draws can be made again.
RANDOM = frozenset(
    """
    dropout alpha_dropout feature_dropout feature_alpha_dropout native_dropout dropout1d dropout2d
    dropout3d bernoulli multinomial normal uniform random exponential cauchy geometric log_normal
    poisson binomial gumbel_softmax rrelu rand_like randn_like randint_like trunc_normal
    kaiming_uniform kaiming_normal xavier_uniform xavier_normal scaled_dot_product_attention
    multi_head_attention_forward rnn_tanh rnn_relu lstm gru
    """.split()
)
# Calls that write into what they are given, and torch doesn't count it: running means.
UNCOUNTED = frozenset(["batch_norm", "instance_norm", "native_batch_norm"])


def _pairs(text: str) -> dict[str, str]:
    return dict(pair.split(":") for pair in text.split())


# Operator methods (`__rand__` is no `torch.rand`) and other spellings have the name of their function.
_OPERATORS = _pairs(
    """
    truediv:div rtruediv:rdiv rmul:mul radd:add and:bitwise_and rand:bitwise_and or:bitwise_or
    ror:bitwise_or xor:bitwise_xor rxor:bitwise_xor invert:bitwise_not pos:positive
    """
)
_SPELLINGS = _pairs(
    """
    divide:div true_divide:div multiply:mul subtract:sub negative:neg absolute:abs clip:clamp
    linalg_matmul:matmul bmm:matmul mm:matmul mv:matmul dot:matmul
    swapaxes:transpose swapdims:transpose t:transpose
    concat:cat concatenate:cat special_expit:sigmoid special_softmax:softmax
    special_log_softmax:log_softmax greater:gt greater_equal:ge less:lt less_equal:le not_equal:ne
    """
)
_IN_PLACE_OPERATORS = frozenset(
    """
    iadd isub imul itruediv idiv ifloordiv imod ipow iand ior ixor ilshift irshift
    """.split()
)


@functools.cache
def name_of(func: Callable[..., Any]) -> tuple[str, bool]:
    """(name, writes into its first argument) of a torch function, method or property."""
    name = getattr(func, "__name__", str(func))
    writes = False
    if name in ("__get__", "__set__", "__delete__"):
        own = getattr(getattr(func, "__self__", None), "__name__", name)
        writes = name == "__set__" and own == "data"
        # Setting `requires_grad` or `grad` changes no number; setting `data` changes them all.
        name = own if name == "__get__" else "set_data" if writes else "set_property"
    elif name == "__setitem__":
        writes, name = True, "setitem"
    elif name == "__iter__" or name in QUESTIONS:
        pass
    elif name.startswith("__") and name.endswith("__"):
        name = name[2:-2]
        if name in _IN_PLACE_OPERATORS:
            writes, name = True, name[1:]
        name = _OPERATORS.get(name, name)
    elif name.endswith("_") and not name.startswith("_"):
        writes, name = True, name[:-1]
    if not name.startswith("__"):
        name = _SPELLINGS.get(name, name)
    return name, writes
