"""`%%explore`: a notebook cell whose PyTorch code explains itself. Only notebooks, which run code anyway."""

import ast
import itertools
import linecache
from collections.abc import Callable, Mapping
from typing import Any

from torch import Tensor

from attnlab.widgets.code import CodeExplorable, explore

__all__ = ["load_ipython_extension"]

_numbers = itertools.count(1)


def load_ipython_extension(shell: Any) -> None:
    """Makes `%%explore` available: `%load_ext attnlab.widgets`."""

    def magic(line: str, cell: str) -> CodeExplorable:
        return explore_cell(cell, shell.user_ns, line.split())

    shell.register_magic_function(magic, magic_kind="cell", magic_name="explore")


def explore_cell(cell: str, namespace: dict[str, Any], names: list[str]) -> CodeExplorable:
    """Runs `cell` as its notebook would and shows every tensor that it names.

    `names` are the tensors that can be edited; without any, all floating-point tensors of `namespace` that
    the cell reads before it assigns them. The variables of the cell are there afterwards, as after any cell.

    Raises `ValueError` for a name that is no tensor, `SyntaxError` for a cell that is no Python.
    """
    file = f"<explore {next(_numbers)}>"
    tree = ast.parse(cell, file)
    linecache.cache[file] = (len(cell), None, cell.splitlines(keepends=True), file)
    code = compile(tree, file, "exec")
    for name in names:
        if not isinstance(namespace.get(name), Tensor):
            raise ValueError(
                f"%%explore {name}: expected a tensor of this notebook, got {namespace.get(name)!r:.60}"
            )
    chosen = names or [
        name
        for name in _read_first(tree)
        if isinstance(namespace.get(name), Tensor) and namespace[name].is_floating_point()
    ]
    if not chosen:
        raise ValueError(
            "expected a cell that uses at least one floating-point tensor of this notebook; "
            "make the inputs in a cell before, or name them: %%explore x w"
        )
    return explore(_runner(code, namespace, chosen), *(namespace[name] for name in chosen))


def _runner(code: Any, namespace: dict[str, Any], chosen: list[str]) -> Callable[..., Any]:
    """The cell as a function of the chosen tensors. Its first run leaves its variables in the notebook."""
    runs = itertools.count()

    def run(given: Mapping[str, Tensor]) -> None:
        scope = {**namespace, **given}
        try:
            exec(code, scope)
        finally:
            if next(runs) == 0:
                made = {name: value for name, value in scope.items() if name != "__builtins__"}
                # The inputs were copies; the notebook keeps its own, unless the cell assigned new ones.
                namespace.update({n: value for n, value in made.items() if value is not given.get(n)})

    # `explore` reads the names of the arguments from the signature, so the function gets one that says them.
    arguments = ", ".join(chosen)
    scope: dict[str, Any] = {"run": run}
    exec(f"def cell({arguments}):\n    return run(dict({', '.join(f'{n}={n}' for n in chosen)}))", scope)
    function: Callable[..., Any] = scope["cell"]
    return function


def _read_first(tree: ast.Module) -> list[str]:
    """Names that are read before they are assigned at the top level of the cell, in order."""
    assigned: set[str] = set()
    found: dict[str, None] = {}
    for statement in tree.body:
        names = [node for node in ast.walk(statement) if isinstance(node, ast.Name)]
        names.sort(key=lambda node: (node.lineno, node.col_offset))
        for node in names:
            if isinstance(node.ctx, ast.Load) and node.id not in assigned:
                found.setdefault(node.id)
        if isinstance(statement, ast.AugAssign) and isinstance(statement.target, ast.Name):
            found.setdefault(statement.target.id)
        assigned.update(node.id for node in names if isinstance(node.ctx, ast.Store))
        if isinstance(statement, ast.FunctionDef | ast.ClassDef):
            assigned.add(statement.name)
    return list(found)
