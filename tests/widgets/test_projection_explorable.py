"""ProjectionExplorable: Q, K, V, heads and the way back are torch's; sizes follow; mistakes are found."""

from typing import Any

import pytest
import torch
import torch.nn.functional as F
import traitlets
from hypothesis import example, given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from attnlab.engine.packing import LAYOUTS
from attnlab.engine.projections import multi_head_projection
from attnlab.widgets import ProjectionExplorable
from attnlab.widgets.projection import LOOKS, PRESETS
from helpers.explained import assert_all_explained
from helpers.front_end import FrontEnd, assert_strict_json, same_numbers

HEADS, PACKING, LINEAR = LOOKS
BLOCKS, PER_HEAD = LAYOUTS
MATRICES = ("x", "w_q", "w_k", "w_v", "w_o")
SHARED = "four heads share two keys and values"
PACKED = "packed, two heads of width 1"
SHOWN = ["x", "w_q", "w_k", "w_v", "q", "k", "v", "q_heads", "k_heads", "v_heads"]
SHOWN += ["masked", "weights", "head_output", "concat", "output", "w_o"]


def open_page(**arguments: Any) -> FrontEnd:
    return FrontEnd(ProjectionExplorable(**arguments))


def random(*shape: int, seed: int = 0) -> list[list[float]]:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64).tolist()


def sized(time: int, d_in: int, d_out: int, heads: int, kv_heads: int, d_head: int, **more: Any) -> FrontEnd:
    """A page of these sizes with random matrices."""
    columns = (heads * d_head, kv_heads * d_head, kv_heads * d_head)
    w = {n: random(d_in, c, seed=i) for i, (n, c) in enumerate(zip(MATRICES[1:4], columns, strict=True), 1)}
    x, w_o = random(time, d_in), random(heads * d_head, d_out, seed=4)
    return open_page(x=x, w_o=w_o, heads=heads, kv_heads=kv_heads, **w, **more)


def head_by_head(page: FrontEnd) -> dict[str, Tensor]:
    """The whole computation, one query head after the other, on columns of the matrices."""
    explorable = page.explorable
    x, w_q, w_k, w_v, w_o = (getattr(explorable, name).clone() for name in MATRICES)
    heads, kv_heads = explorable.heads, explorable.kv_heads
    d = w_q.shape[1] // heads
    weights, outputs = [], []
    for head in range(heads):
        group = head // (heads // kv_heads)
        q, k, v = (x @ w[:, n * d : (n + 1) * d] for w, n in ((w_q, head), (w_k, group), (w_v, group)))
        scores = q @ k.T / d**0.5
        if explorable.causal:
            scores = scores.masked_fill(torch.ones_like(scores).triu(1) > 0, -torch.inf)
        weights.append(scores.softmax(-1))
        outputs.append(weights[-1] @ v)
    concat = torch.cat(outputs, -1)
    return {
        "q": x @ w_q,
        "k": x @ w_k,
        "v": x @ w_v,
        "weights": torch.stack(weights),
        "head_output": torch.stack(outputs),
        "concat": concat,
        "output": concat @ w_o if explorable.output_projection else concat,
    }


def assert_is_right(page: FrontEnd) -> None:
    shown = page.numbers
    assert (page.answer["state"], page.answer["message"]) == ("ready", "")
    for name, expected in head_by_head(page).items():
        assert shown[name].shape == expected.shape, name
        torch.testing.assert_close(shown[name], expected, rtol=1e-12, atol=1e-12)
    for name in MATRICES:
        assert same_numbers(shown[name], getattr(page.explorable, name).clone())


def failed(page: FrontEnd) -> list[str]:
    """The names of the checks that don't hold."""
    return [check["name"] for check in page.answer["checks"] if not check["holds"]]


