"""The scripts and styles: joined into one each, no words, no HTML, nothing outside their own element."""

import os
import re
import shutil
import subprocess
from collections import Counter
from pathlib import Path
from typing import ClassVar

import pytest

import attnlab.widgets
from attnlab.widgets import ControlBar, TraceView
from attnlab.widgets._script import script, style
from attnlab.widgets.words import BAR_WORDS, VIEW_WORDS

FOLDER = Path(attnlab.widgets.__file__).parent
TESTS = Path(__file__).parent / "js"
WIDGETS = {"trace_view": TraceView, "control_bar": ControlBar}
SCRIPTS = sorted(FOLDER.glob("*.js"))
STYLES = sorted(FOLDER.glob("*.css"))

IMPORT = re.compile(r'^import \{([^}]*)\} from "\./([\w-]+)\.js";$', re.MULTILINE)
DECLARED = re.compile(r"^(?:export )?(?:async )?(?:const|let|var|function\*?|class) (\w+)", re.MULTILINE)
EXPORTED = re.compile(r"^export (?:async )?(?:const|function\*?) (\w+)", re.MULTILINE)
# Comments, templates, strings. A quote inside a regular expression would confuse it; none is used.
TOKEN = re.compile(
    r"(?P<comment>//[^\n]*|/\*.*?\*/)|(?P<template>`(?:\\.|[^`\\])*`)"
    r"""|(?P<string>"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*')""",
    re.DOTALL,
)


def imported(path: Path) -> dict[str, list[str]]:
    return {
        module: [n.strip() for n in names.split(",") if n.strip()]
        for names, module in IMPORT.findall(path.read_text())
    }


def without_comments(text: str) -> str:
    return TOKEN.sub(lambda match: "" if match["comment"] else match[0], text)


def literals(text: str) -> list[str]:
    """The strings of a script; of a template, the parts between its values."""
    found = []
    for match in TOKEN.finditer(text):
        if match["string"]:
            found.append(match["string"][1:-1])
        elif match["template"]:
            found += re.split(r"\$\{[^{}]*\}", match["template"][1:-1])
    return found


def joined(stem: str) -> list[Path]:
    """The files of which the script `stem` is made."""
    paths, todo = [], [stem]
    while todo:
        path = FOLDER / f"{todo.pop()}.js"
        if path not in paths:
            paths.append(path)
            todo += imported(path)
    return paths


class TestJoining:
    @pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.name)
    def test_no_text_goes_over_several_lines(self, path: Path) -> None:
        """Else it would lose what its lines begin with."""
        assert not any("\n" in text for text in literals(path.read_text()))

    @pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.name)
    def test_every_import_is_of_the_one_form_and_resolves(self, path: Path) -> None:
        text = path.read_text()
        assert len(re.findall(r"^\s*import\b", text, re.MULTILINE)) == len(IMPORT.findall(text))
        assert not re.search(r"\bimport\(|^export .* from|^export \*", text, re.MULTILINE)
        for module, names in imported(path).items():
            exported = EXPORTED.findall((FOLDER / f"{module}.js").read_text())
            assert set(names) <= set(exported), module
            # Under its own name: `a as b` would not survive the joining.
            assert all(name.isidentifier() for name in names)
            for name in names:
                assert re.search(rf"\b{name}\b", IMPORT.sub("", without_comments(text))), (
                    f"{name} is not used"
                )

    @pytest.mark.parametrize("stem", WIDGETS)
    def test_names_are_unique_across_the_modules(self, stem: str) -> None:
        names = Counter(name for path in joined(stem) for name in DECLARED.findall(path.read_text()))
        assert [name for name, count in names.items() if count > 1] == []

    @pytest.mark.parametrize("stem", WIDGETS)
    def test_each_module_once_before_it_is_needed(self, stem: str) -> None:
        text = script(stem)
        assert not re.search(r"^\s*import\b", text, re.MULTILINE)
        assert 'from "./' not in text
        assert len(re.findall(r"^export default", text, re.MULTILINE)) == 1
        assert Counter(DECLARED.findall(text)) == Counter(
            name for path in joined(stem) for name in DECLARED.findall(path.read_text())
        )
        for path in joined(stem):
            for module in imported(path):
                own, used = (
                    DECLARED.findall(path.read_text())[0],
                    DECLARED.findall((FOLDER / f"{module}.js").read_text()),
                )
                at = [
                    re.search(
                        rf"^(?:export )?(?:async )?(?:const|let|function) {n}\b", text, re.MULTILINE
                    ).start()
                    for n in (own, used[0])
                ]
                assert at[1] < at[0]

    @pytest.mark.parametrize("stem", WIDGETS)
    def test_the_joined_script_is_valid(self, stem: str, tmp_path: Path) -> None:
        path = tmp_path / f"{stem}.mjs"
        path.write_text(script(stem))
        checked = subprocess.run([node(), "--check", path], capture_output=True, text=True, timeout=60)
        assert checked.returncode == 0, checked.stderr

    @pytest.mark.parametrize(("stem", "widget"), WIDGETS.items())
    def test_it_is_what_the_widget_sends(self, stem: str, widget: type) -> None:
        made = widget()
        assert made._esm == script(stem)
        assert made._css == style(stem)
        assert len(made._esm) < 70_000

    # What goes to the kernel, and what is done once instead of drawn.
    NOT_DRAWN: ClassVar = {"request", "search", "clipboard", "download"}

    @pytest.mark.parametrize(("stem", "widget"), WIDGETS.items())
    def test_every_trait_that_is_sent_is_drawn_when_it_changes(self, stem: str, widget: type) -> None:
        drawn = re.search(r"^const DRAWN = \[([^]]*)\]", (FOLDER / f"{stem}.js").read_text(), re.MULTILINE)
        sent = {n for n in vars(widget) if n in widget.class_traits(sync=True) and not n.startswith("_")}
        assert sorted(re.findall(r"\w+", drawn[1])) == sorted(sent - self.NOT_DRAWN)

    def test_every_script_is_part_of_a_widget(self) -> None:
        used = {path for stem in WIDGETS for path in joined(stem)}
        assert set(FOLDER.glob("*.js")) == used


