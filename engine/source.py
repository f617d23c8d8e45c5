"""Which line of a program made a tensor, and what it called it. Read from the code that ran, afterwards."""

import ast
import linecache
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import islice
from types import CodeType
from typing import NamedTuple

__all__ = ["Place", "Spot", "spot"]

_PARTS = ("values", "indices")
"""What `max`, `sort`, `topk` and others return, in order: `m = x.max(-1).values` names the first."""

Positions = tuple[int | None, int | None, int | None, int | None]


class Place(NamedTuple):
    """A point of a running program: cheap to note down while it runs, read later by `spot`."""

    code: CodeType
    instruction: int
    callers: tuple[tuple[CodeType, int], ...] = ()
    """The points of the program that were waiting for it, innermost first."""


@dataclass(frozen=True)
class Spot:
    """What the source says at a place.

    `names` are the variables that the value of the expression is assigned to (several where it is
    unpacked, "" for one without a name), `text` is the expression itself, `returned` says that its value
    is what the function returns, `part` at which place of a tuple (−1 for deeper inside something else).
    `each` are the variables of values that come one after the other: `q, k = [f(x) for f in …]`.
    `item` is which of several results is meant: `m = x.max(-1)[0]`. `calls`: it is a call, not an operator.
    `written` is what a call that writes changes here, when the source alone can say it: (the variable when a
    method of it is called, the variable when it's the first argument).
    """

    file: str
    line: int
    names: tuple[str, ...]
    text: str
    returned: bool = False
    part: int | None = None
    each: tuple[str, ...] = ()
    item: int | None = None
    calls: bool = False
    written: tuple[str, str] = ("", "")

    def context(self, before: int = 3, after: int = 3) -> list[tuple[int, str]]:
        """The lines around, as (number, text), read from the file that ran; empty where there is none."""
        lines = linecache.getlines(self.file)
        first = max(1, self.line - before)
        return [(n, lines[n - 1].rstrip("\n")) for n in range(first, min(len(lines), self.line + after) + 1)]


def spot(place: Place, outputs: int = 1, *, listed: bool = False) -> Spot:
    """Looks a place up in its source. Without source only file and line are known.

    What is returned as soon as it is made has the name that the caller gives it; `outputs` is how many it is.
    `listed`: a single one came in a tuple, so that `[0]` behind it is the whole of it.
    """
    found = _named(place, outputs)
    if found.item is None or (listed and found.item in (0, -outputs)):
        return found
    # Of a single tensor `[0]` takes a row: that is a call of its own.
    name = found.names[0] if found.names and outputs > 1 else ""
    chosen = found.item % outputs if -outputs <= found.item < outputs else outputs
    names = tuple(name if n == chosen else "" for n in range(outputs)) if name else ()
    return replace(found, names=names, returned=found.returned and outputs > 1)


def _named(place: Place, outputs: int) -> Spot:
    own = outer = _at(place.code, place.instruction)
    for code, instruction in place.callers:
        if not outer.returned or outer.names:
            break
        part = outer.part
        outer = _at(code, instruction)
        if outer.each:
            return replace(own, each=outer.each) if part is None and outputs == 1 else own
        if outer.names:
            if part is None and (len(outer.names) == 1 or outputs > 1):
                return replace(own, names=outer.names)
            if part is not None and 0 <= part < len(outer.names) > 1:
                return replace(own, names=(outer.names[part],))
    return own


