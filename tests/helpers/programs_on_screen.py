"""What the screen tells of a program that an explorable ran: stages by title, explanations of every cell."""

import itertools
from collections.abc import Collection, Iterator, Mapping
from typing import Any
from xml.etree import ElementTree

from torch import Tensor

from attnlab.widgets import CodeExplorable
from attnlab.widgets.explaining import explain_cell
from helpers.recomputed import examined

__all__ = ["assert_explained", "failing", "keys_of", "source_is_private", "tensor", "titles"]


def titles(explorable: CodeExplorable) -> list[str]:
    """The names of the stages, in the order in which they are drawn."""
    stages = explorable.view.stages
    blocks = explorable.view.layout_blocks
    return [stages[item["stage"]]["title"] for block in blocks for item in block.get("items", ())]


def keys_of(explorable: CodeExplorable, title: str) -> list[str]:
    """The stages of this name."""
    return [key for key, stage in explorable.view.stages.items() if stage["title"] == title]


def tensor(explorable: CodeExplorable, title: str) -> Tensor:
    """The numbers of the last stage of this name."""
    found: Tensor = explorable._last.tensors[keys_of(explorable, title)[-1]]  # type: ignore[union-attr]
    return found


def failing(explorable: CodeExplorable) -> list[str]:
    """The names of the checks that fail, as they are sent."""
    return [check["name"] for check in explorable.view.answer["checks"] if not check["holds"]]


def source_is_private(source: Mapping[str, Any]) -> None:
    """A file is told by its place in our package or by its bare name, never by a folder of the machine."""
    file = source["file"]
    assert file.startswith(("attnlab/engine/", "attnlab/widgets/")) or "/" not in file, file
    assert "\\" not in file


def assert_explained(explorable: CodeExplorable, *, without_rule: Collection[str] = ()) -> int:
    """Every cell of every stage: a right formula, whose cells are on the screen or given. Says how many."""
    tape, last = explorable.tape, explorable._last
    assert tape is not None
    assert last is not None
    assert last.versions is not None
    assert examined(tape) == ([], set(without_rule))
    count = 0
    for stage, place in _cells(last.versions):
        found = explain_cell(tape, last.versions, stage, list(place))
        assert found is not None
        count += 1
        if found["mathml"]:
            ElementTree.fromstring(found["mathml"])
        else:
            assert found["note"]
        if found["source"]:
            source_is_private(found["source"])
        for name, index in found["operands"]:
            shape = last.versions[name].shape
            assert len(index) == len(shape)
            assert all(0 <= i < n for i, n in zip(index, shape, strict=True))
    return count


def _cells(versions: Mapping[str, Any]) -> Iterator[tuple[str, tuple[int, ...]]]:
    for stage, version in versions.items():
        for place in itertools.product(*map(range, version.shape)):
            yield stage, place