class TestWords:
    """Every word comes from Python, so that a second language is a second file of words."""

    # Single words in scripts are names: of tags, attributes, keys, dtypes. Two in a row are language.
    PHRASE = re.compile(r"[A-Za-z]{2,}[ ,]+[A-Za-z]{2,}")

    @pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.name)
    def test_no_phrases(self, path: Path) -> None:
        text = re.sub(r"throw new Error\(.*?\);", "", IMPORT.sub("", path.read_text()), flags=re.DOTALL)
        text = re.sub(r'"[^"]*"\.split\(" "\)', "", text)  # a list of names
        phrases = [
            literal
            for literal in literals(text)
            if self.PHRASE.search(literal)
            and not all(word.startswith("attnlab-") for word in literal.split())
            and not re.fullmatch(r"[.a-z-]+(, [.a-z-]+)*", literal)  # a selector
        ]
        assert phrases == []

    SHOWN = (
        r"\.(?:textContent|innerText|title|placeholder|alt|ariaLabel|data)\s*=\s*{literal}",
        r"setAttribute\(\s*[\"']aria-(?:label|description|roledescription|valuetext|placeholder)[\"'],\s*{literal}",
        r"setAttribute\(\s*[\"'](?:title|alt|placeholder)[\"'],\s*{literal}",
        r"\bmake\([^,()]*,[^,()]*,\s*{literal}",
        r"\.append\(\s*{literal}",
        r"\b(?:button|header|say)\([^,()]*,\s*{literal}",
        r"\b(?:alert|confirm|prompt)\(\s*{literal}",
        r"createTextNode\(\s*{literal}",
    )  # fmt: skip

    @pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.name)
    def test_nothing_is_shown_from_a_literal_with_letters(self, path: Path) -> None:
        text = without_comments(path.read_text())
        for pattern in self.SHOWN:
            for match in re.finditer(pattern.replace("{literal}", r"[\"'`]([^\"'`]*)"), text):
                shown = re.sub(r"\$\{[^}]*\}", "", match[1])
                assert not re.search(r"[A-Za-z]{2,}", shown), match[0]

    def test_the_guards_can_see(self) -> None:
        phrase = 'label.textContent = "Copy link"; // a comment is no word'
        assert [literal for literal in literals(phrase) if self.PHRASE.search(literal)] == ["Copy link"]
        shown = self.SHOWN[0].replace("{literal}", r"[\"'`]([^\"'`]*)")
        assert re.search(shown, 'x.textContent = "sum"')
        assert re.search(
            self.SHOWN[1].replace("{literal}", r"[\"'`]([^\"'`]*)"), 'e.setAttribute("aria-label", "sum")'
        )

    @pytest.mark.parametrize(
        ("stem", "words"), [("trace_view", VIEW_WORDS), ("control_bar", BAR_WORDS)], ids=WIDGETS.keys()
    )
    def test_every_word_asked_for_is_there(self, stem: str, words: dict) -> None:
        text = without_comments(script(stem))
        asked = set(re.findall(r'(?:\bwords|get\("words"\))\??\.(\w+)', text))
        assert asked == words.keys()
        if "looks" in words:
            looks = set(re.findall(r"words\.looks\.(\w+)", text)) | {
                "masked",
                "unreached",
                "nan",
                "infinite",
                "dropped",
            }
            assert looks == words["looks"].keys()

    def test_places_in_sentences(self) -> None:
        for key, text in VIEW_WORDS.items():
            if isinstance(text, str) and "{" in text:
                assert re.findall(r"\{.*?\}", text) == ["{0}"], key