def _at(code: CodeType, instruction: int) -> Spot:
    positions = next(islice(code.co_positions(), instruction // 2, None), (None,) * 4)
    line = positions[0] or code.co_firstlineno
    file = code.co_filename
    found = _expressions(file, _version(file)).get(positions)
    return found or Spot(file, line, (), linecache.getline(file, line).strip())


def _version(file: str) -> int:
    """Changes when the file does, so that an edited file is read again."""
    linecache.checkcache(file)
    return hash(tuple(linecache.getlines(file)))


@lru_cache(maxsize=64)
def _expressions(file: str, version: int) -> dict[Positions, Spot]:
    """Position → spot for each expression of a file."""
    text = "".join(linecache.getlines(file))
    try:
        tree = ast.parse(text)
    except SyntaxError:
        return {}
    spots: dict[Positions, Spot] = {}
    for statement in ast.walk(tree):
        if isinstance(statement, ast.stmt):
            for expression, names in _values(statement):
                spots[_position(expression)] = Spot(file, expression.lineno, names, _text(expression))
                call, item = _item(expression)
                if call is not None and len(names) == 1:
                    spots[_position(call)] = Spot(file, call.lineno, names, _text(call), item=item)
            for expression, names in _repeated(statement):
                known = spots.get(_position(expression)) or Spot(
                    file, expression.lineno, (), _text(expression)
                )
                spots[_position(expression)] = replace(known, each=names)
            for expression, written in _written(statement):
                spots[_position(expression)] = Spot(
                    file, expression.lineno, (), _text(expression), written=written
                )
        elif isinstance(statement, ast.NamedExpr):
            name, value = statement.target.id, statement.value
            spots[_position(value)] = Spot(file, value.lineno, (name,), _text(value))
    for node in ast.walk(tree):
        result = getattr(node, {ast.Return: "value", ast.Lambda: "body"}.get(type(node), ""), None)
        for expression, part in _returned(result) if result is not None else ():
            made = Spot(file, expression.lineno, (), _text(expression), returned=True, part=part)
            spots.setdefault(_position(expression), made)
            call, item = _item(expression)
            if call is not None:
                of_several = replace(made, text=_text(call), item=item)
                spots.setdefault(_position(call), of_several)
    for loop in ast.walk(tree):
        if isinstance(loop, ast.For):
            spots |= _iterated(file, loop, loop)
        elif isinstance(loop, ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp):
            spots |= _iterated(file, loop, loop.generators[0])
    # Expressions inside others have no name of their own; their text tells them.
    for node in ast.walk(tree):
        if isinstance(node, ast.expr):
            found = spots.setdefault(_position(node), Spot(file, node.lineno, (), _text(node)))
            if isinstance(node, ast.Call):
                found = spots[_position(node)] = replace(found, calls=True)
            attribute = node.func if isinstance(node, ast.Call) else node
            if isinstance(attribute, ast.Attribute) and attribute.lineno != attribute.end_lineno:
                # In a chain over several lines Python notes the line of the link, not of the whole.
                spots[_link(node, attribute)] = replace(found, line=attribute.end_lineno or found.line)
    return spots


def _link(node: ast.expr, attribute: ast.Attribute) -> Positions:
    column = (attribute.end_col_offset or 0) - len(attribute.attr)
    return (attribute.end_lineno, node.end_lineno, column, node.end_col_offset)


def _iterated(
    file: str, whole: ast.stmt | ast.expr, loop: ast.For | ast.comprehension
) -> dict[Positions, Spot]:
    """The tensor that a loop runs over, under the name of its rows; and rows that are taken apart."""
    names = _names(loop.target) if isinstance(loop.target, ast.Name) else ()
    rows = Spot(file, whole.lineno, names, _text(loop.iter))
    # Python 3.11 notes the position of the loop, later ones that of what it runs over.
    found = {_position(whole): rows}
    if isinstance(loop.iter, ast.Name):
        found[_position(loop.iter)] = rows
    for target, parts in _stores(loop.target):
        found[_position(target)] = Spot(file, target.lineno, parts, _text(target))
    return found


def _returned(value: ast.expr, part: int | None = None) -> Iterator[tuple[ast.expr, int | None]]:
    """The expressions whose value a function returns, with their place in a tuple."""
    if isinstance(value, ast.Tuple | ast.List):
        starred = any(isinstance(element, ast.Starred) for element in value.elts)
        for position, element in enumerate(value.elts):
            yield from _returned(element, -1 if starred or part is not None else position)
    elif isinstance(value, ast.Dict):
        for item in value.values:
            yield from _returned(item, -1)
    elif isinstance(value, ast.ListComp | ast.GeneratorExp):
        yield from _returned(value.elt, -1)
    elif isinstance(value, ast.DictComp):
        yield from _returned(value.value, -1)
    else:
        for branch in _branches(value):
            yield branch, part


def _repeated(statement: ast.stmt) -> Iterator[tuple[ast.expr, tuple[str, ...]]]:
    """Expressions that have one value after the other, each for a variable of its own."""
    if not isinstance(statement, ast.Assign) or len(statement.targets) > 1:
        return
    (target,), value = statement.targets, statement.value
    if not isinstance(target, ast.Tuple | ast.List) or any(isinstance(t, ast.Starred) for t in target.elts):
        return
    names = _names(target)
    yield target, names  # where `q, k = map(f, …)` asks for the next one
    if isinstance(value, ast.ListComp | ast.GeneratorExp):
        alone = len(value.generators) == 1 and not value.generators[0].ifs
        if alone and not isinstance(value.elt, ast.IfExp):
            yield value.elt, names


def _values(statement: ast.stmt) -> Iterator[tuple[ast.expr, tuple[str, ...]]]:
    """The expressions whose value a statement assigns, with the names given."""
    if isinstance(statement, ast.Assign | ast.AnnAssign | ast.AugAssign) and statement.value is not None:
        targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
        names = _names(targets[0])
        if isinstance(statement, ast.AugAssign):
            # `x += y` runs at the position of the whole statement.
            change = ast.BinOp(statement.target, statement.op, statement.value)
            yield ast.copy_location(change, statement), names
        else:
            for target in targets:
                yield from _stores(target)
            yield from _assigned(targets[0], statement.value)
    elif isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call):
        # `torch.add(…, out=x)` as a statement of its own changes x.
        out = next((keyword.value for keyword in statement.value.keywords if keyword.arg == "out"), None)
        if out is not None:
            yield statement.value, _names(out)


def _written(statement: ast.stmt) -> Iterator[tuple[ast.expr, tuple[str, str]]]:
    """Expressions that change something without giving it a name, and what: see `Spot.written`."""
    if isinstance(statement, ast.AugAssign) and isinstance(statement.target, ast.Subscript):
        # `x[i] += y` reads and writes at the same position; only what is written there is x.
        yield statement.target, (_changed(statement.target.value), "")
    elif isinstance(statement, ast.Expr):
        call: ast.expr = statement.value
        # `x.add_(1).mul_(2)` writes twice into x.
        while isinstance(call, ast.Call) and not any(keyword.arg == "out" for keyword in call.keywords):
            receiver = call.func.value if isinstance(call.func, ast.Attribute) else None
            yield call, (_changed(receiver), _changed(call.args[0] if call.args else None))
            if receiver is None:
                break
            call = receiver


def _changed(target: ast.expr | None) -> str:
    """The variable that an expression stands for, also as what a method in place gives back."""
    while (
        isinstance(target, ast.Call)
        and isinstance(target.func, ast.Attribute)
        and target.func.attr.endswith("_")
    ):
        target = target.func.value
    return ast.unparse(target) if isinstance(target, ast.Name | ast.Attribute) else ""


def _stores(target: ast.expr) -> Iterator[tuple[ast.expr, tuple[str, ...]]]:
    """Targets that are torch calls themselves: `x[i] = …` writes, `a, b = x` takes apart."""
    if isinstance(target, ast.Subscript):
        yield target, _names(target.value)
    elif isinstance(target, ast.Tuple | ast.List):
        yield target, _names(target)
        for element in target.elts:
            yield from _stores(element)


def _assigned(target: ast.expr, value: ast.expr) -> Iterator[tuple[ast.expr, tuple[str, ...]]]:
    """The expressions of a value, each with the names of what it is assigned to."""
    both = (target, value)
    if all(isinstance(side, ast.Tuple | ast.List) for side in both):
        pairs = list(zip(*(side.elts for side in both), strict=False))  # type: ignore[attr-defined]
        if not any(isinstance(part, ast.Starred) for pair in pairs for part in pair):
            for pair in pairs:
                yield from _assigned(*pair)
    elif not isinstance(target, ast.Subscript) or _names(target):
        names = _names(target)
        for branch in _branches(value):
            yield branch, names


def _item(value: ast.expr) -> tuple[ast.expr | None, int]:
    """The call of whose several results the value is one, and which: `x.max(-1).values`, `lstm(x)[0]`."""
    match value:
        case ast.Attribute(value=ast.Call() as call, attr=part) if part in _PARTS:
            return call, _PARTS.index(part)
        case ast.Subscript(value=ast.Call() as call, slice=ast.Constant(value=int(item))):
            return call, item
        case ast.Subscript(
            value=ast.Call() as call, slice=ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int(item)))
        ):
            return call, -item
    return None, 0


