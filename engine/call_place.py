"""Where in the program a torch call happens: the innermost point that is neither torch's nor ours."""

import contextlib
import os
import sys
from pathlib import Path
from types import CodeType, FrameType

import jaxtyping
import torch

from attnlab.engine.source import Place

__all__ = ["block_around", "place_of_call"]

MAX_CALLERS = 4
"""A tensor that is returned through more functions has no name of a variable."""

_TORCH = str(Path(torch.__file__).parent) + os.sep

# Frames of these files are not the program: torch, the recorder, and wrappers that check annotations.
_NOT_THE_PROGRAM = (
    _TORCH,
    str(Path(jaxtyping.__file__ or "").parent) + os.sep,
    str(Path(__file__).with_name("recorder.py")),
)

_APPLY = torch.autograd.Function.apply.__func__.__code__  # type: ignore[attr-defined]


def block_around(frame: FrameType | None) -> FrameType | None:
    """The frame of the program that enters the block, through a context manager or by itself."""
    while frame is not None:
        file = frame.f_code.co_filename
        if file != contextlib.__file__ and _owner(file) == "program":
            break
        frame = frame.f_back
    return frame


def place_of_call(block: FrameType | None) -> tuple[Place, str, FrameType | None, bool]:
    """The innermost point of the program, neither torch's nor ours; what it is in, as far as the block.

    That is the autograd function around, by name, the function of torch's own that the program called, and
    whether this makes a module.
    """
    frame: FrameType | None = sys._getframe(2)
    running = None
    preparing = False
    points: list[tuple[CodeType, int]] = []
    within = ""
    while frame is not None:
        code = frame.f_code
        if code is _APPLY:
            within = within or frame.f_locals["cls"].__name__
        else:
            whose = _whose.get(code.co_filename) or _owner(code.co_filename)
            if whose == "program":
                if len(points) <= MAX_CALLERS:
                    points.append((code, frame.f_lasti))
            elif whose == "torch" and not points:
                running = frame
                preparing = code.co_name == "__init__"
        if frame is block:
            break
        frame = frame.f_back
    if not points:
        raise RuntimeError("a torch call without a caller")
    # What a function returns has the name that its caller gives it.
    return Place(*points[0], tuple(points[1:])), within, running, preparing


_whose: dict[str, str] = {}
"""File → "program", "torch" or "neither". Known by heart: it is asked for each frame of each call."""


def _owner(file: str) -> str:
    owner = "program"
    if file.startswith(_NOT_THE_PROGRAM):
        owner = "torch" if file.startswith(_TORCH) else "neither"
    _whose[file] = owner
    return owner
