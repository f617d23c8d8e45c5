"""Masks against the rule in words, against torch's own masks, and as algebra."""

import itertools
import re

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from attnlab.engine import (
    bidirectional,
    causal,
    causal_alignment,
    combine,
    empty_rows,
    from_ignored,
    to_additive,
)
from helpers.inputs import Sizes, masks_with_a_key, tensors
from helpers.oracles import may_read
from helpers.refusals import refused

LENGTHS = tuple(itertools.product((1, 2, 3, 5), repeat=2))
OFFSETS = (None, -9, -3, -1, 0, 1, 2, 9)

lengths = st.integers(1, 9)
offsets = st.none() | st.integers(-12, 12)


@st.composite
def mask_lists(draw: st.DrawFn) -> list[Tensor]:
    shape = draw(st.sampled_from([(2, 3), (3, 3), (1, 1), (2, 3, 4), (2, 2, 3, 4)]))
    cells = torch.Size(shape).numel()
    # The bits of one integer are the cells of a mask: quicker to draw than a list.
    drawn = draw(st.lists(st.integers(0, 2**cells - 1), min_size=1, max_size=4))
    return [torch.tensor([bits >> i & 1 == 1 for i in range(cells)]).reshape(shape) for bits in drawn]


class TestCausal:
    @pytest.mark.parametrize("offset", OFFSETS)
    @pytest.mark.parametrize(("queries", "keys"), LENGTHS)
    def test_rule(self, queries: int, keys: int, offset: int | None) -> None:
        mask = causal(queries, keys, offset)
        before = keys - queries if offset is None else offset
        expected = [[may_read(i, j, before) for j in range(keys)] for i in range(queries)]
        assert mask.dtype == torch.bool
        assert mask.tolist() == expected

    def test_numbers(self) -> None:
        assert causal(3).int().tolist() == [[1, 0, 0], [1, 1, 0], [1, 1, 1]]
        # With three cached positions the first new query sees four keys.
        assert causal(2, 5).int().tolist() == [[1, 1, 1, 1, 0], [1, 1, 1, 1, 1]]
        assert causal(2, 5, offset=0).int().tolist() == [[1, 0, 0, 0, 0], [1, 1, 0, 0, 0]]
        assert causal(5, 2).int().tolist() == [[0, 0], [0, 0], [0, 0], [1, 0], [1, 1]]
        assert causal(3, offset=-1).int().tolist() == [[0, 0, 0], [1, 0, 0], [1, 1, 0]]

    @pytest.mark.parametrize(("queries", "keys"), LENGTHS)
    def test_offset_0_is_is_causal_of_torch(self, queries: int, keys: int) -> None:
        inputs = tensors(Sizes((1, 1), queries, keys, 3, 2))
        theirs = F.scaled_dot_product_attention(*inputs, is_causal=True)
        ours = F.scaled_dot_product_attention(*inputs, attn_mask=causal(queries, keys, offset=0))
        torch.testing.assert_close(ours, theirs, rtol=1e-13, atol=1e-13)

    @pytest.mark.parametrize("length", [1, 2, 5])
    def test_square_is_the_mask_of_nn_transformer(self, length: int) -> None:
        theirs = nn.Transformer.generate_square_subsequent_mask(length, dtype=torch.float64)
        assert torch.equal(to_additive(causal(length)), theirs)

    @given(lengths, lengths)
    def test_default_lets_the_last_query_read_the_last_key(self, queries: int, keys: int) -> None:
        mask = causal(queries, keys)
        assert mask[-1].all()
        if queries > 1:
            assert not mask[-2, -1]
        assert torch.equal(mask, causal(max(queries, keys))[-queries:, -keys:])

    @given(lengths, lengths, offsets)
    def test_each_query_reads_one_key_more(self, queries: int, keys: int, offset: int | None) -> None:
        counts = causal(queries, keys, offset).sum(dim=-1).tolist()
        first = keys - queries if offset is None else offset
        assert counts == [min(max(0, first + i + 1), keys) for i in range(queries)]

    @pytest.mark.parametrize("make", [causal, bidirectional])
    @pytest.mark.parametrize(
        ("sizes", "words"),
        [
            ((0,), ("queries", "at least one", "got 0")),
            ((-2,), ("queries", "at least one", "got -2")),
            ((3, 0), ("keys", "at least one", "got 0")),
            ((3, -1), ("keys", "at least one", "got -1")),
        ],
    )
    def test_no_length(self, make, sizes: tuple[int, ...], words: tuple[str, ...]) -> None:
        with refused(*words):
            make(*sizes)


