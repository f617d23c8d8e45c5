"""Splitting and merging: every id of every legal shape is where torch puts it, right and wrong."""

import itertools
import math
from fractions import Fraction

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from attnlab.engine import record
from attnlab.engine.heads import (
    HeadTrace,
    arithmetic,
    follow,
    landing,
    misplaced,
    split_and_merge,
    wrong_routes,
)
from attnlab.engine.multi_head import MERGES, multi_head
from attnlab.engine.sizes import require_whole
from helpers.annotations import unchecked
from helpers.recomputed import examined
from helpers.refusals import refused

STAGES = ["projected", "grouped", "heads", "back", "merged"]

# Every (width, heads) with H dividing D, times every batch and time: 4 · 8 · 72 shapes.
LEGAL = [(d, h) for d in range(1, 25) for h in range(1, 9) if d % h == 0]

# Distinct sizes, and on purpose equal ones: B = H, T = d, H = 1, T = 1, B = 1, everything 1.
SIZES = [(2, 5, 21, 3), (3, 4, 6, 3), (2, 3, 6, 2), (2, 4, 5, 1), (2, 1, 6, 3), (1, 3, 4, 2), (1, 1, 1, 1)]


def randn(*shape: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64)


def every_shape() -> itertools.product:
    return itertools.product(range(1, 5), range(1, 9), LEGAL)


