"""Matrices as people type and paste them: a strict grammar of numbers, nothing is ever evaluated.

Rows are separated by new lines or `;`, columns by spaces, tabs or `,`. Pasted Python and NumPy
(`[[1, 0], [0, 1]]`, `array([[1., 0.]])`, `tensor(...)`) and spreadsheet cells work too. Where several
matrices stand in one text, an empty row separates them.
"""

import math
import re
from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

__all__ = [
    "MatrixError",
    "format_matrices",
    "format_matrix",
    "format_number",
    "parse_matrices",
    "parse_matrix",
    "parse_number",
    "require_in_range",
]

MAX_ROWS = 16
MAX_COLUMNS = 16
LIMIT = 100.0

_NUMBER = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_WRAPPER = re.compile(r"\s*(?:(?:np|numpy|torch)\.)?(?:array|tensor|matrix)\s*\((.*)\)\s*", re.DOTALL)
_ATTRIBUTE = re.compile(r"\s*(?:dtype|device|requires_grad|grad_fn)\s*=\s*[\w.:'<>]+\s*")
_EMPTY_ROW = re.compile(r"(?:\r?\n|;)[ ]*(?:\r?\n|;)")
_BETWEEN_LISTS = re.compile(r"(?<=\])\s*,?\s*(?=\[\s*\[)")
_MAX_TOKEN = 40
# Longest text worth reading: every number of the largest matrix at its longest, with room for separators.
_MAX_TEXT_PER_NUMBER = _MAX_TOKEN + 8


class MatrixError(ValueError):
    """Not a matrix within the limits. `row` and `column` of the cell at fault count from 0, or are None."""

    def __init__(self, message: str, row: int | None = None, column: int | None = None) -> None:
        super().__init__(message)
        self.row = row
        self.column = column


def parse_number(text: str, *, name: str = "number", limit: float = LIMIT) -> float:
    """One finite decimal number from −`limit` to `limit`, as Python writes it; a Unicode minus is accepted.

    Raises `MatrixError` with what came.
    """
    return _number(text.strip(), name, limit)


def parse_matrix(
    text: str,
    *,
    name: str = "matrix",
    max_rows: int = MAX_ROWS,
    max_columns: int = MAX_COLUMNS,
    limit: float = LIMIT,
) -> Float[Tensor, "row column"]:
    """A float64 matrix from text.

    `name` begins every message. Raises `MatrixError` for an empty text, a cell that isn't a finite
    number from −`limit` to `limit`, rows of different lengths, and more rows or columns than allowed.
    """
    if len(text) > max(max_rows * max_columns, MAX_ROWS * MAX_COLUMNS) * _MAX_TEXT_PER_NUMBER:
        raise MatrixError(
            f"{name}: expected at most {max_rows} rows of {max_columns} numbers, "
            f"got {len(text):,} characters of text"
        )
    brackets = text.count("[")
    if brackets > 2 * max_rows + 8:  # far more than one for each row, so that nobody has to wait for the rest
        raise MatrixError(f"{name}: expected at most {max_rows} rows in brackets, got {brackets:,} brackets")
    rows = [_cells(line) for line in _lines(text, name)]
    if not rows:
        raise MatrixError(f"{name} is empty: expected at least one row of numbers")
    _require_size(len(rows), max(map(len, rows)), name, max_rows, max_columns)
    numbers = [
        [_number(cell, f"{name} row {i + 1}, column {j + 1}", limit, i, j) for j, cell in enumerate(row)]
        for i, row in enumerate(rows)
    ]
    _require_equal_lengths(numbers, name)
    return torch.tensor(numbers, dtype=torch.float64)


