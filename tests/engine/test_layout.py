"""Layouts and chains are what torch says they are: strides, storage, views, copies, and its own errors."""

import itertools
import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from attnlab.engine import record
from attnlab.engine.chain import READY_CHAINS, ChainResult, ReadyChain, changed_by_writing, run_chain
from attnlab.engine.chain_text import OPERATIONS, Operation, format_chain, parse_chain
from attnlab.engine.heads import split_and_merge
from attnlab.engine.layout import layout, offset_of, storage_strip
from helpers.annotations import unchecked
from helpers.recomputed import examined
from helpers.refusals import refused


def run(start: tuple[int, ...], text: str) -> ChainResult:
    return run_chain(start, parse_chain(text))


def numbers(*shape: int) -> Tensor:
    return torch.arange(math.prod(shape), dtype=torch.float64).reshape(shape)


def outcomes(result: ChainResult) -> list[str]:
    return [step.outcome for step in result.steps]


def own_outcome(tensor: Tensor, operation: Operation) -> Tensor | str:
    """What torch makes of it, or its error."""
    try:
        made: Tensor = getattr(tensor, operation.name)(*operation.arguments)
    except (RuntimeError, IndexError) as refusal:
        return str(refusal)
    return made


def places(tensor: Tensor) -> list[tuple[int, ...]]:
    return list(itertools.product(*map(range, tensor.shape)))


