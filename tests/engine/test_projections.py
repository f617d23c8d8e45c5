"""Q, K and V from X, packings, shared heads, parameters: against torch's modules and plain indexing."""

import itertools

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from attnlab.engine import Check, record
from attnlab.engine.packing import LAYOUTS, pack, unpack
from attnlab.engine.projection_checks import (
    check_projection,
    heads_in_a_loop,
    linear_layout,
    linear_weight,
    module_agreement,
    one_packed_projection,
    separate_projections,
    untransposed,
)
from attnlab.engine.projections import (
    ProjectionTrace,
    multi_head_projection,
    parameter_count,
    project,
    tile_heads,
)
from helpers.annotations import unchecked
from helpers.recomputed import examined
from helpers.refusals import refused

# leading, time, d_in, width, heads, kv_heads, d_out: distinct, and on purpose equal.
Case = tuple[tuple[int, ...], int, int, int, int, int, int]
CASES: list[Case] = [
    ((2,), 5, 7, 12, 3, 3, 4),
    ((2,), 5, 24, 24, 3, 3, 24),
    ((3,), 4, 6, 6, 3, 3, 6),
    ((2,), 3, 6, 6, 2, 2, 6),
    ((), 3, 4, 4, 2, 2, 4),
    ((), 5, 3, 8, 4, 2, 5),
    ((2,), 4, 8, 8, 4, 1, 8),
    ((4,), 4, 4, 4, 4, 2, 4),
    ((1,), 1, 4, 4, 1, 1, 4),
    ((2,), 1, 6, 6, 3, 3, 6),
    ((1,), 1, 1, 1, 1, 1, 1),
]
cases = pytest.mark.parametrize("case", CASES, ids=str)
causal_or_not = pytest.mark.parametrize("causal", [True, False], ids=["causal", "all"])


def randn(*shape: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64)


def numbers(*shape: int) -> Tensor:
    return torch.arange(torch.Size(shape).numel(), dtype=torch.float64).reshape(shape)


def inputs(case: Case, seed: int = 0) -> list[Tensor]:
    leading, time, d_in, width, heads, kv_heads, d_out = case
    kv_width = width // heads * kv_heads
    shapes = ((*leading, time, d_in), (d_in, width), (d_in, kv_width), (d_in, kv_width), (width, d_out))
    return [randn(*shape, seed=seed + i) for i, shape in enumerate(shapes)]


def traced(case: Case, *, causal: bool = False, w_o: bool = True) -> ProjectionTrace:
    *tensors, output = inputs(case)
    return multi_head_projection(
        *tensors, output if w_o else None, heads=case[4], kv_heads=case[5], causal=causal
    )


def by_columns(tensors: list[Tensor], heads: int, kv_heads: int, causal: bool) -> Tensor:
    """Head by head from slices of the matrices: no reshape, no transpose, no repeat."""
    x, w_q, w_k, w_v, w_o = tensors
    d = w_q.shape[1] // heads
    mixed = []
    for head in range(heads):
        kv = head // (heads // kv_heads)
        q = x @ w_q[:, head * d : (head + 1) * d]
        k, v = (x @ w[:, kv * d : (kv + 1) * d] for w in (w_k, w_v))
        mixed.append(F.scaled_dot_product_attention(q, k, v, is_causal=causal))
    return torch.cat(mixed, dim=-1) @ w_o