def parse_matrices(
    text: str,
    *,
    name: str = "matrix",
    part: str = "matrix",
    max_matrices: int = MAX_ROWS,
    max_rows: int = MAX_ROWS,
    max_columns: int = MAX_COLUMNS,
    limit: float = LIMIT,
) -> Float[Tensor, "matrix row column"]:
    """Matrices of one size from text, each as `parse_matrix` reads it, with an empty row between two.

    `part` is what one of them is called in messages, which count from 1. Raises `MatrixError` as
    `parse_matrix` does, and for more matrices than allowed or of different sizes.
    """
    limits: dict[str, Any] = {"max_rows": max_rows, "max_columns": max_columns, "limit": limit}
    if len(text) > max_matrices * max(max_rows * max_columns, MAX_ROWS * MAX_COLUMNS) * _MAX_TEXT_PER_NUMBER:
        raise MatrixError(
            f"{name}: expected at most {max_matrices} × {max_rows} × {max_columns} numbers, "
            f"got {len(text):,} characters of text"
        )
    brackets = text.count("[")
    if brackets > max_matrices * (2 * max_rows + 8):
        raise MatrixError(
            f"{name}: expected at most {max_matrices} × {max_rows} rows in brackets, "
            f"got {brackets:,} brackets"
        )
    parts = _matrices(text) or [""]
    if len(parts) > max_matrices:
        raise MatrixError(f"{name}: expected at most {max_matrices} × {part}, got {len(parts)}")
    if len(parts) == 1:
        return parse_matrix(parts[0], name=name, **limits)[None]
    try:
        matrices = [
            parse_matrix(piece, name=f"{name} {part} {i}", **limits) for i, piece in enumerate(parts, 1)
        ]
    except MatrixError as error:
        raise MatrixError(str(error)) from None  # its row is one of a part: the message says of which
    for i, matrix in enumerate(matrices, 1):
        if matrix.shape != matrices[0].shape:
            (rows, columns), (expected, width) = matrix.shape, matrices[0].shape
            raise MatrixError(
                f"{name} {part} {i}: expected {expected} × {width} numbers as in {part} 1, "
                f"got {rows} × {columns}"
            )
    return torch.stack(matrices)


def require_in_range(
    matrix: Float[Tensor, "row column"],
    *,
    name: str = "matrix",
    max_rows: int = MAX_ROWS,
    max_columns: int = MAX_COLUMNS,
    limit: float = LIMIT,
) -> None:
    """The limits of `parse_matrix` for a matrix that did not come as text. Raises `MatrixError`."""
    if matrix.ndim != 2:
        raise MatrixError(f"{name}: expected rows and columns, got a tensor of {matrix.ndim} axes")
    _require_size(matrix.shape[0], matrix.shape[1], name, max_rows, max_columns)
    outside = ~(matrix.abs() <= limit)  # NaN is outside too
    if outside.any():
        row, column = outside.nonzero()[0].tolist()
        raise MatrixError(
            f"{name} row {row + 1}, column {column + 1}: expected a number from {_limits(limit)}, "
            f"got {format_number(matrix[row, column].item())}",
            row,
            column,
        )


def format_number(number: float) -> str:
    """The shortest text that `parse_number` reads back as the same number; integers without a point."""
    if math.isfinite(number) and number == int(number) and abs(number) < 1e15:
        return "-0.0" if math.copysign(1, number) < 0 and number == 0 else str(int(number))
    return repr(number)


def format_matrix(
    matrix: Float[Tensor, "row column"], *, row_separator: str = "\n", separator: str = " "
) -> str:
    """Text that `parse_matrix` reads back as the same matrix, bit for bit."""
    return row_separator.join(separator.join(map(format_number, row)) for row in matrix.tolist())


def format_matrices(
    matrices: Float[Tensor, "matrix row column"], *, row_separator: str = "\n", separator: str = " "
) -> str:
    """Text that `parse_matrices` reads back as the same matrices, bit for bit."""
    return (2 * row_separator).join(
        format_matrix(matrix, row_separator=row_separator, separator=separator) for matrix in matrices
    )


def _matrices(text: str) -> list[str]:
    """The texts of the matrices in one text: between empty rows, or of three nested lists."""
    text = _unwrapped(text)
    body = text.strip()
    if re.match(r"\[\s*\[\s*\[", body) and body.endswith("]"):
        return _BETWEEN_LISTS.split(body[1:-1])
    return [piece for piece in _EMPTY_ROW.split(text) if piece.strip(" \n\r;")]


def _unwrapped(text: str) -> str:
    """Without the `array(…, dtype=…)` around it."""
    wrapped = _WRAPPER.fullmatch(text)
    return _without_attributes(wrapped[1]) if wrapped else text


def _lines(text: str, name: str) -> list[str]:
    text = _unwrapped(text)
    if "[" in text or "]" in text:
        return _bracketed_lines(text.strip(), name)
    if not text.replace(";", "").strip():
        return []
    # A line of nothing but tabs is a row of empty spreadsheet cells; it is refused later, not skipped.
    return [line for line in re.split(r"[\n\r;]+", text) if line.strip(" ")]


