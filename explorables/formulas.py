r"""TeX formulas of the prose as MathML, so that they stand on the page at once and need no script.

Only what the notebooks use: letters, numbers, operators, Greek, sub- and superscripts, `\frac`, `\sqrt`,
`\text`, `\mathrm`, `\operatorname`, `\mathbf`, `\mathbb`, accents, `\left … \right` and matrices. Anything
else is refused, and the page shows the TeX itself. (Voilà's MathJax is a megabyte, and late.)
"""

import re
from html import escape

_TOKEN = re.compile(r"\\[A-Za-z]+|\\.|\d+(?:[.,]\d+)*|\s+|.", re.DOTALL)

_GREEK = {
    "alpha": "α", "beta": "β", "gamma": "γ", "delta": "δ", "epsilon": "ϵ", "varepsilon": "ε", "zeta": "ζ",
    "eta": "η", "theta": "θ", "kappa": "κ", "lambda": "λ", "mu": "μ", "nu": "ν", "xi": "ξ", "pi": "π",
    "rho": "ρ", "sigma": "σ", "tau": "τ", "phi": "ϕ", "varphi": "φ", "chi": "χ", "psi": "ψ", "omega": "ω",
    "Gamma": "Γ", "Delta": "Δ", "Theta": "Θ", "Lambda": "Λ", "Xi": "Ξ", "Pi": "Π", "Sigma": "Σ", "Phi": "Φ",
    "Psi": "Ψ", "Omega": "Ω",
}  # fmt: skip
_IDENTIFIERS = _GREEK | {"infty": "∞", "top": "⊤", "partial": "∂", "ell": "ℓ", "nabla": "∇", "emptyset": "∅"}
_OPERATORS = {
    "cdot": "⋅", "times": "×", "div": "÷", "pm": "±", "le": "≤", "leq": "≤", "ge": "≥", "geq": "≥", "ne": "≠",
    "neq": "≠", "approx": "≈", "sim": "∼", "equiv": "≡", "propto": "∝", "in": "∈", "notin": "∉", "to": "→",
    "rightarrow": "→", "mapsto": "↦", "Rightarrow": "⇒", "odot": "⊙", "otimes": "⊗", "oplus": "⊕",
    "circ": "∘",
    "ldots": "…", "dots": "…", "cdots": "⋯", "vdots": "⋮", "mid": "∣", "ast": "∗", "ll": "≪", "gg": "≫",
    "lfloor": "⌊", "rfloor": "⌋", "lceil": "⌈", "rceil": "⌉", "bmod": "mod",
    "langle": "⟨", "rangle": "⟩", "lVert": "‖", "rVert": "‖", "Vert": "‖", "|": "‖", "{": "{", "}": "}",
    "forall": "∀", "cup": "∪", "cap": "∩", "subset": "⊂", "wedge": "∧", "vee": "∨", "neg": "¬",
}  # fmt: skip
_LARGE = {"sum": "∑", "prod": "∏", "int": "∫"}
_LIMITS = ("max", "min", "lim", "argmax", "argmin")  # in displays their subscript stands below
_FUNCTIONS = (*_LIMITS, "exp", "log", "ln", "sin", "cos", "tanh", "softmax", "Pr", "det", "dim")
_SPACES = {
    ",": "0.17em", ":": "0.22em", ";": "0.28em", "!": "-0.17em", " ": "0.33em", "quad": "1em", "qquad": "2em",
}  # fmt: skip
_ACCENTS = {"hat": "^", "bar": "¯", "tilde": "~", "vec": "→", "overline": "‾"}
_FENCES = {"matrix": ("", ""), "pmatrix": ("(", ")"), "bmatrix": ("[", "]"), "cases": ("{", "")}


class UnknownTexError(ValueError):
    """The formula uses TeX beyond the subset of this module."""


def mathml(tex: str, display: bool = False) -> str:
    """A formula as a `<math>` element.

    Raises:
        UnknownTexError: if the formula uses anything outside the subset.
    """
    parser = _Parser(tex)
    body = parser.row(())
    if parser.tokens:
        raise UnknownTexError(f"unexpected {parser.tokens[-1]!r} in {tex!r}")
    return f'<math display="{"block" if display else "inline"}"><mrow>{body}</mrow></math>'


