"""What the recorder keeps of memory: history stays, whoever writes, and the program finds its own as ever."""

import ctypes
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from torch import Tensor

from attnlab.engine import explain, gradient, record
from attnlab.engine.call import MAX_CLONED


def test_large_tensors_are_kept_by_reference() -> None:
    large = torch.zeros(MAX_CLONED + 1)
    with record() as tape:
        tape.name(large, "large")
        doubled = large + large
        part = doubled[5:8]
        total = part.sum()
    version = tape.version(doubled)
    assert version.by_reference
    assert tape.version(large).by_reference
    assert version.values.data_ptr() == doubled.data_ptr()
    assert version.shape == (MAX_CLONED + 1,)
    assert not tape.version(part).by_reference
    assert tape.version(part).kept.numel() == 3
    assert explain(tape, doubled, (7,)).text == "0 + 0 = 0"
    assert explain(tape, total, ()).value == 0


def test_large_tensors_that_change_are_not_explained_with_other_numbers() -> None:
    with record() as tape:
        large = torch.ones(MAX_CLONED + 1)
        doubled = large * 2
        part = large[large > 0]
        large.add_(-5)
        other = large.sum()
        turned = large.unsqueeze_(0) * 1
    first = next(tape.versions())
    for tensor, place in ((doubled, (0,)), (part, (2,)), (first, (0,))):
        found = explain(tape, tensor, place)
        assert found.formula is None
        assert found.note == "more than 1,000,000 numbers are not copied, and these were changed since"
    with pytest.raises(ValueError, match="no gradient"):
        gradient(tape, doubled, (0,))
    assert explain(tape, other).value == -4 * (MAX_CLONED + 1)
    assert explain(tape, turned, (0, 7)).text == "(−4) · 1 = −4"


def test_as_large_as_allowed_is_copied() -> None:
    with record() as tape:
        x = torch.zeros(MAX_CLONED)
    x.fill_(1)
    assert not tape.version(x).by_reference
    assert tape.version(x).values.sum() == 0


def test_views_of_one_storage_share_one_copy() -> None:
    x = torch.zeros(100, 100)
    with record() as tape:
        rows = [x[i] for i in range(100)]
    copies = {tape.version(row).kept.data_ptr() for row in rows}
    assert len(copies) == 1


def _through_ctypes(x: Tensor) -> None:
    (ctypes.c_float * 2).from_address(x.data_ptr())[0] = 5


def _unseen(x: Tensor) -> None:
    with torch._C.DisableTorchFunction():
        x[0] = 5


# Every way to reach the memory of a tensor.
WRITERS: dict[str, Callable[[Tensor], object]] = {
    "in place": lambda x: x.add_(3),
    "item": lambda x: x.__setitem__(0, 5),
    "a view": lambda x: x.view(2, 1).fill_(5),
    "data": lambda x: x.data.fill_(5),
    "other data": lambda x: setattr(x, "data", torch.tensor([5.0, 5.0])),
    "out": lambda x: torch.add(x, 3, out=x),
    "foreach": lambda x: torch._foreach_add_([x], 3.0),
    "unseen": _unseen,
    "numpy": lambda x: x.numpy().__setitem__(0, 5),
    "array": lambda x: np.asarray(x).__setitem__(0, 5),
    "memoryview": lambda x: memoryview(x.numpy()).__setitem__(0, 5),
    "dlpack": lambda x: np.from_dlpack(x).__setitem__(0, 5),
    "storage": lambda x: x.untyped_storage().copy_(torch.tensor([5.0, 5.0]).untyped_storage()),
    "ctypes": _through_ctypes,
}


@pytest.mark.parametrize("write", WRITERS.values(), ids=WRITERS)
@pytest.mark.parametrize("outside", [False, True], ids=["made in the block", "from outside"])
def test_whoever_writes_history_stays(write: Callable[[Tensor], object], outside: bool) -> None:
    x = torch.tensor([2.0, 4.0])
    with record() as tape:
        if not outside:
            x = x * 1
        tape.name(x, "x")
        doubled = x * 2
        begin = tape.version(x)
        write(x)
        raised = x + 1
    assert x[0] == 5
    assert begin.values.tolist() == [2, 4]
    assert explain(tape, doubled, (0,)).text == "2 · 2 = 4"
    assert explain(tape, raised, (0,)).text == "5 + 1 = 6"


def test_memory_that_was_given_to_others_before() -> None:
    x, y = torch.tensor([2.0, 4.0]), torch.tensor([2.0, 4.0])
    array, other = x.numpy(), np.from_dlpack(y)
    with record() as tape:
        doubled = x * 2 + y
        array[0] = other[0] = 5
    assert explain(tape, doubled, (0,)).text == "4 + 2 = 6"
    assert [version.values.tolist() for version in tape.inputs] == [[2, 4], [2, 4]]


def test_the_memory_of_the_program_stays_where_it_is() -> None:
    """A program that asks where its numbers are is told the truth."""
    with record():
        x = torch.ones(2, 3)
        view = x.view(3, 2)
        first = x.data_ptr()
        x.add_(1)
        y = x * 2
        assert x.data_ptr() == view.data_ptr() == x.untyped_storage().data_ptr() == first
        assert y.data_ptr() != first


def test_threads_that_fill_one_tensor() -> None:
    with ThreadPoolExecutor(2) as pool, record() as tape:
        out = torch.empty(8, 64, 64)
        list(pool.map(lambda head: out[head].fill_(head), range(8)))
        total = out.sum((1, 2))
    assert total.tolist() == [64 * 64 * head for head in range(8)]
    assert explain(tape, total, (3,)).value == 64 * 64 * 3


@pytest.mark.filterwarnings("ignore:Sparse")
def test_memory_that_several_tensors_share_without_a_view() -> None:
    x = torch.zeros(3)
    y = torch.from_dlpack(x)
    with record() as tape:
        first = x * 2
        y.add_(5)
        second = x * 3
        w = torch.sparse_csr_tensor(torch.arange(4), torch.arange(3), x).values()
        w.add_(1)
    assert x.tolist() == y.tolist() == [6, 6, 6]
    assert explain(tape, first, (0,)).text == "0 · 2 = 0"
    assert explain(tape, second, (0,)).text == "5 · 3 = 15"


def test_memory_that_others_hold_from_the_middle_of_the_block_on() -> None:
    x = torch.ones(3)
    with record() as tape:
        x.view(3)
        with torch._C.DisableTorchFunction():
            held = x.numpy()
        x.view(3)
        held[0] = 50
        w = x * 2
    assert explain(tape, w, (0,)).text == "50 · 2 = 100"


@pytest.mark.filterwarnings("ignore::UserWarning")  # torch calls most of this deprecated
def test_tensors_that_are_no_ordinary_memory_are_recorded() -> None:
    with record() as tape:
        quantized = torch.quantize_per_tensor(torch.ones(4), 0.1, 0, torch.quint8)
        back = quantized.dequantize()
        grown = torch.ones(3) * 2
        grown.resize_(6).fill_(1.0)
        grown.untyped_storage().resize_(40)
        grown.add_(1)
        joined = torch.zeros(2)
        torch.cat([torch.ones(3), torch.ones(3)], out=joined)
        other = torch.ones(2)
        other.mul_(2)
        other.set_(torch.ones(3))
        raised = other + 1
    assert explain(tape, back, (0,)).note
    assert tape.version(grown).values.tolist() == [2] * 6
    assert tape.version(joined).values.tolist() == [1] * 6
    assert explain(tape, raised, (2,)).text == "1 + 1 = 2"
