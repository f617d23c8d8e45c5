"""Undo and redo on their own."""

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from attnlab.widgets.history import History


def state(value: Any) -> dict[str, Any]:
    return {"a": value}


def walked_back(history: History) -> list[Any]:
    found = []
    while (past := history.undo()) is not None:
        found.append(past["a"])
    return found


def test_nothing_to_undo() -> None:
    history = History(state(0))
    assert (history.can_undo, history.can_redo) == (False, False)
    assert history.undo() is None
    assert history.redo() is None


def test_back_and_forth() -> None:
    history = History(state(0))
    for n in (1, 2):
        history.record(state(n))
    assert history.undo() == state(1)
    assert (history.can_undo, history.can_redo) == (True, True)
    assert history.undo() == state(0)
    assert history.undo() is None
    assert history.redo() == state(1)
    assert history.redo() == state(2)
    assert history.redo() is None


def test_a_new_state_forgets_what_was_undone() -> None:
    history = History(state(0))
    history.record(state(1))
    history.undo()
    history.record(state(2))
    assert not history.can_redo
    assert walked_back(history) == [0]


class TestGestures:
    def test_one_gesture_is_one_step(self) -> None:
        history = History(state(0))
        for n in range(1, 6):
            history.record(state(n), gesture="drag")
        assert walked_back(history) == [0]
        assert history.redo() == state(5)

    def test_another_gesture_is_another_step(self) -> None:
        history = History(state(0))
        for n, gesture in enumerate("aabbba", start=1):
            history.record(state(n), gesture=gesture)
        assert walked_back(history) == [5, 2, 0]

    def test_no_gesture_is_never_joined(self) -> None:
        history = History(state(0))
        for n in (1, 2, 3):
            history.record(state(n))
        assert walked_back(history) == [2, 1, 0]

    def test_a_gesture_does_not_go_on_after_undo(self) -> None:
        history = History(state(0))
        history.record(state(1), gesture="drag")
        history.record(state(2), gesture="other")
        history.undo()
        history.record(state(3), gesture="drag")
        assert walked_back(history) == [1, 0]

    def test_to_and_fro_is_no_step(self) -> None:
        history = History(state(0))
        history.record(state(1))
        for n in (2, 3, 2, 1):
            history.record(state(n), gesture="drag")
        history.record(state(4), gesture="drag")
        assert walked_back(history) == [1, 0]


class TestSameStates:
    @pytest.mark.parametrize("value", [0, True, "text", torch.ones(2, 3, dtype=torch.float64)])
    def test_no_step(self, value: Any) -> None:
        history = History(state(value))
        history.record(state(value.clone() if isinstance(value, torch.Tensor) else value))
        assert not history.can_undo

    @pytest.mark.parametrize(
        ("a", "b"),
        [
            ([[0.0]], [[-0.0]]),
            ([[1.0, 2.0]], [[1.0], [2.0]]),
            ([[1.0, 1.0]], [[1.0, 1.0 + 2**-52]]),
            ([[1.0, 1.0]], [[1.0]]),
        ],
    )
    def test_a_step(self, a: list, b: list) -> None:
        history = History(state(torch.tensor(a, dtype=torch.float64)))
        history.record(state(torch.tensor(b, dtype=torch.float64)))
        assert history.can_undo


def test_the_limit() -> None:
    history = History(state(0), limit=3)
    for n in range(1, 10):
        history.record(state(n))
    assert walked_back(history) == [8, 7]


def test_starting_again() -> None:
    history = History(state(0))
    history.record(state(1), gesture="drag")
    history.start(state(5))
    assert not history.can_undo
    history.record(state(6), gesture="drag")
    assert walked_back(history) == [5]


def test_states_are_copies() -> None:
    mine = state(0)
    history = History(mine)
    history.record(state(1))
    mine["a"] = 9
    past = history.undo()
    assert past == state(0)
    past["a"] = 9
    history.redo()
    assert history.undo() == state(0)


@given(st.lists(st.one_of(st.integers(0, 3), st.sampled_from(["undo", "redo"])), max_size=30))
def test_it_is_a_list_with_a_position(steps: list) -> None:
    history, model, position = History(state(0)), [0], 0
    for step in steps:
        if step == "undo":
            expected = model[position - 1] if position else None
            position = max(0, position - 1)
            found = history.undo()
        elif step == "redo":
            more = position < len(model) - 1
            expected = model[position + 1] if more else None
            position += more
            found = history.redo()
        else:
            history.record(state(step))
            if step != model[position]:
                model[position + 1 :] = [step]
                position += 1
            continue
        assert (found and found["a"]) == expected
        assert (history.can_undo, history.can_redo) == (position > 0, position < len(model) - 1)
