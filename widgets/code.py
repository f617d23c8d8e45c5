"""CodeExplorable: anybody's PyTorch code, every intermediate shown under its variable name."""

import functools
import inspect
import linecache
import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from types import CodeType
from typing import TYPE_CHECKING, Any

import torch
import traitlets as t
from torch import Tensor

from attnlab.engine import Stage, Tape, Version, record, recorder
from attnlab.engine.axes import axes_of
from attnlab.engine.call import Call
from attnlab.engine.code_checks import check_code
from attnlab.engine.explain import stage_name
from attnlab.engine.mistakes import MISTAKES, attention
from attnlab.engine.rules import has_name
from attnlab.engine.source import Place
from attnlab.widgets.control_bar import Command, Control, Link, Menu, Select, Stepper, Toggle
from attnlab.widgets.explorable import Explorable
from attnlab.widgets.history import equal
from attnlab.widgets.matrix import Matrix
from attnlab.widgets.result import Result

if TYPE_CHECKING:
    from attnlab.widgets.figure import StageFigure

__all__ = ["CodeExplorable", "explore", "four_mistakes"]

# A stage with more numbers is listed with its shape instead of drawn: nobody reads a thousand cells.
MAX_DRAWN = 1024
LIMIT = 1e6

# Names that an explorable needs for itself, beside those of its class.
_RESERVED = frozenset("function preset presets random_state bar view".split())

_TORCH = str(Path(torch.__file__).parent) + os.sep
_OURS = (recorder.__file__, __file__, str(Path(__file__).with_name("magic.py")))


class CodeExplorable(Explorable):
    """Runs PyTorch functions on real tensors and shows each intermediate, in order, by its variable.

    Made by `explore`. The inputs can be edited, and each number explains itself: formula, line of the
    code, gradient. Code that raises is shown up to the failing line.
    """

    functions: Mapping[str, Callable[..., Any]] = {}
    axis_names: Mapping[str, Sequence[str]] = {}
    parameters: Mapping[str, Mapping[str, Tensor]] = {}
    """Function → its parameters by name, for modules."""
    fixed: Mapping[str, Tensor] = {}
    """The arguments that are no floating-point numbers, and can't be edited."""
    arguments: Mapping[str, str] = {}
    """Trait → the argument that it is; they differ where an explorable has something else of that name."""
    dtypes: Mapping[str, torch.dtype] = {}
    learned: Mapping[str, bool] = {}
    """Trait → does the argument require gradients?"""
    random_state: Tensor

    gradient = t.Bool(False).tag(state="view")
    decimals = t.Int(4, min=2, max=8).tag(state="view")
    tape: Tape | None = None
    _ran: tuple[Mapping[str, Any], Result] | None = None

    def controls(self) -> list[list[Control]]:
        first: list[Control] = []
        if len(self.functions) > 1:
            first.append(Select("function", "code", [(name, name) for name in self.functions]))
        return [
            [
                *first,
                Toggle("gradient", "gradient of the chosen number"),
                Stepper("decimals", "digits", less="fewer digits", more="more digits", minimum=2),
                Command("undo", "Undo"),
                Command("redo", "Redo"),
                Command("reset", "Reset"),
                Link("link", "Copy link"),
                Menu("export", "Export", [("numbers", "Copy all numbers")]),
            ]
        ]

    def stages(self) -> dict[str, dict[str, Any]]:
        return {}

    def layout_blocks(self) -> list[dict[str, Any]]:
        return []

    def compute(self) -> Result:
        # What is only looked at in another way is not computed again: the code may count its runs.
        given = {"function": self.function, **self.matrices()}
        if self._ran is None or not all(equal(value, self._ran[0][name]) for name, value in given.items()):
            self._ran = (given, self._run())
        return self._ran[1]

    def _run(self) -> Result:
        function = self.functions[self.function]
        stopped = ""
        # Copies: the code may write into its arguments, and runs again after the next edit.
        inputs = {
            self.arguments[name]: tensor.to(self.dtypes[name], copy=True).requires_grad_(self.learned[name])
            for name, tensor in self.matrices().items()
        }
        axes = {self.arguments[name]: trait.axes for name, trait in self._inputs.items()}
        fixed = {name: tensor.clone() for name, tensor in self.fixed.items()}
        # The same draws in every run: an edit must not come with another dropout mask.
        with torch.random.fork_rng(devices=[]), record() as tape:
            torch.set_rng_state(self.random_state)
            for name, tensor in inputs.items():
                tape.name(tensor, name, axes[name])
            for name, tensor in fixed.items():
                tape.name(tensor, name, self.axis_names.get(name, ()))
            for name, parameter in self.parameters.get(self.function, {}).items():
                tape.name(parameter, name)
            try:
                _require_computed(function(inputs | fixed))
            except Exception as error:  # the reader's code may raise anything: that is what is shown
                stopped = _why(_named(tape), error)
        for tensor in tape.tensors():
            tape.version(tensor)  # it may have been written through another view, and not been used since
        self.tape = _named(tape)
        return _result(tape, self.arguments, {*self.fixed}, stopped, self.axis_names)

    def _sentence(self, message: str) -> str:
        told = super()._sentence(message)
        return message[:1] + told[1:]  # it begins with a name of the code

    def _recorded(self) -> Result:
        return self.compute()  # which always records

    def all_stages(self) -> Iterator[Stage]:
        for version in (self._last.versions or {}).values() if self._last else ():
            yield Stage(stage_name(version), version.values, tuple(axes_of(version)), "")

    def figure(self, stage: str = "") -> "StageFigure":
        if not stage:
            # The last that can be drawn flat; names may come twice, and the later one is meant.
            flat = [s.name for s in self.all_stages() if all(n == 1 for n in s.tensor.shape[:-2])]
            stage = flat[-1] if flat else ""
        return super().figure(stage)

    def export(self, name: str, value: Any) -> None:
        if value == "numbers" and self._last is not None and self._last.versions is not None:
            self._copy("\n\n".join(_as_text(n, v) for n, v in self._last.versions.items()))
        elif name == "link":
            self._copy(self.address)
        else:
            super().export(name, value)