class TestEveryLegalShape:
    def test_the_round_trip_is_the_identity(self) -> None:
        count = 0
        with unchecked():
            for batch, time, (width, heads) in every_shape():
                trace = split_and_merge(batch, time, width, heads)
                assert torch.equal(trace.merged, trace.projected), (batch, time, width, heads)
                assert torch.equal(trace.back, trace.grouped)
                assert trace.projected.flatten().tolist() == list(range(batch * time * width))
                count += 1
        assert count == 4 * 8 * len(LEGAL)

    def test_every_element_is_where_plain_indexing_says(self) -> None:
        """By columns: head h of position t is the slice h·d … h·d + d of its row, without any reshape."""
        with unchecked():
            for batch, time, (width, heads) in every_shape():
                trace = split_and_merge(batch, time, width, heads)
                d = width // heads
                for h in range(heads):
                    own = trace.projected[:, :, h * d : (h + 1) * d]
                    assert torch.equal(trace.heads[:, h], own)
                    assert torch.equal(trace.grouped[:, :, h], own)

    def test_stages_are_laid_out_as_torch_leaves_them_but_share_no_memory(self) -> None:
        with unchecked():
            for batch, time, (width, heads) in every_shape():
                trace = split_and_merge(batch, time, width, heads)
                transposed = torch.empty(batch, time, heads, width // heads).transpose(1, 2)
                assert trace.heads.stride() == transposed.stride()
                assert trace.heads.is_contiguous() == transposed.is_contiguous()
                assert len({s.tensor.untyped_storage().data_ptr() for s in trace.stages()}) == 5

    def test_wrong_routes_have_right_shapes_and_every_element_once(self) -> None:
        hidden = set()
        with unchecked():
            for batch, time, (width, heads) in every_shape():
                trace = split_and_merge(batch, time, width, heads)
                wrong = wrong_routes(trace)
                assert (wrong.wrong_heads.shape, wrong.wrong_merged.shape) == (
                    (batch, heads, time, width // heads),
                    (batch, time, width),
                )
                # Cut anew in the order of memory, nothing moves.
                assert torch.equal(wrong.wrong_heads.flatten(), trace.projected.flatten())
                for tensor in (wrong.wrong_heads, wrong.wrong_merged):
                    assert tensor.flatten().sort().values.tolist() == list(range(trace.merged.numel()))
                # By lists: position by position of head after head, cut anew into rows.
                read = [x for item in trace.heads.tolist() for head in item for row in head for x in row]
                assert wrong.wrong_merged.flatten().tolist() == read
                counts = (
                    misplaced(trace.heads, wrong.wrong_heads),
                    misplaced(trace.merged, wrong.wrong_merged),
                )
                assert (counts == (0, 0)) == (heads == 1 or time == 1), (batch, time, width, heads)
                hidden.add(counts == (0, 0))
        assert hidden == {True, False}


@pytest.mark.parametrize("size", SIZES, ids=str)
def test_follow_finds_every_element_where_it_is(size: tuple[int, int, int, int]) -> None:
    batch, time, width, heads = size
    trace = split_and_merge(*size)
    d_head = width // heads
    # Coordinates moved by torch's own permute instead of ids: element (b, t, c) with c = h · d + r.
    places = torch.cartesian_prod(*(torch.arange(n) for n in (batch, time, heads, d_head)))
    for element, (b, t, h, r) in enumerate(places.tolist()):
        found = follow(trace, element)
        c = h * d_head + r
        assert list(found) == STAGES
        assert list(found.values()) == [(b, t, c), (b, t, h, r), (b, h, t, r), (b, t, h, r), (b, t, c)]
        assert arithmetic(c, d_head) == (h, r)
        for stage in trace.stages():
            assert stage.tensor[found[stage.name]] == element


class TestNumbersOfTheFacts:
    def test_default(self) -> None:
        trace = split_and_merge(1, 3, 4, 2)
        assert list(follow(trace, 2).values()) == [
            (0, 0, 2),
            (0, 0, 1, 0),
            (0, 1, 0, 0),
            (0, 0, 1, 0),
            (0, 0, 2),
        ]
        wrong = wrong_routes(trace).wrong_merged
        two, six = landing(trace.merged, wrong, 2), landing(trace.merged, wrong, 6)
        assert (two.right, two.wrong, two.intruder) == ((0, 0, 2), (0, 1, 2), 4)
        assert (six.right, six.wrong, six.intruder) == ((0, 1, 2), (0, 2, 0), 2)
        assert two.is_misplaced
        assert not landing(trace.merged, wrong, 0).is_misplaced
        assert misplaced(trace.merged, wrong) == 8
        assert trace.heads.stride() == (12, 2, 4, 1)

    def test_fuxictr_30(self) -> None:
        trace = split_and_merge(2, 3, 8, 4)
        assert follow(trace, 45)["projected"] == (1, 2, 5)
        assert follow(trace, 45)["grouped"] == (1, 2, 2, 1)
        assert follow(trace, 45)["heads"] == (1, 2, 2, 1)
        assert trace.heads.stride() == (24, 2, 8, 1)
        assert follow(wrong_routes(trace), 45)["wrong_heads"] == (1, 3, 1, 1)

    def test_transformer_from_scratch_6_merge_of_2_2_2(self) -> None:
        trace = split_and_merge(1, 2, 4, 2)
        assert trace.heads[0].tolist() == [[[0, 1], [4, 5]], [[2, 3], [6, 7]]]
        assert trace.merged[0].tolist() == [[0, 1, 2, 3], [4, 5, 6, 7]]
        assert wrong_routes(trace).wrong_merged[0].tolist() == [[0, 1, 4, 5], [2, 3, 6, 7]]

    def test_axes_link_the_stages(self) -> None:
        axes = {stage.name: stage.axes for stage in split_and_merge(2, 3, 8, 4).stages()}
        assert axes["projected"] == axes["merged"] == ("batch", "time", "width")
        assert axes["grouped"] == axes["back"] == ("batch", "time", "head", "d_head")
        assert axes["heads"] == ("batch", "head", "time", "d_head")


@given(st.integers(1, 4), st.integers(1, 8), st.sampled_from(LEGAL), st.integers(0, 10**6))
def test_a_landing_is_a_place_and_its_intruder(
    batch: int, time: int, shape: tuple[int, int], number: int
) -> None:
    trace = split_and_merge(batch, time, *shape)
    element = number % trace.merged.numel()
    wrong = wrong_routes(trace).wrong_merged
    found = landing(trace.merged, wrong, element)
    assert wrong[found.wrong] == trace.merged[found.right] == element
    assert wrong[found.right] == found.intruder
    assert found.is_misplaced == (found.intruder != element)


class TestRefusals:
    @pytest.mark.parametrize(("width", "heads"), [(5, 2), (1, 8), (23, 7), (24, 5), (4, 3)])
    def test_heads_that_do_not_divide(self, width: int, heads: int) -> None:
        with refused(f"width {width} cannot be split into {heads} equal heads"):
            split_and_merge(1, 3, width, heads)

    @pytest.mark.parametrize(("name", "limit"), [("batch", 4), ("time", 8), ("width", 24), ("heads", 8)])
    @pytest.mark.parametrize(
        "value",
        [0, -1, 10**30, 10**5000, True, False, 2.0, math.nan, "2", None],
        ids=lambda v: type(v).__name__,
    )
    def test_sizes(self, name: str, limit: int, value: object) -> None:
        sizes: dict[str, object] = {"batch": 1, "time": 2, "width": 4, "heads": 2} | {name: value}
        shown = "more than 20 digits" if isinstance(value, int) and value > 99 else f"got {value!r}"
        with refused(f"{name}:", f"whole number from 1 to {limit}", shown):
            split_and_merge(**sizes)  # type: ignore[arg-type]
        with refused(f"{name}:", f"got {limit + 1}"):
            split_and_merge(**(sizes | {name: limit + 1}))  # type: ignore[arg-type]

    def test_the_largest_legal_sizes_pass(self) -> None:
        assert split_and_merge(4, 8, 24, 8).merged.numel() == 768

    @pytest.mark.parametrize("element", [-1, 12, True, 1.0, 10**20])
    def test_elements(self, element: object) -> None:
        trace = split_and_merge(1, 3, 4, 2)
        with refused("element:", "from 0 to 11"):
            follow(trace, element)  # type: ignore[arg-type]
        with refused("element:", "from 0 to 11"):
            landing(trace.merged, trace.merged, element)  # type: ignore[arg-type]

    def test_a_stage_without_ids(self) -> None:
        zeros = torch.zeros(1, 3, 4, dtype=torch.float64)
        with refused("each id once", "element 0 in 12 places"):
            landing(zeros, zeros, 0)

    def test_stages_of_two_shapes(self) -> None:
        with refused("one shape", "(2, 3)", "(3, 2)"):
            misplaced(torch.ones(2, 3), torch.ones(3, 2))

    @pytest.mark.parametrize(
        ("column", "d_head", "word"), [(-1, 2, "column"), (24, 2, "column"), (3, 0, "d_head")]
    )
    def test_arithmetic(self, column: int, d_head: int, word: str) -> None:
        with refused(f"{word}:", "whole number"):
            arithmetic(column, d_head)

    @pytest.mark.parametrize("value", [2.5, math.inf, 2**63, 10**20 - 1, Fraction(1, 2)])
    def test_what_came_is_said(self, value: object) -> None:
        with refused("size: expected a whole number from 1 to 2, got ", str(value)):
            require_whole(value, "size", 1, 2)

    def test_whole_numbers_of_numpy_are_welcome(self) -> None:
        numbers = torch.tensor([1, 7]).numpy()
        assert type(require_whole(numbers[1], "size", 1, 7)) is int
        assert require_whole(numbers[1], "size", 1, 7) == 7
        with refused("size: expected a whole number from 1 to 6, got 7"):
            require_whole(numbers[1], "size", 1, 6)
        with refused("size:", "got ", "True"):
            require_whole((numbers > 0)[0], "size", 0, 2)

    def test_long_values_are_cut_short(self) -> None:
        with refused("size:") as caught:
            require_whole("x" * 10_000, "size", 1, 2)
        assert len(str(caught.value)) < 120


def by_columns(x: Tensor, matrices: list[Tensor], heads: int, causal: bool) -> Tensor:
    """Multi-head attention by torch's fused call on slices of columns: no reshape, no transpose."""
    q, k, v = (x @ w for w in matrices)
    d = q.shape[-1] // heads
    cut = [slice(h * d, (h + 1) * d) for h in range(heads)]
    return torch.cat(
        [F.scaled_dot_product_attention(q[..., c], k[..., c], v[..., c], is_causal=causal) for c in cut], -1
    )


class TestRealAttention:
    @pytest.mark.parametrize("size", SIZES, ids=str)
    @pytest.mark.parametrize("causal", [True, False])
    def test_forward_and_gradient_against_torch(self, size: tuple[int, int, int, int], causal: bool) -> None:
        batch, time, width, heads = size
        x = randn(batch, time, 5).requires_grad_()
        matrices = [randn(5, width, seed=i).requires_grad_() for i in (1, 2, 3)]
        trace = multi_head(x, heads, causal=causal, w_q=matrices[0], w_k=matrices[1], w_v=matrices[2])
        right = by_columns(x, matrices, heads, causal)
        torch.testing.assert_close(trace.output, right, rtol=1e-12, atol=1e-12)
        pull = torch.linspace(-1, 2, right.numel(), dtype=right.dtype).reshape(right.shape)
        inputs = [x, *matrices]
        for ours, theirs in zip(
            torch.autograd.grad(trace.output, inputs, pull),
            torch.autograd.grad(right, inputs, pull),
            strict=True,
        ):
            torch.testing.assert_close(ours, theirs, rtol=1e-11, atol=1e-11)

    def test_without_projections_x_is_all_three(self) -> None:
        x = randn(2, 4, 6)
        trace = multi_head(x, 3, causal=True)
        eye = torch.eye(6, dtype=torch.float64)
        torch.testing.assert_close(trace.output, by_columns(x, [eye] * 3, 3, True), rtol=1e-12, atol=1e-12)
        assert torch.equal(trace.q, x)
        assert len({s.tensor.untyped_storage().data_ptr() for s in trace.stages()}) == len(
            list(trace.stages())
        )

    def test_per_head_weights_of_torchs_module(self) -> None:
        x = randn(2, 3, 6)
        module = nn.MultiheadAttention(6, 2, bias=False, batch_first=True, dtype=torch.float64)
        w_q, w_k, w_v = (w.mT for w in module.in_proj_weight.detach().chunk(3))
        trace = multi_head(x, 2, causal=True, w_q=w_q, w_k=w_k, w_v=w_v)
        blocked = torch.ones(3, 3, dtype=torch.bool).triu(1)
        _, weights = module(x, x, x, attn_mask=blocked, average_attn_weights=False)
        torch.testing.assert_close(trace.weights, weights.detach(), rtol=1e-12, atol=1e-12)

    @pytest.mark.parametrize("size", SIZES, ids=str)
    def test_the_wrong_merge_moves_numbers_unless_it_hides(self, size: tuple[int, int, int, int]) -> None:
        batch, time, width, heads = size
        trace = multi_head(randn(batch, time, width), heads, causal=False, merge="reshape alone")
        assert trace.wrong_output is not None
        ids = split_and_merge(*size)
        moved = wrong_routes(ids).wrong_merged.long()
        # The same numbers, in the places where the wrong merge of ids puts them.
        assert torch.equal(trace.wrong_output, trace.output.flatten()[moved])
        assert torch.equal(trace.wrong_output, trace.output) == (heads == 1 or time == 1)

    def test_the_right_merge_has_no_wrong_output(self) -> None:
        traces = {name: multi_head(randn(1, 3, 4), 2, causal=True, merge=name) for name in MERGES}
        assert {name: trace.wrong_output is None for name, trace in traces.items()} == {
            "transpose back": True,
            "reshape alone": False,
        }
        names = [stage.name for stage in traces["transpose back"].stages()]
        assert "wrong_output" not in names

    def test_heads_have_patterns_of_their_own_and_permute(self) -> None:
        x, d = randn(2, 4, 6), 3
        w = [randn(6, 6, seed=i) for i in (1, 2, 3)]
        trace = multi_head(x, 2, causal=True, w_q=w[0], w_k=w[1], w_v=w[2])
        swapped = [torch.cat([m[:, d:], m[:, :d]], dim=1) for m in w]
        other = multi_head(x, 2, causal=True, w_q=swapped[0], w_k=swapped[1], w_v=swapped[2])
        assert not torch.allclose(trace.weights[:, 0], trace.weights[:, 1])
        torch.testing.assert_close(other.weights, trace.weights.flip(1), rtol=1e-12, atol=1e-12)
        swapped_back = torch.cat([other.output[..., d:], other.output[..., :d]], dim=-1)
        torch.testing.assert_close(swapped_back, trace.output, rtol=1e-12, atol=1e-12)

    @pytest.mark.parametrize(
        ("x", "changes", "words"),
        [
            ((1, 3, 5), {"heads": 2}, ("width 5 cannot be split into 2",)),
            ((3, 4), {}, ("x:", "batch × time × d_in", "(3, 4)")),
            ((0, 3, 4), {}, ("x:", "non-empty", "(0, 3, 4)")),
            ((1, 3, 4), {"heads": 5}, ("heads:", "1 to 4", "got 5")),
            ((1, 3, 4), {"merge": "x"}, ("merge:", "reshape alone", "got 'x'")),
            ((1, 3, 4), {"heads": True}, ("heads:", "got True")),
            ((1, 3, 4), {"w_q": torch.ones(3, 4, dtype=torch.float64)}, ("w_q:", "4 rows", "(3, 4)")),
            (
                (1, 3, 4),
                {"w_k": torch.ones(4, 6, dtype=torch.float64)},
                ("one width", "4 for w_q", "6 for w_k"),
            ),
            ((1, 3, 4), {"w_v": torch.ones(4, 4)}, ("w_v:", "float64 like x", "float32")),
            ((1, 3, 4), {"w_v": torch.ones(4, 4, dtype=torch.long)}, ("w_v:", "floating-point", "int64")),
        ],
        ids=str,
    )
    def test_refusals(self, x: tuple[int, ...], changes: dict[str, object], words: tuple[str, ...]) -> None:
        with refused(*words):
            multi_head(randn(*x), **({"heads": 2, "causal": True} | changes))  # type: ignore[arg-type]


class TestExplanations:
    @pytest.mark.parametrize("size", [(1, 3, 4, 2), (2, 3, 8, 4), (2, 2, 4, 2), (1, 1, 1, 1)], ids=str)
    def test_every_id_explains_itself(self, size: tuple[int, int, int, int]) -> None:
        with unchecked(), record() as tape:
            trace = split_and_merge(*size)
            wrong = wrong_routes(trace)
        with unchecked():
            assert examined(tape) == ([], set())
            before: dict[str, str] = dict(zip(STAGES[1:], STAGES, strict=False))
            before |= {"wrong_heads": "projected", "wrong_merged": "heads"}
            for stage in (*trace.stages(), *wrong.stages()):
                for place in itertools.product(*map(range, stage.tensor.shape)):
                    found = tape.explain(stage.tensor, place)
                    assert found.formula is not None
                    if stage.name in before:
                        (source,) = found.operands
                        assert source.stage == before[stage.name]
                        known = HeadTrace.stage(trace, source.stage).tensor
                        assert known[source.index] == stage.tensor[place]

    @pytest.mark.parametrize("merge", MERGES)
    @pytest.mark.parametrize("projected", [True, False])
    def test_every_number_of_real_attention_explains_itself(self, merge: str, projected: bool) -> None:
        matrices = {f"w_{n}": randn(4, 4, seed=i) for i, n in enumerate("qkv")} if projected else {}
        x = randn(2, 3, 4)
        with unchecked(), record() as tape:
            trace = multi_head(x, 2, causal=True, merge=merge, **matrices)
        with unchecked():
            assert examined(tape) == ([], set())
            names = {stage.name for stage in trace.stages()} | {"~allowed"}
            for stage in trace.stages():
                if stage.name != "allowed":
                    found = tape.explain(stage.tensor, (0,) * stage.tensor.ndim)
                    assert found.formula is not None
                    known = {"input", *names}  # x and its matrices come from outside, without a name
                    assert {operand.stage for operand in found.operands} <= known, stage.name
