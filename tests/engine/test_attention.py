"""`attend` against independent oracles, as identities, on the facts' presets and on reported faults."""

import itertools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from jaxtyping import TypeCheckError
from torch import Tensor, nn

from attnlab.engine import attend, causal, combine, from_ignored, to_additive
from helpers.attention_facts import PRESETS, PRINTED, Preset
from helpers.inputs import COINCIDENCES, DISTINCT, Sizes, masks_with_a_key, seeds, sizes, tensors
from helpers.oracles import attention_by_loops
from helpers.refusals import refused

DTYPES = (torch.float64, torch.float32, torch.bfloat16, torch.float16)
STAGES = ("q", "k", "v", "scores", "scaled", "masked", "weights", "dropped", "output")


def f64(rows: object) -> Tensor:
    return torch.tensor(rows, dtype=torch.float64)


def eye(n: int) -> Tensor:
    return torch.eye(n, dtype=torch.float64)


def close(actual: Tensor, expected: Tensor, tolerance: float = 1e-12) -> None:
    torch.testing.assert_close(actual, expected, rtol=tolerance, atol=tolerance, equal_nan=True)


def change_in_place(tensor: Tensor) -> None:
    if tensor.dtype == torch.bool:
        tensor.logical_not_()
    else:
        tensor.add_(1)