@pytest.mark.parametrize(("sizes", "shape"), [((3,), (3, 3)), ((2, 5), (2, 5)), ((5, 1), (5, 1))])
def test_bidirectional(sizes: tuple[int, ...], shape: tuple[int, int]) -> None:
    mask = bidirectional(*sizes)
    assert mask.shape == shape
    assert mask.dtype == torch.bool
    assert mask.all()


class TestCausalAlignment:
    """What the sentence says is what the mask does."""

    @given(lengths)
    def test_nothing_to_say_about_the_usual_square(self, length: int) -> None:
        assert causal_alignment(length, length) == ""
        assert causal_alignment(length, length, 0) == ""

    @given(lengths, lengths, offsets)
    def test_numbers_in_the_sentence(self, queries: int, keys: int, offset: int | None) -> None:
        text = causal_alignment(queries, keys, offset)
        mask = causal(queries, keys, offset)
        used = keys - queries if offset is None else offset
        if queries == keys and used == 0:
            assert not text
            return
        shown = str(used).replace("-", "\N{MINUS SIGN}")
        assert text.startswith(
            f"{queries} {'query' if queries == 1 else 'queries'}, {keys} {'key' if keys == 1 else 'keys'}, "
            f"offset {shown}:"
        )
        told = list(map(int, re.findall(r"\d+", text.partition(":")[2])))
        if used < 0:
            # "query 0", "queries 0 and 1" or "queries 0 to 3": all rows without a key, and no other.
            assert list(range(told[0], told[-1] + 1)) == empty_rows(mask).nonzero().flatten().tolist()
            # "aligned at the last key" is true of the default only.
            assert ("last key" in text) is (used == keys - queries)
        else:
            # "query 0 may read key 0", "keys 0 and 1" or "keys 0 to 3"
            assert told[:2] == [used, 0]
            assert list(range(told[2], told[-1] + 1)) == mask[0].nonzero().flatten().tolist()

    @pytest.mark.parametrize(
        ("given", "counts", "told"),
        [
            ((3, 1), "3 queries, 1 key", "no key is allowed for queries 0 and 1"),
            ((2, 1), "2 queries, 1 key", "no key is allowed for query 0"),
            ((4, 4, -3), "4 queries, 4 keys", "no key is allowed for queries 0 to 2"),
            ((1, 2), "1 query, 2 keys", "1 key precedes the first query, so query 0 may read keys 0 and 1"),
            ((2, 4), "2 queries, 4 keys", "2 keys precede the first query, so query 0 may read keys 0 to 2"),
            ((2, 3, 0), "2 queries, 3 keys", "0 keys precede the first query, so query 0 may read key 0"),
        ],
    )
    def test_one_and_many(self, given: tuple[int, ...], counts: str, told: str) -> None:
        text = causal_alignment(*given)
        assert text.startswith(f"{counts}, offset ")
        assert text.endswith(told)


class TestCombine:
    @given(mask_lists())
    def test_and_cell_by_cell(self, masks: list[Tensor]) -> None:
        columns = zip(*(mask.flatten().tolist() for mask in masks), strict=True)
        assert combine(*masks).flatten().tolist() == [all(column) for column in columns]

    @given(mask_lists(), st.randoms(use_true_random=False))
    def test_algebra(self, masks: list[Tensor], random) -> None:
        whole = combine(*masks)
        assert torch.equal(combine(*random.sample(masks, len(masks))), whole)
        assert torch.equal(combine(*masks, *masks), whole)
        assert torch.equal(combine(*masks, torch.ones_like(whole)), whole)
        assert not combine(*masks, torch.zeros_like(whole)).any()

    @pytest.mark.parametrize("count", [1, 2])
    def test_the_result_is_its_own(self, count: int) -> None:
        masks = [torch.ones(2, 3, dtype=torch.bool) for _ in range(count)]
        combine(*masks).zero_()
        assert all(mask.all() for mask in masks)

    @pytest.mark.parametrize(
        ("shapes", "words"),
        [
            ((), ("at least one mask", "got none")),
            (((2, 3), (3, 2)), ("one shape", "2 × 3 for mask 0", "3 × 2 for mask 1")),
            (((3, 3), (3, 3), (1, 3)), ("one shape", "3 × 3 for mask 0", "1 × 3 for mask 2")),
            # Broadcasting by position would put a mask for each batch item on the heads.
            (((3, 3, 5, 5), (3, 5, 5)), ("one shape", "3 × 3 × 5 × 5 for mask 0", "3 × 5 × 5 for mask 1")),
            (((2, 1, 5, 5), (1, 3, 5, 5)), ("one shape", "2 × 1 × 5 × 5", "1 × 3 × 5 × 5 for mask 1")),
        ],
        ids=str,
    )
    def test_shapes(self, shapes: tuple[tuple[int, ...], ...], words: tuple[str, ...]) -> None:
        with refused(*words):
            combine(*(torch.ones(shape, dtype=torch.bool) for shape in shapes))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16, torch.int64, torch.uint8])
