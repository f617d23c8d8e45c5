"""ScalingExplorable: what the width of a head does, measured on the same draws, and which width it is."""

import itertools
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from attnlab.engine import MatrixError
from attnlab.engine.vectors import DISTRIBUTIONS
from attnlab.widgets import ScalingExplorable, scaling
from attnlab.widgets.explaining import explain_cell
from attnlab.widgets.scaling import PRESETS
from helpers.front_end import FrontEnd, receive, same_numbers
from helpers.recomputed import examined
from helpers.refusals import refused

Open = Callable[..., FrontEnd]
CLAIM, SCALED, EXACT = (
    "variance of the scores is dₖ",
    "variance of the scaled scores is 1",
    "variance of the scores is dₖ(1 + (dₖ − 1)ρ²)",
)


@pytest.fixture
def open_scaling() -> Open:
    return lambda **arguments: FrontEnd(ScalingExplorable(**arguments))


def checks(page: FrontEnd) -> dict[str, bool]:
    return {check["name"]: check["holds"] for check in page.answer["checks"]}


def shown(page: FrontEnd) -> list[str]:
    return [item["stage"] for b in page.explorable.view.layout_blocks for item in b.get("items", ())]


@pytest.mark.parametrize("distribution", ["normal", "uniform", "signs"])
@pytest.mark.parametrize("d_k", [4, 64, 1024])
def test_the_variance_is_the_width_and_scaled_it_is_one(d_k: int, distribution: str, open_scaling) -> None:
    page = open_scaling(d_k=d_k, distribution=distribution)
    statistics = page.explorable.trace.statistics
    for kind, right in (("raw", d_k), ("scaled", 1)):
        variance = page.numbers[f"variance_{kind}"].item()
        scores = statistics.sample_scores if kind == "raw" else statistics.sample_scaled
        assert variance == pytest.approx(scores.clone().var().item(), rel=1e-9)
        assert abs(variance - right) <= 4 * getattr(statistics, f"variance_error_{kind}").item()
        assert variance == pytest.approx(right, rel=0.25)  # whatever the standard error is
    assert all(checks(page).values())


def test_which_width_belongs_under_the_root(open_scaling: Open) -> None:
    numbers = open_scaling(heads=4).numbers
    assert numbers["raw"].tolist() == [8, 0]
    assert numbers["scaled_by_head"].tolist() == [2, 0]
    assert numbers["scaled_by_model"].tolist() == [1, 0]
    assert numbers["weights_by_head"].tolist() == pytest.approx([0.8808, 0.1192], abs=5e-5)
    assert numbers["weights_by_model"].tolist() == pytest.approx([0.7311, 0.2689], abs=5e-5)
    one = open_scaling(heads=1).numbers  # one head has the model's width: the mistake hides
    assert same_numbers(one["weights_by_head"], one["weights_by_model"])


@pytest.mark.parametrize("name", PRESETS)
def test_every_preset_is_ready(name: str, open_scaling: Open) -> None:
    page = open_scaling(preset=name)
    assert (page.answer["state"], page.answer["message"]) == ("ready", "")
    assert set(shown(page)) <= page.numbers.keys()


def test_all_widths_are_of_the_same_draws(open_scaling: Open) -> None:
    page = open_scaling(d_k=3, n_keys=5)
    narrow = page.numbers
    page.control("d_k", 7)
    wide = page.numbers
    assert narrow["k"].shape == (5, 3)
    assert same_numbers(wide["q"][:3], narrow["q"])
    assert same_numbers(wide["k"][:, :3].contiguous(), narrow["k"])
    page.control("n_keys", 6)
    assert same_numbers(page.numbers["scores"][:5], wide["scores"])
    page.control("redraw")
    assert not torch.equal(page.numbers["q"], wide["q"])


def test_the_row_is_what_torch_says_of_the_vectors(open_scaling: Open) -> None:
    numbers = open_scaling(d_k=5, n_keys=3).numbers
    scores = (numbers["k"] * numbers["q"]).sum(dim=1).requires_grad_()
    jacobian = torch.autograd.functional.jacobian(lambda x: x.softmax(0), scores)
    entropy = torch.distributions.Categorical(logits=scores).entropy()
    torch.testing.assert_close(numbers["scores"], scores.detach())
    torch.testing.assert_close(numbers["scaled"], scores.detach() / 5**0.5)
    torch.testing.assert_close(numbers["jacobian_raw"], jacobian)
    torch.testing.assert_close(numbers["jacobian_norm_raw"], jacobian.norm())
    torch.testing.assert_close(numbers["entropy_raw"], entropy.detach())


class TestCurve:
    def test_it_is_made_once_for_a_setting(self, open_scaling: Open, monkeypatch: pytest.MonkeyPatch) -> None:
        made = []
        real = scaling.scaling_curve
        monkeypatch.setattr(
            scaling, "scaling_curve", lambda *args, **keys: made.append(1) or real(*args, **keys)
        )
        page = open_scaling(d_k=2)
        for d_k in (4, 64, 100, 2):
            page.control("d_k", d_k)
        page.control("heads", 8)
        page.control("model_width", True)  # the mistake stands beside it, and is on no curve
        page.text("raw", "3 1 2")
        assert not made  # no number waits for the curve: it is made when it is drawn or asked for
        assert page.explorable.curve.d_ks.shape == page.explorable.curve.entropy_raw.shape
        assert len(made) == 1
        for count, (name, value) in enumerate(
            [("n_keys", 5), ("distribution", "signs"), ("seed", 2), ("rho", 0.25)], 2
        ):
            page.control(name, value)
            assert page.explorable.curve.entropy_raw.isfinite().all()
            assert len(made) == count, name

    def test_the_row_lies_on_it(self, open_scaling: Open) -> None:
        page = open_scaling()
        for place in (0, 3, 6):
            page.control("d_k", 2**place)
            for name in ("entropy_raw", "jacobian_norm_scaled"):
                on_curve = getattr(page.explorable.curve, name)[place].item()
                assert page.numbers[name].item() == pytest.approx(on_curve, rel=1e-9, abs=1e-12)