class TestWholeTrace:
    @cases
    @causal_or_not
    def test_forward_and_gradient_against_head_by_head(self, case: Case, causal: bool) -> None:
        tensors = [tensor.requires_grad_() for tensor in inputs(case)]
        trace = multi_head_projection(*tensors, heads=case[4], kv_heads=case[5], causal=causal)
        right = by_columns(tensors, case[4], case[5], causal)
        torch.testing.assert_close(trace.output, right, rtol=1e-12, atol=1e-11)
        pull = torch.linspace(-1, 2, right.numel(), dtype=right.dtype).reshape(right.shape)
        for ours, theirs in zip(
            torch.autograd.grad(trace.output, tensors, pull),
            torch.autograd.grad(right, tensors, pull),
            strict=True,
        ):
            torch.testing.assert_close(ours, theirs, rtol=1e-10, atol=1e-10)

    @pytest.mark.parametrize("case", [c for c in CASES if c[2] == c[3] == c[6] and c[4] == c[5]], ids=str)
    @causal_or_not
    def test_torchs_module_with_the_same_weights(self, case: Case, causal: bool) -> None:
        x, w_q, w_k, w_v, w_o = (tensor / 2 for tensor in inputs(case))
        module = nn.MultiheadAttention(case[3], case[4], bias=False, batch_first=True, dtype=torch.float64)
        with torch.no_grad():
            module.in_proj_weight.copy_(torch.cat([w_q, w_k, w_v], dim=1).T)
            module.out_proj.weight.copy_(w_o.T)
        trace = multi_head_projection(x, w_q, w_k, w_v, w_o, heads=case[4], causal=causal)
        blocked = torch.ones(case[1], case[1], dtype=torch.bool).triu(1) if causal else None
        output, weights = module(x, x, x, attn_mask=blocked, average_attn_weights=False)
        torch.testing.assert_close(trace.output, output.detach(), rtol=0, atol=1e-12)
        torch.testing.assert_close(trace.weights, weights.detach(), rtol=0, atol=1e-12)

    @pytest.mark.parametrize("case", CASES, ids=str)
    def test_stages_and_axes(self, case: Case) -> None:
        leading, time, d_in, width, heads, kv_heads, d_out = case
        d = width // heads
        trace = traced(case)
        sizes = {"d_in": d_in, "width": width, "kv_width": kv_heads * d, "d_k": d, "d_v": d, "d_out": d_out}
        sizes |= {"head": heads, "kv_head": kv_heads} | dict.fromkeys(("time", "query", "key"), time)
        sizes |= {"batch": leading[0]} if leading else {}
        for stage in trace.stages():
            assert stage.tensor.shape == tuple(sizes[axis] for axis in stage.axes), stage.name
            assert stage.note
        names = [stage.name for stage in trace.stages()]
        assert ("k_shared" in names) == ("v_shared" in names) == (kv_heads != heads)
        storages = {stage.tensor.untyped_storage().data_ptr() for stage in trace.stages()}
        assert len(storages) == len(names)

    def test_shapes_of_the_facts(self) -> None:
        trace = traced(((2,), 5, 24, 24, 3, 3, 24))
        assert trace.q.shape == (2, 5, 24)
        assert trace.q_heads.shape == (2, 3, 5, 8)
        assert trace.weights.shape == (2, 3, 5, 5)
        assert trace.concat.shape == (2, 5, 24)

    def test_two_heads_of_total_width_two_have_one_each(self) -> None:
        assert traced(((2,), 3, 4, 2, 2, 2, 2)).q_heads.shape == (2, 2, 3, 1)

    @cases
    def test_without_output_projection_it_runs_and_the_heads_never_meet(self, case: Case) -> None:
        with_it, without = traced(case), traced(case, w_o=False)
        assert torch.equal(without.output, with_it.concat)
        assert without.w_o is None
        assert "w_o" not in [stage.name for stage in without.stages()]
        if case[3] > 1:
            assert without.output.shape != with_it.output.shape or not torch.allclose(
                without.output, with_it.output
            )
        x, w_q, w_k, w_v, _ = inputs(case)
        d = case[3] // case[4]
        changed = w_q.clone()
        changed[:, :d] += 1
        other = multi_head_projection(x, changed, w_k, w_v, None, heads=case[4], kv_heads=case[5])
        assert torch.equal(other.q[..., d:], without.q[..., d:])
        assert torch.allclose(other.output[..., d:], without.output[..., d:], rtol=0, atol=1e-12)

    def test_causal_output_does_not_see_the_future(self) -> None:
        case: Case = ((2,), 5, 7, 12, 3, 3, 4)
        x, *matrices = inputs(case)
        changed = x.clone()
        changed[:, 3:] += 5
        for causal, same in ((True, True), (False, False)):
            before, after = (
                multi_head_projection(x_, *matrices, heads=3, causal=causal).output[:, :3]
                for x_ in (x, changed)
            )
            assert torch.allclose(before, after, rtol=0, atol=1e-12) is same


