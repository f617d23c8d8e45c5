"""Tensors on the screen can be read and computed with, and can't be changed behind its back."""

import copy
import io
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from attnlab.engine import attend
from attnlab.widgets import AttentionExplorable
from attnlab.widgets.read_only import ReadOnlyTensor, read_only, read_only_trace

ORIGINAL = [[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]


@pytest.fixture
def w() -> ReadOnlyTensor:
    return read_only(torch.tensor(ORIGINAL, dtype=torch.float64))


def ones() -> Tensor:
    return torch.ones(2, 3, dtype=torch.float64)


def plus_equals(w: Any) -> None:
    w[0] += 1


WRITES: dict[str, Callable[[Any], Any]] = {
    "cell +=": plus_equals,
    "cell": lambda w: w.__setitem__((0, 0), 5),
    "slice": lambda w: w.__setitem__(slice(None), 0),
    "mask": lambda w: w.__setitem__(w > 2, 0),
    "row of a row": lambda w: w[0].__setitem__(0, 5),
    "add_": lambda w: w.add_(1),
    "copy_": lambda w: w.copy_(ones()),
    "fill_": lambda w: w.fill_(0),
    "zero_": lambda w: w.zero_(),
    "clamp_": lambda w: w.clamp_(0, 1),
    "masked_fill_": lambda w: w.masked_fill_(ones().bool(), 0),
    "index_put_": lambda w: w.index_put_((torch.tensor([0]),), torch.tensor(0.0, dtype=torch.float64)),
    "scatter_": lambda w: w.scatter_(0, torch.zeros(1, 3, dtype=torch.int64), 0.0),
    "normal_": lambda w: w.normal_(),
    "nn.init": lambda w: torch.nn.init.zeros_(w),
    "t_": lambda w: w.t_(),
    "resize_": lambda w: w.resize_(1, 1),
    "torch.relu_": lambda w: torch.relu_(w),
    "inplace": lambda w: F.relu(w, inplace=True),
    "dropout in place": lambda w: F.dropout(w, 0.5, True, inplace=True),
    "hardtanh in place": lambda w: F.hardtanh(w, 0, 1, inplace=True),
    "foreach": lambda w: torch._foreach_add_([ones(), w], 1.0),
    "out": lambda w: torch.add(ones(), 1, out=w),
    "out of two": lambda w: torch.max(ones(), 0, out=(w[0], torch.zeros(3).long())),
    "data": lambda w: w.data.fill_(0),
    "new data": lambda w: setattr(w, "data", ones()),
    "requires_grad": lambda w: setattr(w, "requires_grad", True),
    "transposed": lambda w: w.mT.fill_(0),
    "view": lambda w: w.view(-1).fill_(0),
    "reshape": lambda w: w.reshape(3, 2).fill_(0),
    "narrow": lambda w: w.narrow(0, 0, 1).zero_(),
    "unbind": lambda w: w.unbind(0)[1].zero_(),
    "iterated": lambda w: next(iter(w)).zero_(),
    "chunk": lambda w: torch.chunk(w, 2)[0].zero_(),
    "expand": lambda w: w.expand(4, 2, 3)[0].zero_(),
    "detach": lambda w: w.detach().zero_(),
    "as_strided": lambda w: w.as_strided((1,), (1,)).zero_(),
    "to": lambda w: w.to(torch.float64).zero_(),
    "contiguous": lambda w: w.contiguous().zero_(),
    "set_": lambda w: w.set_(ones()),
    "bits": lambda w: w.view(torch.int64).zero_(),
}  # fmt: skip


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES.keys())
def test_a_change_in_place_is_refused(write: Callable[[Any], Any], w: ReadOnlyTensor) -> None:
    with pytest.raises(TypeError, match=r"can't be changed in place; assign a new one .*tensor\.clone\(\)"):
        write(w)
    assert w.tolist() == ORIGINAL


def test_plus_equals_makes_a_new_tensor(w: ReadOnlyTensor) -> None:
    """Python makes `e.q += 1` an assignment, which the explorable notices."""
    first = w
    w += 1
    assert type(w) is Tensor
    assert first.tolist() == ORIGINAL
    explorable = AttentionExplorable()
    explorable.q += 1
    assert explorable.q.tolist() == [[2, 1], [1, 2], [2, 2]]
    assert explorable.trace.scores[0].tolist() == [2, 1, 3]


@pytest.mark.parametrize(
    "taken",
    [
        lambda w: w.numpy(),
        lambda w: w.numpy(force=True),
        lambda w: np.asarray(w),
        lambda w: w[0].numpy(),
        lambda w: w.mT.numpy(),
        lambda w: np.from_dlpack(w),
        lambda w: torch.from_dlpack(w),
        lambda w: w.clone(),
        lambda w: w + 0,
        lambda w: w.float(),
        lambda w: copy.copy(w.clone()),
        lambda w: copy.deepcopy(w),
        lambda w: torch.tensor(w.tolist()),
        lambda w: w.as_subclass(Tensor),
        lambda w: w.mT.as_subclass(torch.nn.Parameter).detach(),
    ],
)
def test_copies_are_free(taken: Callable[[Any], Any], w: ReadOnlyTensor) -> None:
    copied = taken(w)
    copied[...] = 9
    assert (np.asarray(copied) == 9).all()
    assert w.tolist() == ORIGINAL