def _without_attributes(text: str) -> str:
    """Without the `, dtype=float32, requires_grad=True` that NumPy and torch print after the numbers."""
    while True:
        numbers, comma, last = text.rpartition(",")
        if not comma or not _ATTRIBUTE.fullmatch(last):
            return text
        text = numbers


def _bracketed_lines(text: str, name: str) -> list[str]:
    """The rows of `[[…], […]]`, `[[…] […]]` or `[…]`: brackets pair up and only separators stand between."""
    # Plain string methods: a pattern with `\s*,?\s*` takes quadratic time on a long run of spaces.
    body = text.rstrip(" \t\r\n,;")
    inner = body[1:-1].strip().removesuffix(",").rstrip()
    if body[:1] == "[" and body[-1:] == "]" and inner[:1] == "[" and inner[-1:] == "]":
        body = inner
    rows = re.findall(r"\[([^\[\]]*)\]", body)
    if re.sub(r"\[[^\[\]]*\]", "", body).strip(" \t\r\n,;") or not rows:
        raise MatrixError(
            f"{name}: expected rows in brackets like [[1, 0], [0, 1]], got brackets that do not pair up"
        )
    return [re.sub(r"[\r\n\t]+", " ", row) for row in rows if row.strip() or len(rows) > 1]


def _cells(line: str) -> list[str]:
    line = line.strip(" ")
    if "\t" in line:
        # Spreadsheet cells: an empty cell between two tabs is a missing number, not nothing.
        return [cell.strip().removesuffix(",") for cell in line.split("\t")]
    parts = line.strip().removesuffix(",").split(",")
    return [cell for part in parts for cell in (part.split() or [""])]


def _number(text: str, name: str, limit: float, row: int | None = None, column: int | None = None) -> float:
    if not text:
        raise MatrixError(f"{name} is empty: expected a number", row, column)
    shown = repr(text) if len(text) <= _MAX_TOKEN else f"{text[:12]!r}… ({len(text):,} characters)"
    # U+2212 is the minus sign that this project prints.
    plain = text.replace("\N{MINUS SIGN}", "-")
    if len(text) > _MAX_TOKEN or not _NUMBER.fullmatch(plain):
        raise MatrixError(f"{name}: expected a number from {_limits(limit)}, got {shown}", row, column)
    number = float(plain)
    if not abs(number) <= limit:
        raise MatrixError(f"{name}: expected a number from {_limits(limit)}, got {shown}", row, column)
    if number == 0 and re.search("[1-9]", re.split("[eE]", plain)[0]):
        # What isn't zero must never become zero silently.
        raise MatrixError(f"{name}: expected 0 or a size that float64 can hold, got {shown}", row, column)
    return number


def _limits(limit: float) -> str:
    shown = f"{int(limit):,}" if limit == int(limit) else format_number(limit)
    return f"\N{MINUS SIGN}{shown} to {shown}"


def _require_size(rows: int, columns: int, name: str, max_rows: int, max_columns: int) -> None:
    if not (1 <= rows <= max_rows and 1 <= columns <= max_columns):
        raise MatrixError(
            f"{name}: expected 1 to {max_rows} rows and 1 to {max_columns} columns, got {rows} × {columns}"
        )


def _require_equal_lengths(rows: Sequence[Sequence[float]], name: str) -> None:
    """The message names the odd row and the others: 'K row 2 has 3 numbers; rows 1 and 3 have 2'."""
    lengths = [len(row) for row in rows]
    # The majority is what was probably meant; a tie is decided by the first row.
    usual = max(lengths, key=lambda length: (lengths.count(length), length == lengths[0]))
    odd = next((i for i, length in enumerate(lengths) if length != usual), None)
    if odd is None:
        return
    others = [str(i + 1) for i, length in enumerate(lengths) if length == usual]
    listed = others[0] if len(others) == 1 else f"{', '.join(others[:-1])} and {others[-1]}"
    count = lengths[odd]
    raise MatrixError(
        f"{name} row {odd + 1} has {count} number{'s' * (count != 1)}; "
        f"row{'s' * (len(others) > 1)} {listed} {'has' if len(others) == 1 else 'have'} {usual}",
        odd,
    )
