"""Traces: order, names, axes and notes come from the annotations, and a trace stays as it was."""

import dataclasses
from dataclasses import dataclass

import pytest
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from attnlab.engine import Trace, attend, attention_row, causal
from attnlab.engine.trace import note
from helpers.inputs import COINCIDENCES, DISTINCT, Sizes, tensors


@dataclass(frozen=True, eq=False)
class Example(Trace):
    """Annotations of all kinds, with fields that are no stages between them."""

    heads: Float[Tensor, "*batch query d_k"] = note("split")
    label: str
    row: Float[Tensor, "key"]
    maybe: Float[Tensor, "time width"] | None = note("left out when None")
    late: None | Bool[Tensor, "#query _key"] = note("a union the other way round")  # noqa: RUF036
    total: Float[Tensor, ""] = note("sum")
    wide: Float[Tensor, "time width=3"] = note("a size")
    factor: float = 1.0


def example(**changes: object) -> Example:
    fields = {
        "heads": torch.ones(5, 4),
        "label": "x",
        "row": torch.ones(7),
        "maybe": torch.ones(2, 3),
        "late": torch.ones(1, 7, dtype=torch.bool),
        "total": torch.tensor(1.0),
        "wide": torch.ones(2, 3),
    }
    return Example(**(fields | changes))


class TestStages:
    def test_order_names_axes_and_notes(self) -> None:
        told = [(stage.name, stage.axes, stage.note) for stage in example().stages()]
        assert told == [
            ("heads", ("query", "d_k"), "split"),
            ("row", ("key",), ""),
            ("maybe", ("time", "width"), "left out when None"),
            ("late", ("query", "key"), "a union the other way round"),
            ("total", (), "sum"),
            ("wide", ("time", "width"), "a size"),
        ]

    def test_the_tensor_is_the_field(self) -> None:
        trace = example()
        assert all(stage.tensor is getattr(trace, stage.name) for stage in trace.stages())

    def test_a_missing_tensor_is_no_stage(self) -> None:
        names = [stage.name for stage in example(maybe=None, late=None).stages()]
        assert names == ["heads", "row", "total", "wide"]

    @pytest.mark.parametrize(
        ("leading", "axes"),
        [
            ((), ()),
            ((2,), ("batch",)),
            ((2, 3), ("batch", "head")),
            ((2, 2), ("batch", "head")),
            ((2, 3, 4), ("batch0", "batch1", "head")),
        ],
    )
    def test_leading_axes(self, leading: tuple[int, ...], axes: tuple[str, ...]) -> None:
        stage = example(heads=torch.ones(*leading, 5, 4)).stage("heads")
        assert stage.axes == (*axes, "query", "d_k")

    @pytest.mark.parametrize(
        ("field", "shape", "axes"),
        [
            ("heads", (4,), "'*batch query d_k'"),
            ("row", (2, 7), "'key'"),
            ("total", (1,), "''"),
            ("maybe", (3,), "'time width'"),
        ],
    )
    def test_a_tensor_with_other_axes_than_its_annotation(
        self, field: str, shape: tuple[int, ...], axes: str
    ) -> None:
        with pytest.raises(ValueError, match="axes") as caught:
            list(example(**{field: torch.ones(shape)}).stages())
        for word in (f"Example.{field}", axes, f"{len(shape)} axes"):
            assert word in str(caught.value)

    def test_by_name(self) -> None:
        assert example().stage("maybe").axes == ("time", "width")

    @pytest.mark.parametrize("name", ["nothing", "label", "factor", "maybe", ""])
    def test_no_such_stage(self, name: str) -> None:
        with pytest.raises(KeyError) as caught:
            example(maybe=None).stage(name)
        for word in ("heads, row, late, total, wide", repr(name)):
            assert word in caught.value.args[0]

    def test_types_do_not_share_their_fields(self) -> None:
        @dataclass(frozen=True, eq=False)
        class Other(Trace):
            heads: Float[Tensor, "time"]

        assert [stage.axes for stage in Other(torch.ones(2)).stages()] == [("time",)]
        assert example().stage("heads").axes == ("query", "d_k")

    def test_a_subclass_adds_its_fields_at_the_end(self) -> None:
        @dataclass(frozen=True, eq=False)
        class More(Example):
            more: Float[Tensor, "vocab"] = dataclasses.field(default_factory=lambda: torch.ones(2))

        names = [stage.name for stage in More(**vars(example())).stages()]
        assert names == ["heads", "row", "maybe", "late", "total", "wide", "more"]


class TestFrozen:
    def test_a_field_cannot_be_replaced(self) -> None:
        trace = attend(*tensors(DISTINCT))
        for target, name in ((trace, "weights"), (trace.stage("weights"), "tensor"), (trace, "scale")):
            with pytest.raises(dataclasses.FrozenInstanceError):
                setattr(target, name, torch.zeros(2, 3, 5, 7))

    def test_comparing_and_hashing_is_by_identity(self) -> None:
        a, b = (attend(*tensors(DISTINCT)) for _ in range(2))
        assert a == a
        assert a != b
        assert len({a, b, a}) == 2


ATTENTION = {
    "q": ("query", "d_k"),
    "k": ("key", "d_k"),
    "v": ("key", "d_v"),
    "scores": ("query", "key"),
    "scaled": ("query", "key"),
    "masked": ("query", "key"),
    "weights": ("query", "key"),
    "dropped": ("query", "key"),
    "output": ("query", "d_v"),
}


class TestAttentionTrace:
    @pytest.mark.parametrize("of", [DISTINCT, *COINCIDENCES], ids=str)
    def test_axes_name_the_sizes_whatever_they_are(self, of: Sizes) -> None:
        leading = ("batch", "head")[: len(of.leading)]
        size = dict(zip(leading, of.leading, strict=True))
        size |= {"query": of.queries, "key": of.keys, "d_k": of.d_k, "d_v": of.d_v}
        stages = list(attend(*tensors(of)).stages())
        assert [stage.name for stage in stages] == [*ATTENTION, "allowed", "empty_rows"]
        for stage in stages[: len(ATTENTION)]:
            assert stage.axes == (*leading, *ATTENTION[stage.name])
            assert tuple(stage.tensor.shape) == tuple(size[axis] for axis in stage.axes)
            assert stage.note
        assert [stage.axes for stage in stages[len(ATTENTION) :]] == [("query", "key"), ("query",)]

    @pytest.mark.parametrize(
        ("shape", "axes"),
        [((5, 7), ()), ((2, 1, 5, 7), ("batch", "head")), ((1, 3, 5, 7), ("batch", "head"))],
    )
    def test_axes_of_the_mask_are_those_it_has(self, shape: tuple[int, ...], axes: tuple[str, ...]) -> None:
        trace = attend(*tensors(DISTINCT), allowed=torch.ones(shape, dtype=torch.bool))
        assert trace.stage("allowed").axes == (*axes, "query", "key")
        assert trace.stage("empty_rows").axes == (*axes, "query")

    def test_axes_of_a_row(self) -> None:
        trace = attend(*tensors(Sizes((), 5, 7, 4, 6)), allowed=causal(5, 7))
        told = {
            stage.name: (stage.axes, tuple(stage.tensor.shape)) for stage in attention_row(trace, 2).stages()
        }
        assert told == {
            "row_scores": (("key",), (7,)),
            "row_scaled": (("key",), (7,)),
            "row_masked": (("key",), (7,)),
            "row_weights": (("key",), (7,)),
            "row_weighted": (("key", "d_v"), (7, 6)),
            "weight_sum": ((), ()),
            "row_output": (("d_v",), (6,)),
        }
