"""Names of axes go where their axes go, and nowhere else: an axis that isn't known is numbered."""

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from attnlab.engine import record
from attnlab.engine.axes import axes_of, is_unnamed
from helpers.hand_written import PackedAttention, einsum_attention

# Calls on the tensors of the fixture `tensors` and the names of what they make; a number stands for an axis
# without a name.
CARRIED = {
    # element by element
    "x * 2": "batch time width",
    "-x": "batch time width",
    "x + x[:1]": "batch time width",
    "x[:, :1] + x": "batch time width",
    "x + w[:, 0]": "batch time width",
    "w[:, 0] + x": "batch time width",
    "x > 0": "batch time width",
    "x.masked_fill(x > 0, 0.0)": "batch time width",
    "torch.where(x > 0, x, 0.0)": "batch time width",
    "ids[..., None] * x": "batch time width",
    "x.softmax(-1)": "batch time width",
    "x.cumsum(1)": "batch time width",
    "F.layer_norm(x, (12,))": "batch time width",
    "F.dropout(x, 0.5)": "batch time width",
    "F.gelu(x).exp()": "batch time width",
    "torch.zeros_like(x)": "batch time width",
    # casts
    "x.float()": "batch time width",
    "x.to(torch.bfloat16).double()": "batch time width",
    "x.bool()": "batch time width",
    "x.clone().detach().contiguous()": "batch time width",
    # products
    "x @ w": "batch time out",
    "w.T @ x.mT": "batch out time",
    "x @ x.mT": "batch time time′",
    "x.mT @ x": "batch width width′",
    "(x @ x.mT) @ x": "batch time width",
    "x[0] @ x.mT": "batch time time′",
    "x.bmm(x.mT)": "batch time time′",
    "x @ w[:, 0]": "batch time",
    "x[0, 0] @ w": "out",
    "x[0, 0] @ x[1, 1]": "",
    "x[:1] @ x.mT": "batch time time′",
    "torch.addmm(x[0, :, :5], x[0], x[0].mT)": "time time′",
    "torch.baddbmm(x @ x.mT, x, x.mT)": "batch time time′",
    "F.linear(x, w.T)": "batch time out",
    "F.linear(x, torch.ones(7, 12).double())": "batch time 2",
    "F.embedding(ids, table)": "batch time width",
    "F.scaled_dot_product_attention(x, x, x @ w)": "batch time out",
    "torch.einsum('btw,bsw->bts', x, x)": "batch time time′",
    "torch.einsum('b t w, w o -> o b t', x, w)": "out batch time",
    "torch.einsum('...tw,...sw->...ts', x, x)": "batch time time′",
    "torch.einsum('...w,wo->...o', x, w)": "batch time out",
    "torch.einsum('btw,wo', x, w)": "batch out time",
    "torch.einsum('btw,bsw', x, x)": "time time′",
    "torch.einsum('...w,wo', x, w)": "batch time out",
    "torch.einsum('btw->', x)": "",
    # moved
    "x.mT": "batch width time",
    "w.T": "out width",
    "w.t()": "out width",
    "x.permute(2, 0, 1)": "width batch time",
    "x.movedim(0, -1)": "time width batch",
    "x.swapaxes(0, 1)": "time batch width",
    "x.unsqueeze(1)": "batch 1 time width",
    "x[None, ..., None]": "0 batch time width 4",
    "x[None].squeeze(0)": "batch time width",
    "x[:, :1].squeeze(1)": "batch width",
    "x[0]": "time width",
    "x[:, 0]": "batch width",
    "x[..., 0]": "batch time",
    "x.select(1, 2)": "batch width",
    "x.unbind(1)": "batch width",
    "x.expand(4, 2, 5, 12)": "0 batch time width",
    "torch.stack([x, x])": "0 batch time width",
    "x.view(2, 5, 3, 4)": "batch time 2 3",
    "x.view(2, 5, 3, 4).transpose(1, 2)": "batch 1 time 3",
    "x.view(2, 5, 12, 1)": "batch time width 3",
    "x.reshape(10, 12)": "0 width",
    "x.flatten(1)": "batch 1",
    "x.tril()": "batch time width",
    # parts of an axis are not the axis, and neither is one in another order
    "x.chunk(3, dim=-1)": "batch time 2",
    "x.split(4, -1)": "batch time 2",
    "x[:, :3]": "batch 1 width",
    "x[..., ::2]": "batch time 2",
    "x[:, [0, 2]]": "batch 1 width",
    "x[:, torch.tensor([4, 3, 2, 1, 0])]": "batch 1 width",
    "x.flip(1)": "batch 1 width",
    "x.roll(1, 1)": "batch 1 width",
    "x.repeat(1, 1, 2)": "batch time 2",
    "torch.cat([x, x], 1)": "batch 1 width",
    "x.repeat_interleave(2, 1)": "batch 1 width",
    "F.pad(x, (0, 0, 1, 0))": "batch 1 width",
    "F.pad(x, (1, -1))": "batch time 2",
    "x[x > 0]": "0",
    # reduced
    "x.sum(-1)": "batch time",
    "x.sum(dim=(0, 1))": "width",
    "x.sum(axis=1)": "batch width",
    "x.mean(1, keepdim=True)": "batch time width",
    "x.amax((0, 2))": "time",
    "x.max(1)": "batch width",
    "x.argmax(-1)": "batch time",
    "x.var(-1)": "batch time",
    "x.std(dim=1, keepdim=True)": "batch time width",
    "torch.var_mean(x, 1)": "batch width",
    "x.median(2)": "batch time",
    "x.count_nonzero(1)": "batch width",
    "x.norm(2, 1)": "batch width",
    "torch.norm(x, 'fro', -1)": "batch time",
    "x.any(0)": "time width",
    "x.sum()": "",
    "x.norm()": "",
    "x.sum(-1).mean(-1)": "batch",
    "x.max()": "",
    # unknown calls that change the number of axes say nothing
    "x.kthvalue(2, 1)": "0 1",
    "torch.outer(x[0, 0], x[0, 0])": "0 1",
    "torch.ones(2, 5).double()": "0 1",
}