class TestManners:
    FORBIDDEN: ClassVar[dict[str, str]] = {
        "HTML from data": r"(?:inner|outer|insertAdjacent)HTML|document\.write|text/html|createContextual",
        "evaluation": r"\beval\(|new Function\b|setTimeout\(\s*[\"'`]",
        "listeners outside": r"\b(?:document|window|globalThis|body)\.(?:addEventListener|on\w+\s*=)",
        "the window": r"\bwindow\b",
        "the network": r"\b(?:fetch|XMLHttpRequest|WebSocket|importScripts)\b|https?://(?!www\.w3\.org/)|//cdn",
        "storage": r"\b(?:localStorage|sessionStorage|indexedDB)\b|\.cookie\b",
        "leftovers": r"\bconsole\.|\bdebugger\b|\balert\(",
        "a host": r"\b(?:jupyter|Jupyter|require|define)\b(?=[.(])",
    }  # fmt: skip

    @pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.name)
    @pytest.mark.parametrize("what", FORBIDDEN)
    def test_scripts_do_without(self, what: str, path: Path) -> None:
        found = re.search(self.FORBIDDEN[what], without_comments(path.read_text()))
        assert found is None, found

    @pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.name)
    def test_classes_of_scripts_are_prefixed(self, path: Path) -> None:
        text = without_comments(path.read_text())
        given = [
            *re.findall(r"""\bmake\([^,()]*,\s*"([^"]*)\"""", text),
            *re.findall(r"""className = "([^"]*)\"""", text),
            *re.findall(r"""classList\.(?:add|remove|toggle|contains)\(\s*"([^"]*)\"""", text),
            *re.findall(r"""(?:querySelector(?:All)?|closest|matches)\??\.?\(\s*"\.([^"]*)\"""", text),
        ]
        names = [name for value in given for name in value.split()]
        assert [name for name in names if not name.startswith("attnlab-")] == []

    @pytest.mark.parametrize("path", STYLES, ids=lambda path: path.name)
    def test_classes_of_styles_are_prefixed(self, path: Path) -> None:
        text = re.sub(r"/\*.*?\*/", "", path.read_text(), flags=re.DOTALL)
        selectors = [s for s in re.findall(r"([^{};]+)\{", text) if not s.strip().startswith("@")]
        assert selectors
        for selector in selectors:
            classes = re.findall(r"\.([A-Za-z_][\w-]*)", selector)
            assert [name for name in classes if not name.startswith("attnlab-")] == [], selector
            for part in re.split(r",(?![^(]*\))", selector):
                assert ".attnlab-" in part or re.fullmatch(r"\s*(?:from|to|\d+%)\s*", part), (
                    f"{part.strip()!r} is for the whole page"
                )
        assert set(re.findall(r"(--(?!jp-)[\w-]+)\s*:", text)) == set(
            re.findall(r"(--attnlab-[\w-]+)\s*:", text)
        )
        assert not re.search(r"@import|url\((?!['\"]?data:)|@font-face", text)

    def test_variables_are_defined(self) -> None:
        styles = "".join(path.read_text() for path in STYLES)
        defined = set(re.findall(r"(--attnlab-[\w-]+)\s*:", styles))
        scripts = "".join(path.read_text() for path in SCRIPTS)
        defined |= set(re.findall(r'setProperty\(\s*"(--attnlab-[\w-]+)"', scripts))
        assert set(re.findall(r"var\((--attnlab-[\w-]+)", styles)) <= defined

    def test_notebook_variables_have_fallbacks(self) -> None:
        styles = "".join(path.read_text() for path in STYLES)
        assert re.findall(r"var\(--jp-[\w-]+\)", styles) == []


def test_with_node() -> None:
    """The pure functions of the scripts, by `node --test`."""
    files = sorted(TESTS.glob("*.test.mjs"))
    assert files
    # As `node --test tests/widgets/js/*.test.mjs`, but in one process.
    load = "for (const file of process.argv.slice(1)) await import(file)"
    command = [node(), "--test-reporter=tap", "--input-type=module", "--eval", load, *files]
    run = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert run.returncode == 0, run.stdout[-6000:] + run.stderr[-2000:]
    counted = re.search(r"^# tests (\d+)$", run.stdout, re.MULTILINE)
    assert counted
    assert int(counted[1]) >= 150
    assert re.search(r"^# skipped 0$", run.stdout, re.MULTILINE)


def node() -> str:
    """Where node is. Without it these tests are skipped; on CI that is a failure."""
    found = shutil.which("node")
    if found is None:
        message = "node is not on the PATH: the tests of the scripts did NOT run"
        if os.environ.get("CI") == "true":
            pytest.fail(message)
        pytest.skip(message)
    return found
