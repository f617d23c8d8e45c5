"""The mathematics of attention in plain PyTorch, every intermediate kept and named."""

from attnlab.engine.attention import AttentionTrace, attend
from attnlab.engine.checks import Check, blocked_weights, check_attention, fused_agreement, row_sums
from attnlab.engine.column_softmax import ColumnSoftmaxTrace, softmax_over_columns
from attnlab.engine.dropout import (
    DropoutTrace,
    MAX_KEYS,
    MaskTableTrace,
    SampleTrace,
    drop,
    every_mask,
    expectation,
    keep_masks,
    mask_probability,
    sample_keep,
    sample_statistics,
    sum_rows,
)
from attnlab.engine.dropout_left_on import (
    FunctionalTrace,
    NoGradTrace,
    functional_still_drops,
    no_grad_still_drops,
)
from attnlab.engine.dropout_mistakes import (
    BeforeSoftmaxTrace,
    WrongFactorTrace,
    divide_by_p,
    drop_before_softmax,
)
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
    format_matrices,
    format_matrix,
    format_number,
    parse_matrices,
    parse_matrix,
    parse_number,
    require_in_range,
)
from attnlab.engine.row import RowTrace, attention_row
from attnlab.engine.trace import Stage, Trace
from attnlab.engine.call import Call, Version
from attnlab.engine.recorder import Tape, record, unrecorded
from attnlab.engine.explain import Explanation, Operand, explain
from attnlab.engine.gradient import gradient

__all__ = [
    "MAX_KEYS",
    "AttentionTrace",
    "BeforeSoftmaxTrace",
    "Call",
    "Check",
    "ColumnSoftmaxTrace",
    "DropoutTrace",
    "Explanation",
    "FunctionalTrace",
    "MaskTableTrace",
    "MatrixError",
    "NoGradTrace",
    "Operand",
    "RowTrace",
    "SampleTrace",
    "Stage",
    "Tape",
    "Trace",
    "Version",
    "WrongFactorTrace",
    "attend",
    "attention_row",
    "bidirectional",
    "blocked_weights",
    "causal",
    "causal_alignment",
    "check_attention",
    "combine",
    "divide_by_p",
    "drop",
    "drop_before_softmax",
    "empty_rows",
    "every_mask",
    "expectation",
    "explain",
    "format_matrices",
    "format_matrix",
    "format_number",
    "from_ignored",
    "functional_still_drops",
    "fused_agreement",
    "gradient",
    "keep_masks",
    "mask_probability",
    "no_grad_still_drops",
    "parse_matrices",
    "parse_matrix",
    "parse_number",
    "record",
    "require_in_range",
    "row_sums",
    "sample_keep",
    "sample_statistics",
    "softmax_over_columns",
    "sum_rows",
    "to_additive",
    "unrecorded",
]
