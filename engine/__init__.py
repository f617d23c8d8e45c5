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

__all__ = [
    "AttentionTrace",
    "Check",
    "MatrixError",
    "RowTrace",
    "Stage",
    "Trace",
    "attend",
    "attention_row",
    "bidirectional",
    "blocked_weights",
    "causal",
    "causal_alignment",
    "check_attention",
    "combine",
    "empty_rows",
    "format_matrix",
    "format_number",
    "from_ignored",
    "fused_agreement",
    "parse_matrix",
    "parse_number",
    "require_in_range",
    "row_sums",
    "to_additive",
]