class TestAssumptions:
    def test_components_that_agree_break_the_claim_and_hold_the_exact_one(self, open_scaling: Open) -> None:
        page = open_scaling(distribution="correlated", d_k=64)
        assert {name: checks(page)[name] for name in (CLAIM, SCALED, EXACT)} == {
            CLAIM: False,
            SCALED: False,
            EXACT: True,
        }
        page.control("rho", 0)
        assert checks(page)[CLAIM]
        page.control("distribution", "normal")
        assert EXACT not in checks(page)

    def test_the_width_of_the_model_leaves_too_little(self, open_scaling: Open) -> None:
        page = open_scaling(heads=4, d_k=16)
        right = page.numbers
        page.control("model_width", True)
        assert all(same_numbers(page.numbers[name], tensor) for name, tensor in right.items())
        assert not checks(page)[f"mistake: {SCALED}"]
        assert checks(page)[SCALED]
        assert checks(page)[CLAIM]
        assert page.answer["texts"]["scale_mistake"] == "÷ √(4 · 16)"
        shown = page.numbers
        torch.testing.assert_close(shown["scaled_mistake"], shown["scaled"] / 2)
        torch.testing.assert_close(shown["weights_mistake"], (shown["scaled"] / 2).softmax(0))
        assert shown["entropy_mistake"] > shown["entropy_scaled"]
        page.control("heads", 1)  # one head is as wide as the model
        assert checks(page)[f"mistake: {SCALED}"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"d_k": 0}, ("d_k",)),
        ({"d_k": 4097}, ("d_k",)),
        ({"d_k": 4.5}, ("d_k",)),
        ({"n_keys": 1}, ("n_keys",)),
        ({"n_keys": 17}, ("n_keys",)),
        ({"rho": 1.5}, ("rho: expected a number from 0 to 1, got 1.5",)),
        ({"rho": -0.1}, ("rho",)),
        ({"seed": -1}, ("seed",)),
        ({"heads": 3}, ("heads: expected one of 1, 2, 4", "got 3")),
        ({"distribution": "cauchy"}, ("distribution",)),
        ({"raw": [1] * 9}, ("raw scores", "1 × 9")),
        ({"raw": []}, ("raw scores",)),
    ],
)
def test_limits(arguments: dict[str, Any], words: tuple[str, ...]) -> None:
    error = MatrixError if {"rho", "raw", "heads"} & arguments.keys() else ValueError
    with refused(*words, error=error):
        ScalingExplorable(**arguments)


@pytest.mark.parametrize("distribution", DISTRIBUTIONS)
def test_there_and_back_through_the_address(distribution: str, open_scaling: Open) -> None:
    made = open_scaling(
        d_k=9, n_keys=3, distribution=distribution, rho=0.1, seed=77, heads=8, raw=[0.1, -3, 7], decimals=6
    )
    opened = open_scaling()
    opened.open("?" + made.explorable.address)
    assert opened.explorable.code() == made.explorable.code()
    for name, tensor in made.numbers.items():
        assert same_numbers(opened.numbers[name], tensor), name


@pytest.mark.parametrize("d_k", [1, 3])
def test_every_number_explains_itself(d_k: int, open_scaling: Open) -> None:
    page = open_scaling(d_k=d_k, n_keys=2, raw=[8, 0, -1])
    receive(page.explorable.view, selected={"stage": "q", "index": [0]})
    last, given = page.explorable._last, page.explorable.matrices()
    tensors = {**last.tensors, **given}
    versions = {name: last.tape.version(tensors[name]) for name in shown(page)}
    for stage in shown(page):
        if stage.startswith("variance"):
            continue  # thousands of samples, see below
        for place in itertools.product(*map(range, tensors[stage].shape)):
            found = explain_cell(last.tape, versions, stage, place)
            assert bool(found["mathml"]) == (stage not in given), (stage, place)
    small = [c for c in last.tape.calls if all(x.values.numel() < 30 for x in (*c.inputs, *c.outputs))]
    assert {v for c in small for v in c.outputs} >= {
        versions[n] for n in ("scaled", "weights_raw", "jacobian_raw", "weights_by_model")
    }
    faults, _ = examined(SimpleNamespace(calls=small, settle=lambda: None))  # type: ignore[arg-type]
    assert faults == []


def test_the_widest_head_explains_itself_too(open_scaling: Open) -> None:
    page = open_scaling(d_k=4096)
    for stage, index in (("scores", [1]), ("entropy_raw", []), ("jacobian_scaled", [1, 2])):
        receive(page.explorable.view, selected={"stage": stage, "index": index})
        assert page.answer["explanation"]["mathml"], stage
    for stage in ("variance_raw", "variance_scaled"):
        receive(page.explorable.view, selected={"stage": stage, "index": []})
        # Of 4,096 samples the largest terms are written, and how many more there are.
        assert "4092 more" in page.answer["explanation"]["mathml"]
        assert page.answer["explanation"]["source"]["file"] == "attnlab/engine/score_statistics.py"