def four_mistakes() -> CodeExplorable:
    """Multi-head attention as people write it, right and with four famous mistakes to be found."""
    x = [[[1, 0, 2, -1], [0, 2, 1, 1], [2, 1, 0, 1]]]
    w_qkv = [
        [1, 0, 1, 0, 0, 1, 1, 0, 1, 0, 0, 1],
        [0, 1, 0, 1, 1, 0, 0, 1, 0, 1, 1, 0],
        [1, 1, 0, 0, 1, 1, 0, 0, 2, 0, 1, 0],
        [0, 0, 1, 1, 0, 0, 1, 1, 0, 1, 0, 2],
    ]
    w_out = torch.eye(4, dtype=torch.float64)
    return explore(
        {"the right one": attention, **MISTAKES},
        *(torch.tensor(matrix, dtype=torch.float64) for matrix in (x, w_qkv)),
        w_out,
        axes={
            "x": ("batch", "time", "width"),
            "w_qkv": ("width", "qkv"),
            "w_out": ("width", "out"),
            "q": ("batch", "head", "query", "d_head"),
            "k": ("batch", "head", "key", "d_head"),
            "v": ("batch", "head", "key", "d_head"),
            "future": ("query", "key"),
            "scores": ("batch", "head", "query", "key"),
            "heads": ("batch", "head", "query", "d_head"),
            "merged": ("batch", "time", "width"),
        },
        function="mystery 1",
    )


