"""The list of explorables: what every page's navigation and the front page show of each notebook."""

import json
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from html import unescape
from pathlib import Path
from typing import Any
from urllib.parse import quote

NOTEBOOKS = Path(__file__).parent
"""The folder of the notebooks that come with the package."""

_RESERVED = frozenset(
    {"api", "login", "logout", "pictures", "robots.txt", "static", "voila"}
)  # addresses of the server itself


@dataclass(frozen=True)
class Explorable:
    """One notebook as the site knows it."""

    slug: str
    """What its address ends with, e.g. `attention` for `01-attention.ipynb`."""
    file: str
    """Name of the notebook's file inside the folder."""
    title: str
    """The notebook's first heading."""
    nav: str
    """Short title for the navigation."""
    question: str
    """The question of the page, one line."""

    @property
    def address(self) -> str:
        """The slug as an address can hold it, whatever letters, spaces and dots the file's name has."""
        return quote(self.slug, safe="")


@dataclass(frozen=True)
class Catalogue:
    """The explorables of one folder, in reading order.

    A notebook says how it wants to be listed in its metadata, all of it optional:
    `"attnlab": {"nav": "Attention", "question": "What does one query read?", "order": 1}`.
    Without `order` the file names decide; digits in front of a name (`01-attention.ipynb`) only sort it.
    """

    folder: Path
    explorables: tuple[Explorable, ...]

    @classmethod
    def of(cls, folder: Path) -> "Catalogue":
        """Read the catalogue of a folder.

        Raises:
            ValueError: if the folder has no notebook, a notebook can't be read, or two share an address.
        """
        ranked = sorted(
            (_read(path) for path in folder.glob("*.ipynb")), key=lambda entry: (entry[0], entry[1].file)
        )
        explorables = tuple(explorable for _, explorable in ranked)
        if not explorables:
            raise ValueError(f"expected notebooks (*.ipynb) in {folder}, found none")
        seen: dict[str, str] = {}
        for explorable in explorables:
            if explorable.slug in _RESERVED:
                raise ValueError(f"{explorable.file}: the address /{explorable.slug} belongs to the server")
            if explorable.slug in seen:
                first = seen[explorable.slug]
                raise ValueError(f"{first} and {explorable.file} want the same address /{explorable.slug}")
            seen[explorable.slug] = explorable.file
        return cls(folder, explorables)

    def __iter__(self) -> Iterator[Explorable]:
        return iter(self.explorables)

    def find(self, name: str) -> Explorable | None:
        """The explorable with this slug or file name, or None."""
        return next((e for e in self if name in (e.slug, e.file)), None)

    def neighbours(self, explorable: Explorable) -> tuple[Explorable | None, Explorable | None]:
        """The explorables before and after this one."""
        at = self.explorables.index(explorable)
        before = self.explorables[at - 1] if at > 0 else None
        after = self.explorables[at + 1] if at + 1 < len(self.explorables) else None
        return before, after


def _read(path: Path) -> tuple[float, Explorable]:
    """A notebook's rank and its entry."""
    try:
        notebook = json.loads(path.read_text(encoding="utf-8"))
        metadata = notebook.get("metadata", {}).get("attnlab", {})
        wanted = {key: metadata.get(key) for key in ("nav", "question", "order")}
        heading, paragraph = _opening(notebook["cells"])
    except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
        raise ValueError(f"expected a Jupyter notebook in {path.name}, got {error!r}") from error
    slug = re.sub(r"^\d+[-_ ]*", "", path.stem) or path.stem
    nav = str(wanted["nav"] or slug.replace("-", " ").replace("_", " ").capitalize())
    question = str(wanted["question"] or paragraph)
    return _rank(wanted["order"], path), Explorable(slug, path.name, heading or nav, nav, question)


def _rank(order: object, path: Path) -> float:
    if order is None:
        return math.inf
    if isinstance(order, bool) or not isinstance(order, int | float) or math.isnan(order):
        raise ValueError(f'expected a number as "order" in the metadata of {path.name}, got {order!r}')
    return float(order)


def _opening(cells: list[dict[str, Any]]) -> tuple[str, str]:
    """First heading and first paragraph of the prose, as plain text."""
    heading, paragraph = "", ""
    for cell in cells:
        if cell.get("cell_type") != "markdown":
            continue
        for block in re.split(r"\n\s*\n|(?<=\n)(?=#)", "".join(cell["source"])):
            first, _, rest = block.strip().partition("\n")
            if first.startswith("#"):
                heading, block = heading or _plain(first.lstrip("#")), rest
            if not paragraph and block.strip():
                paragraph = _plain(block)
            if heading and paragraph:
                return heading, paragraph
    return heading, paragraph


def _plain(markdown: str) -> str:
    text = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", markdown)
    return " ".join(unescape(re.sub(r"[*_`$\\]|<[^>]+>", "", text)).split())
