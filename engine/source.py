"""Which line of a program made a tensor, and what it called it. Read from the code that ran, afterwards."""

import ast
import linecache
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from types import CodeType

__all__ = ["Place", "Spot", "spot"]

Positions = tuple[int | None, int | None, int | None, int | None]


@dataclass(frozen=True)
class Place:
    """A point of a running program: cheap to note down while it runs, read later by `spot`."""

    code: CodeType
    instruction: int


@dataclass(frozen=True)
class Spot:
    """What the source says at a place.

    `names` are the variables that the value of the expression is assigned to (several where it is
    unpacked), `text` is the expression itself, `returned` says that its value is what the function
    returns, `is_store` that the expression is a target (`x[i] = …`, `x += …`).
    """

    file: str
    line: int
    names: tuple[str, ...]
    text: str
    returned: bool = False

    def context(self, before: int = 3, after: int = 3) -> list[tuple[int, str]]:
        """The lines around, as (number, text), read from the file that ran; empty where there is none."""
        lines = linecache.getlines(self.file)
        first = max(1, self.line - before)
        return [(n, lines[n - 1].rstrip("\n")) for n in range(first, min(len(lines), self.line + after) + 1)]


@lru_cache(maxsize=4096)
def spot(place: Place) -> Spot:
    """Looks a place up in its source. Without source only file and line are known."""
    positions = next(islice(place.code.co_positions(), place.instruction // 2, None), (None,) * 4)
    line = positions[0] or place.code.co_firstlineno
    file = place.code.co_filename
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
            for expression, names, returned in _values(statement):
                spots[_position(expression)] = Spot(
                    file, expression.lineno, names, _text(expression), returned
                )
    # Expressions inside others have no name of their own; their text tells them.
    for node in ast.walk(tree):
        if isinstance(node, ast.expr):
            spots.setdefault(_position(node), Spot(file, node.lineno, (), _text(node)))
    return spots


def _values(statement: ast.stmt) -> Iterator[tuple[ast.expr, tuple[str, ...], bool]]:
    """The expressions whose value a statement assigns or returns, with the names given."""
    if isinstance(statement, ast.Assign | ast.AnnAssign | ast.AugAssign) and statement.value is not None:
        targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
        names = _names(targets[0])
        if isinstance(statement, ast.AugAssign):
            # `x += y` runs at the position of the whole statement.
            change = ast.BinOp(statement.target, statement.op, statement.value)
            yield ast.copy_location(change, statement), names, False
        else:
            for target in targets:
                if isinstance(target, ast.Subscript):
                    yield target, _names(target.value), False
            if not isinstance(targets[0], ast.Subscript):
                for value in _branches(statement.value):
                    yield value, names, False
    elif isinstance(statement, ast.Return) and statement.value is not None:
        for value in _branches(statement.value):
            yield value, (), True
    elif isinstance(statement, ast.Expr):
        # `x.masked_fill_(…)` as a statement of its own changes x.
        call = statement.value
        if (
            isinstance(call, ast.Call)
            and isinstance(call.func, ast.Attribute)
            and call.func.attr.endswith("_")
        ):
            yield call, _names(call.func.value), False


def _branches(value: ast.expr) -> Iterator[ast.expr]:
    """The value itself, or both sides of `a if c else b`."""
    if isinstance(value, ast.IfExp):
        yield from _branches(value.body)
        yield from _branches(value.orelse)
    elif isinstance(value, ast.NamedExpr):
        yield from _branches(value.value)
    else:
        yield value


def _names(target: ast.expr) -> tuple[str, ...]:
    if isinstance(target, ast.Tuple | ast.List):
        return tuple(name for element in target.elts for name in (_names(element) or ("",))[:1])
    if isinstance(target, ast.Name | ast.Attribute):
        return (ast.unparse(target),)
    return ()


def _position(node: ast.expr) -> Positions:
    return (node.lineno, node.end_lineno, node.col_offset, node.end_col_offset)


def _text(node: ast.expr) -> str:
    try:
        return ast.unparse(node)
    except Exception:  # a node made here, without the parts that unparse wants
        return ""
