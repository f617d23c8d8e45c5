"""Every word that the scripts show. They hold none, so a second language is a second file like this."""

from typing import Any

__all__ = ["AXIS_NAMES", "BAR_WORDS", "VIEW_WORDS", "sentence"]

AXIS_NAMES = {
    "d_k": "dₖ",
    "d_v": "dᵥ",
    "d_in": "d in",
    "d_out": "d out",
    "d_out_linear": "out",
    "kv_head": "key/value head",
    "kv_width": "key/value width",
    "other_key": "other key",
    "example_key": "key",
}

_DISCONNECTED = "No answer from Python. Your numbers are still here; if this stays, reload the page."

VIEW_WORDS: dict[str, Any] = {
    "axes": AXIS_NAMES,
    "looks": {
        "unreached": "not computed yet",
        "masked": "masked",
        "dropped": "dropped",
        "nan": "not a number",
        "infinite": "overflowed",
    },
    "flags": {"empty_rows": "no key allowed"},
    "sizes": "Sizes",
    "grow": "one more {0}",
    "shrink": "one {0} less",
    "asText": "as text",
    "asTextOf": "{0} as text",
    "textOf": "{0} as text, rows on lines, columns by spaces",
    "apply": "Apply",
    "applyTo": "Apply to {0}",
    "total": "sum",
    "sort": "sort by this column",
    "checks": "Checks",
    "holds": "✓ holds",
    "fails": "✗ fails",
    "stale": "Below is the last good result.",
    "disconnected": _DISCONNECTED,
    "canvasHint": "Arrow keys move from number to number; its digits stand below.",
    "formula": "Formula of the chosen number",
    "letGo": "let this number go",
    "sourceTitle": "The line that computed it",
    "madeFrom": "It was given:",
    "explainHint": "Choose a number, by a click or with the space bar, and it explains itself here. "
    "Escape lets it go.",
    "thisNumber": "This number:",
    "gradientOf": "gradient of the chosen number {0}",
    "readoutHint": "Point at a number to see all its digits and the cells that belong to it.",
    "editHint": "drag sideways, or type",
    "toggleHint": "click or press space to switch it",
}

BAR_WORDS = {
    "disconnected": _DISCONNECTED,
    "copyByHand": "This browser lets no page copy here. Copy it from here:",
    "linkCopied": "Link copied",
    "copied": "Copied",
    "add": "add an operation",
    "item": "operation {0}",
    "earlier": "move operation {0} earlier",
    "later": "move operation {0} later",
    "remove": "remove operation {0}",
}


def sentence(text: str) -> str:
    """An error as a sentence on the page."""
    text = text.rstrip(".")
    return f"{text[:1].upper()}{text[1:]}."
