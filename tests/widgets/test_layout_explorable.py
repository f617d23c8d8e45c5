"""LayoutExplorable: what torch makes of a chain, where each element lies in memory, and who shares it."""

import itertools
import math
import re
from pathlib import Path
from typing import Any

import pytest
import torch
import traitlets
from torch import Tensor

from attnlab.engine.chain import READY_CHAINS
from attnlab.widgets import LayoutExplorable
from attnlab.widgets.layout import PRESETS
from helpers.explained import assert_all_explained
from helpers.front_end import FrontEnd, assert_strict_json, receive, same_numbers

READY = {ready.name: ready for ready in READY_CHAINS}
DEFAULT = "reshape(1,3,2,2) | transpose(1,2) | view(1,3,4)"
# Chains beyond the ready ones: nothing done, the same tensor again, coincidences B = H, H = 1 and T = 1.
MORE = [
    ("5", ""),
    ("2,3", "contiguous() | flatten(0,1) | flatten()"),
    ("2,2,2", "transpose(0,1) | transpose(0,2) | permute(1,2,0)"),
    ("2,3,4,2", "permute(0,2,1,3) | reshape(2,4,6) | view(-1,3)"),
    ("1,3,1,5", "transpose(-1,-2) | contiguous() | view(3,5) | transpose(0,1)"),
    ("96", "view(2,2,2,3,4) | permute(4,3,2,1,0) | flatten(1,-2) | view(4,24)"),
    ("2,3", "reshape(7)"),
    ("2,3", "transpose(0,5)"),
    ("2,3", "permute(0,0)"),
    ("2,3,4", "permute(1,0) | contiguous()"),
]


def open_page(**arguments: Any) -> FrontEnd:
    return FrontEnd(LayoutExplorable(**arguments))


def by_torch(start: str, chain: str) -> tuple[list[Tensor], str]:
    """The tensors of a chain, and torch's text where it ends: each step is called here, one by one."""
    shape = [int(size) for size in start.split(",")]
    tensors = [torch.arange(math.prod(shape), dtype=torch.float64).reshape(shape)]
    for step in filter(None, chain.split(" | ")):
        name, numbers = re.fullmatch(r"(\w+)\((.*)\)", step).groups()  # type: ignore[union-attr]
        try:
            tensors.append(getattr(tensors[-1], name)(*map(int, filter(None, numbers.split(",")))))
        except (RuntimeError, IndexError) as refusal:
            return tensors, str(refusal)
    return tensors, ""


def pointer(tensor: Tensor) -> int:
    return tensor.untyped_storage().data_ptr()


def stage(number: int) -> str:
    return f"step{number}" if number else "start"


def told(page: FrontEnd, number: int) -> str:
    return page.answer["texts"][f"told{number}"]


def tag(page: FrontEnd, name: str) -> list[list[Any]]:
    (found,) = [t["cells"] for t in page.answer["tags"] if t["tag"] == name]
    return found


def place_of(tensor: Tensor, element: int) -> list[int]:
    (found,) = (tensor == element).nonzero().tolist()
    return found


def own(tensors: list[Tensor]) -> list[int]:
    """The stages that are the first in their memory."""
    return [i for i, t in enumerate(tensors) if pointer(t) not in map(pointer, tensors[:i])]