class _Parser:
    def __init__(self, tex: str) -> None:
        self.tokens = _TOKEN.findall(tex)[::-1]  # a stack: the next token is the last

    def next(self) -> str:
        if not self.tokens:
            raise UnknownTexError("the formula ends too early")
        return self.tokens.pop()

    def skip_space(self) -> None:
        while self.tokens and self.tokens[-1].isspace():
            self.tokens.pop()

    def row(self, ends: tuple[str, ...]) -> str:
        """Atoms with their scripts, up to (not including) one of `ends` or the end."""
        parts = []
        self.skip_space()
        while self.tokens and self.tokens[-1] not in (*ends, "}", "&", r"\\", r"\right", r"\end"):
            parts.append(self.scripted())
            self.skip_space()
        return "".join(parts)

    def scripted(self) -> str:
        large = self.tokens[-1].removeprefix("\\") in (*_LARGE, *_LIMITS) and self.tokens[-1].startswith("\\")
        base, scripts = self.atom(), {}
        self.skip_space()
        while self.tokens and self.tokens[-1] in ("_", "^", "'"):
            mark = self.next()
            if mark == "'":
                script, mark = "<mo>′</mo>", "^"
            else:
                script = self.argument()
            if mark in scripts:
                raise UnknownTexError(f"two scripts {mark!r} on one letter")
            scripts[mark] = script
            self.skip_space()
        tag = {"_": "munder" if large else "msub", "^": "mover" if large else "msup"}
        if len(scripts) == 2:
            name = "munderover" if large else "msubsup"
            return f"<{name}>{base}{scripts['_']}{scripts['^']}</{name}>"
        for mark, script in scripts.items():
            return f"<{tag[mark]}>{base}{script}</{tag[mark]}>"
        return base

    def argument(self) -> str:
        self.skip_space()
        return self.atom()

    def raw_group(self) -> str:
        """The text between braces, as it stands."""
        self.skip_space()
        if self.next() != "{":
            raise UnknownTexError("expected {")
        text = ""
        while (token := self.next()) != "}":
            if token == "{" or (token.startswith("\\") and token not in (r"\ ", r"\_", r"\%")):
                raise UnknownTexError(f"{token!r} inside text")
            text += token.removeprefix("\\")
        return text

    def atom(self) -> str:
        token = self.next()
        if token == "{":
            body = self.row(())
            if self.next() != "}":
                raise UnknownTexError("expected }")
            return f"<mrow>{body}</mrow>"
        if token[0].isdigit():
            return f"<mn>{token}</mn>"
        if token.isalpha():
            return f"<mi>{token}</mi>"
        if token == "-":
            return "<mo>−</mo>"
        if token in "+*/=<>()[]|,.;:!?":
            stretchy = ' stretchy="false"' if token in "()[]|" else ""
            return f"<mo{stretchy}>{escape(token)}</mo>"
        if token.startswith("\\"):
            return self.command(token[1:])
        if not token.isascii():
            return f"<mo>{escape(token)}</mo>" if not token.isalpha() else f"<mi>{token}</mi>"
        raise UnknownTexError(f"no meaning for {token!r}")

    def command(self, name: str) -> str:
        if name in _IDENTIFIERS:
            return f"<mi>{_IDENTIFIERS[name]}</mi>"
        if name in _OPERATORS:
            return f'<mo stretchy="false">{_OPERATORS[name]}</mo>'
        if name in _LARGE:
            return f"<mo>{_LARGE[name]}</mo>"
        if name in _FUNCTIONS:
            return f"<mi>{name}</mi>"
        if name in _SPACES:
            return f'<mspace width="{_SPACES[name]}"></mspace>'
        if name in ("frac", "tfrac", "dfrac"):
            return f"<mfrac>{self.argument()}{self.argument()}</mfrac>"
        if name == "sqrt":
            return f"<msqrt>{self.argument()}</msqrt>"
        if name in ("text", "textrm", "mathrm", "operatorname", "mathit", "mathsf", "texttt", "mathtt"):
            text = escape(self.raw_group())
            if name in ("text", "textrm", "texttt"):
                return f"<mtext>{text.replace(' ', '&#160;')}</mtext>"
            return f'<mi mathvariant="normal">{text}</mi>'
        if name in ("mathbf", "boldsymbol", "mathbb"):
            return f"<mi>{''.join(_styled(letter, name) for letter in self.raw_group())}</mi>"
        if name in _ACCENTS:
            return f'<mover accent="true">{self.argument()}<mo>{_ACCENTS[name]}</mo></mover>'
        if name == "left":
            opening = self.fence()
            body = self.row(())
            if self.next() != r"\right":
                raise UnknownTexError(r"expected \right")
            return f"<mrow>{opening}{body}{self.fence()}</mrow>"
        if name == "begin":
            return self.matrix()
        raise UnknownTexError(f"unknown command \\{name}")

    def fence(self) -> str:
        self.skip_space()
        token = self.next()
        glyph = "" if token == "." else _OPERATORS.get(token.removeprefix("\\"), token)
        return f"<mo>{escape(glyph)}</mo>" if glyph else ""

    def matrix(self) -> str:
        name = self.raw_group()
        if name not in _FENCES:
            raise UnknownTexError(f"unknown environment {name!r}")
        rows: list[list[str]] = [[]]
        while True:
            rows[-1].append(f"<mtd>{self.row(())}</mtd>")
            token = self.next()
            if token == r"\\":
                rows.append([])
            elif token == r"\end":
                if self.raw_group() != name:
                    raise UnknownTexError(rf"\end of another environment than {name!r}")
                break
            elif token != "&":
                raise UnknownTexError(f"unexpected {token!r} in a matrix")
        if rows[-1] == ["<mtd></mtd>"]:
            rows.pop()
        table = "".join(f"<mtr>{''.join(row)}</mtr>" for row in rows)
        opening, closing = (f"<mo>{fence}</mo>" if fence else "" for fence in _FENCES[name])
        return f"<mrow>{opening}<mtable>{table}</mtable>{closing}</mrow>"


def _styled(letter: str, command: str) -> str:
    """A letter of the mathematical alphabet that `mathbf` or `mathbb` asks for."""
    if command == "mathbb":
        named = {"R": "ℝ", "N": "ℕ", "Z": "ℤ", "C": "ℂ", "Q": "ℚ", "E": "𝔼", "P": "ℙ", "1": "𝟙"}
        if letter not in named:
            raise UnknownTexError(rf"\mathbb{{{letter}}}")
        return named[letter]
    if letter.isascii() and letter.isalpha():
        return chr((0x1D400 if letter.isupper() else 0x1D41A) + ord(letter.lower()) - ord("a"))
    if letter.isdigit():
        return chr(0x1D7CE + int(letter))
    raise UnknownTexError(rf"\{command}{{{letter}}}")