@pytest.mark.filterwarnings("ignore:TypedStorage is deprecated")
@pytest.mark.parametrize("storage", [lambda w: w.untyped_storage(), lambda w: w.storage()])
def test_the_memory_itself_is_a_copy(storage: Callable[[Any], Any]) -> None:
    explorable = AttentionExplorable()
    for tensor in (explorable.q, explorable.trace.weights, explorable.trace.weights[1]):
        before = tensor.tolist()
        storage(tensor).fill_(0)
        assert tensor.tolist() == before


@pytest.mark.parametrize(
    "compute",
    [
        lambda w: w @ w.mT,
        lambda w: w.softmax(-1),
        lambda w: w * 2 + w,
        lambda w: 1 - w,
        lambda w: w > 2,
        lambda w: w.sum(),
        lambda w: torch.cat([w, w]),
        lambda w: torch.stack([w, ones()]),
        lambda w: torch.where(w > 2, w, 0.0),
        lambda w: F.softmax(w, dim=-1),
        lambda w: w.masked_fill(w > 2, 0),
        lambda w: w.max(dim=0).values,
        lambda w: torch.linalg.norm(w),
        lambda w: torch.einsum("ij,kj->ik", w, w),
        lambda w: torch.add(w, 1, out=ones()),
        lambda w: ones().copy_(w),
        lambda w: ones().add_(w),
    ],
)
def test_results_are_ordinary_tensors(compute: Callable[[Tensor], Tensor], w: ReadOnlyTensor) -> None:
    result = compute(w)
    assert type(result) is Tensor
    assert torch.equal(result, compute(torch.tensor(ORIGINAL, dtype=torch.float64)))
    result.zero_()
    assert w.tolist() == ORIGINAL


def test_reading_alone_is_never_refused(w: ReadOnlyTensor) -> None:
    assert (w.shape, w.dtype, w.ndim, len(w), w.numel(), w.size(0)) == ((2, 3), torch.float64, 2, 2, 6, 2)
    assert int(w[0, 1]) == 2
    assert float(w[1, 2]) == 6
    assert [row.tolist() for row in w] == ORIGINAL
    assert repr(w) == repr(torch.tensor(ORIGINAL, dtype=torch.float64))
    assert f"{w[0, 0]:.2f}" == "1.00"
    assert str(w[0]) == str(torch.tensor(ORIGINAL[0], dtype=torch.float64))
    assert [10, 20, 30][read_only(torch.tensor(1))] == 20
    assert torch.equal(~(w > 2), w <= 2)
    assert 5.0 in w
    assert bool((w == w).all())
    assert hash(w) == hash(w)


def test_gradients(w: ReadOnlyTensor) -> None:
    mine = w.clone().requires_grad_()
    ((mine * w) ** 2).sum().backward()
    assert torch.equal(mine.grad, 2 * w**3)
    jacobian = torch.autograd.functional.jacobian(lambda x: x.sum(-1), w)
    assert jacobian.shape == (2, 2, 3)
    weight = torch.nn.Linear(3, 2, dtype=torch.float64)
    weight(w).sum().backward()
    assert weight.weight.grad is not None


def test_it_is_cut_off_from_autograd() -> None:
    learning = torch.ones(2, 2, requires_grad=True)
    assert not read_only(learning * 2).requires_grad


def test_pickled_and_saved(w: ReadOnlyTensor) -> None:
    assert pickle.loads(pickle.dumps(w)).tolist() == ORIGINAL
    buffer = io.BytesIO()
    torch.save(w, buffer)
    buffer.seek(0)
    assert torch.load(buffer).tolist() == ORIGINAL


def test_a_view_knows_what_it_is_a_view_of(w: ReadOnlyTensor) -> None:
    assert type(w[0]) is type(w.mT) is type(w.view(3, 2)) is ReadOnlyTensor
    assert w[0].data_ptr() == w.data_ptr()


def test_a_read_only_copy_does_not_follow_its_source() -> None:
    source = ones()
    copied = read_only(source)
    source.zero_()
    assert copied.tolist() == ones().tolist()


def test_a_trace_is_protected_field_by_field() -> None:
    trace = attend(ones(), ones(), ones())
    protected = read_only_trace(trace)
    for stage in protected.stages():
        assert type(stage.tensor) is ReadOnlyTensor, stage.name
        assert stage.tensor.data_ptr() == trace.stage(stage.name).tensor.data_ptr()
    assert protected.scale == trace.scale
    assert type(trace.weights) is Tensor


@pytest.mark.parametrize("name", ["q", "k", "v", "weights", "output"])
def test_all_that_an_explorable_hands_out(name: str) -> None:
    explorable = AttentionExplorable()
    before = getattr(explorable, name).tolist()
    with pytest.raises(TypeError, match=r"explorable\.q = …"):
        getattr(explorable, name)[0, 0] = 5
    getattr(explorable, name).numpy()[...] = 7
    assert getattr(explorable, name).tolist() == before
    assert all(type(stage.tensor) is ReadOnlyTensor for stage in explorable.trace.stages())