class TestNumbers:
    @pytest.mark.parametrize("causal", [False, True])
    @pytest.mark.parametrize("preset", PRESETS)
    def test_presets(self, preset: str, causal: bool) -> None:
        page = open_page(preset=preset)
        page.control("causal", causal)
        assert_is_right(page)
        assert failed(page) == []

    # time, d_in, d_out, heads, kv_heads, d_head: distinct sizes, then T = d, B = H, H = 1, T = 1, d = 1.
    @pytest.mark.parametrize("output_projection", [False, True])
    @pytest.mark.parametrize(
        "size",
        [
            *((5, 7, 3, 2, 2, 4), (5, 3, 7, 4, 2, 2), (3, 5, 2, 2, 1, 3), (2, 2, 2, 2, 2, 2)),
            *((4, 3, 5, 1, 1, 6), (1, 6, 4, 3, 3, 2), (3, 4, 4, 4, 1, 1), (8, 8, 8, 4, 4, 2)),
        ],
        ids=str,
    )
    def test_sizes(self, size: tuple[int, int, int, int, int, int], output_projection: bool) -> None:
        page = sized(*size, causal=True, output_projection=output_projection)
        assert_is_right(page)
        assert failed(page) == []
        names = [check["name"] for check in page.answer["checks"]]
        assert ("one packed projection agrees" in names) == (size[3] == size[4])

    def test_torchs_module_with_the_same_weights(self) -> None:
        page = sized(5, 6, 6, 3, 3, 2)
        module = nn.MultiheadAttention(6, 3, bias=False, batch_first=True, dtype=torch.float64)
        shown = page.numbers
        with torch.no_grad():
            module.in_proj_weight.copy_(torch.cat([shown[n].T for n in ("w_q", "w_k", "w_v")]))
            module.out_proj.weight.copy_(shown["w_o"].T)
            x = shown["x"][None]
            output, weights = module(x, x, x, average_attn_weights=False)
        torch.testing.assert_close(shown["output"], output[0], rtol=0, atol=1e-12)
        torch.testing.assert_close(shown["weights"], weights[0], rtol=0, atol=1e-12)

    def test_heads_of_a_total_width_of_two_have_one_each(self) -> None:
        page = open_page(preset=PACKED)
        assert page.numbers["q_heads"].shape == (2, 1, 1)

    def test_causal(self) -> None:
        page = open_page(causal=True)
        weights = page.numbers["weights"]
        assert (weights.triu(1) == 0).all()
        assert weights[:, 0].tolist() == [[1, 0, 0]] * 2
        assert page.answer["texts"]["mask"] == "÷ √2, mask"
        page.value("x", [2, 1], -7)
        assert same_numbers(page.numbers["output"][:2], open_page(causal=True).numbers["output"][:2])

    def test_missing_output_projection(self) -> None:
        page = open_page()
        with_it = page.numbers["output"]
        page.control("output_projection", False)
        assert same_numbers(page.numbers["output"], page.numbers["concat"])
        assert (page.numbers["output"] - with_it).abs().max() > 0.1
        assert page.answer["texts"]["out"] == "no W_O"
        # The heads never meet: what the first one reads moves its own columns only.
        before = page.numbers["output"]
        page.value("w_v", [0, 1], 5)
        moved = (page.numbers["output"] != before).any(dim=0)
        assert moved.tolist() == [False, True, False, False]
        page.control("output_projection", True)
        moved = (page.numbers["output"] != with_it).any(dim=0)
        assert moved.tolist() == [False, True, True, False]