def assert_is_torch(page: FrontEnd, start: str, chain: str) -> None:
    """Numbers, outcomes, shapes, strides, offsets, strips, tags and error text are those of torch."""
    tensors, error = by_torch(start, chain)
    element = page.explorable.element
    first = own(tensors)
    shown = page.numbers
    assert shown.keys() == {stage(i) for i in range(len(tensors))} | {f"strip{i}" for i in first}
    cells: list[list[Any]] = []
    for i, tensor in enumerate(tensors):
        assert same_numbers(shown[stage(i)], tensor)
        place = place_of(tensor, element)
        offset = tensor.storage_offset() + sum(a * b for a, b in zip(place, tensor.stride(), strict=True))
        line, facts, where = told(page, i).split("\n")
        assert line.startswith(f"stage {i} · ")
        contiguous = "contiguous" if tensor.is_contiguous() else "not contiguous"
        assert facts == (
            f"shape {tuple(tensor.shape)} · stride {tensor.stride()} · "
            f"storage offset {tensor.storage_offset()} · {contiguous}"
        )
        assert where.startswith(f"element {element} lies at offset {tensor.storage_offset()} + ")
        assert where.endswith(f" = {offset}")
        cells.append([stage(i), place])
        if i in first:
            strip = shown[f"strip{i}"]
            assert same_numbers(strip, tensor.as_strided((tensor.numel(),), (1,), 0).clone())
            assert strip[offset] == element
            cells.append([f"strip{i}", [offset]])
        if not i:
            continue
        if tensor is tensors[i - 1]:
            assert line.endswith("the very same tensor")
        elif pointer(tensor) == pointer(tensors[i - 1]):
            shared = next(j for j, t in enumerate(tensors) if pointer(t) == pointer(tensor))
            assert line.endswith(f"a view, in the memory of stage {shared}")
        else:
            assert line.endswith("a copy, in memory of its own")
    assert tag(page, "first") == cells
    assert page.answer["state"] == "ready"
    if error:
        assert told(page, len(tensors)).endswith(f"refused by PyTorch: {error}")
        assert page.answer["message"].startswith(f"Operation {len(tensors)} stops")
    else:
        assert page.answer["message"] == ""
        assert f"told{len(tensors)}" not in page.answer["texts"]
    assert page.explorable.bar.limits["element"] == tensors[0].numel() - 1
    assert page.explorable.bar.limits["into"] == len(tensors) - 1
    (check,) = page.answer["checks"]
    assert (check["holds"], check["text"]) == (
        True,
        f"0 of {sum(t.numel() for t in tensors)} elements elsewhere",
    )


class TestTorchsOutcome:
    @pytest.mark.parametrize("name", PRESETS)
    def test_ready_chains(self, name: str) -> None:
        page, ready = open_page(preset=name), READY[name]
        assert_is_torch(page, ",".join(map(str, ready.start)), ready.text)
        assert tag(page, "first")[0] == ["start", list(ready.index)]
        assert same_numbers(page.explorable.result.tensors()[-1], page.numbers[_last_grid(page)])

    @pytest.mark.parametrize(("start", "chain"), MORE)
    def test_more_chains(self, start: str, chain: str) -> None:
        page = open_page(start=start, chain=chain)
        assert_is_torch(page, start, chain)
        last = page.explorable.bar.limits["element"]
        page.control("element", last)
        assert_is_torch(page, start, chain)

    def test_the_heads_of_the_facts(self) -> None:
        page = open_page()
        assert "shape (1, 2, 3, 2) · stride (12, 2, 4, 1) · storage offset 0 · not contiguous" in told(
            page, 2
        )
        assert told(page, 2).endswith("element 2 lies at offset 0 + 0·12 + 1·2 + 0·4 + 0·1 = 2")
        assert "refused by PyTorch: view size is not compatible with input tensor's size" in told(page, 3)
        assert told(open_page(preset="reshape copies"), 3).startswith(
            "stage 3 · reshape(1,3,4) · a copy, in memory of its own"
        )
        copied = open_page(preset="contiguous, then view")
        assert "contiguous() · a copy" in told(copied, 3)
        assert "view(1,3,4) · a view, in the memory of stage 3" in told(copied, 4)

    @pytest.mark.parametrize(
        ("start", "view", "works"),
        [("1,2,3,2", "1,3,4", False), ("1,1,3,2", "1,3,2", True), ("1,2,1,2", "1,1,4", True)],
    )
    def test_fairseq_2598_tensorrt_3823(self, start: str, view: str, works: bool) -> None:
        page = open_page(start=start, chain=f"transpose(1,2) | view({view})", element=0)
        assert ("step2" in page.numbers) == works
        assert ("a view, in the memory of stage 0" in told(page, 2)) == works
        assert ("refused by PyTorch: view size" in told(page, 2)) == (not works)
        assert_is_torch(page, start, f"transpose(1,2) | view({view})")

    def test_fuxictr_30(self) -> None:
        page = open_page(preset="four heads, strides")
        assert page.explorable.element == 45
        assert "stride (24, 2, 8, 1)" in told(page, 2)
        assert told(page, 2).endswith("element 45 lies at offset 0 + 1·24 + 2·2 + 2·8 + 1·1 = 45")
        assert told(page, 3).endswith("element 45 lies at offset 0 + 1·24 + 2·6 + 2·2 + 1·1 = 41")
        cells = dict(tag(page, "first"))
        assert (cells["strip0"], cells["strip3"]) == ([45], [41])
        assert cells["step2"] == cells["step3"] == [1, 2, 2, 1]

    def test_strips_stand_beside_the_first_grid_in_their_memory(self) -> None:
        page = open_page(preset="contiguous, then view")
        items = [
            [item["stage"] for item in block["items"]]
            for block in page.explorable.view.layout_blocks
            if block["kind"] == "grids"
        ]
        assert items == [["start", "strip0"], ["step1"], ["step2"], ["step3", "strip3"], ["step4"]]
        assert page.explorable.view.stages["strip3"]["axes"] == ["offset"]
        assert page.numbers["strip3"].tolist() == [0, 1, 4, 5, 8, 9, 2, 3, 6, 7, 10, 11]