def explore(
    code: Callable[..., Any] | Mapping[str, Callable[..., Any]],
    /,
    *tensors: Any,
    axes: Mapping[str, Sequence[str]] | None = None,
    **options: Any,
) -> CodeExplorable:
    """Shows what a PyTorch function or `nn.Module` does, number by number.

    - `code`: a function or module, called with `tensors`; or several of one signature by name, whose
      arguments are called as in the first
    - `tensors`: its arguments, in order; floating-point ones can be edited
    - `axes`: names for the axes of an argument or of any variable in the code,
      `{"x": ("batch", "time", "width")}`; others are carried along from these, or numbered
    - other options are those of the explorable: `function` (which of several), `chosen`, `gradient`,
      `decimals`

    The function is called again after every change, so it should do nothing but compute.

    Raises `ValueError` when the tensors don't fit the signature, or have more than 1,024 elements.
    """
    functions = dict(code) if isinstance(code, Mapping) else {_name(code): code}
    if not functions:
        raise ValueError("expected at least one function, got none")
    for function in functions.values():
        _require_plain(function)
    arguments = _arguments(next(iter(functions.values())), len(tensors))
    # What the caller chose is what a reset goes back to.
    chosen = options.pop("function", next(iter(functions)))
    if chosen not in functions:
        raise ValueError(f"function: expected one of {', '.join(functions)}, got {chosen!r}")
    named = dict(axes or {})
    for name, own in named.items():
        if isinstance(own, str) or len(set(own)) < len(own) or not all(isinstance(n, str) for n in own):
            raise ValueError(f"axes of {name}: expected one name of its own for each axis, got {own!r:.60}")
    values = {name: _as_tensor(value, name) for name, value in zip(arguments, tensors, strict=True)}
    traits: dict[str, Any] = {}
    shown: dict[str, str] = {}
    taken = set(arguments)
    fixed: dict[str, Tensor] = {}
    for name, value in values.items():
        if not value.is_floating_point():
            fixed[name] = value
            continue
        if not value.numel():
            raise ValueError(f"{name}: expected at least one element, got shape {tuple(value.shape)}")
        if value.numel() > MAX_DRAWN:
            raise ValueError(f"{name}: expected at most {MAX_DRAWN:,} elements, got {value.numel():,}")
        own = tuple(named.get(name, [f"axis{i}" for i in range(value.ndim)]))
        if len(own) != value.ndim:
            raise ValueError(f"{name}: expected {value.ndim} axis names, got {', '.join(own)}")
        trait = _free(name, taken)
        taken.add(trait)
        shown[trait] = name
        traits[trait] = Matrix(label=name, axes=own, shape=tuple(value.shape), limit=LIMIT)
    as_given = {own: values[name].detach() for own, name in shown.items()}
    kind = type(
        "CodeExplorable",
        (CodeExplorable,),
        traits
        | {
            "functions": {name: _by_name(f, arguments) for name, f in functions.items()},
            "fixed": fixed,
            "axis_names": named,
            "parameters": {
                n: dict(f.named_parameters()) for n, f in functions.items() if isinstance(f, torch.nn.Module)
            },
            "arguments": shown,
            "dtypes": {own: values[name].dtype for own, name in shown.items()},
            "learned": {own: values[name].requires_grad for own, name in shown.items()},
            "random_state": torch.get_rng_state(),
            "presets": {"as given": as_given},
            "preset": t.Enum(["as given"], "as given"),
            "function": t.Enum(list(functions), chosen).tag(state="input"),
            "__module__": __name__,
        },
    )
    explorable: CodeExplorable = kind(**options)
    if len(functions) == 1 and explorable.state == "ready":
        try:
            _require_fitting(named, explorable.tape)
        except ValueError:
            explorable.close()
            raise
    return explorable


def _free(name: str, taken: set[str]) -> str:
    """The trait for an argument: of the same name, where an explorable has nothing else that is called so."""
    trait = name.lstrip("_") or "argument"
    while hasattr(CodeExplorable, trait) or trait in _RESERVED or (trait != name and trait in taken):
        trait += "_"
    return trait


def _as_tensor(value: Any, name: str) -> Tensor:
    try:
        return torch.as_tensor(value)
    except (TypeError, ValueError, RuntimeError, OverflowError):
        raise ValueError(f"{name}: expected a tensor, or numbers that make one, got {value!r:.60}") from None


def _require_fitting(axes: Mapping[str, Sequence[str]], tape: Tape | None) -> None:
    """Refuses axis names for a variable that never has as many axes."""
    if tape is None or not tape.calls:
        return
    shapes: dict[str, list[tuple[int, ...]]] = {}
    for version in tape.versions():
        shapes.setdefault(stage_name(version), []).append(version.shape)
    for name, own in axes.items():
        if name in shapes and all(len(shape) != len(own) for shape in shapes[name]):
            raise ValueError(
                f"axes of {name}: expected {len(shapes[name][0])} names for the shape "
                f"{' × '.join(map(str, shapes[name][0]))}, got {', '.join(own)}"
            )


def _name(function: Callable[..., Any]) -> str:
    return getattr(function, "__name__", type(function).__name__)


def _require_plain(function: Callable[..., Any]) -> None:
    """Refuses functions whose body doesn't run when they are called."""
    target: Any = function.forward if isinstance(function, torch.nn.Module) else function
    while isinstance(target, functools.partial):
        target = target.func
    if not callable(target):
        raise ValueError(f"expected a function or a module, got {type(target).__name__}")
    for call in (target, vars(type(target)).get("__call__")):
        if inspect.isgeneratorfunction(call) or inspect.isasyncgenfunction(call):
            raise ValueError(
                f"{_name(function)}: expected a function that returns, got a generator function, "
                "which computes nothing when it is called; return a list instead of using yield"
            )
        if inspect.iscoroutinefunction(call):
            raise ValueError(
                f"{_name(function)}: expected a plain function, got an async one, "
                "which computes nothing when it is called; leave the word async out"
            )


