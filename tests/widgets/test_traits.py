"""The traits of masks, numbers, rows and draws: what they take, refuse and hand out."""

import math
from typing import Any

import numpy as np
import pytest
import torch
import traitlets
from hypothesis import given
from hypothesis import strategies as st

from attnlab.engine import MatrixError, keep_masks
from attnlab.widgets import DropoutExplorable
from attnlab.widgets.address import decode, encode
from attnlab.widgets.draws import MAX_DRAWS, Draws, as_masks, as_text
from attnlab.widgets.matrix import Mask, Matrix
from attnlab.widgets.number import Number
from attnlab.widgets.read_only import ReadOnlyTensor
from helpers.front_end import FrontEnd, same_numbers
from helpers.refusals import refused

WHY = "there is a reason"


class Holder(traitlets.HasTraits):
    row = Matrix(label="R", axes=("key",), max_size=5)
    grid = Matrix(label="G", axes=("head", "query", "key"), shape=(2, 3, 4), limit=30)
    bits = Mask(label="B", axes=("key",), max_size=6)
    square = Mask(label="S", axes=("query", "key"), shape=(2, 3))
    free = Mask(label="F", axes=("query", "key"), max_size=3)
    p = Number(0.5, label="p", least=0, below=1, why=WHY)
    rho = Number(0.25, label="rho", least=-2, most=3)
    draws = Draws()


class TestMask:
    @pytest.mark.parametrize(
        "value",
        [
            [1, 0, 0, 1],
            (True, False, False, True),
            "1 0 0 1",
            "1,0,0,1",
            [1.0, -0.0, 0.0, 1.0],
            torch.tensor([True, False, False, True]),
            torch.tensor([1, 0, 0, 1], dtype=torch.uint8),
            torch.tensor([1.0, 0, 0, 1], requires_grad=True),
            np.array([1, 0, 0, 1]),
        ],
        ids=lambda value: type(value).__name__,
    )
    def test_zeros_and_ones_in_many_forms_become_bool(self, value: Any) -> None:
        bits = Holder(bits=value).bits
        assert type(bits) is ReadOnlyTensor
        assert bits.dtype == torch.bool
        assert bits.tolist() == [True, False, False, True]

    @pytest.mark.parametrize(
        ("value", "words"),
        [
            ([1, 0.5], ("B: expected only 0 and 1", "0.5")),
            ([2, 0], ("B: expected only 0 and 1", "2")),
            ("0 -1", ("B: expected only 0 and 1", "-1")),
            ([1e-300], ("B: expected only 0 and 1", "1e-300")),
            ([math.nan, 1], ("B", "nan")),
            ([], ("B", "1 × 0")),
            ([1] * 7, ("B", "1 to 6 columns", "1 × 7")),
            ([[1, 0]], ("B: expected one row", "2 axes")),
            ("1 0; 0 1", ("B", "2 × 2")),
            (None, ("B: expected a row of numbers",)),
            (1, ("B: expected one row", "0 axes")),
        ],
    )
    def test_anything_else_is_refused(self, value: Any, words: tuple[str, ...]) -> None:
        holder = Holder(bits=[0, 1])
        with refused(*words, error=MatrixError):
            holder.bits = value
        assert holder.bits.tolist() == [False, True]

    def test_a_mask_is_taken_again_as_it_is(self) -> None:
        mask = Holder(square=[[1, 0, 1], [0, 0, 1]]).square
        assert same_numbers(Holder(square=mask).square, mask)
        assert same_numbers(Holder(free=mask).free, mask)

    def test_a_mask_of_one_bit(self) -> None:
        assert [Holder(bits=[bit]).bits.tolist() for bit in (0, 1)] == [[False], [True]]

    def test_what_is_in_it_cannot_be_changed_in_place(self) -> None:
        holder = Holder(bits=[0, 1])
        with refused("can't be changed in place", error=TypeError):
            holder.bits[0] = True

    @given(st.lists(st.booleans(), min_size=1, max_size=6), st.lists(st.booleans(), min_size=6, max_size=6))
    def test_there_and_back_through_an_address(self, bits: list[bool], square: list[bool]) -> None:
        made = Holder(bits=bits, square=torch.tensor(square).reshape(2, 3))
        address = encode({"bits": made.bits, "square": made.square})
        assert not set(address) - set("bits=quare&01,;")
        values, problems = decode(address, made.traits())
        assert problems == []
        assert same_numbers(values["bits"], made.bits)
        assert same_numbers(values["square"], made.square)

    @pytest.mark.parametrize("text", ["2,0", "0.5,1", "nan", "", "1;0;2", "True,False", "1,0,0,1,0,1,1"])
    def test_an_address_is_no_way_around_it(self, text: str) -> None:
        values, problems = decode(f"bits={text}", Holder().traits())
        assert values == {}
        assert len(problems) == 1
        assert "The link's bits was not used" in problems[0]

    def test_a_new_key_is_kept(self) -> None:
        page = FrontEnd(DropoutExplorable(keep=[0, 0, 1]))
        page.resize("key", 1)
        assert page.explorable.keep.tolist() == [False, False, True, True]
        page.resize("key", 1)
        assert page.explorable.keep.tolist() == [False, False, True, True, True]
        page.resize("key", -1)
        page.resize("key", -1)
        page.resize("key", -1)
        assert page.explorable.keep.tolist() == [False, False]

    @pytest.mark.parametrize("value", [0.5, 2.0, -1.0])
    def test_one_cell_takes_no_other_number_either(self, value: float) -> None:
        page = FrontEnd(DropoutExplorable())
        before = page.numbers["keep"]
        answer = page.value("keep", [1], value)
        assert answer["state"] == "invalid"
        assert "Keep: expected only 0 and 1" in answer["message"]
        assert same_numbers(page.numbers["keep"], before)