def _last_grid(page: FrontEnd) -> str:
    return [name for name in page.numbers if not name.startswith("strip")][-1]


class TestWriting:
    @pytest.mark.parametrize(
        ("start", "chain"),
        [*((",".join(map(str, r.start)), r.text) for r in READY_CHAINS), *MORE[:6]],
    )
    def test_exactly_the_stages_that_really_change(self, start: str, chain: str) -> None:
        tensors, _ = by_torch(start, chain)
        page = open_page(start=start, chain=chain, write=True)
        element = page.explorable.element
        before = page.numbers
        for into in range(len(tensors)):
            page.control("into", into)
            # Written here, into tensors of our own.
            tensors, _ = by_torch(start, chain)
            old = [t.clone() for t in tensors]
            tensors[into][tuple(place_of(tensors[into], element))] = 1000
            changed = [i for i, t in enumerate(tensors) if not torch.equal(t, old[i])]
            assert into in changed
            assert tag(page, "changed") == [[stage(i), place_of(tensors[i], 1000)] for i in changed]
            text = page.answer["texts"]["written"]
            hit, _, kept = text.partition(", and not ")
            assert hit.startswith(f"Writing into element {element} of stage {into} changes ")
            assert re.findall(r"\d+", hit.split(" changes ")[1]) == [str(i) for i in changed]
            rest = [str(i) for i in range(len(tensors)) if i not in changed]
            assert re.findall(r"\d+", kept) == rest
        # What is on the screen has not been written to.
        assert all(same_numbers(tensor, before[name]) for name, tensor in page.numbers.items())

    def test_only_when_asked(self) -> None:
        page = open_page()
        assert [t["tag"] for t in page.answer["tags"]] == ["first"]
        assert page.answer["texts"]["written"] == ""
        page.control("write", True)
        assert page.answer["texts"]["written"] == (
            "Writing into element 2 of stage 0 changes stage 0, stage 1 and stage 2."
        )
        page.control("preset", "reshape copies")
        page.control("into", 3)
        assert page.answer["texts"]["written"] == (
            "Writing into element 2 of stage 3 changes stage 3, and not stage 0, stage 1 and stage 2."
        )

    def test_fewer_stages_take_the_written_one_along(self) -> None:
        page = open_page(preset="contiguous, then view", write=True, into=4)
        page.control("chain", "reshape(1,3,2,2)")
        assert page.explorable.into == page.explorable.bar.values["into"] == 1
        assert "of stage 1 changes" in page.answer["texts"]["written"]
        page.control("preset", "contiguous, then view")
        page.control("into", 4)
        page.control("preset", "one position")
        assert page.explorable.into == 2
        assert open_page(into=8).answer["state"] == "ready"