def gradients(output: Tensor, inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    # Different weights for each number: a gradient that goes to the wrong place cannot cancel.
    pull = torch.linspace(-1, 2, output.numel(), dtype=output.dtype).reshape(output.shape)
    return torch.autograd.grad(output, inputs, pull)


def test_annotations_of_the_engine_are_checked() -> None:
    with pytest.raises(TypeCheckError):
        attend(torch.ones(2, 3), torch.ones(2, 4), torch.ones(2, 3))


class TestPresets:
    @pytest.mark.parametrize("preset", PRESETS, ids=lambda preset: preset.name)
    def test_printed_numbers(self, preset: Preset) -> None:
        q, k, v = f64(preset.q), f64(preset.k), f64(preset.v)
        mask = causal(len(q), len(k)) if preset.causal else None
        trace = attend(q, k, v, scale=preset.scale, allowed=mask)
        assert preset.query in preset.expected["scores"]
        for stage, rows in preset.expected.items():
            for row, numbers in rows.items():
                torch.testing.assert_close(
                    getattr(trace, stage)[row],
                    f64(numbers),
                    rtol=0,
                    atol=PRINTED,
                    msg=lambda text, at=f"{stage} row {row}": f"{at}: {text}",
                )

    def test_changing_the_last_row_moves_output_1_only_without_the_mask(self) -> None:
        rows = f64([[1, 0], [0, 1], [1, 1]])
        changed = f64([[1, 0], [0, 1], [90, -70]])
        for mask, same in ((causal(3), True), (None, False)):
            before = attend(rows, rows, rows, allowed=mask).output[1]
            after = attend(rows, changed, changed, allowed=mask).output[1]
            assert torch.equal(before, after) is same


Masks = Callable[[Sizes], Tensor | None]

MASKS: dict[str, Masks] = {
    "everything": lambda _: None,
    "one for all": lambda of: masks_with_a_key(of.scores[-2:], 1),
    "causal from the first key": lambda of: causal(of.queries, of.keys, offset=0),
    "one for each item": lambda of: masks_with_a_key(of.scores, 2),
    "leading 1s": lambda of: masks_with_a_key((*(1 for _ in of.leading), *of.scores[-2:]), 3),
    "one for each batch": lambda of: masks_with_a_key(
        (*of.leading[:1], *(1 for _ in of.leading[1:]), *of.scores[-2:]), 4
    ),
    "one for each head": lambda of: masks_with_a_key(
        (*(1 for _ in of.leading[:-1]), *of.leading[-1:], *of.scores[-2:]), 5
    ),
}


@pytest.mark.parametrize("of", [DISTINCT, *COINCIDENCES], ids=str)
class TestOracles:
    @pytest.mark.parametrize(
        ("masks", "scale"), [*((name, True) for name in MASKS), ("one for all", False), ("everything", -0.3)]
    )
    def test_torch_fused(self, of: Sizes, masks: str, scale: bool | float) -> None:
        inputs = tensors(of, grad=True)
        mask = MASKS[masks](of)
        factor = of.d_k**-0.5 if scale is True else float(scale)
        factor = 1.0 if scale is False else factor
        expanded = None if mask is None else mask.expand(of.scores)
        expected = F.scaled_dot_product_attention(*inputs, attn_mask=expanded, scale=factor)
        trace = attend(*inputs, allowed=mask, scale=scale)
        close(trace.output, expected)
        assert trace.scale == pytest.approx(factor, rel=1e-15)
        for ours, theirs in zip(gradients(trace.output, inputs), gradients(expected, inputs), strict=True):
            close(ours, theirs, 1e-11)

    @pytest.mark.parametrize("masks", ["everything", "one for each item"])
    def test_loops_through_every_stage_and_dropout(self, of: Sizes, masks: str) -> None:
        inputs = tensors(of, 3, grad=True)
        allowed = MASKS[masks](of)
        keep = torch.rand(of.scores, generator=torch.Generator().manual_seed(9)) < 0.7
        expected = attention_by_loops(*inputs, factor=of.d_k**-0.5, allowed=allowed, keep=keep, drop_p=0.3)
        trace = attend(*inputs, allowed=allowed, keep=keep, drop_p=0.3)
        for name, tensor in expected.items():
            close(getattr(trace, name), tensor)
        close(trace.scaled, expected["scores"] / math.sqrt(of.d_k))
        blocked = torch.zeros(of.scores, dtype=torch.bool) if allowed is None else ~allowed
        assert torch.equal(trace.masked == -torch.inf, blocked)
        assert torch.equal(trace.masked[~blocked], trace.scaled[~blocked])
        for ours, theirs in zip(
            gradients(trace.output, inputs), gradients(expected["output"], inputs), strict=True
        ):
            close(ours, theirs, 1e-11)


@pytest.mark.parametrize(("batch", "heads", "time", "d_head"), [(2, 3, 5, 4), (3, 3, 5, 4), (2, 1, 4, 4)])
def test_multihead_module_of_torch(batch: int, heads: int, time: int, d_head: int) -> None:
    """`nn.MultiheadAttention` with identity projections and its inverted mask: weights and output."""
    width = heads * d_head
    module = nn.MultiheadAttention(width, heads, bias=False, batch_first=True, dtype=torch.float64)
    with torch.no_grad():
        module.in_proj_weight.copy_(eye(width).repeat(3, 1))
        module.out_proj.weight.copy_(eye(width))
    generator = torch.Generator().manual_seed(4)
    q, k, v = (torch.randn(batch, time, width, generator=generator, dtype=torch.float64) for _ in range(3))
    ignored = torch.ones(time, time, dtype=torch.bool).triu(1)
    output, weights = module(q, k, v, attn_mask=ignored, average_attn_weights=False)
    trace = attend(
        *(x.unflatten(-1, (heads, d_head)).transpose(1, 2) for x in (q, k, v)), allowed=from_ignored(ignored)
    )
    close(trace.weights, weights)
    close(trace.output.transpose(1, 2).flatten(-2), output)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_every_stage_keeps_the_dtype(dtype: torch.dtype) -> None:
    inputs = tensors(DISTINCT, dtype=dtype)
    trace = attend(*inputs, allowed=causal(5, 7))
    assert {getattr(trace, stage).dtype for stage in STAGES} == {dtype}
    exact = attend(*(x.double() for x in inputs), allowed=causal(5, 7))
    close(trace.output.double(), exact.output, 64 * torch.finfo(dtype).eps)


class TestIdentities:
    @given(sizes(), seeds, st.floats(-50, 50))
    def test_a_constant_added_to_a_score_row_changes_nothing(self, of: Sizes, seed: int, add: float) -> None:
        q, k, v = tensors(of, seed)
        shift = torch.linspace(-1, 1, of.queries, dtype=torch.float64)[:, None] * add
        longer_q = torch.cat([q, shift.expand(*q.shape[:-1], 1)], dim=-1)
        longer_k = torch.cat([k, torch.ones_like(k[..., :1])], dim=-1)
        before = attend(q, k, v, scale=0.5)
        after = attend(longer_q, longer_k, v, scale=0.5)
        close(after.scores - before.scores, shift.expand(of.scores), 1e-11)
        close(after.weights, before.weights, 1e-11)
        close(after.output, before.output, 1e-11)

    @given(sizes(), seeds, st.randoms(use_true_random=False))
    def test_order_of_the_keys_is_no_input(self, of: Sizes, seed: int, random) -> None:
        q, k, v = tensors(of, seed)
        mask = masks_with_a_key(of.scores, seed)
        order = random.sample(range(of.keys), of.keys)
        before = attend(q, k, v, allowed=mask)
        after = attend(q, k[..., order, :], v[..., order, :], allowed=mask[..., order])
        close(after.weights, before.weights[..., order])
        close(after.output, before.output)

    @given(sizes(), seeds, st.randoms(use_true_random=False))
    def test_order_of_the_queries_is_the_order_of_the_rows(self, of: Sizes, seed: int, random) -> None:
        q, k, v = tensors(of, seed)
        mask = masks_with_a_key(of.scores, seed)
        order = random.sample(range(of.queries), of.queries)
        before = attend(q, k, v, allowed=mask)
        after = attend(q[..., order, :], k, v, allowed=mask[..., order, :])
        for stage in ("scores", "masked", "weights", "output"):
            close(getattr(after, stage), getattr(before, stage)[..., order, :])

    @given(sizes(), seeds)
    def test_a_batch_is_a_loop_over_its_items(self, of: Sizes, seed: int) -> None:
        q, k, v = tensors(of, seed)
        mask = masks_with_a_key(of.scores, seed)
        whole = attend(q, k, v, allowed=mask)
        for at in itertools.product(*map(range, of.leading)):
            alone = attend(q[at], k[at], v[at], allowed=mask[at])
            for stage in STAGES:
                close(getattr(whole, stage)[at], getattr(alone, stage))

    @given(sizes(), seeds, st.floats(0.01, 4))
    def test_scale_is_a_factor_of_q(self, of: Sizes, seed: int, factor: float) -> None:
        q, k, v = tensors(of, seed)
        scaled, multiplied = attend(q, k, v, scale=factor), attend(q * factor, k, v, scale=False)
        close(scaled.scaled, multiplied.scores)
        close(scaled.output, multiplied.output)

    @given(sizes(), seeds)
    def test_scale_true_is_one_over_root_d_k(self, of: Sizes, seed: int) -> None:
        q, k, v = tensors(of, seed)
        close(attend(q, k, v, scale=True).scaled * math.sqrt(of.d_k), attend(q, k, v, scale=False).scaled)

    @given(sizes(), seeds, st.sampled_from([1e-3, 1.0, 30.0]))
    def test_outputs_are_averages_of_the_values(self, of: Sizes, seed: int, size: float) -> None:
        q, k, v = tensors(of, seed, size=size)
        mask = masks_with_a_key(of.scores, seed)
        trace = attend(q, k, v, allowed=mask)
        assert (trace.weights >= 0).all()
        close(trace.weights.sum(dim=-1), torch.ones(of.scores[:-1], dtype=torch.float64))
        readable = v[..., None, :, :].masked_fill(~mask[..., None], torch.nan)
        low = readable.nan_to_num(nan=torch.inf).amin(dim=-2)
        high = readable.nan_to_num(nan=-torch.inf).amax(dim=-2)
        slack = 1e-12 * size
        assert ((low - slack <= trace.output) & (trace.output <= high + slack)).all()

    @given(sizes(), seeds)
    def test_output_is_linear_in_v(self, of: Sizes, seed: int) -> None:
        q, k, v = tensors(of, seed)
        other = tensors(of, seed + 1)[2]
        both = attend(q, k, 2 * v - 3 * other).output
        close(both, 2 * attend(q, k, v).output - 3 * attend(q, k, other).output)

    @given(sizes(), seeds)
    def test_no_mask_is_the_mask_that_allows_all(self, of: Sizes, seed: int) -> None:
        q, k, v = tensors(of, seed)
        allowed = torch.ones(of.queries, of.keys, dtype=torch.bool)
        a, b = attend(q, k, v), attend(q, k, v, allowed=allowed)
        assert all(torch.equal(getattr(a, stage), getattr(b, stage)) for stage in STAGES)
        assert torch.equal(a.allowed, allowed)
        assert not a.empty_rows.any()


class TestMaskedPlacesDoNotLeak:
    @given(sizes(), seeds, st.sampled_from([1e-6, 100.0, 1e150, 1e300]))
    def test_not_one_bit(self, of: Sizes, seed: int, size: float) -> None:
        q, k, v = tensors(of, seed)
        hidden = torch.rand(of.keys, generator=torch.Generator().manual_seed(seed)) < 0.5
        hidden[seed % of.keys] = False
        allowed = masks_with_a_key(of.scores, seed) & ~hidden
        allowed[..., seed % of.keys] = True
        other = tensors(of, seed + 1, size=size)
        changed_k = torch.where(hidden[:, None], other[1], k)
        changed_v = torch.where(hidden[:, None], other[2], v)
        before = attend(q, k, v, allowed=allowed)
        after = attend(q, changed_k, changed_v, allowed=allowed)
        for stage in ("masked", "weights", "dropped", "output"):
            assert torch.equal(getattr(after, stage), getattr(before, stage))

    @pytest.mark.parametrize("of", [Sizes((2, 3), 5, 5, 4, 6), Sizes((5,), 5, 5, 5, 5)], ids=str)
    @pytest.mark.parametrize("masked", [True, False])
    def test_a_changed_suffix_through_three_layers(self, of: Sizes, masked: bool) -> None:
        x = tensors(Sizes(of.leading, of.queries, of.keys, of.d_k, of.d_k), 7)[0]
        mask = causal(of.queries) if masked else None

        def layers(x: Tensor) -> Tensor:
            for _ in range(3):
                x = x + attend(x, x, x, allowed=mask).output
            return x

        for kept in range(1, of.queries):
            changed = x.clone()
            changed[..., kept:, :] = 40 * x[..., kept:, :] - 3
            same = torch.equal(layers(changed)[..., :kept, :], layers(x)[..., :kept, :])
            assert same is masked

    @pytest.mark.parametrize("masked", [True, False])
    def test_gradient_of_an_early_output_to_a_late_input(self, masked: bool) -> None:
        x = tensors(Sizes((2, 3), 5, 5, 4, 4), 8, grad=True)[0]
        mask = causal(5) if masked else None
        out = x
        for _ in range(2):
            out = attend(out, out, out, allowed=mask).output
        for i in range(4):
            (grad,) = torch.autograd.grad(out[..., i, :].sum(), x, retain_graph=True)
            assert (grad[..., : i + 1, :] != 0).any(dim=-1).all()
            assert (grad[..., i + 1 :, :] == 0).all().item() is masked

    def test_gradient_where_a_mask_hides_a_key_from_everybody(self) -> None:
        inputs = tensors(DISTINCT, grad=True)
        allowed = torch.ones(5, 7, dtype=torch.bool)
        allowed[:, 2] = False
        _, grad_k, grad_v = gradients(attend(*inputs, allowed=allowed).output, inputs)
        for grad in (grad_k, grad_v):
            assert (grad[..., 2, :] == 0).all()
            assert (grad[..., [0, 1, 3, 4, 5, 6], :] != 0).all()


class TestEmptyRows:
    @pytest.mark.parametrize("of", [DISTINCT, *COINCIDENCES], ids=str)
    @pytest.mark.parametrize("whole", [True, False], ids=["mask for each item", "one mask"])
    def test_nan_there_and_clean_elsewhere(self, of: Sizes, whole: bool) -> None:
        inputs = tensors(of)
        allowed = masks_with_a_key(of.scores if whole else of.scores[-2:], 6)
        empty = torch.zeros(allowed.shape[:-1], dtype=torch.bool)
        empty.view(-1)[:: max(2, empty.numel() - 1)] = True
        trace = attend(*inputs, allowed=allowed & ~empty[..., None])
        full = attend(*inputs, allowed=allowed)
        rows = empty.expand(of.scores[:-1])
        assert torch.equal(trace.empty_rows, empty)
        for stage in ("weights", "dropped", "output"):
            tensor = getattr(trace, stage)
            assert tensor[rows].isnan().all()
            assert torch.equal(tensor[~rows], getattr(full, stage)[~rows])
        assert (trace.masked[rows] == -torch.inf).all()
        assert trace.scores.isfinite().all()

    def test_gradients_of_clean_rows_to_q_and_k_stay_clean(self) -> None:
        q, k, v = tensors(Sizes((), 5, 2, 4, 6), grad=True)
        trace = attend(q, k, v, allowed=causal(5, 2))
        assert trace.empty_rows.tolist() == [True, True, True, False, False]
        grad_q, grad_k = torch.autograd.grad(trace.output[3:].sum(), (q, k))
        assert grad_q.isfinite().all()
        assert grad_k.isfinite().all()
        assert (grad_q[:3] == 0).all()


class TestOwnStorage:
    FIELDS = (*STAGES, "allowed", "empty_rows")

    def traced(self, **changes: object) -> tuple[dict[str, Tensor], object]:
        q, k, v = tensors(Sizes((2, 2), 3, 3, 3, 3))
        given_tensors = {
            "q": q,
            "k": k,
            "v": v,
            "allowed": masks_with_a_key((2, 2, 3, 3)),
            "keep": torch.ones(2, 2, 3, 3, dtype=torch.bool),
        } | changes
        return {n: t for n, t in given_tensors.items() if t is not None}, attend(**given_tensors)

    @pytest.mark.parametrize("keep", ["given", None])
    @pytest.mark.parametrize("changed", FIELDS)
    def test_a_stage_changed_in_place_changes_no_other(self, changed: str, keep: str | None) -> None:
        _, trace = self.traced(**({"keep": None} if keep is None else {}))
        before = {name: getattr(trace, name).clone() for name in self.FIELDS}
        change_in_place(getattr(trace, changed))
        assert not torch.equal(getattr(trace, changed), before[changed])
        for name in self.FIELDS:
            if name != changed:
                assert torch.equal(getattr(trace, name), before[name]), name

    @pytest.mark.parametrize("scale", [True, False, 1.0])
    def test_no_two_fields_share_memory(self, scale: bool | float) -> None:
        of = Sizes((), 2, 2, 2, 2)
        trace = attend(*tensors(of), scale=scale)
        pointers = [getattr(trace, name).untyped_storage().data_ptr() for name in self.FIELDS]
        assert len(set(pointers)) == len(pointers)

    @pytest.mark.parametrize("name", ["q", "k", "v", "allowed", "keep"])
    def test_a_callers_tensor_changed_in_place_changes_nothing(self, name: str) -> None:
        given_tensors, trace = self.traced()
        before = {field: getattr(trace, field).clone() for field in self.FIELDS}
        change_in_place(given_tensors[name])
        assert all(torch.equal(getattr(trace, field), value) for field, value in before.items())

    def test_one_tensor_as_q_k_and_v(self) -> None:
        x = tensors(Sizes((), 3, 3, 3, 3))[0]
        trace = attend(x, x, x)
        trace.k.zero_()
        assert torch.equal(trace.q, x)
        assert torch.equal(trace.v, x)

    def test_inputs_are_left_as_they_were(self) -> None:
        q, k, v = tensors(DISTINCT)
        allowed, keep = masks_with_a_key((5, 7)), masks_with_a_key((5, 7), 1)
        copies = [t.clone() for t in (q, k, v, allowed, keep)]
        attend(q, k, v, allowed=allowed, keep=keep, drop_p=0.5)
        assert all(map(torch.equal, (q, k, v, allowed, keep), copies))


ONES = torch.ones


class TestRefusals:
    @pytest.mark.parametrize(
        ("shapes", "words"),
        [
            (((3, 2), (3, 4), (3, 2)), ("q and k", "one width", "2 numbers", "row of q", "4 in a row of k")),
            (((3, 2), (4, 2), (5, 2)), ("k and v", "one value row for each key", "4 rows in k", "5 in v")),
            (((2, 3, 2), (3, 3, 2), (2, 3, 2)), ("k:", "leading axes (2,)", "of q", "got (3,)")),
            (((2, 3, 2), (2, 3, 2), (3, 2)), ("v:", "leading axes (2,)", "of q", "got ()")),
            # onnx#7274: query heads in groups on fewer key heads are no silent broadcast.
            (((1, 4, 3, 2), (1, 2, 3, 2), (1, 2, 3, 2)), ("k:", "(1, 4)", "got (1, 2)")),
            (((1, 4, 3, 2), (1, 1, 3, 2), (1, 1, 3, 2)), ("k:", "(1, 4)", "got (1, 1)")),
            (((2,), (3, 2), (3, 2)), ("q:", "non-empty matrix", "got shape (2,)")),
            (((3, 2), (2,), (3, 2)), ("k:", "non-empty matrix", "got shape (2,)")),
            (((3, 2), (3, 2), (3,)), ("v:", "non-empty matrix", "got shape (3,)")),
            (((0, 2), (3, 2), (3, 2)), ("q:", "non-empty matrix", "got shape (0, 2)")),
            (((3, 2), (0, 2), (0, 2)), ("k:", "non-empty matrix", "got shape (0, 2)")),
            (((3, 0), (3, 0), (3, 2)), ("q:", "non-empty matrix", "got shape (3, 0)")),
            (((3, 2), (3, 2), (3, 0)), ("v:", "non-empty matrix", "got shape (3, 0)")),
        ],
        ids=str,
    )
    def test_shapes(self, shapes: tuple[tuple[int, ...], ...], words: tuple[str, ...]) -> None:
        with refused(*words):
            attend(*(torch.ones(shape) for shape in shapes))

    @pytest.mark.parametrize(
        ("dtypes", "words"),
        [
            ((torch.int64, torch.float32, torch.float32), ("q:", "floating-point", "torch.int64")),
            ((torch.float32, torch.bool, torch.float32), ("k:", "floating-point", "torch.bool")),
            ((torch.float32, torch.float32, torch.complex64), ("v:", "floating-point", "torch.complex64")),
            ((torch.float32, torch.float64, torch.float32), ("k:", "torch.float32 like q", "torch.float64")),
            ((torch.float64, torch.float64, torch.float16), ("v:", "torch.float64 like q", "torch.float16")),
        ],
        ids=str,
    )
    def test_dtypes(self, dtypes: tuple[torch.dtype, ...], words: tuple[str, ...]) -> None:
        with refused(*words):
            attend(*(torch.ones(3, 3, dtype=dtype) for dtype in dtypes))

    @pytest.mark.parametrize("name", ["allowed", "keep"])
    @pytest.mark.parametrize("dtype", [torch.float64, torch.int64, torch.uint8])
    def test_a_mask_of_numbers(self, name: str, dtype: torch.dtype) -> None:
        with refused(f"{name}:", "boolean mask", f"got {dtype}"):
            attend(*tensors(DISTINCT), **{name: torch.ones(5, 7, dtype=dtype)})

    @pytest.mark.parametrize("name", ["allowed", "keep"])
    @pytest.mark.parametrize(
        ("of", "shape"),
        [
            (DISTINCT, (7, 5)),
            (DISTINCT, (5, 5)),
            (DISTINCT, (1, 7)),
            (DISTINCT, (5, 1)),
            (DISTINCT, (5,)),
            (DISTINCT, ()),
            (DISTINCT, (2, 3, 1, 7)),
            (DISTINCT, (3, 2, 5, 7)),
            (DISTINCT, (2, 5, 7)),
            (DISTINCT, (3, 5, 7)),
            (DISTINCT, (1, 5, 7)),
            (DISTINCT, (1, 2, 3, 5, 7)),
            # Batch = heads: a mask for each batch item must not line up with the heads.
            (Sizes((3, 3), 5, 7, 4, 6), (3, 5, 7)),
            (Sizes((2, 2), 2, 2, 2, 2), (2, 2, 2)),
            (Sizes((), 5, 7, 4, 6), (1, 5, 7)),
            (Sizes((2,), 5, 7, 4, 6), (3, 5, 7)),
        ],
        ids=str,
    )
    def test_mask_shapes(self, of: Sizes, shape: tuple[int, ...], name: str) -> None:
        words = [f"{name}:", f"({of.queries}, {of.keys}) (query, key)", f"got {shape}"]
        if of.leading:
            words.append(f"or {of.scores}")
        with refused(*words):
            attend(*tensors(of), **{name: torch.ones(shape, dtype=torch.bool)})

    @pytest.mark.parametrize("p", [1, 1.0, -0.1, 2, math.inf, math.nan])
    @pytest.mark.parametrize("keep", [True, False])
    def test_drop_p(self, p: float, keep: bool) -> None:
        mask = torch.ones(5, 7, dtype=torch.bool) if keep else None
        with refused("drop_p:", "0 ≤ p < 1", f"got {p}"):
            attend(*tensors(DISTINCT), keep=mask, drop_p=p)

    def test_drop_p_without_its_mask(self) -> None:
        with refused("keep:", "dropout mask", "drop_p 0.25", "got none"):
            attend(*tensors(DISTINCT), drop_p=0.25)

    def test_unknown_keyword(self) -> None:
        with refused("mask", error=TypeError):
            attend(*tensors(DISTINCT), mask=None)  # type: ignore[call-arg]


class TestReportedFaults:
    """Right values of faults that were reported in public (the design's faults, section Numerics)."""

    def test_pytorch_170415_true_means_may_read(self) -> None:
        v = f64([[1], [10]])
        allowed = torch.tensor([[True, False], [True, True]])
        close(attend(eye(2), eye(2), v, allowed=allowed).output, f64([[1], [7.027854]]), 5e-7)
        inverted = attend(eye(2), eye(2), v, allowed=from_ignored(allowed))
        assert inverted.output[0].item() == 10
        assert inverted.empty_rows.tolist() == [False, True]

    @pytest.mark.parametrize(
        ("queries", "keys", "offset", "expected"),
        [(2, 5, None, [1.5, 2]), (1, 8, None, [3.5]), (2, 5, 0, [0, 0.5]), (1, 8, 0, [0])],
    )
    def test_pytorch_108108_103082_alignment_of_unequal_lengths(
        self, queries: int, keys: int, offset: int | None, expected: list[float]
    ) -> None:
        v = torch.arange(keys, dtype=torch.float64)[:, None]
        zeros = torch.zeros(keys, 3, dtype=torch.float64)
        trace = attend(zeros[:queries], zeros, v, allowed=causal(queries, keys, offset))
        close(trace.output[:, 0], f64(expected))

    def test_llms_from_scratch_279_60_mask_before_softmax_and_raw_scores_stay_raw(self) -> None:
        q, k = torch.zeros(3, 2, dtype=torch.float64), f64([[1, 2], [3, 4], [5, 6]])
        trace = attend(q, k, k, allowed=causal(3))
        close(trace.weights.sum(dim=-1), torch.ones(3, dtype=torch.float64))
        close(trace.weights, f64([[1, 0, 0], [0.5, 0.5, 0], [1 / 3, 1 / 3, 1 / 3]]))
        assert torch.equal(trace.scores, torch.zeros(3, 3, dtype=torch.float64))
        assert torch.equal(trace.scaled, trace.scores)
        assert (trace.masked == -torch.inf).sum() == 3

    def test_former_10_a_hidden_diagonal_leaves_row_0_without_a_key(self) -> None:
        x = tensors(Sizes((), 3, 3, 2, 2))[0]
        hidden = attend(x, x, x, allowed=causal(3, offset=-1))
        assert hidden.empty_rows.tolist() == [True, False, False]
        assert hidden.weights.isnan().all(dim=-1).tolist() == [True, False, False]
        right = attend(x, x, x, allowed=causal(3))
        assert (right.weights > 0).sum(dim=-1).tolist() == [1, 2, 3]

    def test_pytorch_nlp_2_softmax_over_keys(self) -> None:
        trace = attend(eye(2), f64([[1, 3], [2, 4]]), eye(2), scale=False)
        assert trace.scores.tolist() == [[1, 2], [3, 4]]
        close(trace.weights, f64([[0.268941, 0.731059]] * 2), 5e-7)

    def test_transformers_27114_masks_are_combined_as_booleans(self) -> None:
        padding = torch.tensor([True, True, False]).expand(3, 3)
        both = combine(causal(3), padding)
        zeros = torch.zeros(3, 2, dtype=torch.float16)
        trace = attend(zeros, zeros, zeros, allowed=both)
        assert trace.weights.tolist() == [[1, 0, 0], [0.5, 0.5, 0], [0.5, 0.5, 0]]
        # −∞ twice is −∞, as large finite negatives are not in half precision.
        added = to_additive(causal(3), torch.float16) + to_additive(padding, torch.float16)
        assert torch.equal(added, to_additive(both, torch.float16))

    def test_pytorch_124464_timm_1978_no_dropout_unless_its_mask_is_given(self) -> None:
        inputs = tensors(DISTINCT)
        state = torch.get_rng_state()
        traces = [attend(*inputs) for _ in range(20)]
        assert torch.equal(torch.get_rng_state(), state)
        assert all(torch.equal(trace.output, traces[0].output) for trace in traces)
        assert torch.equal(traces[0].dropped, traces[0].weights)
        close(traces[0].dropped.sum(dim=-1), torch.ones(2, 3, 5, dtype=torch.float64))

    @pytest.mark.parametrize(
        ("p", "expected"), [(0.5, [0.5, 0.5, 0.5, 0]), (0.1, [0.25 / 0.9, 0.25 / 0.9, 0.25 / 0.9, 0])]
    )
    def test_llms_from_scratch_431_dropout_of_weights(self, p: float, expected: list[float]) -> None:
        zeros = torch.zeros(4, 3, dtype=torch.float64)
        keep = torch.tensor([[True, True, True, False]])
        trace = attend(zeros[:1], zeros, zeros, keep=keep, drop_p=p)
        close(trace.weights, f64([[0.25] * 4]))
        close(trace.dropped, f64([expected]))
        assert expected[0] / 0.25 == pytest.approx({0.5: 2, 0.1: 1.111111}[p], abs=5e-7)

    def test_ng_video_lecture_30_a_masked_weight_stays_0_and_none_is_nan(self) -> None:
        """Dropout is after softmax: before it, −∞ · 0 would be NaN."""
        zeros = torch.zeros(3, 2, dtype=torch.float64)
        keep = torch.tensor([[True, True, True], [False, True, True], [True, False, True]])
        trace = attend(zeros, zeros, zeros, allowed=causal(3), keep=keep, drop_p=0.5)
        close(trace.dropped, f64([[2, 0, 0], [0, 1, 0], [2 / 3, 0, 2 / 3]]))
        assert trace.masked.tolist()[0][1:] == [-math.inf, -math.inf]

    def test_ng_video_lecture_6_scale_by_the_width_of_one_head(self) -> None:
        """Width 64, 4 heads: raw (8, 0) ÷ √16."""
        q = torch.zeros(4, 1, 16, dtype=torch.float64)
        q[..., 0] = 8
        k = torch.zeros(4, 2, 16, dtype=torch.float64)
        k[:, 0, 0] = 1
        trace = attend(q[None], k[None], k[None])
        assert trace.scores[0, :, 0].tolist() == [[8, 0]] * 4
        close(trace.weights[0, :, 0], f64([[0.880797, 0.119203]] * 4), 5e-7)

    def test_transformers_17306_float16(self) -> None:
        half = torch.float16
        large, small = torch.tensor([[64.0]], dtype=half), torch.tensor([[1600.0]], dtype=half)
        trace = attend(large, small, small)
        assert trace.scores.item() == math.inf
        assert trace.weights.isnan().all()
        assert not trace.empty_rows.any()
        # Where a fill of −1e9 is refused by torch, the mask of −∞ is exact in half precision.
        with pytest.raises(RuntimeError, match="overflow"):
            torch.zeros(1, dtype=half).masked_fill(torch.tensor([True]), -1e9)
        q = torch.tensor([[-1.0], [-1.0]], dtype=half)
        k = torch.tensor([[65504.0], [65504.0]], dtype=half)
        masked = attend(q, k, k, scale=False, allowed=causal(2))
        assert masked.scaled.tolist() == [[-65504, -65504]] * 2
        assert masked.weights.tolist() == [[1, 0], [0.5, 0.5]]

    @pytest.mark.parametrize(("add", "expected"), [(-15, -65504.0), (-16, -math.inf)])
    def test_apex_1052_rounding_at_the_edge_of_float16(self, add: float, expected: float) -> None:
        q, k = torch.tensor([[1.0, 1.0]], dtype=torch.float16), torch.tensor([[-65504.0, add]]).half()
        v = torch.ones(1, 1, dtype=torch.float16)
        assert attend(q, k, v, scale=False).scores.item() == expected

    def test_llms_from_scratch_57_the_mask_is_data_not_a_seed(self) -> None:
        inputs, keep = tensors(DISTINCT), masks_with_a_key((2, 3, 5, 7))
        outputs = []
        for seed in (1, 2):
            torch.manual_seed(seed)
            outputs.append(attend(*inputs, keep=keep, drop_p=0.5).output)
        assert torch.equal(*outputs)

    def test_pytorch_34537_heads_are_not_averaged(self) -> None:
        zeros = torch.zeros(1, 2, 2, 3, dtype=torch.float64)
        allowed = torch.tensor([[True, False], [False, True]])[None, :, None]
        trace = attend(zeros[:, :, :1], zeros, zeros, allowed=allowed)
        assert trace.weights.tolist() == [[[[1, 0]], [[0, 1]]]]

    def test_transformers_27040_cached_steps_equal_the_full_pass_to_rounding(self) -> None:
        q, k, v = tensors(Sizes((2,), 4, 4, 8, 8), dtype=torch.float32)
        full = attend(q, k, v, allowed=causal(4)).output
        for step in range(1, 5):
            cached = attend(q[:, step - 1 : step], k[:, :step], v[:, :step], allowed=causal(1, step)).output
            close(cached, full[:, step - 1 : step], 1e-6)

    def test_fused_difference_of_the_facts(self) -> None:
        """Section causality: q, k, v [2, 3, 5, 4], float64, about 1e−16 forward, 1e−15 in gradients."""
        inputs = tensors(Sizes((2, 3), 5, 5, 4, 4), 1, grad=True)
        fused = F.scaled_dot_product_attention(*inputs, is_causal=True)
        ours = attend(*inputs, allowed=causal(5)).output
        assert (ours - fused).abs().max() < 2e-15
        for a, b in zip(gradients(ours, inputs), gradients(fused, inputs), strict=True):
            assert (a - b).abs().max() < 2e-14


@pytest.mark.parametrize("scale", [math.nan, math.inf, -math.inf])
def test_a_factor_that_is_no_number_is_refused(scale):
    matrix = torch.ones(2, 2, dtype=torch.float64)
    with pytest.raises(ValueError, match=r"scale: .*finite.* got"):
        attend(matrix, matrix, matrix, scale=scale)


@pytest.mark.parametrize(
    "scale",
    [np.True_, np.False_, torch.tensor(True), torch.tensor(0.5), None, "1", 1j, math.nan, -math.inf, 10**400],
)
def test_a_scale_is_a_boolean_of_python_or_a_finite_number(scale: Any) -> None:
    """NumPy's True would be the factor 1, and not 1/√d_k."""
    q = torch.ones(2, 4)
    with refused("scale: expected True, False or a finite factor, got"):
        attend(q, q, q, scale=scale)
    assert attend(q, q, q, scale=np.float64(0.5)).scale == 0.5