class TestRow:
    @pytest.mark.parametrize(
        "value",
        [[0.1, 1 / 3], (0.1, 1 / 3), np.array([0.1, 1 / 3]), torch.tensor([0.1, 1 / 3], dtype=torch.float64)],
        ids=["list", "tuple", "numpy", "tensor"],
    )
    def test_float64_exactly(self, value: Any) -> None:
        """Lists become float32 by themselves, where 0.1 is another number."""
        row = Holder(row=value).row
        assert row.dtype == torch.float64
        assert row.tolist() == [0.1, 1 / 3]

    def test_text_is_float64_exactly(self) -> None:
        assert Holder(row="0.1 .3 1e-8").row.tolist() == [0.1, 0.3, 1e-8]
        assert Holder(grid=[[[0.1] * 4] * 3] * 2).grid.unique().tolist() == [0.1]

    @pytest.mark.parametrize(
        ("value", "words"),
        [
            ([], ("R", "1 × 0")),
            ([0] * 6, ("R", "1 to 5 columns", "1 × 6")),
            ([[1, 2]], ("R: expected one row", "2 axes")),
            ("1 2; 3 4", ("R", "1 to 1 rows", "2 × 2")),
            (5, ("R: expected one row", "0 axes")),
            ([1, math.inf], ("R row 1, column 2", "inf")),
            ([1, -101], ("R row 1, column 2", "−100 to 100", "-101")),
            ([1, "2"], ("R: expected a row of numbers",)),
            ([10**400], ("R: expected a row of numbers",)),
            (torch.ones(2, dtype=torch.complex64), ("R: expected real numbers", "complex64")),
        ],
    )
    def test_what_is_no_row_is_refused_by_name(self, value: Any, words: tuple[str, ...]) -> None:
        with refused(*words, error=MatrixError):
            Holder(row=value)

    def test_the_caller_keeps_his_own_tensor(self) -> None:
        mine = torch.ones(3, dtype=torch.float64)
        holder = Holder(row=mine)
        mine[0] = 7
        assert holder.row.tolist() == [1, 1, 1]


class TestFixedShape:
    @pytest.mark.parametrize(
        ("value", "words"),
        [
            (None, ("G: expected rows of numbers",)),
            ([[1, 2], [3]], ("G: expected rows of numbers of equal length",)),
            ([[[1] * 4] * 2] * 3, ("G: expected a tensor of shape 2 × 3 × 4", "3 × 2 × 4")),
            (torch.ones(24), ("G: expected a tensor of shape 2 × 3 × 4", "got 24")),
            ("1 2 3; 4 5 6", ("G: expected 6 rows of 4 numbers", "got 2 of 3")),
            (torch.ones(2, 3, 4, dtype=torch.complex128), ("G: expected real numbers",)),
            (torch.full((2, 3, 4), 31.0), ("G row 1, column 1", "−30 to 30", "31")),
        ],
    )
    def test_another_shape_is_refused_by_name(self, value: Any, words: tuple[str, ...]) -> None:
        with refused(*words, error=MatrixError):
            Holder(grid=value)

    def test_as_text_its_rows_stand_one_after_the_other(self) -> None:
        ids = torch.arange(24, dtype=torch.float64).reshape(2, 3, 4)
        text = ";".join(" ".join(str(i * 4 + j) for j in range(4)) for i in range(6))
        assert same_numbers(Holder(grid=text).grid, ids)
        values, problems = decode(encode({"grid": Holder(grid=ids).grid}), Holder().traits())
        assert problems == []
        assert same_numbers(values["grid"], ids)