class TestSelecting:
    @pytest.mark.parametrize("name", ["contiguous, then view", "permute three axes"])
    def test_in_any_grid_and_strip(self, name: str) -> None:
        page = open_page(preset=name)
        tensors, _ = by_torch(page.explorable.start, page.explorable.chain)
        last = tensors[0].numel() - 1
        page.explorable.into = 1
        for name, numbers in page.numbers.items():
            for element in (last, 5):
                index = place_of(numbers, element)
                panel = page.select(name, index)
                assert panel is not None
                assert (panel["stage"], panel["index"]) == (name, index)
                assert page.explorable.element == element
                assert ["start", place_of(tensors[0], element)] in tag(page, "first")
                if not name.startswith("strip"):
                    assert page.explorable.into == int(name.removeprefix("step").replace("start", "0"))
        page.select("step1", place_of(tensors[1], 4))
        page.select("strip0", [3])
        assert (page.explorable.element, page.explorable.into) == (3, 1)

    @pytest.mark.parametrize(
        "selected",
        [
            {},
            {"stage": "start"},
            {"stage": "start", "index": 5},
            {"stage": "start", "index": [0, 0]},
            {"stage": "start", "index": [0, 3, 0]},
            {"stage": "start", "index": ["0", "0", "0"]},
            {"stage": "strip0", "index": [-1]},
            {"stage": "strip0", "index": [12]},
            {"stage": "step3", "index": [0, 0, 0]},
            None,
        ],
        ids=str,
    )
    def test_what_follows_nothing(self, selected: Any) -> None:
        page = open_page()
        receive(page.explorable.view, selected=selected)
        assert (page.explorable.element, page.explorable.into, page.answer["state"]) == (2, 0, "ready")
        assert page.select("step2", [0, 0, 2, 1]) is not None
        assert page.explorable.element == 9