def _require_computed(result: Any) -> None:
    if inspect.isgenerator(result) or inspect.iscoroutine(result):
        result.close()
        raise ValueError(f"it returned a {type(result).__name__}, which computes nothing until it is used")


def _arguments(function: Callable[..., Any], count: int) -> list[str]:
    """The names of the first `count` arguments."""
    target = function.forward if isinstance(function, torch.nn.Module) else function
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    try:
        signature = inspect.signature(target)
    except ValueError:
        raise ValueError(
            f"{_name(function)}: its arguments have no names; wrap it in a function of yours that names them"
        ) from None
    named = [p for p in signature.parameters.values() if p.kind in kinds]
    least = sum(p.default is inspect.Parameter.empty for p in named)
    if not least <= count <= len(named):
        expected = str(least) if least == len(named) else f"{least} to {len(named)}"
        raise ValueError(
            f"{_name(function)}: expected {expected} tensors "
            f"({', '.join(p.name for p in named) or 'it names no arguments'}), got {count}"
        )
    return [p.name for p in named[:count]]


def _by_name(function: Callable[..., Any], arguments: Sequence[str]) -> Callable[[Mapping[str, Tensor]], Any]:
    """The function, taking its arguments by name."""

    def call(given: Mapping[str, Tensor]) -> Any:
        # Of a module of torch's own this line is the only one of the program that is seen: it returns.
        return function(*(given[name] for name in arguments))

    return call


def _named(tape: Tape) -> Tape:
    """Names what one line alone doesn't name.

    What a module of torch's own makes has no variable in the reader's code: it is called by the call. What an
    expression makes one after the other (`q, k, v = [f(x) for f in …]`) has the variables in their order.
    """
    repeated: dict[Any, list[Version]] = {}
    for call in tape.calls:
        if call.spot.each and len(call.outputs) == 1:
            repeated.setdefault((call.spot.each, call.place.callers), []).extend(call.outputs)
    for (names, _), versions in repeated.items():
        if len(versions) % len(names) == 0:  # else some had no value, or one that was there before
            for position, version in enumerate(versions):
                version.name = version.name or names[position % len(names)]
    for call in tape.calls:
        if _is_ours(call.place.code):
            for version in call.outputs:
                version.name = version.name or call.name
    return tape


