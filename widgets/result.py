"""Result: what an explorable computed, and what is said of it."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from attnlab.engine import Check, Tape, Version
from attnlab.widgets.plotter import Plot

__all__ = ["Result"]


@dataclass(frozen=True)
class Result:
    """What `compute` found: tensors by stage name, and what is said of them."""

    tensors: Mapping[str, Tensor]
    published: Mapping[str, Any] = field(default_factory=dict)
    """Trait → its trace. They become readable with the result: a result that isn't shown changes no trait."""
    checks: Sequence[tuple[Check, int]] = ()
    """Each check with the step from which on it can be made; 0 = always."""
    make_checks: Callable[[], Sequence[tuple[Check, int]]] = tuple
    """Makes more of them after the recording: they are on no stage, and to remember them takes time."""
    texts: Mapping[str, str] = field(default_factory=dict)
    message: str = ""
    limits: Mapping[str, int] = field(default_factory=dict)
    """Name of a stepper → its largest value."""
    tracked: Mapping[str, int] = field(default_factory=dict)
    tape: Tape | None = None
    """What was recorded, when a number has been chosen to explain itself."""
    versions: Mapping[str, Version] | None = None
    """Stage → recorded version, where a tensor was changed in place and so has several."""
    stages: Mapping[str, Mapping[str, Any]] | None = None
    """How each stage is drawn, where that depends on the result."""
    layout_blocks: Sequence[Mapping[str, Any]] | None = None
    """The blocks of the view, where they depend on the result."""
    disabled: Sequence[str] = ()
    """Commands that would do nothing now."""
    labels: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Axis name → label of each position; numbered by default."""
    plots: Mapping[str, Plot] = field(default_factory=dict)
    """Plots by name, drawn after the numbers have been sent."""
    tags: Sequence[Mapping[str, Any]] = ()
    """Elements that are followed from stage to stage: {tag, cells: [[stage, index], …], alone}. A curve joins
    the cells in this order, unless `alone` is true."""
    stopped: str = ""
    """Why the computation ended early; what came before is shown."""