class TestNumberOfHeads:
    @pytest.mark.parametrize("heads", [1, 2, 4])
    def test_one_to_four_at_width_4(self, heads: int) -> None:
        page = open_page()
        page.control("heads", heads)
        assert (page.explorable.heads, page.explorable.kv_heads) == (heads, heads)
        assert page.numbers["q_heads"].shape == (heads, 3, 4 // heads)
        assert_is_right(page)
        assert failed(page) == []
        text = page.answer["texts"]["parameters"]
        assert "here, in W_Q, W_K, W_V and W_O: 64. " in text
        assert "width 4, with biases and an output projection: 80; by number of heads" in text
        assert "1: 80, 2: 80, 4: 80." in text
        assert "2,360,064 without biases of Q, K and V, 2,362,368 with all" in text
        assert sum(p.numel() for p in nn.MultiheadAttention(4, heads).parameters()) == 80

    def test_through_all_of_them(self) -> None:
        """Three is refused on the way from 2 to 4, and nothing is lost."""
        page = open_page()
        before = page.numbers
        page.control("heads", 3)
        assert page.answer["state"] == "invalid"
        assert page.answer["message"] == "Width 4 cannot be split into 3 equal heads."
        assert all(same_numbers(tensor, before[name]) for name, tensor in page.numbers.items())
        page.control("heads", 4)
        assert page.explorable.kv_heads == 4
        assert_is_right(page)
        for heads in (3, 2, 1, 2):
            page.control("heads", heads)
        assert_is_right(page)
        assert page.explorable.code() == "ProjectionExplorable()"

    def test_wider_models(self) -> None:
        page = sized(2, 3, 2, 3, 3, 2)
        text = page.answer["texts"]["parameters"]
        sizes = [page.numbers[name].numel() for name in ("w_q", "w_k", "w_v", "w_o")]
        assert f"here, in W_Q, W_K, W_V and W_O: {sum(sizes)}. " in text
        assert f"width 6, with biases and an output projection: {4 * 6 * 6 + 4 * 6};" in text
        assert "1: 168, 2: 168, 3: 168." in text

    def test_without_output_projection_there_are_fewer_here(self) -> None:
        page = open_page()
        page.control("output_projection", False)
        assert "here, in W_Q, W_K and W_V: 48. " in page.answer["texts"]["parameters"]

    def test_scores_are_called_masked_only_where_a_mask_is(self) -> None:
        page = open_page()
        for causal, title in ((True, "scaled and masked"), (False, "scaled")):
            page.control("causal", causal)
            assert page.explorable.view.stages["masked"]["title"] == title

    def test_sharing_saves_parameters(self) -> None:
        text = open_page(preset=SHARED).answer["texts"]["parameters"]
        # Q and W_O of 4 · 4 + 4 each, K and V of 4 · 2 + 2 each.
        # Here X has one column: W_Q is 1 × 4, W_K and W_V are 1 × 2.
        assert "here, in W_Q, W_K, W_V and W_O: 24. " in text
        assert "an output projection: 60;" in text
        assert "1: 80, 2: 80, 4: 80" in text


class TestSharedHeads:
    def test_onnx_7274(self) -> None:
        page = open_page(preset=SHARED)
        assert page.numbers["v_shared"].flatten().tolist() == [5, 5, 9, 9]
        assert page.numbers["head_output"].flatten().tolist() == [5, 5, 9, 9]
        assert page.numbers["output"].tolist() == [[5, 5, 9, 9]]
        assert page.answer["texts"]["topic"] == (
            "4 query heads share 2 key/value heads; neighbours share one."
        )
        page.control("mistake", True)
        assert page.numbers["v_tiled"].flatten().tolist() == [5, 9, 5, 9]
        assert failed(page) == ["mistake: each head reads its own values"]
        assert "max error 4" in page.answer["checks"][-1]["text"]

    def test_four_on_three_is_refused(self) -> None:
        page = open_page(preset=SHARED)
        before, trace = page.numbers, page.explorable.trace
        page.control("kv_heads", 3)
        assert page.answer["state"] == "invalid"
        assert page.answer["message"] == "4 query heads cannot share 3 key/value heads equally."
        assert page.explorable.trace is trace
        stages = before.keys() - {"w_k", "w_v"}  # the drafts, which have followed
        assert all(same_numbers(page.numbers[name], before[name]) for name in stages)
        page.control("kv_heads", 2)
        assert page.explorable.code() == f"ProjectionExplorable(preset={SHARED!r})"

    def test_a_single_one(self) -> None:
        page = open_page(preset=SHARED)
        page.control("kv_heads", 1)
        assert page.numbers["v_shared"].flatten().tolist() == [5, 5, 5, 5]
        assert page.answer["texts"]["topic"] == "4 query heads share a single key/value head."
        page.control("mistake", True)
        assert failed(page) == []  # here the mistake hides: there is only one to repeat
        assert_is_right(page)

    def test_columns_go_and_come_back(self) -> None:
        page = open_page()
        full = {name: getattr(page.explorable, name).clone() for name in MATRICES}
        page.control("heads", 4)
        for kv_heads in (2, 1, 4, 1, 2):
            page.control("kv_heads", kv_heads)
            for name in ("w_k", "w_v"):
                assert same_numbers(getattr(page.explorable, name).clone(), full[name][:, :kv_heads])
            assert_is_right(page)
            assert failed(page) == []
            assert ("k_shared" in page.numbers) == (kv_heads < 4)
        page.command("undo")
        assert (page.explorable.kv_heads, page.explorable.w_k.shape) == (1, (4, 1))
        for _ in range(5):
            page.command("undo")
        assert page.explorable.code() == "ProjectionExplorable()"
        assert page.explorable.bar.disabled == ["undo", "packing", "mistake"]

    def test_what_was_edited_stays_in_the_columns_that_stay(self) -> None:
        page = open_page()
        page.value("w_k", [1, 0], 7)
        page.value("w_k", [1, 3], 8)
        page.control("kv_heads", 1)
        assert page.explorable.w_k[1].tolist() == [7, 0]
        page.control("kv_heads", 2)
        assert page.explorable.w_k[1].tolist() == [7, 0, 0, 1]  # the last two as in the preset
        page.command("undo")
        page.command("undo")
        assert page.explorable.w_k[1].tolist() == [7, 0, 0, 8]

    def test_more_columns_than_the_preset_has_are_zeros(self) -> None:
        page = open_page(preset=SHARED)
        page.control("kv_heads", 4)
        assert page.explorable.w_v.tolist() == [[5, 9, 0, 0]]
        assert_is_right(page)

    def test_fewer_heads_take_their_keys_and_values_along(self) -> None:
        page = open_page(preset=SHARED)
        page.control("heads", 2)
        assert (page.explorable.kv_heads, page.explorable.w_k.shape[1]) == (2, 4)
        page.control("heads", 1)
        assert page.explorable.kv_heads == 1
        assert_is_right(page)
        assert page.explorable.bar.limits["kv_heads"] == 1
        page.explorable.kv_heads = 2
        assert page.answer["message"] == "Key/value heads: expected a whole number from 1 to 1, got 2."


OUTPUT_IS_OFF = "mistake: the output is the same"


class TestPacking:
    def test_litgpt_1013(self) -> None:
        page = open_page(preset=PACKED)
        parts = ("unq", "unk", "unv")
        assert page.numbers["packed"].tolist() == [[0, 1, 2, 3, 4, 5]]
        assert page.explorable.view.labels["packed"] == ["Q 0", "Q 1", "K 0", "K 1", "V 0", "V 1"]
        assert [page.numbers[n].tolist() for n in parts] == [[[0, 1]], [[2, 3]], [[4, 5]]]
        assert failed(page) == []
        page.control("mistake", True)
        # Rows 0 to 5, packed by blocks, read per head.
        assert [page.numbers[n].tolist() for n in parts] == [[[0, 3]], [[1, 4]], [[2, 5]]]
        assert failed(page) == ["mistake: what is read is what was packed", OUTPUT_IS_OFF]
        assert page.answer["texts"]["topic"] == (
            "Packed by blocks (Q Q K K V V), read per head (Q K V Q K V)."
        )
        page.control("packing", PER_HEAD)
        assert page.numbers["packed"].tolist() == [[0, 2, 4, 1, 3, 5]]
        assert page.explorable.view.labels["packed"] == ["Q 0", "K 0", "V 0", "Q 1", "K 1", "V 1"]
        assert [page.numbers[n].tolist() for n in parts] == [[[0, 2]], [[4, 1]], [[3, 5]]]
        assert failed(page) == ["mistake: what is read is what was packed", OUTPUT_IS_OFF]
        page.control("mistake", False)
        assert [page.numbers[n].tolist() for n in parts] == [[[0, 1]], [[2, 3]], [[4, 5]]]
        assert failed(page) == []

    @pytest.mark.parametrize("packing", LAYOUTS)
    @pytest.mark.parametrize("size", [(2, 3, 2, 2, 2, 3), (2, 3, 2, 4, 4, 2), (2, 3, 2, 1, 1, 4)], ids=str)
    def test_columns_are_named_and_coloured_as_what_they_are(
        self, size: tuple[int, int, int, int, int, int], packing: str
    ) -> None:
        page = sized(*size, look=PACKING, packing=packing)
        shown = page.numbers
        for column, label in enumerate(page.explorable.view.labels["packed"]):
            which, number = label.split()
            assert same_numbers(
                shown["packed"][:, column], shown[f"w_{which.lower()}"][:, int(number)].clone()
            )
            assert (shown["tint_packed"][:, column] == "QKV".index(which)).all()
        for n in "qkv":
            assert same_numbers(shown[f"un{n}"], shown[f"w_{n}"])
        page.control("mistake", True)
        assert bool(failed(page)) == (size[3] > 1)  # with one head both layouts are the same

    def test_not_with_shared_heads(self) -> None:
        page = open_page(preset=SHARED)
        page.control("look", PACKING)
        assert page.answer["state"] == "invalid"
        assert page.answer["message"] == ("Packing: expected as many key/value heads as heads, 4, got 2.")
        page.control("kv_heads", 4)
        assert page.answer["state"] == "ready"


class TestLinear:
    def test_it_stores_the_transpose(self) -> None:
        page = open_page(preset="the layout of nn.Linear")
        shown = page.numbers
        assert same_numbers(shown["linear_weight"], shown["w_q"].T.contiguous())
        linear = nn.Linear(4, 4, bias=False, dtype=torch.float64)
        with torch.no_grad():
            linear.weight.copy_(shown["linear_weight"])
            assert same_numbers(shown["linear_q"], linear(shown["x"]))
        assert same_numbers(shown["linear_q"], shown["q"])
        page.control("mistake", True)
        assert same_numbers(page.numbers["untransposed"], F.linear(shown["x"], shown["w_q"]))
        assert failed(page) == ["mistake: nn.Linear with W_Q as it is gives Q", OUTPUT_IS_OFF]
        given = {name: shown[name] for name in ("x", "w_k", "w_v", "w_o")}
        w_q = shown["w_q"].T.contiguous()
        off = multi_head_projection(given["x"], w_q, given["w_k"], given["w_v"], given["w_o"], heads=2)
        assert same_numbers(page.numbers["wrong_output"], off.output)
        page.text("w_q", "1 2 3 4; 2 5 6 7; 3 6 8 9; 4 7 9 1")
        assert failed(page) == []  # a symmetric one hides it

    def test_a_rectangle_is_refused(self) -> None:
        page = sized(2, 3, 2, 2, 2, 1, look=LINEAR)
        assert page.numbers["linear_weight"].shape == (2, 3)
        assert "nn.Linear(3, 2) stores out × in" in page.answer["texts"]["topic"]
        page.control("mistake", True)
        assert page.answer["state"] == "invalid"
        assert "A weight of 3 × 2 is refused by nn.Linear" in page.answer["message"]
        page.control("mistake", False)
        assert page.answer["state"] == "ready"


class TestEditing:
    @pytest.mark.parametrize("name", MATRICES)
    def test_every_matrix(self, name: str) -> None:
        page = open_page()
        before = page.explorable.code()
        page.value(name, [2, 3], -1.5)
        assert getattr(page.explorable, name)[2, 3] == -1.5
        assert_is_right(page)
        page.text(name, "0.25", [0, 1])
        assert_is_right(page)
        rows = getattr(page.explorable, name).shape[0]
        page.text(name, "\n".join(["1 2 3 4"] * rows))
        assert_is_right(page)
        for _ in range(3):
            page.command("undo")
        assert page.explorable.code() == before
        label = ProjectionExplorable.class_traits()[name].label
        for text, index in (("101", [1, 1]), ("x", [0, 0]), ("", [0, 0]), ("1 2; 3", None)):
            answer = page.text(name, text, index)
            assert (answer["state"], answer["wrong"]["inputs"]) == ("invalid", [name])
            assert answer["message"].startswith(label), answer["message"]
        assert page.command("revert")["state"] == "ready"
        assert page.explorable.code() == before

    @pytest.mark.parametrize(
        ("name", "text", "words"),
        [
            ("w_q", "1 2 3", ("Width 3 cannot be split into 2 equal heads",)),
            ("w_q", "1 2; 3 4; 5 6", ("W_Q: expected 4 rows", "(3, 2)")),
            ("w_k", "1 2; 3 4; 5 6; 7 8", ("W_K: expected 4 columns, 2 heads of width 2, got 2",)),
            ("w_v", "1; 2; 3; 4", ("W_V: expected 4 columns", "got 1")),
            ("w_o", "1 2; 3 4", ("W_O: expected 4 rows", "the heads side by side", "(2, 2)")),
            ("x", "1 2; 3 4", ("W_Q: expected 2 rows", "a row of X", "(4, 4)")),
        ],
    )
    def test_what_does_not_fit_is_told_and_the_result_kept(
        self, name: str, text: str, words: tuple[str, ...]
    ) -> None:
        page = open_page()
        if words[0].startswith("Width"):
            text = ";".join([text] * 4)
        before, trace = page.numbers, page.explorable.trace
        answer = page.text(name, text)
        assert answer["state"] == "invalid"
        assert all(word in answer["message"] for word in words), answer["message"]
        assert page.explorable.trace is trace
        assert all(same_numbers(page.numbers[n], before[n]) for n in before.keys() - {name})
        page.command("undo")
        assert_is_right(page)

    def test_sizes(self) -> None:
        page = open_page()
        for axis, by in (("time", 1), ("d_in", 1), ("d_in", 1), ("time", -1), ("time", -1), ("d_in", -1)):
            page.resize(axis, by)
            assert_is_right(page)
        assert [tuple(getattr(page.explorable, n).shape) for n in MATRICES] == [
            *((2, 5), (5, 4), (5, 4), (5, 4), (4, 4)),
        ]
        for _ in range(5):
            page.resize("time", 1)
        page.resize("time", 1)
        assert (page.answer["state"], page.numbers["x"].shape) == ("ready", (8, 5))
        answer = page.resize("time", 1)
        assert "X: expected 1 to 8 along time, got 9" in answer["message"]

    def test_the_largest(self) -> None:
        page = sized(8, 8, 8, 4, 2, 2, causal=True, look=LINEAR, mistake=True)
        assert page.answer["state"] == "ready"
        assert assert_strict_json(page.answer) < 60_000
        with pytest.raises(ValueError, match=r"W_O: expected 1 to 8 rows .*, got 9"):
            sized(8, 8, 8, 3, 3, 3)


numbers = st.floats(-100, 100) | st.sampled_from([0.0, -0.0, 1.0, 5e-324, 0.1, -100.0, 100.0])


@st.composite
def arguments(draw: st.DrawFn) -> dict[str, Any]:
    """Matrices that fit, and any setting."""
    heads = draw(st.integers(1, 4))
    kv_heads = draw(st.sampled_from([n for n in range(1, heads + 1) if heads % n == 0]))
    d_head = draw(st.integers(1, 8 // heads))
    time, d_in, d_out = (draw(st.integers(1, 8)) for _ in range(3))
    shapes = {"x": (time, d_in), "w_q": (d_in, heads * d_head), "w_o": (heads * d_head, d_out)}
    shapes |= {"w_k": (d_in, kv_heads * d_head), "w_v": (d_in, kv_heads * d_head)}

    def matrix(shape: tuple[int, int]) -> list[list[float]]:
        some = draw(st.lists(numbers, min_size=1, max_size=8))
        return [[some[(i * shape[1] + j) % len(some)] for j in range(shape[1])] for i in range(shape[0])]

    return {name: matrix(shape) for name, shape in shapes.items()} | {
        "heads": heads,
        "kv_heads": kv_heads,
        "causal": draw(st.booleans()),
        "output_projection": draw(st.booleans()),
        "look": draw(st.sampled_from(LOOKS if kv_heads == heads else (HEADS, LINEAR))),
        "packing": draw(st.sampled_from(LAYOUTS)),
        "decimals": draw(st.integers(2, 8)),
        "name": draw(st.sampled_from(["", "left"])),
    }


@settings(max_examples=8)
@given(arguments())
@example({"preset": SHARED})
@example({"preset": "without output projection", "w_v": [[1, -0.0, 0, 1], [0] * 4, [2, 0, 1, 0], [0] * 4]})
@example({"heads": 4, "kv_heads": 1, "mistake": True})  # a single one can be repeated in one way only
def test_checks_hold_and_the_address_goes_there_and_back(given_: dict[str, Any]) -> None:
    made = ProjectionExplorable(**given_)
    page = FrontEnd(made)
    assert failed(page) == []
    assert page.answer["state"] == "ready"
    opened = open_page(name=made.name)
    opened.open("?" + made.address)
    again = eval(made.code(), {"ProjectionExplorable": ProjectionExplorable})
    for other in (opened.explorable, again):
        assert other.address == made.address
        assert other.state == "ready"
        for name in (*MATRICES, *CHANGED):
            one, two = getattr(other, name), getattr(made, name)
            assert same_numbers(one, two) if isinstance(one, Tensor) else one == two, name
    for stage, tensor in page.numbers.items():
        assert same_numbers(opened.numbers[stage], tensor)
    for explorable in (made, opened.explorable, again):
        explorable.close()


CHANGED: dict[str, Any] = {
    "heads": 4,
    "kv_heads": 1,
    "causal": True,
    "output_projection": False,
    "look": LINEAR,
    "packing": PER_HEAD,
    "mistake": True,
    "gradient": True,
    "decimals": 6,
}


class TestState:
    def test_every_control_is_an_argument_and_a_trait(self) -> None:
        names = {c["name"] for row in open_page().explorable.bar.controls for c in row}
        assert names == {*CHANGED, "preset", "undo", "redo", "reset", "link", "export"}
        for name, value in CHANGED.items():
            as_argument, as_trait, as_control = open_page(**{name: value}), open_page(), open_page()
            setattr(as_trait.explorable, name, value)
            as_control.control(name, value)
            for page in (as_argument, as_trait, as_control):
                assert page.answer["state"] == "ready", name
                assert getattr(page.explorable, name) == page.explorable.bar.values[name] == value
                assert page.explorable.code() == as_argument.explorable.code()
                for stage, tensor in as_argument.numbers.items():
                    assert same_numbers(page.numbers[stage], tensor), (name, stage)

    @pytest.mark.parametrize("name", sorted(CHANGED.keys() - {"gradient", "decimals"}))
    def test_undo(self, name: str) -> None:
        page = open_page()
        page.value("w_v", [0, 0], 3)
        before = page.explorable.code()
        page.control(name, CHANGED[name])
        after = page.explorable.code()
        assert after != before
        page.command("undo")
        assert page.explorable.code() == before
        page.command("redo")
        assert page.explorable.code() == after

    @pytest.mark.parametrize(
        ("name", "value"),
        [("heads", 0), ("heads", 5), ("kv_heads", 0), ("kv_heads", 5), ("look", "x"), ("packing", "x")],
    )
    def test_what_cannot_be(self, name: str, value: Any) -> None:
        page = open_page()
        with pytest.raises(traitlets.TraitError):
            setattr(page.explorable, name, value)
        page.control(name, value)
        assert (page.explorable.code(), page.answer["state"]) == ("ProjectionExplorable()", "ready")

    def test_hostile_links(self) -> None:
        page = open_page()
        page.open("?w_q=x&heads=9&look=%3Cimg%3E&kv_heads=1&causal=1")
        assert page.answer["state"] == "invalid"
        for name in ("w_q", "heads", "look"):
            assert f"The link's {name} was not used" in page.answer["message"]
        page.open("?heads=3")
        assert page.answer["message"] == "Width 4 cannot be split into 3 equal heads."

    def test_numbers_to_copy(self) -> None:
        page = open_page(preset=SHARED)
        page.control("export", "numbers")
        blocks = page.explorable.bar.clipboard["text"].split("\n\n")
        stages = [s.name for s in page.explorable.trace.stages() if s.name != "allowed"]
        assert [block.split(" · ")[0] for block in blocks] == stages
        assert {"k_shared", "v_shared", "w_o"} <= set(stages)


@pytest.mark.parametrize(
    ("arguments", "extra", "missing"),
    [
        ({"causal": True, "output_projection": False}, [], ["w_o"]),
        ({"preset": SHARED, "mistake": True}, ["k_shared", "v_shared", "v_tiled"], []),
        ({"preset": PACKED}, ["packed", "unq", "unk", "unv"], []),
        (
            {"preset": PACKED, "packing": PER_HEAD, "mistake": True, "causal": True},
            ["packed", "unq", "unk", "unv", "wrong_output"],
            [],
        ),
        (
            {"look": LINEAR, "mistake": True},
            ["linear_weight", "linear_q", "untransposed", "wrong_output"],
            [],
        ),
    ],
    ids=str,
)
def test_every_number_explains_itself(
    arguments: dict[str, Any], extra: list[str], missing: list[str]
) -> None:
    shown = [name for name in SHOWN if name not in missing]
    assert_all_explained(open_page(**arguments), [*shown, *extra])