class TestRefused:
    @pytest.mark.parametrize(
        ("chain", "words"),
        [
            ("__import__('os')", ("Operation 1", "expected one of reshape, view", "got '__import__'")),
            ("reshape(4,3) | __import__('os')", ("Operation 2",)),
            ("transpose(0,1) | reshape(3.5,4)", ("Operation 2", "whole number", "'3.5'")),
            ("view(12) | sum(0)", ("Operation 2", "expected one of reshape, view", "'sum'")),
            ("transpose(1)", ("Operation 1", "transpose takes 2 numbers, got 1")),
            ("reshape(1,2,3,2,1,1)", ("Operation 1", "1 to 5 numbers, got 6")),
            ("view(12) | | flatten()", ("Operation 2 is empty",)),
            ("view(12); flatten()", ("Operation 1",)),
            ("view(99999)", ("Operation 1", "at most 4 digits")),
            (" | ".join(["flatten()"] * 9), ("at most 8 operations, got 9",)),
            ("flatten(" + " " * 400 + ")", ("at most 400 characters, got 409",)),
            ("<img src=x onerror=alert(1)>", ("Operation 1",)),
        ],
        ids=lambda value: str(value)[:30],
    )
    def test_chains(self, chain: str, words: tuple[str, ...]) -> None:
        page = open_page()
        before = page.numbers
        page.control("chain", chain)
        answer = page.answer
        assert answer["state"] == page.explorable.state == "invalid"
        assert all(word in answer["message"] for word in words), answer["message"]
        assert answer["refused"]["text"] == chain
        assert answer["refused"]["input"] == "chain"
        assert page.explorable.bar.refused == {"chain": chain}  # it stays where it was typed
        assert page.explorable.chain == DEFAULT
        assert len(page.explorable.result.steps) == 4
        assert all(same_numbers(tensor, before[name]) for name, tensor in page.numbers.items())
        page.control("write", True)
        assert page.explorable.bar.refused == {}
        page.control("chain", "flatten()")
        assert page.answer["state"] == "ready"
        with pytest.raises(ValueError, match=re.escape(words[0][1:])):
            open_page(chain=chain)

    @pytest.mark.parametrize(
        ("start", "words", "is_shape"),
        [
            ("", ("Start: expected sizes as 1,3,4, got ''",), False),
            ("1,3,-4", ("Start: expected sizes", "'1,3,-4'"), False),
            ("3.5", ("Start: expected sizes",), False),
            ("__import__('os')", ("Start: expected sizes",), False),
            ("2,2,2,2,2,2", ("Start: expected 1 to 5 axes, got 6",), True),
            ("0,3", ("Start, axis 0: expected a whole number from 1 to 96, got 0",), True),
            ("97", ("Start, axis 0", "got 97"), True),
            ("9,11", ("Start: expected at most 96 elements, got 99 in 9 × 11",), True),
        ],
    )
    def test_shapes(self, start: str, words: tuple[str, ...], is_shape: bool) -> None:
        page = open_page(element=7)
        before, result = page.numbers, page.explorable.result
        page.control("start", start)
        answer = page.answer
        assert answer["state"] == "invalid"
        assert all(word in answer["message"] for word in words), answer["message"]
        assert (answer["refused"] is None) == is_shape
        assert page.explorable.start == (start if is_shape else "1,3,4")
        assert (page.explorable.result is result) == is_shape  # what was no shape at all changed nothing
        assert page.explorable.result.steps[2].layout.stride == (12, 2, 4, 1)
        assert page.explorable.element == 7
        assert all(same_numbers(tensor, before[name]) for name, tensor in page.numbers.items())
        page.control("start", "1 × 3 × 4")
        assert (page.answer["state"], page.explorable.start) == ("ready", "1,3,4")

    def test_nothing_is_evaluated(self, tmp_path: Path) -> None:
        trace = tmp_path / "evaluated"
        page = open_page()
        for name in ("chain", "start"):
            page.control(name, f"__import__('pathlib').Path({str(trace)!r}).touch()")
            page.open(f"?{name}=__import__('pathlib').Path({str(trace)!r}).touch()")
            assert page.answer["state"] == "invalid"
        assert not trace.exists()

    def test_limits(self) -> None:
        page = open_page(start="96", chain=" | ".join(["flatten()"] * 8), element=95)
        assert page.answer["state"] == "ready"
        assert len(page.explorable.result.steps) == 9
        assert page.explorable.bar.limits == {"element": 95, "into": 8}
        assert assert_strict_json(page.answer) < 30_000
        for name, value in (("element", 96), ("element", -1), ("into", 9), ("write", "yes")):
            with pytest.raises(traitlets.TraitError):
                setattr(page.explorable, name, value)
        with pytest.raises(ValueError, match="Element: expected 0 to 11, got 12"):
            open_page(element=12)

    def test_fewer_elements_take_the_followed_one_along(self) -> None:
        page = open_page(preset="four heads, strides")
        page.control("start", "2,3,4")
        assert (page.explorable.element, page.answer["state"]) == (23, "ready")
        assert "refused by PyTorch: shape '[2, 3, 4, 2]' is invalid for input of size 24" in told(page, 1)
        page.command("undo")
        assert (page.explorable.start, page.explorable.element) == ("2,3,8", 45)
        page.explorable.start = (1, 2)
        assert (page.explorable.element, page.explorable.state) == (1, "ready")
        assert open_page(start="1").explorable.element == 0


class TestEditingTheChain:
    def test_reorder_remove_and_add(self) -> None:
        page = open_page()
        steps = DEFAULT.split(" | ")
        for order in itertools.permutations(range(3)):
            chain = " | ".join(steps[i] for i in order)
            page.control("chain", chain)
            assert_is_torch(page, "1,3,4", chain)
        for kept in itertools.combinations(steps, 2):
            page.control("chain", " | ".join(kept))
            assert_is_torch(page, "1,3,4", " | ".join(kept))
        page.control("chain", "")
        assert_is_torch(page, "1,3,4", "")
        (control,) = [c for row in page.explorable.bar.controls for c in row if c["kind"] == "chain"]
        for choice in control["choices"]:
            page.control("chain", choice)
            assert_is_torch(page, "1,3,4", choice)

    def test_it_is_written_in_one_way(self) -> None:
        page = open_page()
        page.control("chain", "  transpose( 1 ,2)|view(-1)   | flatten( ) ")
        assert page.explorable.chain == "transpose(1,2) | view(-1) | flatten()"
        assert page.explorable.bar.values["chain"] == page.explorable.chain

    def test_undo_of_each_edit(self) -> None:
        page = open_page()
        seen = []
        for chain in ("reshape(4,3)", "reshape(4,3) | flatten()", "flatten() | reshape(4,3)", ""):
            page.control("chain", chain)
            seen.append(page.explorable.code())
        for code in reversed(seen):
            assert page.explorable.code() == code
            page.command("undo")
        assert page.explorable.code() == "LayoutExplorable()"


