"""`%%explore`: a notebook cell whose PyTorch code explains itself. Only notebooks, which run code anyway."""

import ast
import inspect
import itertools
import linecache
from collections.abc import Callable, Mapping
from types import CodeType
from typing import Any

import torch
from torch import Tensor

from attnlab.engine import unrecorded
from attnlab.widgets.code import CodeExplorable, explore
from attnlab.widgets.read_only import ReadOnlyTensor
from attnlab.widgets.snapshot import copied, names_in

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
    the cell reads before it assigns them. The variables of the cell are there afterwards, as after any cell:
    the notebook has the values that the screen shows first. A run after an edit starts from the namespace as
    it was before the cell, with copies of its tensors and plain containers, and leaves the notebook alone.

    Raises `ValueError` for a name that is no tensor or comes twice, `SyntaxError` for what is no Python.
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
    twice = next((name for name in names if names.count(name) > 1), "")
    if twice:
        raise ValueError(f"%%explore {' '.join(names)}: expected each name once, got {twice} several times")
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
    after: list[Tensor] = []
    explorable = explore(_runner(code, namespace, chosen, after), *(namespace[name] for name in chosen))
    for state in after:  # what the cell has drawn is drawn
        torch.set_rng_state(state)
    return explorable


def _runner(
    code: CodeType, namespace: dict[str, Any], chosen: list[str], after: list[Tensor]
) -> Callable[..., Any]:
    """The cell as a function of the chosen tensors. Its first run leaves its variables in the notebook.

    Where that run leaves the generator of random numbers is put into `after`. Every later run finds the
    names of the cell as they were before the first one, and the notebook finds its own again after it.
    """
    names = names_in(code, namespace)
    before = copied({name: namespace[name] for name in names & namespace.keys()})
    runs = itertools.count()

    def run(given: Mapping[str, Tensor]) -> None:
        if next(runs) == 0:
            own = {name: namespace[name] for name in given}
            try:
                _execute(code, namespace, given)
            finally:
                _give_back(namespace, own, given)
                after.append(torch.get_rng_state())
            return
        now = dict(namespace)
        try:
            for name in names & namespace.keys():
                del namespace[name]
            _execute(code, namespace, {**copied(before), **given})
        finally:
            namespace.clear()
            namespace.update(now)

    def cell(*tensors: Tensor) -> None:
        return run(dict(zip(chosen, tensors, strict=True)))

    # `explore` reads the names of the arguments from the signature.
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    cell.__signature__ = inspect.Signature([inspect.Parameter(n, kind) for n in chosen])  # type: ignore[attr-defined]
    return cell


def _execute(code: CodeType, namespace: dict[str, Any], given: Mapping[str, Any]) -> None:
    """Runs the cell in the notebook's own namespace, so that functions of other cells see what it assigns."""
    namespace.update(given)
    had_builtins = "__builtins__" in namespace
    try:
        exec(code, namespace)
    finally:
        if not had_builtins:
            namespace.pop("__builtins__", None)


def _give_back(namespace: dict[str, Any], own: Mapping[str, Tensor], given: Mapping[str, Tensor]) -> None:
    """The notebook's own tensors in place of the copies that the cell was given and may have written into."""
    with unrecorded(), torch.no_grad():
        for name, copy in given.items():
            tensor = own[name]
            if copy.grad is not None:
                tensor.grad = copy.grad if tensor.grad is None else tensor.grad + copy.grad
            if copy._version or not torch.equal(copy, tensor):
                if copy.shape != tensor.shape or isinstance(tensor, ReadOnlyTensor):
                    continue
                tensor.copy_(copy)
            namespace.update({other: tensor for other, value in namespace.items() if value is copy})


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