# Axes of one element have no step to tell them by.
ONE = {
    "x.transpose(0, 1)": "time batch width",
    "x.permute(2, 1, 0)": "width time batch",
    "x[0]": "time width",
    "x[:, 0]": "batch width",
    "x.squeeze(0)": "time width",
    "x.squeeze()": "width",
    "x.unsqueeze(0)": "0 batch time width",
    "x.unsqueeze(1)": "batch 1 time width",
    "x.unsqueeze(2)": "batch time 2 width",
    "x.unsqueeze(-1)": "batch time width 3",
    "x.unsqueeze(1).squeeze(1)": "batch time width",
    "x[:, 0:1]": "batch time width",
    "x[..., 0]": "batch time",
    "x.unbind(0)": "time width",
    "x.sum(0)": "time width",
    "x @ x.mT": "batch time time′",
    "torch.einsum('...tw,...sw->...ts', x, x)": "batch time time′",
    "torch.einsum('...w,...w->...w', x, torch.ones(3, 1, 4))": "0 time width",
    "x.view(1, 1, 2, 2)": "batch time 2 3",
    "x.view(1, 1, 2, 2).transpose(1, 2)": "batch 1 time 3",
    "x.view(1, 1, 2, 2).transpose(1, 2).transpose(1, 2).contiguous().view(1, 1, 4)": "batch time 2",
    "x.view(1, 4)": "0 width",  # batch and time in one
    "x.expand(3, 1, 4)": "0 time width",
}


def names_of(expression: str, tensors: dict[str, tuple[Tensor, str]]) -> str:
    """The names of what an expression makes (of its first result), numbered ones as numbers."""
    scope = {name: tensor for name, (tensor, _) in tensors.items()}
    with record() as tape:
        for name, (tensor, axes) in tensors.items():
            tape.name(tensor, name, axes.split())
        made = eval(expression, {"torch": torch, "F": F, "nn": nn}, scope)
    version = tape.version(made if isinstance(made, Tensor) else made[0])
    found = axes_of(version)
    assert len(found) == len(version.shape)
    assert len(set(found)) == len(found), "two axes of one name"
    for place, name in enumerate(found):
        assert not is_unnamed(name.rstrip("′")) or name == f"axis{place}"
    return " ".join(name.removeprefix("axis") if is_unnamed(name) else name for name in found)


@pytest.fixture
def tensors() -> dict[str, tuple[Tensor, str]]:
    def random(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)

    return {
        "x": (random(2, 5, 12), "batch time width"),
        "w": (random(12, 7), "width out"),
        "table": (random(9, 12), "vocab width"),
        "ids": (torch.arange(10).reshape(2, 5) % 9, "batch time"),
    }


@pytest.mark.parametrize("expression", CARRIED)
def test_carried(expression: str, tensors: dict[str, tuple[Tensor, str]]) -> None:
    assert names_of(expression, tensors) == CARRIED[expression]


@pytest.mark.parametrize("expression", ONE)
def test_axes_of_one_element(expression: str) -> None:
    x = torch.arange(4.0).reshape(1, 1, 4)
    assert names_of(expression, {"x": (x, "batch time width")}) == ONE[expression]


