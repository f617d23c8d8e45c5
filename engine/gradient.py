"""How much each earlier number matters to one number: autograd through what was recorded.

The tape is run again from its inputs, so it doesn't matter whether the recorded code asked for
gradients, worked in place, or drew dropout masks: the same draws are made again.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from attnlab.engine.recorder import Call, Tape, Version

__all__ = ["gradient"]


def gradient(tape: Tape, tensor: Tensor | Version, index: Sequence[int] = ()) -> dict[Version, Tensor]:
    """∂ tensor[index] / ∂ every earlier stage and input, by version, each of the shape of its version.

    Only floating-point versions are listed. What the number doesn't depend on is exactly 0.
    Raises `KeyError` for a tensor that the tape has not seen, `ValueError` for one that has no gradient.
    """
    target = tensor if isinstance(tensor, Version) else tape.version(tensor)
    if not target.values.is_floating_point():
        raise ValueError(f"expected floating-point numbers, got {target.values.dtype}: they have no gradient")
    with torch.enable_grad():
        tensors = _replay(tape, target)
        earlier = [version for version in tensors if version.values.is_floating_point()]
        chosen = tensors[target][tuple(index)]
        if not chosen.requires_grad:
            return {version: torch.zeros_like(tensors[version]) for version in earlier}
        tracked = [version for version in earlier if tensors[version].requires_grad]
        found = torch.autograd.grad(chosen, [tensors[v] for v in tracked], allow_unused=True)
    gradients = {version: torch.zeros_like(tensors[version]) for version in earlier}
    for version, slope in zip(tracked, found, strict=True):
        if slope is not None:
            gradients[version] = slope
    return gradients


def _replay(tape: Tape, target: Version) -> dict[Version, Tensor]:
    """Every version up to `target`, computed again, all connected by autograd."""
    tensors: dict[Version, Tensor] = {}
    for version in tape.inputs:
        values = version.values.clone()
        tensors[version] = values.requires_grad_() if values.is_floating_point() else values
    for call in tape.calls if target.call is not None else ():
        _run(call, tensors)
        if call is target.call:
            break
    return tensors


def _run(call: Call, tensors: dict[Version, Tensor]) -> None:
    def value(noted: Any) -> Any:
        if isinstance(noted, Version):
            return tensors[noted]
        if isinstance(noted, tuple):
            return tuple(value(item) for item in noted)
        return noted

    args = [value(noted) for noted in call.args]
    kwargs = {key: value(noted) for key, noted in call.kwargs.items()}
    if call.in_place:
        # A leaf can't be written to, and what was there before must stay: write to a copy.
        if "out" in kwargs:
            kwargs["out"] = None
        elif args:
            args[0] = args[0].clone()
    if call.random_state is not None:
        with torch.random.fork_rng(devices=[]):
            torch.set_rng_state(call.random_state)
            result = call.function(*args, **kwargs)
    else:
        result = call.function(*args, **kwargs)
    if call.in_place and "out" not in kwargs:
        result = args[0]
    made = [result] if isinstance(result, Tensor) else list(_flat(result))
    for version in call.outputs:
        tensor = made[version.output]
        if not call.inputs:
            tensor = version.values  # made from nothing (also at random): the same numbers again
        tensors[version] = tensor


def _flat(value: Any) -> list[Tensor]:
    if isinstance(value, Tensor):
        return [value]
    return [tensor for item in value for tensor in _flat(item)] if isinstance(value, tuple | list) else []