@pytest.mark.parametrize(
    ("convert", "name"),
    [
        (lambda mask: combine(mask), "mask 0"),
        (lambda mask: combine(torch.ones(2, 2, dtype=torch.bool), mask), "mask 1"),
        (from_ignored, "ignored"),
        (to_additive, "allowed"),
    ],
    ids=["combine first", "combine second", "from_ignored", "to_additive"],
)
def test_a_mask_of_numbers_is_never_guessed_at(convert, name: str, dtype: torch.dtype) -> None:
    with refused(f"{name}:", "boolean mask (True = may read)", f"got {dtype}", "mask == 1"):
        convert(torch.ones(2, 2, dtype=dtype))


@given(mask_lists())
def test_empty_rows_counts_no_key(masks: list[Tensor]) -> None:
    mask = masks[0]
    expected = [not any(row) for row in mask.flatten(0, -2).tolist()]
    assert empty_rows(mask).flatten().tolist() == expected
    assert empty_rows(mask).shape == mask.shape[:-1]


def test_left_padding_and_causal_together_make_empty_rows() -> None:
    padding = torch.tensor([False, False, True, True]).expand(4, 4)
    assert empty_rows(combine(causal(4), padding)).tolist() == [True, True, False, False]


class TestConverters:
    @given(mask_lists())
    def test_from_ignored_is_not_and_undoes_itself(self, masks: list[Tensor]) -> None:
        mask = masks[0]
        assert from_ignored(mask).flatten().tolist() == [not cell for cell in mask.flatten().tolist()]
        assert torch.equal(from_ignored(from_ignored(mask)), mask)

    def test_from_ignored_reads_key_padding_of_torch(self) -> None:
        """Lengths 3 and 1 of 4: the module and the converted mask give the same weights."""
        torch.manual_seed(0)
        module = nn.MultiheadAttention(4, 1, bias=False, batch_first=True, dtype=torch.float64)
        x = tensors(Sizes((2,), 4, 4, 4, 4))[0]
        padding = torch.tensor([[False, False, False, True], [False, True, True, True]])
        _, weights = module(x, x, x, key_padding_mask=padding)
        allowed = from_ignored(padding)[:, None].expand(2, 4, 4)
        w_q, w_k, _ = module.in_proj_weight.chunk(3)
        scores = (x @ w_q.T @ (x @ w_k.T).mT / 2 + to_additive(allowed)).softmax(-1)
        torch.testing.assert_close(scores, weights, rtol=1e-12, atol=1e-12)

    @given(mask_lists(), st.sampled_from([torch.float64, torch.float32, torch.bfloat16, torch.float16]))
    def test_to_additive_is_0_or_minus_infinity(self, masks: list[Tensor], dtype: torch.dtype) -> None:
        added = to_additive(masks[0], dtype)
        assert added.dtype == dtype
        assert added.flatten().tolist() == [0.0 if c else -torch.inf for c in masks[0].flatten().tolist()]

    @pytest.mark.parametrize("dtype", [torch.bool, torch.int64, torch.complex64, float, None])
    def test_to_additive_needs_a_dtype_with_an_infinity(self, dtype: object) -> None:
        with refused("dtype: expected a floating-point dtype", f"got {dtype}"):
            to_additive(causal(2), dtype)  # type: ignore[arg-type]

    def test_to_additive_and_boolean_mask_are_the_same_to_torch(self) -> None:
        inputs = tensors(Sizes((2, 3), 5, 7, 4, 6))
        mask = masks_with_a_key((2, 3, 5, 7))
        boolean = F.scaled_dot_product_attention(*inputs, attn_mask=mask)
        additive = F.scaled_dot_product_attention(*inputs, attn_mask=to_additive(mask))
        torch.testing.assert_close(additive, boolean, rtol=1e-13, atol=1e-13)

    def test_converting_leaves_the_mask_as_it_was(self) -> None:
        mask = causal(3)
        from_ignored(mask).zero_()
        to_additive(mask).zero_()
        assert torch.equal(mask, causal(3))