@pytest.mark.parametrize(
    ("expression", "names"),
    [
        ("x.median(2)", "batch time"),
        ("x.nanmean(0)", "time width"),
        ("x.transpose(0, 2)", "width time batch"),
        ("x.view(3, 3, 3)", "batch time width"),
        ("x @ x", "batch time width"),
        ("x.mT @ x", "batch width width′"),
        ("x.kthvalue(1, 2)", "0 1"),
        ("torch.einsum('abc,abd->dc', x, x)", "width width′"),
        ("x[:, [1, 0, 2]]", "batch 1 width"),
        ("x.reshape(9, 3).reshape(3, 3, 3)", "0 1 width"),
        # the first step alone looks like a whole axis
        ("x[torch.tensor([0, 1, 1])]", "0 time width"),
        ("x[:, [0, 1, 1]]", "batch 1 width"),
        ("x.index_select(0, torch.tensor([0, 1, 1]))", "0 time width"),
        ("x.gather(2, torch.tensor([0, 1, 1]).expand(3, 3, 3))", "batch time 2"),
        ("x.gather(2, torch.tensor([[0, 1, 2], [0, 2, 1], [2, 1, 0]]).expand(3, 3, 3))", "batch time 2"),
        ("x.take(torch.tensor([0, 1, 1]))", "0"),
        ("x.sort(1)[0]", "batch 1 width"),
        ("x.sort(descending=True)", "batch time 2"),
        ("x.argsort(0)", "0 time width"),
        ("x.topk(3, 1)", "batch 1 width"),
        # calls that are not element by element, though they look so by their shapes
        ("torch.cdist(x, x)", "0 1 2"),
        ("torch.linalg.inv(x + torch.eye(3))", "0 1 2"),
        ("torch.linalg.matmul(x, x)", "batch time width"),
        ("torch.tensordot(x[0], x[1], ([1], [1]))", "0 1"),
        ("nn.MultiheadAttention(3, 1, batch_first=True)(x, x, x)[1]", "0 1 2"),
        ("torch.matmul(other=x, input=x.mT)", "batch width width′"),
        ("x.clone().normal_()", "batch time width"),
    ],
)
def test_sizes_that_are_equal_by_chance(expression: str, names: str) -> None:
    x = torch.arange(27.0).reshape(3, 3, 3)
    assert names_of(expression, {"x": (x, "batch time width")}) == names


def test_without_names_axes_are_numbered_by_place() -> None:
    x = torch.ones(2, 3, 4)
    with record() as tape:
        y = x.permute(2, 0, 1) @ torch.ones(3, 5)
    assert axes_of(tape.version(x)) == ("axis0", "axis1", "axis2")
    assert axes_of(tape.version(y)) == ("axis0", "axis1", "axis2")  # their own, not those of x


def test_given_names_win_and_are_carried_on() -> None:
    x = torch.ones(2, 5, 12)
    with record() as tape:
        tape.name(x, "x", ("batch", "time", "width"))
        q = x.view(2, 5, 3, 4).transpose(1, 2)
        scores = q @ q.mT
        weights = scores.softmax(-1)
    tape.version(scores).given_axes = ("batch", "head", "query", "key")
    assert axes_of(tape.version(q)) == ("batch", "axis1", "time", "axis3")
    assert axes_of(tape.version(weights)) == ("batch", "head", "query", "key")


def test_whole_programs() -> None:
    x = torch.randn(2, 5, 12)
    weights = [torch.randn(3, 12, 4) for _ in range(3)] + [torch.randn(3, 4, 12)]
    with record() as tape:
        tape.name(x, "x", ("batch", "time", "width"))
        for weight, name in zip(weights, "qkvo", strict=True):
            tape.name(
                weight, f"w_{name}", ("head", "d_head", "width") if name == "o" else ("head", "width", "d")
            )
        out = einsum_attention(x, *weights)
        named = {call.spot.names[0]: axes_of(call.outputs[0]) for call in tape.calls if call.spot.names}
        packed = PackedAttention(12, 3)(x)
    assert named["q"] == ("batch", "head", "time", "d")
    assert named["scores"] == named["weights"] == ("batch", "head", "time", "time′")
    assert axes_of(tape.version(out)) == ("time", "width")  # it sums over the batch
    assert axes_of(tape.version(packed)) == ("batch", "time", "axis2")


@pytest.mark.parametrize(
    ("name", "unnamed"),
    [("axis0", True), ("axis12", True), ("axis", False), ("axis_x", False), ("time", False)],
)
def test_which_names_say_nothing(name: str, unnamed: bool) -> None:
    assert is_unnamed(name) == unnamed