class TestProject:
    @pytest.mark.parametrize("leading", [(), (2,), (2, 3)], ids=str)
    def test_against_linear(self, leading: tuple[int, ...]) -> None:
        tensors = [randn(*leading, 5, 7), randn(7, 4, seed=1), randn(7, 4, seed=2), randn(7, 3, seed=3)]
        for tensor in tensors:
            tensor.requires_grad_()
        x, *matrices = tensors
        trace = project(*tensors)
        made = [F.linear(x, w.T) for w in matrices]
        for ours, right in zip((trace.q, trace.k, trace.v), made, strict=True):
            torch.testing.assert_close(ours, right, rtol=1e-12, atol=1e-12)
        ours, theirs = (
            torch.autograd.grad(sum(part.sin().sum() for part in parts), tensors)
            for parts in ((trace.q, trace.k, trace.v), made)
        )
        for one, other in zip(ours, theirs, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-11, atol=1e-11)

    def test_no_parameter_is_shared(self) -> None:
        x, w_q, w_k, w_v, _ = inputs(((), 3, 4, 6, 2, 2, 4))
        before, after = project(x, w_q, w_k, w_v), project(x, w_q + 1, w_k, w_v)
        assert not torch.equal(before.q, after.q)
        assert torch.equal(before.k, after.k)
        assert torch.equal(before.v, after.v)

    def test_a_trace_stays_as_it_was(self) -> None:
        tensors = inputs(((), 3, 4, 6, 2, 2, 4))[:4]
        trace = project(*tensors)
        kept = [stage.tensor.clone() for stage in trace.stages()]
        for tensor in tensors:
            tensor.add_(1)
        for stage, before in zip(trace.stages(), kept, strict=True):
            assert torch.equal(stage.tensor, before)


class TestPacking:
    def test_litgpt_1013_rows_0_to_5(self) -> None:
        packed = numbers(6)
        blocks, per_head = unpack(packed, 2, "blocks"), unpack(packed, 2, "per head")
        assert [part.tolist() for part in (blocks.q, blocks.k, blocks.v)] == [[0, 1], [2, 3], [4, 5]]
        assert [part.tolist() for part in (per_head.q, per_head.k, per_head.v)] == [[0, 3], [1, 4], [2, 5]]

    @pytest.mark.parametrize("layout", LAYOUTS)
    @pytest.mark.parametrize(
        ("leading", "width", "heads"), [((5,), 6, 2), ((2, 5), 12, 3), ((), 4, 4), ((3,), 3, 1)]
    )
    def test_round_trip_and_places(
        self, leading: tuple[int, ...], width: int, heads: int, layout: str
    ) -> None:
        q, k, v = numbers(3, *leading, width)
        packed = pack(q, k, v, heads, layout)
        found = unpack(packed, heads, layout)
        assert torch.equal(found.q, q)
        assert torch.equal(found.k, k)
        assert torch.equal(found.v, v)
        d = width // heads
        for head, part in itertools.product(range(heads), range(3)):
            at = (part * heads + head) * d if layout == "blocks" else (head * 3 + part) * d
            assert torch.equal(packed[..., at : at + d], (q, k, v)[part][..., head * d : (head + 1) * d])
        assert len({s.tensor.untyped_storage().data_ptr() for s in found.stages()}) == 4

    @pytest.mark.parametrize("heads", [1, 2, 3, 6])
    def test_the_other_layout_has_the_same_shape_and_another_meaning_but_for_one_head(
        self, heads: int
    ) -> None:
        q, k, v = numbers(3, 5, 6)
        wrong = unpack(pack(q, k, v, heads, "blocks"), heads, "per head")
        assert wrong.q.shape == q.shape
        assert torch.equal(wrong.q, q) == torch.equal(wrong.k, k) == (heads == 1)

    def test_one_packed_projection_is_three(self) -> None:
        # Whole numbers: every order of adding up gives exactly the same.
        x, w = numbers(5, 7) - 17, numbers(3, 7, 6) % 11
        for layout in LAYOUTS:
            parts = unpack(x @ pack(*w, 2, layout), 2, layout)
            assert [torch.equal(p, x @ m) for p, m in zip((parts.q, parts.k, parts.v), w, strict=True)] == [
                True
            ] * 3

    def test_gradients_go_back_to_their_own_matrix(self) -> None:
        for layout in LAYOUTS:
            q, k, v = (randn(5, 6, seed=i).requires_grad_() for i in range(3))
            found = unpack(pack(q, k, v, 3, layout), 3, layout)
            gradients = torch.autograd.grad((found.k * numbers(5, 6)).sum(), (q, k, v))
            assert torch.equal(gradients[1], numbers(5, 6))
            assert not gradients[0].any()
            assert not gradients[2].any()

    @pytest.mark.parametrize(
        ("columns", "heads", "layout", "words"),
        [
            (7, 1, "blocks", ("3 equal parts", "7 columns")),
            (15, 2, "blocks", ("width 5 cannot be split into 2 equal heads",)),
            (6, 2, "rows", ("layout:", "blocks, per head", "'rows'")),
            (6, 0, "blocks", ("heads:", "1 to 2", "got 0")),
            (6, True, "per head", ("heads:", "got True")),
        ],
    )
    def test_refusals(self, columns: int, heads: int, layout: str, words: tuple[str, ...]) -> None:
        with refused(*words):
            unpack(numbers(columns), heads, layout)

    def test_parts_of_two_shapes(self) -> None:
        with refused("k:", "(2, 4) of q", "(2, 6)"):
            pack(numbers(2, 4), numbers(2, 6), numbers(2, 4), 2, "blocks")


