"""`explore` on code that calls modules of torch's own: their steps don't take the code's names."""

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from attnlab.widgets import explore
from helpers.programs_on_screen import tensor, titles


@pytest.fixture
def x() -> Tensor:
    return torch.randn(2, 3, 8, generator=torch.Generator().manual_seed(0))


class Encoder(nn.Module):
    """A pre-norm block on `nn.MultiheadAttention`."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(8)
        self.attn = nn.MultiheadAttention(8, 2, batch_first=True)
        self.ff = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 8))

    def forward(self, x: Tensor) -> Tensor:
        h = self.norm(x)
        a, w = self.attn(h, h, h)  # noqa: RUF059 (a name to be shown)
        y = x + a
        f = self.ff(y)
        return y + f


def test_attention_of_torch_has_two_results(x: Tensor) -> None:
    block = Encoder()
    explorable = explore(block, x)
    assert titles(explorable) == ["x", "h", "w", "a", "y", "f", "returned"]
    h = block.norm(x)
    a, w = block.attn(h, h, h)
    for name, right in (("a", a), ("w", w), ("f", block.ff(x + a)), ("returned", block(x))):
        torch.testing.assert_close(tensor(explorable, name), right.detach(), rtol=0, atol=1e-6)


def recurrent(x: Tensor) -> Tensor:
    torch.manual_seed(0)
    out, (h, c) = nn.LSTM(8, 4, batch_first=True)(x)  # noqa: RUF059
    return out + c.mT[0].mean()


def convolved(x: Tensor) -> Tensor:
    y = nn.functional.pad(x, (1, 1)).unfold(-1, 3, 1)
    z = nn.functional.gumbel_softmax(y, dim=-1)
    return 2 * z


class Stack(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True) for _ in range(3)
        )

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = layer(x)
        return x


STACK = Stack()


def named_by_the_caller(x: Tensor) -> Tensor:
    def helper(x: Tensor) -> Tensor:
        return nn.Sequential(nn.Linear(8, 4), nn.ReLU())(x)

    hidden = helper(x)
    return hidden.sum()


def of_a_list(x: Tensor) -> Tensor:
    stack = nn.Sequential(nn.LayerNorm(8), nn.Linear(8, 8))
    q, k = [stack(part) for part in (x, x + 1)]
    return q @ k.mT


@pytest.mark.parametrize(
    ("function", "names"),
    [
        (recurrent, ["x", "out", "(h, c)[0]", "(h, c)[1]", "returned"]),
        (convolved, ["x", "y", "z", "returned"]),
        (STACK, ["x", "x", "x", "x"]),
        (named_by_the_caller, ["x", "hidden", "returned"]),
        (of_a_list, ["x", "q", "k", "returned"]),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_each_name_stands_for_one_result(function: Callable[..., Any], names: list[str], x: Tensor) -> None:
    assert titles(explore(function, x)) == names


def test_each_layer_gives_its_own_result(x: Tensor) -> None:
    explorable = explore(STACK, x)
    states = explorable.view.layout_blocks[0]["items"] + explorable.view.layout_blocks[3]["items"]
    shown = [explorable._last.tensors[item["stage"]] for item in states]
    assert len(shown) == 4
    for layer, (before, after) in zip(STACK.layers, pairwise(shown), strict=True):
        torch.testing.assert_close(layer(before), after, rtol=0, atol=1e-6)
