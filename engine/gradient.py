"""How much each earlier number matters to one number: autograd through what was recorded.

The tape is run again from its inputs, so it doesn't matter whether the recorded code asked for
gradients, worked in place, or drew dropout masks: the same draws are made again. What a program that
else has gradients computes under `torch.no_grad()` is a constant in it, as it is for autograd.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from attnlab.engine.call import Call, Version
from attnlab.engine.explain import stage_name
from attnlab.engine.recorder import Tape

__all__ = ["gradient"]

_RUNNING = (1, 2, "running_mean", "running_var")
_CONSTANTS: dict[str, tuple[int | str, ...]] = {
    "batch_norm": _RUNNING,
    "instance_norm": _RUNNING,
    "cross_entropy": (2, "weight"),
    "nll_loss": (2, "weight"),
    "binary_cross_entropy": (2, "weight"),
    "binary_cross_entropy_with_logits": (2, "weight", "pos_weight"),
    "multi_margin_loss": (4, "weight"),
}
"""Arguments, by place and by name, to which torch has no derivative."""


def gradient(tape: Tape, tensor: Tensor | Version, index: Sequence[int] = ()) -> dict[Version, Tensor]:
    """∂ tensor[index] / ∂ every earlier stage and input, by version, each of the shape of its version.

    Only floating-point versions are listed. What the number doesn't depend on is exactly 0.
    Raises `KeyError` for a tensor that the tape has not seen, `IndexError` for a place that there isn't,
    `ValueError` for a tensor that has no gradient, or that depends on something that was not recorded.
    """
    # While the tape still records, this is no call of the program.
    with torch._C.DisableTorchFunction(), torch.inference_mode(False), torch.enable_grad():
        tape.settle()
        target = tensor if isinstance(tensor, Version) else tape.version(tensor)
        place = target.place(index)
        if not target.values.is_floating_point():
            raise ValueError(
                f"expected floating-point numbers, got {target.values.dtype}: they have no gradient"
            )
        tensors = _replay(tape, target)
        earlier = [version for version in tensors if version.values.is_floating_point()]
        try:
            found = torch.autograd.grad(
                tensors[target][place], [tensors[version] for version in earlier], allow_unused=True
            )
        except RuntimeError as error:  # a call on the way has no derivative
            raise ValueError(f"no gradient: {error}") from error
        for version, slope in zip(earlier, found, strict=True):
            if slope is not None and (why := _why_unknown(version)):
                raise ValueError(f"no gradient: it depends on {_described(version)}, which was {why}")
        return {
            version: torch.zeros_like(tensors[version], requires_grad=False) if slope is None else slope
            for version, slope in zip(earlier, found, strict=True)
        }


def _described(version: Version) -> str:
    shape = " × ".join(map(str, version.shape)) or "a single number"
    return f"{stage_name(version)} ({shape})" if version.call or version.name else f"a tensor ({shape})"


def _why_unknown(version: Version) -> str:
    """Why a slope at this version says nothing of what came before it; empty if it does."""
    if version.call is not None and version.call.within:
        where = f"{version.call.within} in line {version.call.spot.line}"
        return f"made in {where}, an autograd function whose own gradient is not recorded"
    if version.note:
        return f"kept without a copy: {version.note}"
    return version.unrecorded


def _replay(tape: Tape, target: Version) -> dict[Version, Tensor]:
    """Every version up to `target`, computed again, all connected by autograd."""
    tensors = {version: _leaf(version) for version in tape.inputs}
    calls = tape.calls[: tape.calls.index(target.call) + 1] if target.call is not None else []
    # A program wholly without gradients is asked for them all the same; in one that has some, what is
    # without them is so on purpose.
    some = any(call.differentiated for call in calls)
    for call in calls:
        if some and not call.differentiated:
            tensors.update((version, _leaf(version)) for version in call.outputs)
        else:
            _run(call, tensors)
    return tensors


def _leaf(version: Version) -> Tensor:
    """The recorded numbers, as something that gradients can be asked for."""
    values = version.values.clone()
    return values.requires_grad_() if values.is_floating_point() else values


def _run(call: Call, tensors: dict[Version, Tensor]) -> None:
    def value(noted: Any) -> Any:
        if isinstance(noted, Version):
            return tensors[noted]
        if isinstance(noted, tuple | list):
            return type(noted)(value(item) for item in noted)
        return noted

    if not call.inputs:  # made from nothing (also at random): nothing to run again
        tensors.update((version, _leaf(version)) for version in call.outputs)
        return
    args = [value(noted) for noted in call.args]
    kwargs = {key: value(noted) for key, noted in call.kwargs.items()}
    for known in _CONSTANTS.get(call.name, ()):
        # Autograd has no derivative for these, and some are written into.
        if isinstance(known, int) and known < len(args) and isinstance(args[known], Tensor):
            args[known] = args[known].detach().clone()
        elif isinstance(known, str) and isinstance(kwargs.get(known), Tensor):
            kwargs[known] = kwargs[known].detach().clone()
    if call.in_place:
        # A leaf can't be written to, and what was there before must stay: write to a copy.
        if args:
            args[0] = args[0].clone()
        else:
            first = next(key for key, value in kwargs.items() if isinstance(value, Tensor))
            kwargs[first] = kwargs[first].clone()
    try:
        result = _called(call, args, kwargs)
    except RuntimeError as error:
        raise ValueError(f"no gradient through {call.name} in line {call.spot.line}: {error}") from error
    if call.in_place:
        result = args[0] if args else kwargs[first]
    made = _flat(result)
    for version in call.outputs:
        tensor = made[version.output]
        if not tensor.requires_grad:  # detached, or not a number that has a slope: it starts anew
            tensor = _leaf(version)
        elif not _alike(tensor, version.values):
            raise ValueError(
                f"no gradient through {call.name} in line {call.spot.line}: "
                "it gave other numbers when it was run again"
            )
        tensors[version] = tensor


def _called(call: Call, args: list[Any], kwargs: dict[str, Any]) -> Any:
    """Runs a call again, with the same draws and in the same precision."""
    if call.autocast is not None:
        call, dtype = replace(call, autocast=None), call.autocast
        with torch.autocast("cpu", dtype, cache_enabled=False):
            return _called(call, args, kwargs)
    if call.random_state is None:
        return call.function(*args, **kwargs)
    if kwargs.get("generator") is not None:
        kwargs["generator"] = torch.Generator()
        kwargs["generator"].set_state(call.random_state)
        return call.function(*args, **kwargs)
    with torch.random.fork_rng(devices=[]):
        torch.set_rng_state(call.random_state)
        return call.function(*args, **kwargs)


def _alike(tensor: Tensor, recorded: Tensor) -> bool:
    """Equal but for rounding, which may depend on how the numbers lie in memory."""
    if tensor.dtype != recorded.dtype or tensor.shape != recorded.shape:
        return False
    slack = torch.finfo(tensor.dtype).eps ** 0.5
    return torch.allclose(tensor, recorded, rtol=slack, atol=slack, equal_nan=True)


def _flat(value: Any) -> list[Tensor]:
    if isinstance(value, Tensor):
        return [value]
    return [tensor for item in value for tensor in _flat(item)] if isinstance(value, tuple | list) else []