class TestSharedHeads:
    def test_onnx_7274_four_on_two(self) -> None:
        v = torch.tensor([5.0, 9.0], dtype=torch.float64).reshape(2, 1, 1)
        assert tile_heads(v, 4).flatten().tolist() == [5, 9, 5, 9]
        with refused("4 query heads cannot share 3 key/value heads"):
            tile_heads(numbers(3, 1, 1), 4)
        # Over one key every weight is 1, so each head reads its own value.
        one = torch.ones(1, 1, dtype=torch.float64)
        trace = multi_head_projection(
            one,
            torch.ones(1, 4, dtype=torch.float64),
            v.reshape(1, 2),
            v.reshape(1, 2),
            None,
            heads=4,
            kv_heads=2,
        )
        assert trace.v_shared is not None
        assert trace.v_shared.flatten().tolist() == trace.output.flatten().tolist() == [5, 5, 9, 9]

    @pytest.mark.parametrize(("kv_heads", "heads"), [(1, 4), (2, 4), (2, 6), (3, 6)])
    def test_each_query_head_reads_the_head_of_its_group(self, kv_heads: int, heads: int) -> None:
        trace = traced(((2,), 5, 7, 3 * heads, heads, kv_heads, 4))
        for shared, own in ((trace.k_shared, trace.k_heads), (trace.v_shared, trace.v_heads)):
            assert shared is not None
            for head in range(heads):
                assert torch.equal(shared[:, head], own[:, head * kv_heads // heads])
            assert torch.equal(tile_heads(own, heads), shared) == (kv_heads == 1)
        fused = F.scaled_dot_product_attention(trace.q_heads, trace.k_heads, trace.v_heads, enable_gqa=True)
        torch.testing.assert_close(trace.head_output, fused)

    def test_heads_of_their_own_are_not_repeated(self) -> None:
        trace = traced(((2,), 5, 7, 12, 4, 4, 5))
        assert trace.k_shared is trace.v_shared is None
        assert torch.equal(tile_heads(trace.k_heads, 4), trace.k_heads)


class TestParameters:
    @pytest.mark.parametrize("width", [4, 12, 24, 768])
    def test_as_many_whatever_the_heads(self, width: int) -> None:
        counts = {parameter_count(width, heads) for heads in range(1, 13) if width % heads == 0}
        assert counts == {4 * width**2 + 4 * width}
        module = nn.MultiheadAttention(width, 4, device="meta")
        assert counts == {sum(p.numel() for p in module.parameters())}
        without = nn.MultiheadAttention(width, 4, bias=False, device="meta")
        assert parameter_count(width, 2, bias=False, qkv_bias=False) == sum(
            p.numel() for p in without.parameters()
        )

    def test_gpt_2_small(self) -> None:
        assert parameter_count(768, 12, qkv_bias=False) == 4 * 768**2 + 768 == 2_360_064
        assert parameter_count(768, 12) == 2_362_368

    @pytest.mark.parametrize(("kv_heads", "expected"), [(4, 4 * 64), (2, 3 * 64), (1, 2 * 64 + 32)])
    def test_fewer_key_and_value_heads_save_parameters(self, kv_heads: int, expected: int) -> None:
        assert parameter_count(8, 4, bias=False, qkv_bias=False, kv_heads=kv_heads) == expected

    def test_counting_draws_no_random_numbers(self) -> None:
        state = torch.get_rng_state()
        parameter_count(24, 3)
        check_projection(traced(CASES[1]))
        assert torch.equal(torch.get_rng_state(), state)

    @pytest.mark.parametrize(
        ("arguments", "words"),
        [
            ({"width": 5, "heads": 2}, ("width 5 cannot be split into 2 equal heads",)),
            ({"width": 0, "heads": 1}, ("width:", "got 0")),
            ({"width": 10**9, "heads": 1}, ("width:", "from 1 to 65536")),
            ({"width": 4, "heads": 8}, ("heads:", "1 to 4", "got 8")),
            ({"width": 8, "heads": 4, "kv_heads": 3}, ("4 query heads", "3 key/value heads")),
            ({"width": 8, "heads": 4, "kv_heads": 0}, ("kv_heads:", "1 to 4", "got 0")),
        ],
        ids=str,
    )
    def test_refusals(self, arguments: dict[str, int], words: tuple[str, ...]) -> None:
        with refused(*words):
            parameter_count(**arguments)


class TestWeightLayout:
    def test_linear_stores_the_transpose(self) -> None:
        linear = nn.Linear(7, 4, bias=False, dtype=torch.float64)
        x = randn(2, 5, 7)
        w = linear.weight.detach().T
        assert linear.weight.shape == (4, 7)
        assert torch.equal(linear_weight(w), linear.weight)
        torch.testing.assert_close(x @ w, linear(x).detach(), rtol=1e-12, atol=1e-12)

    def test_untransposed_runs_only_when_square_and_is_another_model(self) -> None:
        x, w = randn(5, 4), randn(4, 4, seed=1)
        assert not torch.allclose(untransposed(x, w), x @ w)
        torch.testing.assert_close(untransposed(x, w), x @ w.T)
        symmetric = w + w.T
        torch.testing.assert_close(untransposed(x, symmetric), x @ symmetric)
        with pytest.raises(RuntimeError):
            F.linear(randn(5, 7), randn(7, 4))
        with refused("7 × 4", "expects 4 numbers", "there are 7"):
            untransposed(randn(5, 7), randn(7, 4))


def changed(trace: ProjectionTrace, **fields: Tensor) -> ProjectionTrace:
    return ProjectionTrace(**({name: getattr(trace, name) for name in trace.__dataclass_fields__} | fields))


class TestChecks:
    @cases
    @causal_or_not
    @pytest.mark.parametrize("w_o", [True, False], ids=["w_o", "no w_o"])
    def test_all_hold_and_are_small(self, case: Case, causal: bool, w_o: bool) -> None:
        found = check_projection(traced(case, causal=causal, w_o=w_o))
        assert [check for check in found if not check.holds] == []
        # The bound is rounding and no more: a fault in the seventh digit doesn't fit under it.
        assert all(check.measured <= 1e-12 and 0 < check.bound < 1e-7 for check in found)
        assert len(found) == (5 if case[4] == case[5] else 4)

    def test_exactly_0_on_whole_numbers(self) -> None:
        x, w = numbers(2, 5, 24) % 7 - 3, [(numbers(24, 24) * (i + 3)) % 5 - 2 for i in range(3)]
        trace = multi_head_projection(x, *w, None, heads=3)
        packed = one_packed_projection(trace)
        assert packed is not None
        assert [c.measured for c in (separate_projections(trace), packed, linear_layout(trace))] == [0, 0, 0]

    def test_exactly_0_at_the_sizes_of_the_page(self) -> None:
        for heads in (1, 2, 4):
            trace = traced(((), 3, 4, 4, heads, heads, 4), causal=True)
            assert heads_in_a_loop(trace).measured == 0
            # One column makes a product with a vector, which some processors add up in another order.
            assert separate_projections(trace).measured <= (2**-52 if heads == 4 else 0)

    @pytest.mark.parametrize(
        ("field", "failing"),
        [
            ("concat", {heads_in_a_loop}),
            ("q", {heads_in_a_loop, separate_projections, one_packed_projection, linear_layout}),
            ("v", {heads_in_a_loop, one_packed_projection, linear_layout}),
            ("output", {module_agreement}),
        ],
    )
    @pytest.mark.parametrize("size", [1e-6, float("nan")])
    def test_each_fails_on_a_number_that_is_wrong(
        self, field: str, failing: set[object], size: float
    ) -> None:
        # Small numbers, so that no weight is so near to 0 or 1 that nothing moves it.
        x, *matrices = (tensor / 4 for tensor in inputs(CASES[1]))
        trace = multi_head_projection(x, *matrices, heads=3)
        wrong = getattr(trace, field).clone()
        wrong[1, 3, 5] += size
        found = changed(trace, **{field: wrong})
        every = (
            heads_in_a_loop,
            separate_projections,
            one_packed_projection,
            linear_layout,
            module_agreement,
        )
        results: dict[object, Check | None] = {check: check(found) for check in every}
        assert {check for check, result in results.items() if result is None or not result.holds} == failing

    @pytest.mark.parametrize("layout", ["wrong merge", "tiled"])
    def test_torch_disagrees_with_mistakes(self, layout: str) -> None:
        trace = traced(((2,), 5, 3, 8, 4, 2, 5))
        assert trace.w_o is not None
        if layout == "wrong merge":
            concat = trace.head_output.reshape(2, 5, 8)
        else:
            mixed = trace.weights @ tile_heads(trace.v_heads, 4)
            concat = mixed.transpose(1, 2).reshape(2, 5, 8)
        assert not module_agreement(changed(trace, output=concat @ trace.w_o)).holds

    def test_how_names_what_was_compared(self) -> None:
        assert "nn.MultiheadAttention" in module_agreement(traced(CASES[1])).how
        assert "enable_gqa" in module_agreement(traced(CASES[5])).how
        assert "without output projection" in module_agreement(traced(CASES[1], w_o=False)).how

    @given(st.integers(0, 10**6), st.sampled_from(CASES), st.sampled_from([0.01, 1.0, 10.0]), st.booleans())
    def test_hold_for_numbers_of_any_size(self, seed: int, case: Case, size: float, causal: bool) -> None:
        tensors = [tensor * size for tensor in inputs(case, seed)]
        trace = multi_head_projection(*tensors, heads=case[4], kv_heads=case[5], causal=causal)
        assert [check for check in check_projection(trace) if not check.holds] == []

    @pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
    def test_hold_in_other_precisions(self, dtype: torch.dtype) -> None:
        tensors = [tensor.to(dtype) / 3 for tensor in inputs(CASES[1])]
        trace = multi_head_projection(*tensors, heads=3, causal=True)
        assert [check for check in check_projection(trace) if not check.holds] == []


F64 = torch.float64


class TestRefusals:
    @pytest.mark.parametrize(
        ("changes", "words"),
        [
            ({"heads": 3}, ("width 4 cannot be split into 3 equal heads",)),
            ({"heads": 0}, ("heads:", "1 to 4", "got 0")),
            ({"heads": True}, ("heads:", "got True")),
            ({"heads": 2.0}, ("heads:", "got 2.0")),
            ({"heads": 4, "kv_heads": 3}, ("4 query heads", "3 key/value heads")),
            ({"kv_heads": 4}, ("kv_heads:", "1 to 2", "got 4")),
            ({"kv_heads": 1}, ("w_k:", "2 columns", "1 heads of width 2", "got 4")),
            ({"w_q": torch.ones(3, 4, dtype=F64)}, ("w_q:", "5 rows", "a row of x", "(3, 4)")),
            ({"w_k": torch.ones(5, 6, dtype=F64)}, ("w_k:", "4 columns", "got 6")),
            ({"w_v": torch.ones(5, 2, dtype=F64)}, ("w_v:", "4 columns", "got 2")),
            ({"w_o": torch.ones(5, 4, dtype=F64)}, ("w_o:", "4 rows", "heads side by side", "(5, 4)")),
            ({"w_q": torch.ones(5, dtype=F64)}, ("w_q:", "non-empty matrix", "(5,)")),
            ({"w_q": torch.ones(5, 4)}, ("w_q:", "float64 like x", "float32")),
            ({"w_o": torch.ones(4, 4, dtype=torch.bool)}, ("w_o:", "floating-point", "bool")),
            ({"x": torch.ones(2, 0, 5, dtype=F64)}, ("x:", "non-empty", "(2, 0, 5)")),
            ({"x": torch.ones(1, 2, 3, 5, dtype=F64)}, ("x:", "batch × time × d_in", "(1, 2, 3, 5)")),
            ({"x": torch.ones(2, 3, 5, dtype=torch.long)}, ("x:", "floating-point", "int64")),
        ],
        ids=lambda value: " ".join(value)[:40] if isinstance(value, dict) else "",
    )
    def test_multi_head(self, changes: dict[str, object], words: tuple[str, ...]) -> None:
        right: dict[str, object] = {name: torch.ones(5, 4, dtype=F64) for name in ("w_q", "w_k", "w_v")}
        right |= {"x": torch.ones(2, 3, 5, dtype=F64), "w_o": torch.ones(4, 6, dtype=F64), "heads": 2}
        multi_head_projection(**right)  # type: ignore[arg-type]
        with refused(*words):
            multi_head_projection(**(right | changes))  # type: ignore[arg-type]

    def test_project(self) -> None:
        x = torch.ones(3, 5, dtype=F64)
        with refused("w_q and w_k", "one width", "4 columns in w_q", "6 in w_k"):
            project(x, randn(5, 4), randn(5, 6), randn(5, 4))
        # Fewer keys than queries have columns: heads may share them.
        assert project(x, randn(5, 4), randn(5, 2), randn(5, 2)).k.shape == (3, 2)
        with refused("w_v:", "5 rows", "(4, 5)"):
            project(x, randn(5, 4), randn(5, 4), randn(4, 5))


class TestExplanations:
    @pytest.mark.parametrize("case", [CASES[4], CASES[5], ((2,), 2, 3, 4, 2, 2, 3), CASES[-1]], ids=str)
    @causal_or_not
    @pytest.mark.parametrize("w_o", [True, False], ids=["w_o", "no w_o"])
    def test_every_number_explains_itself_from_stages(self, case: Case, causal: bool, w_o: bool) -> None:
        tensors = inputs(case)
        with unchecked(), record() as tape:
            trace = multi_head_projection(
                *tensors[:4], tensors[4] if w_o else None, heads=case[4], kv_heads=case[5], causal=causal
            )
        with unchecked():
            for name, tensor in zip(("x", "w_q", "w_k", "w_v", "w_o"), tensors, strict=True):
                if w_o or name != "w_o":
                    tape.name(tensor, name)
            assert examined(tape) == ([], set())
            names = {stage.name for stage in trace.stages()} | {"~allowed"}
            for stage in trace.stages():
                if stage.name == "allowed":
                    continue
                for place in itertools.product(*map(range, stage.tensor.shape)):
                    found = tape.explain(stage.tensor, place)
                    assert found.formula is not None
                    assert {operand.stage for operand in found.operands} <= names, stage.name

    def test_project_and_packing(self) -> None:
        tensors = inputs(((), 3, 4, 4, 2, 2, 4))[:4]
        with unchecked(), record() as tape:
            trace = project(*tensors)
            parts = [
                unpack(pack(trace.q, trace.k, trace.v, 2, layout), 2, other)
                for layout, other in itertools.product(LAYOUTS, LAYOUTS)
            ]
            tile_heads(numbers(2, 1, 3), 8)
        with unchecked():
            assert examined(tape) == ([], set())
            for part in parts:
                for stage in part.stages():
                    for place in itertools.product(*map(range, stage.tensor.shape)):
                        assert tape.explain(stage.tensor, place).formula is not None
