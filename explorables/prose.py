"""Markdown cells as HTML for the page: plain headings, formulas in MathML, wide things that scroll."""

import logging
import re
from html import escape
from typing import Any

from voila.exporter import VoilaMarkdownRenderer

from attnlab.explorables.formulas import UnknownTexError, mathml


class ProseRenderer(VoilaMarkdownRenderer):
    """Voilà's renderer without the ¶ links, and with formulas that need no script."""

    def heading(self, text: str, level: int, **attrs: Any) -> str:
        """A heading that can be linked to, without a mark beside it."""
        plain = re.sub(r"<[^>]*>|&[^;]*;", "", text)
        anchor = "-".join(re.findall(r"\w+", plain.lower()))
        return f'<h{level} id="{anchor}">{text}</h{level}>\n' if anchor else f"<h{level}>{text}</h{level}>\n"

    def paragraph(self, text: str) -> str:
        """Text between empty lines."""
        return str(super().paragraph(_kept(text)))

    def block_text(self, text: str) -> str:
        """The text of a list's item."""
        return str(super().block_text(_kept(text)))

    def inline_math(self, body: str) -> str:
        """`$…$`"""
        return _formula(body, display=False)

    def block_math(self, body: str) -> str:
        """`$$…$$`, which scrolls inside itself on a small screen."""
        return f'<span class="attnlab-formula" tabindex="0">{_formula(body, display=True)}</span>'

    def block_code(self, code: str, info: str | None = None) -> str:
        """Code can be wider than the screen, so the keyboard must reach it to scroll."""
        return str(super().block_code(code, info)).replace("<pre>", '<pre tabindex="0">', 1)

    def table(self, text: str) -> str:
        """A table in a box of its own that scrolls."""
        return f'<div class="attnlab-scroll" tabindex="0">\n<table>\n{text}</table>\n</div>\n'


def _kept(text: str) -> str:
    """A full stop stays with the formula before it; browsers would begin a line with it."""
    formula = r'<math display="inline">(?:(?!</math>).)*</math>[.,;:!?)]+'
    return re.sub(formula, r'<span class="attnlab-kept">\g<0></span>', text, flags=re.DOTALL)


def _formula(tex: str, display: bool) -> str:
    try:
        return mathml(tex, display)
    except UnknownTexError as error:
        # The author should see it, the reader should still get the page.
        logging.getLogger(__name__).warning("Shown as TeX: %s", error)
        return f"<code>{escape(tex)}</code>"