def _why(tape: Tape, error: Exception) -> str:
    """Line, torch's own message, and the shapes that met."""
    message = " ".join(str(error).split())
    call = tape.failed
    frames = list(_frames(error))
    # Code may catch what torch raised, and stop for another reason later.
    if call is not None and (call.place.code, call.place.instruction) in frames:
        met = ", ".join(
            f"{stage_name(v)} {' × '.join(map(str, v.shape)) or 'a single number'}" for v in call.inputs
        )
        where = "The code" if _is_ours(call.place.code) else f"Line {call.spot.line}"
        text = call.name if _is_ours(call.place.code) else call.spot.text
        return f"{where} stopped: {text} · torch says: {message} · what met: {met}"
    frames = [frame for frame in frames if not _is_ours(frame[0])]
    what = f"{type(error).__name__}: {message}" if message else type(error).__name__
    if not frames:
        return f"The code stopped: {what}"
    place = Place(*frames[-1])
    line = next(islice(place.code.co_positions(), place.instruction // 2, None))[0]
    text = linecache.getline(place.code.co_filename, line or 0).strip()
    return f"Line {line} stopped: {text} · {what}" if text else f"Line {line} stopped · {what}"


def _frames(error: Exception) -> Iterator[tuple[CodeType, int]]:
    """Where an exception went through, without what torch does inside."""
    step = error.__traceback__
    while step is not None:
        if not step.tb_frame.f_code.co_filename.startswith(_TORCH):
            yield step.tb_frame.f_code, step.tb_lasti
        step = step.tb_next


def _is_ours(code: CodeType) -> bool:
    """Does this call the reader's code, or record it, rather than belong to it?"""
    return code.co_filename in _OURS


def _result(
    tape: Tape, arguments: Mapping[str, str], fixed: set[str], stopped: str, axes: Mapping[str, Sequence[str]]
) -> Result:
    """Each named intermediate as a stage, in order; later states of one variable are told apart by line.

    `arguments`: trait → the argument of the code that it is.
    """
    inputs = {name: trait for trait, name in arguments.items()}
    versions: dict[str, Version] = {}
    stages: dict[str, dict[str, Any]] = {}
    hidden: dict[str, list[str]] = {}
    allowed: dict[str, Tensor] = {}
    doubled = {_written_back(call) for call in tape.calls}
    for version in tape.versions():
        call = version.call
        if call is None:
            shown = version.name in inputs or version.name in fixed
        else:
            shown = has_name(version) and version not in doubled
        if not shown:
            continue
        title = stage_name(version)
        if call is not None and call.spot.returned and not call.spot.names and not version.name:
            title = "returned"
        if title in axes and not version.given_axes and len(axes[title]) == len(version.shape):
            version.given_axes = tuple(axes[title])
        key = inputs.get(version.name, version.name) if call is None else f"{title}#{len(versions)}"
        size = version.values.numel()
        if not 0 < size <= MAX_DRAWN or version.values.is_complex():
            why = "Too large to draw" if size else "Empty, nothing to draw"
            if version.values.is_complex():  # two numbers in one cell
                why = "Complex, not drawn"
            hidden.setdefault(why, []).append(f"{title} ({' × '.join(map(str, version.shape))})")
            continue
        versions[key] = version
        stages[key] = {
            "title": title,
            "axes": list(axes_of(version)),
            "note": "" if call is None or _is_ours(call.place.code) else f"line {call.spot.line}",
            "ramp": "signed" if version.values.is_floating_point() else "",
            "group": key,
            "editable": key in arguments,
            "limit": LIMIT,
            "plainText": len(version.shape) != 2,
        }
        masked = _masked(version)
        if masked is not None and masked.any():
            allowed[f"{key}:allowed"] = ~masked
            stages[key]["masked"] = f"{key}:allowed"
    given = [{"stage": key} for key, version in versions.items() if version.call is None]
    made = [{"stage": key} for key, version in versions.items() if version.call is not None]
    return Result(
        tensors={key: _drawable(version.values) for key, version in versions.items()} | allowed,
        versions=versions,
        stages=stages,
        layout_blocks=[
            {"kind": "grids", "items": given},
            {"kind": "message"},
            {"kind": "checks"},
            {"kind": "grids", "items": made},
            {"kind": "readout"},
            {"kind": "explanation"},
        ],
        checks=[(check, 0) for check in check_code(tape)] if not stopped else [],
        message=" ".join(f"{why}: {', '.join(names)}." for why, names in hidden.items()),
        limits={"decimals": 8},
        tape=tape,
        stopped=stopped,
    )


def _written_back(call: Call) -> Version | None:
    """Of `x[0] += 1`, which writes into a view of x and then that view into x: x between the two."""
    between = call.before(0) if call.name == "setitem" else None
    if between is None or between.call is None or between.call.name != "shared storage":
        return None
    return between if between.call.args[-1] is call.args[2] else None


def _masked(version: Version) -> Tensor | None:
    """Where a mask has put −∞ (not an overflow), and where the softmax of that is 0; None for neither."""
    call = version.call
    if call is None:
        return None
    if call.name in ("masked_fill", "where", "add", "sub", "setitem"):
        # By a mask only if what was masked was still finite there.
        before = next(
            (v for v in call.inputs if v.shape == version.shape and v.values.is_floating_point()), None
        )
        fresh = version.values.isneginf() if version.values.is_floating_point() else None
        if before is None or fresh is None or not fresh.any():
            return fresh
        if call.name in ("add", "sub"):
            fresh = fresh & _added_infinity(call, before)
        earlier = _masked(before)
        return fresh & (before.values.isfinite() | (earlier if earlier is not None else fresh.new_zeros(())))
    if call.name in ("softmax", "contiguous", "clone", "detach") and call.inputs:
        return _masked(call.inputs[0])
    return None


def _added_infinity(call: Call, before: Version) -> Tensor:
    """Where the other term of a sum is itself infinite: else the sum has overflowed."""
    for value in (*call.args[:2], call.kwargs.get("other")):
        if isinstance(value, Version) and value is not before:
            return value.values.isinf()
        if isinstance(value, float):
            return torch.tensor(math.isinf(value))
    return torch.tensor(False)


def _drawable(values: Tensor) -> Tensor:
    return values if values.is_floating_point() or values.dtype == torch.bool else values.double()


def _as_text(name: str, version: Version) -> str:
    rows = version.values.double().reshape(-1, version.shape[-1] if version.shape else 1).tolist()
    shape = " × ".join(map(str, version.shape))
    return f"{name.split('#')[0]} · {shape}\n" + "\n".join("\t".join(map(repr, row)) for row in rows)