def _branches(value: ast.expr) -> Iterator[ast.expr]:
    """The value itself, or both sides of `a if c else b`."""
    if isinstance(value, ast.IfExp):
        yield from _branches(value.body)
        yield from _branches(value.orelse)
    elif isinstance(value, ast.NamedExpr):
        yield from _branches(value.value)
    else:
        yield value


def _element(target: ast.expr) -> str:
    """One of several targets; in `out, (h, c) = lstm(x)` the second is both, `(h, c)`."""
    if isinstance(target, ast.Tuple | ast.List):
        return f"({', '.join(map(_element, target.elts))})"
    return (_names(target) or ("",))[0]


def _names(target: ast.expr) -> tuple[str, ...]:
    if isinstance(target, ast.Tuple | ast.List):
        return tuple(_element(element) for element in target.elts)
    if isinstance(target, ast.Starred):
        return _names(target.value)
    if isinstance(target, ast.Name | ast.Attribute):
        return (ast.unparse(target),)
    if isinstance(target, ast.Subscript) and isinstance(target.slice, ast.Constant):
        # An entry of a dictionary; by a number it may be a part of a tensor.
        return (ast.unparse(target),) if isinstance(target.slice.value, str) else ()
    return ()


def _position(node: ast.expr | ast.stmt) -> Positions:
    return (node.lineno, node.end_lineno, node.col_offset, node.end_col_offset)


def _text(node: ast.expr) -> str:
    try:
        return ast.unparse(node)
    except Exception:  # a node made here, without the parts that unparse wants
        return ""
