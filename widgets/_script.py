"""The scripts and styles beside the widgets' Python files.

anywidget sends each widget one script. Ours import small shared modules (`import … from "./x.js"`),
which `node --test` can load as they are; here they are joined into the one script, each module once
and in order, with its `import` and `export` keywords taken off.
"""

import re
from functools import cache
from pathlib import Path

_FOLDER = Path(__file__).parent
# Every widget sends its script again: what only a reader of the file needs stays at home. (No text in a
# script goes over several lines, so a line begins with nothing but its indentation; a test checks it.)
_COMMENT = re.compile(r"^ *(//.*|/\*\*(.|\n)*?\*/)?\n", re.MULTILINE)
_INDENTATION = re.compile("^ +", re.MULTILINE)
_IMPORT = re.compile(r'^import \{[^}]*\} from "\./([\w-]+)\.js";\n', re.MULTILINE)


@cache
def script(stem: str) -> str:
    """The script `stem`.js with the local modules that it imports written before it."""
    written: dict[str, str] = {}
    _collect(stem, written)
    *modules, main = written
    # Only the main script keeps its exports; names are unique across the modules (a test checks it).
    texts = [
        re.sub(r"^export (?=const|function|async)", "", written[module], flags=re.MULTILINE)
        for module in modules
    ]
    return "\n".join([*texts, written[main]])


@cache
def style(stem: str) -> str:
    """The style sheet shared by all widgets, and the one of `stem`."""
    return "\n".join((_FOLDER / f"{name}.css").read_text(encoding="utf-8") for name in ("theme", stem))


def _collect(stem: str, written: dict[str, str]) -> None:
    text = (_FOLDER / f"{stem}.js").read_text(encoding="utf-8")
    for module in _IMPORT.findall(text):
        if module not in written:
            _collect(module, written)
    written[stem] = _INDENTATION.sub(" ", _COMMENT.sub("", _IMPORT.sub("", text)))
