"""The mathematics of attention in plain PyTorch, every intermediate kept and named."""

from attnlab.engine.attention import AttentionTrace, attend
from attnlab.engine.checks import Check, blocked_weights, check_attention, fused_agreement, row_sums
from attnlab.engine.masks import (
    bidirectional,
    causal,
    causal_alignment,
    combine,
    empty_rows,
    from_ignored,
    to_additive,
)
from attnlab.engine.matrix_text import (
    MatrixError,
    format_matrix,
    format_number,
    parse_matrix,
    parse_number,
    require_in_range,
)
from attnlab.engine.row import RowTrace, attention_row
from attnlab.engine.trace import Stage, Trace
from attnlab.engine.recorder import Call, Tape, Version, record
from attnlab.engine.explain import Explanation, Operand, explain
from attnlab.engine.gradient import gradient

__all__ = [
    "AttentionTrace",
    "Call",
    "Check",
    "Explanation",
    "MatrixError",
    "Operand",
    "RowTrace",
    "Stage",
    "Tape",
    "Trace",
    "Version",
    "attend",
    "attention_row",
    "bidirectional",
    "blocked_weights",
    "causal",
    "causal_alignment",
    "check_attention",
    "combine",
    "empty_rows",
    "explain",
    "format_matrix",
    "format_number",
    "from_ignored",
    "fused_agreement",
    "gradient",
    "parse_matrix",
    "parse_number",
    "record",
    "require_in_range",
    "row_sums",
    "to_additive",
]