class TestLayout:
    @pytest.mark.parametrize(
        "tensor",
        [
            numbers(2, 3, 4),
            numbers(2, 3, 4).transpose(0, 2),
            numbers(2, 3, 4)[1, :, 1:],
            numbers(6)[::2],
            numbers(1, 1, 1),
            numbers(3)[:, None].expand(3, 2),
            numbers(2, 2, 2).permute(2, 0, 1).float(),
        ],
        ids=lambda t: f"{tuple(t.shape)}{t.stride()}",
    )
    def test_every_element_is_in_the_strip_where_its_offset_says(self, tensor: Tensor) -> None:
        found, strip = layout(tensor), storage_strip(tensor)
        assert (found.shape, found.stride) == (tuple(tensor.shape), tensor.stride())
        assert found.storage_offset == tensor.storage_offset()
        assert found.contiguous == tensor.is_contiguous()
        assert strip.shape == (tensor.untyped_storage().nbytes() // tensor.itemsize,)
        for place in places(tensor):
            offset = offset_of(tensor, place)
            assert strip[offset.total] == tensor[place]
            assert offset.total == offset.start + sum(t.product for t in offset.terms)
            # Torch's own view of one element starts there.
            assert tensor[place].storage_offset() == offset.total

    def test_fuxictr_30(self) -> None:
        heads = split_and_merge(2, 3, 8, 4).heads
        assert layout(heads).stride == (24, 2, 8, 1)
        assert not layout(heads).contiguous
        assert offset_of(heads, (1, 2, 2, 1)).total == 45
        assert offset_of(heads, (1, 2, 2, 1)).text == "0 + 1·24 + 2·2 + 2·8 + 1·1 = 45"
        packed = heads.contiguous()
        assert offset_of(packed, (1, 2, 2, 1)).total == 41
        assert packed[1, 2, 2, 1] == heads[1, 2, 2, 1] == 45

    def test_the_strip_is_no_window_onto_the_tensor(self) -> None:
        tensor = numbers(2, 3)
        storage_strip(tensor).zero_()
        assert tensor.sum() == 15

    def test_a_strip_of_a_tensor_with_a_gradient(self) -> None:
        tensor = numbers(2, 3).requires_grad_()
        assert storage_strip(tensor.mT).tolist() == [0, 1, 2, 3, 4, 5]

    @pytest.mark.parametrize(
        ("index", "words"),
        [
            ((0,), ("2 places", "got 1")),
            ((0, 0, 0), ("2 places", "got 3")),
            ((2, 0), ("axis 0", "0 to 1", "got 2")),
            ((0, -1), ("axis 1", "0 to 2", "got -1")),
            ((0, True), ("axis 1", "got True")),
            ((0, 1.0), ("axis 1", "got 1.0")),
        ],
    )
    def test_refusals(self, index: tuple[int, ...], words: tuple[str, ...]) -> None:
        with refused(*words):
            offset_of(numbers(2, 3), index)


class TestFamousChains:
    @pytest.mark.parametrize(
        ("sizes", "works"), [((2, 3, 2), False), ((1, 3, 2), True), ((2, 1, 2), True)], ids=str
    )
    def test_fairseq_2598_tensorrt_3823_view_of_a_transpose(
        self, sizes: tuple[int, int, int], works: bool
    ) -> None:
        heads, time, d = sizes
        result = run((1, heads, time, d), f"transpose(1,2) | view(1,{time},{heads * d})")
        assert outcomes(result) == ["start", "view", "view" if works else "error"]
        if works:
            expected = numbers(1, heads, time, d).transpose(1, 2).reshape(1, time, heads * d)
            assert torch.equal(result.tensors()[-1], expected)
        else:
            with pytest.raises(RuntimeError) as own:
                numbers(1, heads, time, d).transpose(1, 2).view(1, time, heads * d)
            assert result.error == str(own.value)

    @pytest.mark.parametrize("sizes", list(itertools.product((1, 2, 3), (1, 2, 3), (1, 2))), ids=str)
    def test_view_works_exactly_where_torch_lets_it(self, sizes: tuple[int, int, int]) -> None:
        heads, time, d = sizes
        tensor = numbers(1, heads, time, d).transpose(1, 2)
        try:
            tensor.view(1, time, heads * d)
            works = True
        except RuntimeError:
            works = False
        assert works == (not run((1, heads, time, d), f"transpose(1,2) | view(1,{time},{heads * d})").error)

    def test_heads_of_1_3_4(self) -> None:
        result = run((1, 3, 4), "reshape(1,3,2,2) | transpose(1,2) | view(1,3,4)")
        assert outcomes(result) == ["start", "view", "view", "error"]
        heads = result.steps[2].layout
        assert heads is not None
        assert (heads.shape, heads.stride, heads.contiguous) == ((1, 2, 3, 2), (12, 2, 4, 1), False)
        assert result.steps[2].shares_with == (0, 1)
        assert result.steps[3].tensor is None
        assert result.steps[3].layout is None

    @pytest.mark.parametrize(
        ("end", "expected"),
        [("reshape(1,3,4)", ["copy"]), ("contiguous() | view(1,3,4)", ["copy", "view"])],
    )
    def test_reshape_and_contiguous_copy(self, end: str, expected: list[str]) -> None:
        result = run((1, 3, 4), f"reshape(1,3,2,2) | transpose(1,2) | {end}")
        assert outcomes(result)[3:] == expected
        assert result.steps[3].shares_with == ()
        assert result.tensors()[-1].flatten().tolist() == [0, 1, 4, 5, 8, 9, 2, 3, 6, 7, 10, 11]

    def test_contiguous_gives_back_what_is_contiguous_already(self) -> None:
        result = run((2, 3), "contiguous() | transpose(0,1) | contiguous()")
        assert [step.is_same_tensor for step in result.steps] == [False, True, False, False]
        assert outcomes(result) == ["start", "view", "view", "copy"]

    def test_nothing_comes_after_an_error(self) -> None:
        result = run((2, 3), "transpose(0,1) | view(6) | flatten() | view(2,3)")
        assert outcomes(result) == ["start", "view", "error"]
        assert [stage.name for stage in result.stages()] == ["start", "step1"]

    @pytest.mark.parametrize("chain", READY_CHAINS, ids=lambda chain: chain.name)
    def test_ready_chains_are_torchs_outcome(self, chain: ReadyChain) -> None:
        operations = parse_chain(chain.text)
        assert format_chain(operations) == chain.text
        result = run_chain(chain.start, operations)
        tensor = numbers(*chain.start)
        tensor[chain.index]  # there is such an element
        for step in result.steps[1:]:
            assert step.operation is not None
            made = own_outcome(tensor, step.operation)
            if isinstance(made, str):
                assert (step.outcome, step.error) == ("error", made)
                break
            assert step.tensor is not None
            assert torch.equal(step.tensor, made)
            assert step.tensor.stride() == made.stride()
            assert (step.outcome == "view") == (
                made.untyped_storage().data_ptr() == tensor.untyped_storage().data_ptr()
            )
            tensor = made

    def test_ready_chains_show_all_outcomes(self) -> None:
        seen = {step.outcome for c in READY_CHAINS for step in run(c.start, c.text).steps}
        assert seen == {"start", "view", "copy", "error"}
        assert len({chain.name for chain in READY_CHAINS}) == len(READY_CHAINS)


class TestWriting:
    @pytest.mark.parametrize("chain", READY_CHAINS, ids=lambda chain: chain.name)
    def test_exactly_the_stages_that_share_memory_change_and_where(self, chain: ReadyChain) -> None:
        operations = parse_chain(chain.text)
        tensors = run_chain(chain.start, operations).tensors()
        for stage, tensor in enumerate(tensors):
            place = places(tensor)[-1]
            changed = changed_by_writing(chain.start, operations, stage, place)
            for other, found in zip(tensors, changed, strict=True):
                shares = other.untyped_storage().data_ptr() == tensor.untyped_storage().data_ptr()
                # Ids are unique, so the element that was written is where its number was.
                assert list(found) == (
                    [p for p in places(other) if other[p] == tensor[place]] if shares else []
                )
            assert changed[stage] == (place,)

    def test_a_copy_is_left_alone_and_a_view_is_not(self) -> None:
        operations = parse_chain("transpose(0,1) | contiguous() | view(2,3)")
        assert changed_by_writing((2, 3), operations, 0, (1, 0)) == (((1, 0),), ((0, 1),), (), ())
        assert changed_by_writing((2, 3), operations, 3, (0, 1)) == ((), (), ((0, 1),), ((0, 1),))

    def test_the_result_on_the_screen_is_not_written_to(self) -> None:
        operations = parse_chain("transpose(0,1)")
        result = run_chain((2, 3), operations)
        changed_by_writing((2, 3), operations, 1, (0, 0))
        assert torch.equal(result.tensors()[0], numbers(2, 3))

    def test_refusals(self) -> None:
        with refused("stage:", "from 0 to 1", "got 2"):
            changed_by_writing((2, 3), parse_chain("flatten()"), 2, (0,))
        with refused("2 places", "got 1"):
            changed_by_writing((2, 3), (), 0, (0,))
        with refused("axis 1", "from 0 to 2", "got 3"):
            changed_by_writing((2, 3), (), 0, (0, 3))


@st.composite
def chains(draw: st.DrawFn) -> list[tuple[str, tuple[int, ...]]]:
    """Up to eight operations, possible or not, as names and numbers.

    They are made into operations by the tests: checking annotations takes random samples, and hypothesis
    doesn't allow that in here.
    """
    found = []
    for _ in range(draw(st.integers(0, 8))):
        name = draw(st.sampled_from(sorted(OPERATIONS)))
        count = draw(st.integers(*OPERATIONS[name]))
        found.append((name, tuple(draw(st.integers(-2, 6)) for _ in range(count))))
    return found


@st.composite
def starts(draw: st.DrawFn) -> tuple[int, ...]:
    """1 to 5 axes and at most 96 elements."""
    sizes = [draw(st.integers(1, 4))]
    for _ in range(draw(st.integers(0, 4))):
        sizes.append(draw(st.integers(1, min(4, 96 // math.prod(sizes)))))
    return tuple(sizes)


class TestText:
    @given(chains())
    def test_round_trip(self, drawn: list[tuple[str, tuple[int, ...]]]) -> None:
        operations = tuple(Operation(*parts) for parts in drawn)
        text = format_chain(operations)
        assert parse_chain(text) == operations
        assert parse_chain(text.replace(",", " , ").replace("(", " ( ").replace("|", "\n|\t")) == operations

    def test_empty(self) -> None:
        assert parse_chain("") == parse_chain(" \n") == ()

    @pytest.mark.parametrize(
        ("text", "words"),
        [
            ("view(2) | exec(1)", ("operation 2:", "one of reshape, view", "'exec'")),
            ("__class__(1)", ("operation 1:", "'__class__'")),
            ("View(2)", ("operation 1:", "'View'")),
            ("view(2) |", ("operation 2 is empty",)),
            ("| view(2)", ("operation 1 is empty",)),
            ("view(2) || view(3)", ("operation 2 is empty",)),
            ("view", ("operation 1:", "'view'")),
            ("view(2", ("operation 1:", "'view(2'")),
            ("view(2))", ("operation 1:",)),
            ("view((2,3))", ("operation 1:",)),
            ("x.view(2)", ("operation 1:", "'x.view(2)'")),
            ("view(2).view(3)", ("operation 1:",)),
            ("view(2) view(3)", ("operation 1:",)),
            ("flatten() | view(1+1)", ("operation 2:", "whole number", "'1+1'")),
            ("view(1.0)", ("operation 1:", "'1.0'")),
            ("view(1e3)", ("'1e3'",)),
            ("view(2,)", ("operation 1:", "got ''")),
            ("view(,2)", ("got ''",)),
            ("view(0x10)", ("'0x10'",)),
            ("view(1_0)", ("'1_0'",)),
            ("view(²)", ("'²'",)),
            ("view(٣)", ("'٣'",)),
            ("view(--1)", ("'--1'",)),
            ("view(12345)", ("at most 4 digits", "'12345'")),
            ("view()", ("operation 1: view takes 1 to 5 numbers, got 0",)),
            ("view(1,1,1,1,1,2)", ("operation 1: view takes 1 to 5 numbers, got 6",)),
            ("transpose(1)", ("operation 1: transpose takes 2 numbers, got 1",)),
            ("flatten() | transpose(0,1,2)", ("operation 2: transpose takes 2 numbers, got 3",)),
            ("contiguous(1)", ("contiguous takes 0 numbers, got 1",)),
            ("flatten(0,1,2)", ("flatten takes 0 to 2 numbers, got 3",)),
            ("|".join(["flatten()"] * 9), ("at most 8 operations", "got 9")),
            ("v" * 401, ("at most 400 characters", "got 401")),
        ],
    )
    def test_refusals(self, text: str, words: tuple[str, ...]) -> None:
        with refused(*words):
            parse_chain(text)

    @pytest.mark.parametrize(
        "argument", [True, 1.0, "1", None, 10_000, -10_000, 10**5000], ids=lambda a: type(a).__name__
    )
    def test_operations_as_data_are_checked_too(self, argument: object) -> None:
        with refused("view:", "whole numbers from −9999 to 9999"):
            Operation("view", (argument,))  # type: ignore[arg-type]

    @given(st.text(alphabet="view(),|0123 -", max_size=40))
    def test_any_text_is_read_or_refused(self, text: str) -> None:
        try:
            operations = parse_chain(text)
        except ValueError as refusal:
            told = str(refusal)
        else:
            assert parse_chain(format_chain(operations)) == operations
            return
        assert told.startswith(("operation ", "chain: "))


class TestLimits:
    @pytest.mark.parametrize(
        ("start", "words"),
        [
            ((), ("1 to 5 axes", "got 0")),
            ((1,) * 6, ("1 to 5 axes", "got 6")),
            ((97,), ("axis 0", "1 to 96", "got 97")),
            ((2, 49), ("at most 96 elements", "got 98", "2 × 49")),
            ((96, 96, 96), ("got 884,736",)),
            ((2, 0), ("axis 1", "got 0")),
            ((-1,), ("got -1",)),
            ((True,), ("got True",)),
            ((2.0,), ("got 2.0",)),
            ((10**5000,), ("more than 20 digits",)),
        ],
        ids=lambda value: value[-1] if isinstance(value[-1] if value else 0, str) else "start",
    )
    def test_starts(self, start: tuple[int, ...], words: tuple[str, ...]) -> None:
        with refused(*words):
            run_chain(start, ())

    def test_too_many_operations(self) -> None:
        with refused("at most 8 operations", "got 9"):
            run_chain((2,), [Operation("flatten")] * 9)

    def test_the_largest_pass(self) -> None:
        assert run_chain((2, 2, 2, 2, 6), [Operation("flatten")] * 8).error == ""


@given(starts(), chains())
def test_chains_by_chance_are_torchs_outcome_and_explain_themselves(
    start: tuple[int, ...], drawn: list[tuple[str, tuple[int, ...]]]
) -> None:
    operations = tuple(Operation(*parts) for parts in drawn)
    with unchecked(), record() as tape:
        result = run_chain(start, operations)
    with unchecked():
        tensor = numbers(*start)
        for step, operation in zip(result.steps[1:], operations, strict=False):
            made = own_outcome(tensor, operation)
            if isinstance(made, str):
                assert (step.outcome, step.error) == ("error", made)
                break
            assert step.tensor is not None
            assert step.tensor.ndim <= 5
            assert torch.equal(step.tensor, made)
            shares = made.untyped_storage().data_ptr() == tensor.untyped_storage().data_ptr()
            assert step.outcome == ("view" if shares else "copy")
            assert step.is_same_tensor == (made is tensor)
            tensor = made
        assert examined(tape) == ([], set())
        for stage in result.stages():
            place = tuple(size - 1 for size in stage.tensor.shape)
            assert tape.explain(stage.tensor, place).formula is not None
            assert len(stage.axes) == stage.tensor.ndim


@pytest.mark.parametrize("chain", READY_CHAINS, ids=lambda chain: chain.name)
def test_every_number_of_the_ready_chains_explains_itself(chain: ReadyChain) -> None:
    with unchecked(), record() as tape:
        result = run(chain.start, chain.text)
    with unchecked():
        assert examined(tape) == ([], set())
        for stage in result.stages():
            for place in places(stage.tensor):
                found = tape.explain(stage.tensor, place)
                assert found.formula is not None
                assert found.formula.value() == stage.tensor[place]