CHANGED: dict[str, Any] = {
    "start": "2,3,4",
    "chain": "transpose(1,2) | contiguous()",
    "element": 7,
    "write": True,
    "into": 1,
    "gradient": True,
}


class TestState:
    def test_every_control_is_an_argument_and_a_trait(self) -> None:
        plain = open_page()
        names = {c["name"] for row in plain.explorable.bar.controls for c in row}
        assert names == {*CHANGED, "preset", "undo", "redo", "reset", "link", "export"}
        for name, value in CHANGED.items():
            as_argument, as_trait, as_control = open_page(**{name: value}), open_page(), open_page()
            setattr(as_trait.explorable, name, value)
            as_control.control(name, value)
            for page in (as_argument, as_trait, as_control):
                assert getattr(page.explorable, name) == page.explorable.bar.values[name] == value
                for key in ("texts", "tags", "state"):
                    assert page.answer[key] == as_argument.answer[key]

    @pytest.mark.parametrize("changed", [{}, CHANGED], ids=["as it is", "changed"])
    @pytest.mark.parametrize("preset", PRESETS)
    def test_address_and_code_there_and_back(self, preset: str, changed: dict[str, Any]) -> None:
        made = LayoutExplorable(preset=preset, **changed)
        opened = open_page()
        opened.open("?" + made.address)
        again = eval(made.code(), {"LayoutExplorable": LayoutExplorable})
        for other in (opened.explorable, again):
            assert other.state == "ready"
            assert other.address == made.address
            for name in (*CHANGED, "preset"):
                assert getattr(other, name) == getattr(made, name), name
            assert other.view.answer["texts"] == made.view.answer["texts"]

    def test_a_short_address(self) -> None:
        page = open_page()
        assert page.explorable.address == ""
        page.control("element", 5)
        page.control("chain", "view(2,6)")
        assert page.explorable.address == "chain=view%282,6%29&element=5"

    def test_a_hostile_link(self) -> None:
        page = open_page()
        page.open("?chain=view(2)|exec(1)&start=1,2,x&element=4")
        assert page.answer["state"] == "invalid"
        for words in ("The link's chain was not used: operation 2", "The link's start was not used"):
            assert words in page.answer["message"]
        assert page.explorable.code() == "LayoutExplorable(element=4)"

    def test_numbers_to_copy(self) -> None:
        page = open_page()
        page.control("export", "numbers")
        blocks = page.explorable.bar.clipboard["text"].split("\n\n")
        assert [b.split("\n")[0] for b in blocks] == [
            "start · axis0 1 × axis1 3 × axis2 4",
            "step1 · axis0 1 × axis1 3 × axis2 2 × axis3 2",
            "step2 · axis0 1 × axis1 2 × axis2 3 × axis3 2",
        ]
        assert blocks[2].split("\n")[1:] == ["0\t1", "4\t5", "8\t9", "2\t3", "6\t7", "10\t11"]


@pytest.mark.parametrize(
    ("start", "chain"),
    [
        *((",".join(map(str, READY[n].start)), READY[n].text) for n in list(READY)[:7] if n != "one head"),
        ("2,3", "contiguous() | flatten(0,1) | flatten()"),
        ("2,2,2", "transpose(0,1) | transpose(0,2) | permute(1,2,0)"),
        ("1,3,1,2", "transpose(-1,-2) | contiguous() | view(3,2) | transpose(0,1) | reshape(6)"),
    ],
)
def test_every_element_explains_itself(start: str, chain: str) -> None:
    tensors, _ = by_torch(start, chain)
    page = open_page(start=start, chain=chain)
    assert_all_explained(page, [*map(stage, range(len(tensors))), *(f"strip{i}" for i in own(tensors))])