class TestNumber:
    @pytest.mark.parametrize(
        ("value", "number"),
        [(0, 0.0), (0.1, 0.1), ("0.1", 0.1), (" .25 ", 0.25), ("1e-3", 1e-3), (math.nextafter(1, 0),) * 2],
    )
    def test_taken(self, value: Any, number: float) -> None:
        held = Holder(p=value).p
        assert type(held) is float
        assert held == number

    @pytest.mark.parametrize("value", [1, 1.0, "1", "1.0"])
    def test_one_is_refused_with_the_reason(self, value: Any) -> None:
        holder = Holder()
        with refused("p: expected a number from 0 below 1, got 1", WHY, error=MatrixError):
            holder.p = value
        assert holder.p == 0.5

    @pytest.mark.parametrize("value", [1.5, "101", 1.000001])
    def test_more_is_refused_without_a_reason_that_is_only_that_of_one(self, value: Any) -> None:
        holder = Holder()
        with pytest.raises(MatrixError, match=r"expected a number from 0 below 1, got [\d.]+$"):
            holder.p = value
        assert holder.p == 0.5

    @pytest.mark.parametrize(
        ("value", "got"),
        [
            (-0.1, "-0.1"),
            ("-5", "-5"),
            (math.nan, "nan"),
            (-math.inf, "-inf"),
            ("nan", "'nan'"),
            ("inf", "'inf'"),
            ("1e999", "'1e999'"),
            ("", "''"),
            ("0.5 0.5", "'0.5 0.5'"),
            ("0,5", "'0,5'"),
            ("__import__('os')", "import"),
            (10**400, "too large"),
            (True, "bool"),
            (None, "NoneType"),
            ([0.5], "list"),
            (0.5j, "complex"),
        ],
    )
    def test_what_is_no_number_in_range_is_refused(self, value: Any, got: str) -> None:
        with refused("p: expected a number", got, error=MatrixError) as caught:
            Holder(p=value)
        assert WHY not in str(caught.value)
        assert "100" not in str(caught.value)  # the limit of a matrix is none of this trait's

    def test_infinity_is_above_every_limit(self) -> None:
        with refused("p", "got inf", error=MatrixError):
            Holder(p=math.inf)

    @pytest.mark.parametrize("value", [-2, 3, "-2", "3.0", 0])
    def test_both_ends_belong_to_it(self, value: Any) -> None:
        assert Holder(rho=value).rho == float(value)

    @pytest.mark.parametrize("value", [-2.001, 3.001, "3.001"])
    def test_beyond_the_ends_the_message_says_them(self, value: Any) -> None:
        with refused(f"rho: expected a number from -2 to 3, got {value}", error=MatrixError):
            Holder(rho=value)

    @given(st.floats(0, 1, exclude_max=True))
    def test_there_and_back_through_an_address(self, p: float) -> None:
        values, problems = decode(encode({"p": Holder(p=p).p}), Holder().traits())
        assert problems == []
        assert math.copysign(1, values["p"]) == math.copysign(1, p)
        assert values["p"] == p


class TestDraws:
    @given(st.integers(1, 6).flatmap(lambda n: st.tuples(st.just(n), st.lists(st.integers(0, 2**n - 1)))))
    def test_masks_and_text_are_one(self, drawn: tuple[int, list[int]]) -> None:
        keys, numbers = drawn
        masks = keep_masks(keys)[numbers] if numbers else torch.zeros(0, keys, dtype=torch.bool)
        text = as_text(masks)
        assert len(text) == len(numbers)
        assert Draws().validate(None, text) == text
        assert same_numbers(as_masks(text, keys), masks)
        assert encode({"draws": text}) == f"draws={text}"  # nothing in it has to be escaped

    def test_the_characters_are_those_of_base64url(self) -> None:
        assert as_text(keep_masks(6)) == "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
        assert as_masks("F", 3).tolist() == [[True, False, True]]

    @pytest.mark.parametrize("keys", range(1, 6))
    def test_more_bits_than_keys_are_refused(self, keys: int) -> None:
        fits, more = as_text(keep_masks(6)[[2**keys - 1, 2**keys]])
        assert as_masks(fits, keys).all()
        with refused(f"masks over {keys} keys", error=MatrixError):
            as_masks(fits + more, keys)

    @pytest.mark.parametrize(
        ("value", "words"),
        [
            ("A B", ("letters, digits", "' '")),
            ("AB+", ("'+'",)),
            ("Ä", ("'Ä'",)),
            ("A\n", ("'\\n'",)),
            (5, ("expected text", "int")),
            (None, ("expected text", "NoneType")),
            (b"AB", ("expected text", "bytes")),
            ("A" * (MAX_DRAWS + 1), ("at most 30,000 masks", "got 30,001", "forget them first")),
        ],
        ids=lambda value: str(value)[:8],
    )
    def test_what_is_no_draws_is_refused(self, value: Any, words: tuple[str, ...]) -> None:
        holder = Holder(draws="AB")
        with refused("draws", *words, error=MatrixError):
            holder.draws = value
        assert holder.draws == "AB"

    def test_the_mask_that_is_over_more_keys_is_named(self) -> None:
        with refused("over 3 keys, each a character from A to H, got 'x'", error=MatrixError):
            as_masks("ABx", 3)

    def test_as_many_as_a_link_can_carry(self) -> None:
        assert len(Holder(draws="H" * MAX_DRAWS).draws) == 30_000
