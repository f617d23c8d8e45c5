"""The notebooks as they are shipped: they run from top to bottom, and read well without a kernel."""

import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import nbformat
import pytest
from nbconvert import HTMLExporter
from nbconvert.filters.markdown_mistune import MarkdownWithMath

from attnlab.explorables.catalogue import NOTEBOOKS, Catalogue
from attnlab.explorables.formulas import mathml
from attnlab.explorables.prose import ProseRenderer
from helpers import run_notebooks

PATHS = sorted(NOTEBOOKS.glob("*.ipynb"))

pytestmark = pytest.mark.browser


def test_there_are_notebooks_to_test() -> None:
    assert PATHS
    assert [e.file for e in Catalogue.of(NOTEBOOKS)] == [path.name for path in PATHS]


@pytest.fixture(params=PATHS, ids=lambda path: path.stem)
def path(request: pytest.FixtureRequest) -> Path:
    found: Path = request.param
    return found


@pytest.fixture
def notebook(path: Path) -> nbformat.NotebookNode:
    return nbformat.read(path, as_version=4)


def test_every_formula_is_drawn(notebook: nbformat.NotebookNode) -> None:
    prose = "\n".join(cell.source for cell in notebook.cells if cell.cell_type == "markdown")
    for tex in re.findall(r"\$\$?([^$]+)\$\$?", prose):
        assert mathml(tex).startswith("<math")


def test_a_full_stop_stays_with_the_formula_before_it(notebook: nbformat.NotebookNode) -> None:
    prose = "\n\n".join(cell.source for cell in notebook.cells if cell.cell_type == "markdown")
    html = MarkdownWithMath(renderer=ProseRenderer(contents_manager=None, escape=False)).render(prose)
    followed = re.findall(r"</math>[.,;:!?)]+", html)
    kept = re.findall(r'<span class="attnlab-kept"><math .*?(</math>[.,;:!?)]+)</span>', html, re.DOTALL)
    assert kept == followed


@pytest.fixture(scope="module")
def executed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with each notebook after it has run in an empty folder."""
    folder = tmp_path_factory.mktemp("executed")
    command = [sys.executable, run_notebooks.__file__, str(folder), *map(str, PATHS)]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-3000:]
    return folder


@pytest.fixture
def run(path: Path, executed: Path) -> nbformat.NotebookNode:
    """The notebook after it has run; a cell that fails fails the test."""
    failed = executed / path.with_suffix(".failed").name
    assert not failed.exists(), failed.read_text()
    return nbformat.read(executed / path.name, as_version=4)


def test_notebook_is_shipped_without_outputs(notebook: nbformat.NotebookNode) -> None:
    nbformat.validate(notebook)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert code
    assert all(not cell.outputs and cell.execution_count is None for cell in code)
    assert "widgets" not in notebook.metadata


def test_notebook_says_how_it_is_listed(notebook: nbformat.NotebookNode) -> None:
    listed = notebook.metadata["attnlab"]
    assert listed["nav"].strip()
    assert listed["question"].endswith("?")
    assert notebook.metadata["kernelspec"]["name"] == "python3"


def test_notebook_has_one_title_and_ends_with_limits_and_sources(notebook: nbformat.NotebookNode) -> None:
    prose = "\n\n".join(cell.source for cell in notebook.cells if cell.cell_type == "markdown")
    headings = re.findall(r"^(#+) (.+)$", prose, re.MULTILINE)
    assert [text for level, text in headings if level == "#"] == [headings[0][1]]
    assert {level for level, _ in headings} <= {"#", "##", "###"}
    assert [text for _, text in headings][-2:] == ["What this shows, and what it doesn't", "Sources"]
    assert any(text == "Try this" for _, text in headings)


def test_notebook_needs_no_network_and_holds_no_mathematics(notebook: nbformat.NotebookNode) -> None:
    for cell in notebook.cells:
        assert not re.search(r"!\[[^]]*\]\(https?:|<(img|script|iframe|link)\b", cell.source), cell.source
        if cell.cell_type == "code":
            assert not re.search(r"\b(torch|numpy|softmax|matmul)\b| @ ", cell.source), cell.source
            assert len(cell.source.splitlines()) <= 5


def test_notebook_runs_from_top_to_bottom_in_silence(run: nbformat.NotebookNode) -> None:
    outputs = [output for cell in run.cells if cell.cell_type == "code" for output in cell.outputs]
    assert [output for output in outputs if output.output_type in ("error", "stream")] == []
    shown = [
        output for output in outputs if "application/vnd.jupyter.widget-view+json" in output.get("data", {})
    ]
    assert shown


@pytest.mark.parametrize("saved_state", [False, True])
def test_exported_page_is_readable_without_a_kernel_and_without_a_network(
    run: nbformat.NotebookNode, saved_state: bool
) -> None:
    notebook = nbformat.from_dict(run)
    if not saved_state:
        notebook.metadata = {name: value for name, value in run.metadata.items() if name != "widgets"}
    html, _ = HTMLExporter(mathjax_url="", require_js_url="", jupyter_widgets_base_url="").from_notebook_node(
        notebook
    )
    outputs = _Outputs()
    outputs.feed(html)
    assert outputs.found
    for drawn in outputs.found:
        # A saved widget leaves nothing to be seen; beside it stands what it would show.
        assert len(drawn.strip()) > 10, f"an empty box: {drawn!r}"
        assert "oading" not in drawn


class _Outputs(HTMLParser):
    """What a reader sees below each cell of an exported page: its text, and a mark for each picture."""

    _VOID = ("img", "br", "meta", "link", "input", "hr")

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []
        self._depth = 0
        self._hidden = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        if not self._depth and "jp-Cell-outputArea" in (given.get("class") or ""):
            self.found.append("")
            self._depth = 1
            return
        if self._depth and tag not in self._VOID:
            self._depth += 1
            self._hidden += tag in ("script", "style") or bool(self._hidden)
        if self._depth and (tag == "svg" or (tag == "img" and given.get("alt"))):
            self.found[-1] += f"[picture: {given.get('aria-label') or given.get('alt') or ''}]"

    def handle_endtag(self, tag: str) -> None:
        if self._depth and tag not in self._VOID:
            self._depth -= 1
            self._hidden -= bool(self._hidden)

    def handle_data(self, data: str) -> None:
        if self._depth and not self._hidden:
            self.found[-1] += data
