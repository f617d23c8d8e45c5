"""The right hand-written attention is right, and each mistake is one: visible in numbers, unless it hides."""

import inspect
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from attnlab.engine import mistakes, record
from attnlab.engine.code_checks import check_code
from attnlab.engine.mistakes import HEADS, MISTAKES, attention

Attention = Callable[[Tensor, Tensor, Tensor], Tensor]

SUMS = "each query's weights sum to 1"
MERGED = "merged heads keep each position"
FAILS = {
    "mystery_1": SUMS,
    "mystery_4": SUMS,
    "mystery_2": MERGED,
    "mystery_3": "scores are scaled by 1/√{d_head}",
}

# (batch, time, width) with two heads: distinct sizes, and on purpose equal ones.
SIZES = [(2, 5, 6), (3, 4, 14), (1, 3, 4), (2, 2, 4), (4, 4, 8), (3, 2, 2), (2, 6, 12)]
SIZE_IDS = ["·".join(map(str, sizes)) for sizes in SIZES]

sizes = pytest.mark.parametrize("size", SIZES, ids=SIZE_IDS)
every_mistake = pytest.mark.parametrize("mistake", MISTAKES.values(), ids=lambda function: function.__name__)


def inputs(size: tuple[int, int, int], seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    batch, time, width = size
    generator = torch.Generator().manual_seed(seed)
    shapes = (batch, time, width), (width, 3 * width), (width, width)
    x, w_qkv, w_out = (torch.randn(*s, generator=generator, dtype=torch.float64) for s in shapes)
    return x, w_qkv, w_out


def oracle(x: Tensor, w_qkv: Tensor, w_out: Tensor, *, heads: int = HEADS, causal: bool = True) -> Tensor:
    """By torch's fused attention, with the heads taken apart column by column."""
    d_head = x.shape[-1] // heads
    columns = [slice(h * d_head, (h + 1) * d_head) for h in range(heads)]
    q, k, v = torch.tensor_split(x @ w_qkv, 3, dim=-1)
    mixed = [
        F.scaled_dot_product_attention(q[..., c], k[..., c], v[..., c], is_causal=causal) for c in columns
    ]
    return torch.cat(mixed, dim=-1) @ w_out


def failing(function: Attention, *tensors: Tensor) -> list[str]:
    with record() as tape:
        function(*tensors)
    return [check.name for check in check_code(tape) if not check.holds]


def changed(function: Attention, *replacements: tuple[str, str]) -> Attention:
    """The same function with parts of its source replaced."""
    source = inspect.getsource(function)
    for old, new in replacements:
        assert source.count(old), f"{old!r} is not in {function.__name__}"
        source = source.replace(old, new)
    scope = dict(vars(mistakes))
    exec(compile(source, f"<{function.__name__}>", "exec"), scope)
    made: Attention = scope[function.__name__]
    return made


ONE_HEAD = ("HEADS", "1")
NO_MASK = ("triu(1)", "triu(time)")


@sizes
def test_the_right_one_agrees_with_torch_and_fails_no_check(size: tuple[int, int, int]) -> None:
    tensors = [tensor.requires_grad_() for tensor in inputs(size)]
    ours, right = attention(*tensors), oracle(*tensors)
    torch.testing.assert_close(ours, right, rtol=1e-12, atol=1e-12)
    upstream = torch.randn(ours.shape, generator=torch.Generator().manual_seed(1), dtype=ours.dtype)
    for mine, expected in zip(
        torch.autograd.grad(ours, tensors, upstream),
        torch.autograd.grad(right, tensors, upstream),
        strict=True,
    ):
        torch.testing.assert_close(mine, expected, rtol=1e-10, atol=1e-10)
    with record() as tape:
        attention(*tensors)
    names = [check.name for check in check_code(tape)]
    assert names == [SUMS, f"scores are scaled by 1/√{size[-1] // HEADS}", MERGED]
    assert all(check.holds for check in check_code(tape))


@every_mistake
@sizes
def test_each_mistake_has_the_right_shape_and_wrong_numbers(
    mistake: Attention, size: tuple[int, int, int]
) -> None:
    tensors = inputs(size)
    wrong, right = mistake(*tensors), attention(*tensors)
    assert wrong.shape == right.shape
    assert wrong.isfinite().all()
    assert (wrong - right).abs().max() > 1e-3


@every_mistake
@sizes
def test_each_mistake_fails_exactly_its_check(mistake: Attention, size: tuple[int, int, int]) -> None:
    expected = FAILS[mistake.__name__].format(d_head=size[-1] // HEADS)
    assert failing(mistake, *inputs(size)) == [expected]


@every_mistake
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
def test_in_fewer_digits_the_same_check_fails(mistake: Attention, dtype: torch.dtype) -> None:
    tensors = [tensor.to(dtype) / 2 for tensor in inputs((2, 5, 6))]
    assert failing(mistake, *tensors) == [FAILS[mistake.__name__].format(d_head=3)]
    assert failing(attention, *tensors) == []


def test_mysteries_do_not_give_the_answer_away() -> None:
    """Neither by their names nor by any line that is shown around one that ran."""
    assert len(MISTAKES) == len(FAILS) == 4
    assert {function.__name__ for function in MISTAKES.values()} == FAILS.keys()
    assert [name.replace(" ", "_") for name in MISTAKES] == sorted(FAILS)
    for mystery in MISTAKES.values():
        with record() as tape:
            mystery(*inputs((2, 5, 6)))
        around = {text for call in tape.calls for _, text in call.spot.context(before=4, after=3)}
        assert not [text for text in around if '"""' in text or "#" in text]


def test_each_differs_from_the_right_one_in_one_place() -> None:
    def body(function: Attention) -> list[str]:
        lines = inspect.getsource(function).splitlines()
        return [line.strip() for line in lines[1:] if line.strip() and '"""' not in line]

    for mistake in MISTAKES.values():
        wrong = set(body(mistake)) ^ set(body(attention))
        # mystery_1 swaps two lines, the others change one.
        assert len(wrong) == (4 if mistake.__name__ == "mystery_1" else 2), mistake.__name__


class TestWhereAMistakeHides:
    """A mistake that changes no number is none there, and no check may claim one."""

    @pytest.mark.parametrize(
        ("name", "hides"),
        [
            ("mystery_1", False),
            ("mystery_4", False),
            ("mystery_2", True),
            ("mystery_3", True),
        ],
    )
    def test_one_head(self, name: str, hides: bool) -> None:
        self.compare(name, hides, (2, 5, 6), ONE_HEAD)

    @pytest.mark.parametrize(
        ("name", "hides"),
        [
            ("mystery_1", True),
            ("mystery_4", False),
            ("mystery_2", False),
            ("mystery_3", False),
        ],
    )
    def test_a_mask_that_forbids_nothing(self, name: str, hides: bool) -> None:
        self.compare(name, hides, (2, 5, 6), NO_MASK)

    @every_mistake
    def test_one_position(self, mistake: Attention) -> None:
        tensors = inputs((2, 1, 6))
        torch.testing.assert_close(mistake(*tensors), attention(*tensors))
        # A wrong factor is one also where a single weight of 1 hides it.
        scaled = mistake.__name__ == "mystery_3"
        assert failing(mistake, *tensors) == (["scores are scaled by 1/√3"] if scaled else [])

    def compare(self, name: str, hides: bool, size: tuple[int, int, int], change: tuple[str, str]) -> None:
        tensors = inputs(size)
        wrong, right = changed(getattr(mistakes, name), change), changed(attention, change)
        assert failing(right, *tensors) == []
        assert torch.allclose(wrong(*tensors), right(*tensors)) == hides
        assert bool(failing(wrong, *tensors)) == (not hides)

    def test_the_changed_right_one_is_still_right(self) -> None:
        tensors = inputs((2, 5, 6))
        torch.testing.assert_close(changed(attention, ONE_HEAD)(*tensors), oracle(*tensors, heads=1))
        torch.testing.assert_close(changed(attention, NO_MASK)(*tensors), oracle(*tensors, causal=False))
