"""Every number on the screen explains itself: chosen as a reader does, recomputed from its operands."""

from collections.abc import Collection

from attnlab.engine import explain
from helpers.front_end import FrontEnd
from helpers.recomputed import fault_of, places

__all__ = ["assert_all_explained"]


def assert_all_explained(page: FrontEnd, expected: Collection[str]) -> None:
    """Exactly the stages `expected` are drawn; each number has a line of the engine and a right formula.

    The first number of every stage is chosen, which records the computation; the others are asked of the
    record. Inputs say that they are inputs.
    """
    explorable = page.explorable
    drawn = [
        item["stage"]
        for block in explorable.view.layout_blocks
        if block["kind"] == "grids"
        for item in block["items"]
    ]
    assert sorted(drawn) == sorted(expected)
    inputs = explorable.matrices()
    for stage in drawn:
        panel = page.select(stage, [0] * page.numbers[stage].ndim)
        assert panel is not None, stage
        assert page.answer["state"] == "ready"
        if stage in inputs:
            assert panel["note"] == "an input: nothing computed it"
            continue
        assert panel["mathml"].startswith("<math"), stage
        assert panel["note"] == "", stage
        assert panel["source"]["file"].startswith("attnlab/engine/"), stage
        last = explorable._last
        assert last is not None
        assert last.tape is not None
        version = last.tape.version(last.tensors[stage])
        assert version.shape == page.numbers[stage].shape
        for place in places(version):
            found = explain(last.tape, version, place)
            assert found.formula is not None, (stage, place)
            assert fault_of(found) == "", (stage, place)
            assert found.value == page.numbers[stage][place].item(), (stage, place)
