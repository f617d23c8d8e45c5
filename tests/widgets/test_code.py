"""explore(): anybody's code on the screen, under its own names, also where it stops."""

# ruff: noqa: RET504, F841 (the code under test gives names to what it makes)

import functools
import linecache
import math
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from attnlab.engine.mistakes import MISTAKES, attention
from attnlab.widgets import CodeExplorable, explore, four_mistakes
from attnlab.widgets.code import MAX_DRAWN
from helpers.front_end import FrontEnd, assert_strict_json, receive, same_numbers
from helpers.hand_written import HeadsInALoop, PackedAttention, TinyLanguageModel, einsum_attention
from helpers.programs_on_screen import assert_explained, failing, keys_of, tensor, titles
from helpers.refusals import refused

X = [[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]


@pytest.fixture(autouse=True)
def _same_weights() -> Iterator[None]:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        yield


@pytest.fixture
def x() -> Tensor:
    return torch.tensor(X, dtype=torch.float64)


def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    scores = q @ k.mT / math.sqrt(q.shape[-1])
    weights = scores.softmax(-1)
    return weights @ v


def chosen(page: FrontEnd, key: str, index: list[int]) -> dict[str, Any]:
    receive(page.explorable.view, selected={"stage": key, "index": index})
    found: dict[str, Any] = page.answer["explanation"]
    return found


def line_with(function: Callable[..., Any], text: str) -> int:
    """The line of this file where a function says `text`."""
    with open(__file__) as file:  # noqa: PTH123
        lines = file.read().splitlines()
    first = function.__code__.co_firstlineno
    return next(n for n in range(first, len(lines) + 1) if text in lines[n - 1])


class TestWhatCanBeExplored:
    def test_a_function(self) -> None:
        q, k, v = torch.randn(3, 2, 3).double()
        explorable = explore(
            attend, q, k, v, axes={"q": ("query", "d"), "k": ("key", "d"), "v": ("key", "d_v")}
        )
        assert explorable.state == "ready"
        assert titles(explorable) == ["q", "k", "v", "scores", "weights", "returned"]
        stages = explorable.view.stages
        made = {stages[key]["title"]: stages[key] for key in stages}
        assert made["weights"]["axes"] == ["query", "key"]
        assert made["returned"]["axes"] == ["query", "d_v"]
        assert made["scores"]["note"] == f"line {line_with(attend, 'scores =')}"
        assert made["returned"]["note"] == f"line {line_with(attend, 'return')}"
        assert [made[name]["editable"] for name in ("q", "weights")] == [True, False]
        assert same_numbers(tensor(explorable, "returned"), attend(q, k, v))
        assert assert_explained(explorable) == 3 * 6 + 2 * 4 + 6

    def test_a_lambda(self, x: Tensor) -> None:
        explorable = explore(lambda x: (y := x * 2) + y, x)
        assert titles(explorable) == ["x", "y", "returned"]
        assert_explained(explorable)
        q, k = torch.randn(2, 3, 2).double()
        explorable = explore(lambda q, k: (q @ k.mT).softmax(-1), q, k)
        assert titles(explorable) == ["q", "k", "returned"]
        assert same_numbers(tensor(explorable, "returned"), (q @ k.mT).softmax(-1))

    def test_a_partial(self, x: Tensor) -> None:
        def scaled(x: Tensor, by: float) -> Tensor:
            y = x * by
            return y

        assert titles(explore(functools.partial(scaled, by=3.0), x)) == ["x", "y"]

    def test_a_module_names_its_parameters(self) -> None:
        torch.manual_seed(1)
        module = PackedAttention(6, 2).double()
        x = torch.randn(1, 3, 6).double()
        page = FrontEnd(explore(module, x, axes={"x": ("batch", "time", "width")}))
        assert page.answer["state"] == "ready"
        assert same_numbers(tensor(page.explorable, "returned"), module(x).detach())
        found = chosen(page, keys_of(page.explorable, "returned")[-1], [0, 2, 1])
        assert "merge.weight" in found["mathml"]
        assert failing(page.explorable) == []

    def test_a_module_of_torch_alone(self, x: Tensor) -> None:
        """No line of anybody's program ran, so none is shown; the calls themselves are."""
        module = nn.Sequential(nn.Linear(3, 4), nn.GELU(), nn.Linear(4, 1)).double()
        page = FrontEnd(explore(module, x))
        assert titles(page.explorable) == ["input", "linear", "gelu", "linear"]
        key = keys_of(page.explorable, "gelu")[0]
        assert page.explorable.view.stages[key]["note"] == ""
        found = chosen(page, key, [1, 2])
        assert found["source"] is None
        assert found["operands"] == [[keys_of(page.explorable, "linear")[0], [1, 2]]]
        assert_explained(page.explorable)

    def test_several_functions_to_choose_among(self, x: Tensor) -> None:
        def double(x: Tensor) -> Tensor:
            y = 2 * x
            return y

        def square(z: Tensor) -> Tensor:  # an argument may have another name: it is called as in the first
            y = z * z
            return y

        page = FrontEnd(explore({"double": double, "square": square}, x))
        assert page.explorable.function == "double"
        assert titles(page.explorable) == ["x", "y"]
        page.control("function", "square")
        assert tensor(page.explorable, "y").tolist() == (x * x).tolist()
        page.command("undo")
        assert page.explorable.function == "double"
        page = FrontEnd(explore({"double": double, "square": square}, x, function="square"))
        assert (page.explorable.function, page.explorable.address) == ("square", "")
        page.control("function", "double")
        page.command("reset")
        assert page.explorable.function == "square"

    def test_one_function_needs_no_choice(self, x: Tensor) -> None:
        explorable = explore(lambda x: x * 2, x)
        assert "function" not in [control["name"] for row in explorable.bar.controls for control in row]

    def test_integers_are_given_not_edited(self) -> None:
        torch.manual_seed(1)
        tokens = torch.tensor([[3, 1, 4, 1, 5]])
        model = TinyLanguageModel(7, 4, 2, 5)
        page = FrontEnd(explore(model, tokens, axes={"tokens": ("batch", "time")}))
        assert page.answer["state"] == "ready"
        stage = page.explorable.view.stages["tokens"]
        assert (stage["title"], stage["editable"], stage["axes"]) == ("tokens", False, ["batch", "time"])
        assert page.numbers["tokens"].tolist() == [[3, 1, 4, 1, 5]]
        page.value("tokens", [0, 0], 2)
        assert page.numbers["tokens"].tolist() == [[3, 1, 4, 1, 5]]
        assert failing(page.explorable) == []

    def test_a_mask_among_the_arguments(self, x: Tensor) -> None:
        def masked(x: Tensor, hidden: Tensor) -> Tensor:
            y = x.masked_fill(hidden, -torch.inf)
            return y.softmax(-1)

        hidden = torch.tensor([[False, False, True], [True, False, False]])
        page = FrontEnd(explore(masked, x, hidden))
        found = chosen(page, keys_of(page.explorable, "y")[0], [0, 2])
        assert found["operands"] == [["hidden", [0, 2]]]
        key = keys_of(page.explorable, "y")[0]
        assert page.numbers[page.explorable.view.stages[key]["masked"]].tolist() == (~hidden).tolist()

    @pytest.mark.parametrize(
        "value", [torch.tensor(2.0), torch.ones(3), torch.ones(1, 2, 1, 2), torch.ones(1, 1)]
    )
    def test_any_number_of_axes(self, value: Tensor) -> None:
        def doubled(a: Tensor) -> Tensor:
            b = 2 * a
            return b

        page = FrontEnd(explore(doubled, value))
        assert page.answer["state"] == "ready"
        page.value("a", [0] * value.ndim, 5)
        assert tensor(page.explorable, "b").flatten()[0] == 10
        assert_explained(page.explorable)

    def test_lists_and_learning_tensors_are_taken(self) -> None:
        explorable = explore(lambda x, w: x @ w, [[1.0, 2.0]], torch.ones(2, 2, requires_grad=True))
        assert explorable.state == "ready"

    @pytest.mark.parametrize(
        "name",
        [
            "keys",
            "state",
            "code",
            "view",
            "bar",
            "function",
            "preset",
            "chosen",
            "learned",
            "_last",
            "_",
            "__",
        ],
    )
    def test_arguments_of_any_name(self, name: str, x: Tensor) -> None:
        """Also of names that a widget needs for itself."""
        scope: dict[str, Any] = {}
        source = f"def f({name}, other, keys_, n):\n    y = {name} * 2 + other + keys_ + n\n    return y\n"
        linecache.cache[name] = (len(source), None, source.splitlines(keepends=True), name)
        exec(compile(source, name, "exec"), scope)
        page = FrontEnd(
            explore(scope["f"], x, x * 10, x * 100, torch.tensor(0), axes={name: ("time", "width")})
        )
        assert titles(page.explorable) == [name, "other", "keys_", "n", "y"]
        stage = keys_of(page.explorable, name)[0]
        assert page.explorable.view.stages[stage]["axes"] == ["time", "width"]
        assert page.value(stage, [0, 1], 7)["state"] == "ready"
        assert tensor(page.explorable, "y")[0, 1] == 7 * 2 + 20 + 200
        assert chosen(page, keys_of(page.explorable, "y")[0], [0, 1])["operands"]
        again = FrontEnd(explore(scope["f"], x, x * 10, x * 100, torch.tensor(0)))
        again.open("?" + page.explorable.address)
        assert tensor(again.explorable, "y")[0, 1] == 234
        refused_text = page.text(stage, "1 2")["message"]
        assert refused_text.startswith(f"{name}: ")

    def test_what_is_only_looked_at_is_not_run_again(self, x: Tensor) -> None:
        runs = []

        def f(x: Tensor) -> Tensor:
            runs.append(1)
            y = x * 2
            return y.softmax(-1)

        page = FrontEnd(explore(f, x))
        page.select("x", [0, 0])
        page.control("gradient", True)
        page.control("decimals", 6)
        page.select("x", [1, 0])
        assert len(runs) == 1
        page.value("x", [0, 0], 0.0)
        page.value("x", [0, 0], -0.0)
        assert len(runs) == 3
        page.command("undo")
        assert len(runs) == 4

    def test_gradients_inside_the_code(self) -> None:
        x = torch.tensor([[1.0, 2.0]], requires_grad=True)

        def f(x: Tensor) -> Tensor:
            loss = (x**2).sum()
            (slope,) = torch.autograd.grad(loss, x)
            return slope

        explorable = explore(f, x)
        assert explorable.state == "ready"
        assert titles(explorable) == ["x", "loss"]  # what autograd makes is no call of the program
        assert x.grad is None


class TestWhatIsRefused:
    def test_the_count_of_arguments(self, x: Tensor) -> None:
        with refused("attend", "expected 3 tensors (q, k, v)", "got 2"):
            explore(attend, x, x)
        with refused("expected 3 tensors", "got 4"):
            explore(attend, x, x, x, x)
        with refused("expected 1 to 2 tensors (a, b)", "got 0"):
            explore(lambda a, b=1: a, *())
        with refused("names no arguments", "got 1"):
            explore(lambda *tensors: tensors[0], x)
        with refused("expected at least one function"):
            explore({}, x)

    def test_a_function_without_names(self, x: Tensor) -> None:
        with refused("softmax", "arguments have no names", "wrap it"):
            explore(torch.softmax, x)

    def test_too_large(self) -> None:
        with refused("x: expected at most 1,024 elements", "got 1,025"):
            explore(lambda x: x, torch.zeros(1025))
        explore(lambda x: x, torch.zeros(MAX_DRAWN))

    @pytest.mark.parametrize("shape", [(0,), (0, 3), (3, 0)])
    def test_empty(self, shape: tuple[int, ...]) -> None:
        with refused("x: expected at least one element", str(shape)):
            explore(lambda x: x, torch.zeros(shape))

    @pytest.mark.parametrize("value", [math.nan, math.inf, 2e6])
    def test_not_a_number_that_can_be_edited(self, value: float) -> None:
        with pytest.raises(ValueError, match="x row 1, column 2"):
            explore(lambda x: x, torch.tensor([[1.0, value]]))

    def test_axis_names_that_do_not_fit(self, x: Tensor) -> None:
        with refused("x: expected 2 axis names", "a, b, c"):
            explore(lambda x: x, x, axes={"x": ("a", "b", "c")})

    def test_what_makes_no_tensor(self, x: Tensor) -> None:
        for value in (None, "causal", [[1, 2], [3]]):
            with refused("m: expected a tensor, or numbers that make one, got"):
                explore(lambda x, m: x, x, value)

    def test_axis_names_for_what_there_is_not(self, x: Tensor) -> None:
        def f(x: Tensor) -> Tensor:
            y = x.sum(-1)
            if y[0] > 1000:
                z = y * 2
            return y * 2

        for own in (("t", "t"), "tw", (1, 2)):
            with refused("axes of x: expected one name of its own for each axis, got"):
                explore(f, x, axes={"x": own})
        with refused("axes of y: expected 1 names for the shape 2, got a, b"):
            explore(f, x, axes={"y": ("a", "b")})
        assert explore(f, x, axes={"y": ("a",), "z": ("b",)}).state == "ready"  # z may be there after an edit

    def test_other_options(self, x: Tensor) -> None:
        with pytest.raises(TypeError, match="no argument 'colour'"):
            explore(lambda x: x, x, colour="red")
        with refused("function: expected one of a, got 'b'"):
            explore({"a": lambda x: x}, x, function="b")

    def test_functions_that_compute_nothing_when_called(self, x: Tensor) -> None:
        def one_by_one(x: Tensor) -> Iterator[Tensor]:
            yield x * 2

        async def later(x: Tensor) -> Tensor:
            return x * 2

        class Module(nn.Module):
            def forward(self, x: Tensor) -> Iterator[Tensor]:
                yield x * 2

        for function in (one_by_one, functools.partial(one_by_one), Module()):
            with refused("expected a function that returns, got a generator function", "list instead of"):
                explore(function, x)
        with refused("later: expected a plain function, got an async one"):
            explore({"now": lambda x: x * 2, "later": later}, x)
        with refused("expected a function or a module, got int"):
            explore(3, x)
        explorable = explore(lambda x: one_by_one(x), x)
        assert explorable.state == "stopped"
        assert "returned a generator, which computes nothing until it is used" in explorable.message


class TestWhatIsShown:
    @pytest.mark.parametrize(
        ("body", "names"),
        [
            ("m = x.max(-1).values", "m"),
            ("i = x.sort(-1).indices", "i"),
            ("both = x.max(-1)", "both[0] both[1]"),
            ("q, k, v = [f(x) for f in (twice, twice, thrice)]", "q k v"),
            ("q, k = (x * w for w in (2, 3))", "q k"),
            ("q, k = map(twice, (x, x))", "q k"),
            ("q, k = map(torch.relu, (x, x))", "q k"),
            ("q, k = [x * w for w in (2, 3)]\nu, v = [x * w for w in (2, 3)]", "q k u v"),
            ("q = twice(x)\nk = twice(q)", "q k"),
            ("q = through(x)", "q"),
            ("q, k = two(x)", "q k"),
            ("q, k, v = thirds(x)", "q k v"),
            ("q = twice(x) + 1", "returned q"),
            ("both = two(x)", "returned returned"),
            ("one = in_a_dict(x)", "returned"),
            ("q, k = twice(x)", "returned q k"),
            ("return {'y': x * 2, 'z': [x + 1, (x - 1,)]}", "returned returned returned"),
            ("return [x * 2, x + 1]", "returned returned"),
            ("return [x * w for w in (2, 3)]", "returned returned"),
            ("return {w: x * w for w in (2, 3)}", "returned returned"),
            ("y = x * 2\nreturn {'y': y}", "y"),
        ],
    )
    def test_each_result_by_its_variable(self, body: str, names: str, x: Tensor) -> None:
        scope: dict[str, Any] = {"torch": torch}
        code = (
            "def twice(t): return t * 2\n"
            "def thrice(t):\n    return t * 3\n"
            "def through(t):\n    return twice(t)\n"
            "def two(t): return t * 2, t * 3\n"
            "def thirds(t): return t.chunk(3, -1)\n"
            "def in_a_dict(t): return {'a': t * 2}\n"
            "def f(x):\n    " + body.replace("\n", "\n    ")
        )
        file = f"<{body}>"
        linecache.cache[file] = (len(code), None, code.splitlines(keepends=True), file)
        exec(compile(code, file, "exec"), scope)
        explorable = explore(scope["f"], x)
        assert explorable.state == "ready"
        assert titles(explorable) == ["x", *names.split()]

    def test_values_that_were_there_before_name_no_other(self, x: Tensor) -> None:
        """One of the three makes no tensor: which of the variables the other two are isn't known."""

        def f(x: Tensor) -> Tensor:
            q, k, v = [g(x) for g in (lambda t: t, torch.exp, torch.relu)]
            return q + k + v

        assert titles(explore(f, x)) == ["x", "returned"]

    def test_names_given_win(self, x: Tensor) -> None:
        def f(x: Tensor) -> Tensor:
            scores = x @ x.mT
            weights = scores.softmax(-1)
            return weights

        explorable = explore(f, x, axes={"x": ("time", "width"), "scores": ("query", "key")})
        axes = {stage["title"]: stage["axes"] for stage in explorable.view.stages.values()}
        assert axes == {"x": ["time", "width"], "scores": ["query", "key"], "weights": ["query", "key"]}

    @pytest.mark.parametrize(
        ("code", "masked"),
        [
            (lambda x: (y := x + x), False),
            (lambda x: (y := x - 60000), False),
            (lambda x: (y := x - x.abs()), False),
            (lambda x: (y := x + torch.tensor([-math.inf, 0]).half()), True),
            (lambda x: (y := x - torch.tensor([math.inf, 0]).half()), True),
            (
                lambda x: (
                    y := x + torch.zeros(1, 2).half().masked_fill(torch.tensor([True, False]), -math.inf)
                ),
                True,
            ),
            (lambda x: (y := (x + x) + torch.tensor([0.0, -math.inf]).half()), False),
        ],
    )
    def test_an_overflow_is_no_mask(self, code: Callable[[Tensor], Tensor], masked: bool) -> None:
        explorable = explore(code, torch.tensor([[-60000.0, 1.0]]).half())
        stage = explorable.view.stages[keys_of(explorable, "y")[-1]]
        assert tensor(explorable, "y")[0, 0] == -math.inf
        allowed = explorable._last.tensors.get(stage.get("masked", ""))  # type: ignore[union-attr]
        assert (allowed is not None and not allowed[0, 0]) is masked

    def test_in_place_changes_are_stages_of_their_own(self, x: Tensor) -> None:
        def f(x: Tensor) -> Tensor:
            x *= 2
            y = x + 1
            y[0] = 0
            y.clamp_(max=9)
            return y

        explorable = explore(f, x)
        assert titles(explorable) == ["x", "x", "y", "y", "y"]
        numbers = list(explorable._last.tensors.values())
        doubled = 2 * x
        grown = doubled + 1
        cleared = grown * torch.tensor([[0.0], [1.0]])
        for shown, right in zip(numbers, (x, doubled, grown, cleared, cleared.clamp(max=9)), strict=True):
            assert shown.tolist() == right.tolist()
        notes = [stage["note"] for stage in explorable.view.stages.values()]
        assert notes == ["", *(f"line {line_with(f, text)}" for text in ("x *=", "y =", "y[0]", "y.clamp_"))]
        assert_explained(explorable)

    def test_a_part_that_is_written_changes_the_whole_on_the_screen(self, x: Tensor) -> None:
        def f(x: Tensor) -> Tensor:
            s = x * 1
            s[0] += 10
            s[:, 0].mul_(100)
            s.add_(1).mul_(5)
            w = s * 2
            w[:, 1].zero_()
            return w

        page = FrontEnd(explore(f, x))
        assert titles(page.explorable) == ["x", "s", "s", "s", "s", "s", "w", "w"]
        notes = [stage["note"] for stage in page.explorable.view.stages.values()]
        lines = [
            line_with(f, text) for text in ("x * 1", "+= 10", "s[:, 0]", "add_", "add_", "s * 2", "zero_")
        ]
        assert notes == ["", *(f"line {line}" for line in lines)]
        states = keys_of(page.explorable, "s")
        expected = [x, x.clone(), x.clone()]
        expected[1][0] += 10
        expected[2][0] += 10
        expected[2][:, 0] *= 100
        expected += [expected[2] + 1, (expected[2] + 1) * 5]
        for key, right in zip(states, expected, strict=True):
            assert page.numbers[key].tolist() == right.tolist()
        made = keys_of(page.explorable, "w")
        assert chosen(page, made[0], [0, 0])["operands"] == [[states[-1], [0, 0]]]
        assert page.numbers[made[1]][:, 1].tolist() == [0] * len(x)  # never used again, and yet changed
        assert_explained(page.explorable)

    @pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16], ids=str)
    def test_code_that_writes_into_its_arguments_does_not_drift(self, dtype: torch.dtype) -> None:
        def f(x: Tensor, n: Tensor) -> Tensor:
            x.add_(1)
            n.add_(1)
            y = x * n
            return y

        given, count = torch.ones(2, dtype=dtype), torch.tensor([1, 2])
        page = FrontEnd(explore(f, given, count))
        for digits in (5, 6, 7):
            page.control("decimals", digits)
        assert page.explorable.x.tolist() == [1, 1]
        assert page.numbers["x"].tolist() == [1, 1]
        assert tensor(page.explorable, "y").tolist() == [4, 6]
        assert (given.tolist(), count.tolist()) == ([1, 1], [1, 2])  # the caller's own

    def test_large_intermediates_are_named(self, x: Tensor) -> None:
        def f(x: Tensor) -> Tensor:
            large = x.repeat(20, 20)
            return large.sum(0)

        explorable = explore(f, x)
        assert titles(explorable) == ["x", "returned"] or "large" in titles(explorable)
        if "large" not in titles(explorable):
            assert "large (40 × 60)" in explorable.message

    def test_complex_numbers_are_not_drawn_as_real_ones(self, x: Tensor) -> None:
        def f(x: Tensor) -> Tensor:
            spectrum = torch.fft.fft(x)
            size = spectrum.abs()
            return size

        page = FrontEnd(explore(f, x))
        assert titles(page.explorable) == ["x", "size"]
        assert page.explorable.message == "Complex, not drawn: spectrum (2 × 3)."
        found = chosen(page, keys_of(page.explorable, "size")[0], [0, 0])
        assert "no rule yet" in found["note"]

    def test_a_call_without_a_rule_lists_what_it_was_given(self, x: Tensor) -> None:
        def f(x: Tensor) -> Tensor:
            y = torch.linalg.pinv(x)
            return y

        page = FrontEnd(explore(f, x))
        found = chosen(page, keys_of(page.explorable, "y")[0], [0, 0])
        assert found["mathml"] == ""
        assert "no rule yet" in found["note"]
        assert "x (2 × 3)" in found["inputs"][0]

    def test_a_long_loop(self, x: Tensor) -> None:
        def f(x: Tensor) -> Tensor:
            for _ in range(600):
                x = x + 1
            return x

        explorable = explore(f, x)
        assert explorable.state == "ready"
        assert len(titles(explorable)) == 601

    def test_everything_is_json(self) -> None:
        q, k, v = torch.randn(3, 2, 3).double()
        page = FrontEnd(explore(attend, q, k, v, gradient=True))
        chosen(page, keys_of(page.explorable, "weights")[0], [0, 1])
        assert_strict_json(page.answer)
        assert_strict_json(page.explorable.view.get_state())

    def test_all_numbers_as_text(self, x: Tensor) -> None:
        page = FrontEnd(explore(lambda x: x / 3, x))
        page.control("export", "numbers")
        text = page.explorable.bar.clipboard["text"]
        assert text.startswith("x · 2 × 3\n1.0\t2.0\t3.0\n")


class TestEditing:
    @pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16], ids=str)
    def test_an_edit_runs_the_code_again_in_its_dtype(self, dtype: torch.dtype) -> None:
        seen = []

        def f(x: Tensor) -> Tensor:
            seen.append(x.dtype)
            y = x * 3
            return y

        page = FrontEnd(explore(f, torch.tensor(X, dtype=dtype)))
        page.value("x", [1, 2], 0.1)
        assert set(seen) == {dtype}
        assert tensor(page.explorable, "y").dtype == dtype
        assert tensor(page.explorable, "y")[1, 2] == torch.tensor(0.1, dtype=dtype) * 3

    def test_a_whole_matrix_as_text_keeps_its_shape(self, x: Tensor) -> None:
        page = FrontEnd(explore(lambda x: x * 2, x))
        page.text("x", "1 1 1; 2 2 2")
        assert page.explorable.x.tolist() == [[1, 1, 1], [2, 2, 2]]
        page.text("x", "1 1; 2 2")
        assert page.answer["state"] == "invalid"
        page.text("x", "__import__('os').getcwd()")
        assert page.answer["state"] == "invalid"
        assert page.explorable.x.tolist() == [[1, 1, 1], [2, 2, 2]]

    def test_the_same_draws_in_every_run(self) -> None:
        def f(x: Tensor) -> Tensor:
            kept = F.dropout(torch.ones_like(x), 0.5)
            noise = torch.randn(3)
            return x * kept + noise

        page = FrontEnd(explore(f, torch.ones(4, 3).double()))
        explorable = page.explorable

        def draws() -> tuple[list[Any], list[Any]]:
            return tensor(explorable, "kept").tolist(), tensor(explorable, "noise").tolist()

        first = draws()
        assert {0.0, 2.0} == {number for row in first[0] for number in row}
        page.value("x", [0, 0], 7)
        assert draws() == first
        address = explorable.address
        page.command("undo")
        assert draws() == first
        page.open(f"?{address}")
        assert explorable.x[0, 0] == 7
        assert draws() == first

    def test_other_draws_of_the_program_are_not_disturbed(self, x: Tensor) -> None:
        torch.manual_seed(3)
        expected = torch.rand(2)
        torch.manual_seed(3)
        explore(lambda x: F.dropout(x, 0.5) + torch.rand(1), x)
        assert torch.rand(2).tolist() == expected.tolist()

    def test_there_and_back_by_the_address(self) -> None:
        x = torch.arange(8.0).reshape(2, 2, 2) / 3
        page = FrontEnd(explore({"a": lambda x: x * 2, "b": lambda x: x * 3}, x))
        assert page.explorable.address == ""
        page.value("x", [1, 0, 1], -0.1)
        page.control("function", "b")
        page.control("gradient", True)
        address, numbers = page.explorable.address, page.numbers
        page.command("reset")
        page.control("gradient", False)
        page.open(f"?{address}")
        assert page.explorable.function == "b"
        assert page.explorable.gradient
        for name, shown in numbers.items():
            assert same_numbers(page.numbers[name], shown)
        assert page.explorable.address == address


class Stopping(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.project = nn.Linear(4, 2, dtype=torch.float64)

    def forward(self, x: Tensor) -> Tensor:
        y = x + 1
        return self.project(y)


def shapes_that_differ(x: Tensor) -> Tensor:
    y = x * 2
    z = y @ y
    return z + 1


def view_of_a_transposed(x: Tensor) -> Tensor:
    y = x * 2
    return y.mT.view(6)


def an_unknown_name(x: Tensor) -> Tensor:
    y = x * 2
    return y + undefined  # type: ignore[name-defined]


def another_reason(x: Tensor) -> Tensor:
    try:
        x @ x
    except RuntimeError:
        y = x * 2
    raise KeyError("nothing of torch's")


class TestCodeThatStops:
    @pytest.mark.parametrize(
        ("code", "line", "words", "shown"),
        [
            (
                shapes_that_differ,
                "z =",
                (
                    "y @ y",
                    "torch says: mat1 and mat2 shapes cannot be multiplied (2x3 and 2x3)",
                    "y 2 × 3, y 2 × 3",
                ),
                ["x", "y"],
            ),
            (
                view_of_a_transposed,
                "return",
                ("y.mT.view(6)", "torch says: view size is not compatible", "y.mT 3 × 2"),
                ["x", "y"],
            ),
            (an_unknown_name, "return", ("return y + undefined", "NameError: name 'undefined'"), ["x", "y"]),
            (another_reason, "raise", ("KeyError", "nothing of torch's"), ["x", "y"]),
            (
                Stopping(),
                "return",
                ("self.project(y)", "cannot be multiplied (2x3 and 4x2)", "y 2 × 3, project.weight 2 × 4"),
                ["x", "y"],
            ),
        ],
        ids=lambda value: getattr(value, "__name__", type(value).__name__),
    )
    def test_line_message_shapes_and_all_before_it(
        self, code: Any, line: str, words: tuple[str, ...], shown: list[str], x: Tensor
    ) -> None:
        page = FrontEnd(explore(code, x))
        function = code.forward if isinstance(code, nn.Module) else code
        assert page.answer["state"] == page.explorable.state == "stopped"
        assert page.answer["message"].startswith(f"Line {line_with(function, line)} stopped: ")
        for part in words:
            assert part in page.answer["message"]
        assert titles(page.explorable) == shown
        assert page.answer["checks"] == []
        assert page.numbers[keys_of(page.explorable, "y")[0]].shape == (2, 3)
        assert chosen(page, keys_of(page.explorable, "y")[0], [1, 1])["operands"] == [["x", [1, 1]]]
        assert_explained(page.explorable)

    def test_a_module_of_torch_alone(self, x: Tensor) -> None:
        explorable = explore(nn.Sequential(nn.Linear(3, 4), nn.Linear(3, 4)).double(), x)
        assert explorable.state == "stopped"
        assert "linear" in explorable.message
        assert "2 × 4" in explorable.message
        assert "arguments" not in explorable.message  # nothing of our own code
        assert titles(explorable) == ["input", "linear"]

    def test_before_anything_was_computed(self, x: Tensor) -> None:
        def f(x: Tensor) -> Tensor:
            raise NotImplementedError

        explorable = explore(f, x)
        assert explorable.state == "stopped"
        assert (
            explorable.message
            == f"Line {line_with(f, 'raise')} stopped: raise NotImplementedError · NotImplementedError"
        )
        assert titles(explorable) == ["x"]

    def test_it_runs_on_when_the_input_changes(self, x: Tensor) -> None:
        def f(x: Tensor) -> Tensor:
            y = x * 2
            if y[0, 0] > 10:
                raise ValueError("too large")
            z = y + 1
            return z

        page = FrontEnd(explore(f, x))
        page.value("x", [0, 0], 6)
        assert page.answer["state"] == "stopped"
        assert "ValueError: too large" in page.answer["message"]
        assert page.numbers["x"][0, 0] == 6
        assert titles(page.explorable) == ["x", "y"]
        page.value("x", [0, 0], 5)
        assert page.answer["state"] == "ready"
        assert page.answer["message"] == ""
        assert titles(page.explorable) == ["x", "y", "z"]
        page.command("undo")
        assert page.answer["state"] == "stopped"

    def test_it_runs_on_when_another_function_is_chosen(self, x: Tensor) -> None:
        page = FrontEnd(explore({"wrong": shapes_that_differ, "right": lambda x: x * 3}, x))
        assert page.answer["state"] == "stopped"
        page.control("function", "right")
        assert page.answer["state"] == "ready"
        page.control("function", "wrong")
        assert page.answer["state"] == "stopped"

    def test_a_refused_input_keeps_what_was_shown(self, x: Tensor) -> None:
        page = FrontEnd(explore(shapes_that_differ, x))
        page.text("x", "nan", [0, 0])
        assert page.answer["state"] == "invalid"
        page.command("revert")
        assert page.answer["state"] == "stopped"


# ---------------------------------------------------------------- attention in several styles


def test_packed_projection() -> None:
    torch.manual_seed(1)
    module = PackedAttention(4, 2, drop_p=0.5).double()
    x = torch.randn(1, 3, 4).double()
    explorable = explore(module, x, axes={"x": ("batch", "time", "width")})
    assert titles(explorable) == [
        *("x", "q", "k", "v", "q", "k", "v"),
        *("scores", "future", "scores", "weights", "weights", "mixed", "returned"),
    ]
    axes = [explorable.view.stages[key]["axes"] for key in keys_of(explorable, "scores")]
    assert axes == [["batch", "axis1", "time", "time′"]] * 2
    assert_explained(explorable)
    assert failing(explorable) == []
    assert [check["name"] for check in explorable.view.answer["checks"]] == [
        "each query's weights sum to 1",
        "scores are scaled by 1/√2",
        "merged heads keep each position",
    ]


def test_einsum_and_softmax_by_hand() -> None:
    weights = [torch.randn(2, 4, 2).double() for _ in range(3)] + [torch.randn(2, 2, 4).double()]
    axes = {"x": ("batch", "time", "width")} | {f"w_{n}": ("head", "width", "d") for n in "qkv"}
    explorable = explore(einsum_attention, torch.randn(1, 3, 4).double(), *weights, axes=axes)
    assert titles(explorable)[5:] == [
        "q",
        "k",
        "v",
        "scores",
        "allowed",
        "scores",
        "weights",
        "weights",
        "returned",
    ]
    named = {stage["title"]: stage["axes"] for stage in explorable.view.stages.values()}
    assert named["q"] == ["batch", "head", "time", "d"]
    assert named["weights"] == ["batch", "head", "time", "time′"]
    assert_explained(explorable)


def test_heads_in_a_loop() -> None:
    torch.manual_seed(1)
    explorable = explore(HeadsInALoop(4, 2).double(), torch.randn(1, 3, 4).double())
    found = titles(explorable)
    assert found[:7] == ["x", "normed", "q", "k", "v", "scores", "weights"]
    assert found[-6:] == ["merged", "x", "hidden", "x", "returned"][-6:] or "hidden" in found
    assert found.count("weights") == 2
    assert_explained(explorable)
    assert failing(explorable) == []


@pytest.mark.parametrize(
    ("name", "check"),
    [
        ("the right one", None),
        ("mystery 1", "each query's weights sum to 1"),
        ("mystery 2", "merged heads keep each position"),
        ("mystery 3", "scores are scaled by 1/√2"),
        ("mystery 4", "each query's weights sum to 1"),
    ],
)
def test_each_mystery_is_found_and_every_cell_explained(name: str, check: str | None) -> None:
    page = FrontEnd(four_mistakes())
    page.control("function", name)
    explorable = page.explorable
    assert page.answer["state"] == "ready"
    assert failing(explorable) == ([check] if check else [])
    assert assert_explained(explorable) > 200
    function = attention if check is None else MISTAKES[name]
    given = {n: getattr(explorable, n).clone() for n in ("x", "w_qkv", "w_out")}
    assert same_numbers(tensor(explorable, "returned"), function(**given))
    source = chosen(page, keys_of(explorable, "weights")[0], [0, 0, 1, 0])["source"]
    assert source["file"] == "attnlab/engine/mistakes.py"


def test_the_names_of_the_mysteries() -> None:
    explorable = four_mistakes()
    assert explorable.function == "mystery 1"
    axes = {stage["title"]: stage["axes"] for stage in explorable.view.stages.values()}
    assert axes["scores"] == axes["weights"] == ["batch", "head", "query", "key"]
    assert axes["merged"] == ["batch", "time", "width"]
    assert axes["returned"] == ["batch", "time", "out"]
    assert axes["future"] == ["query", "key"]
    unpacked, by_head = (explorable.view.stages[key]["axes"] for key in keys_of(explorable, "k"))
    assert unpacked == ["batch", "time", "axis2"]
    assert by_head == ["batch", "head", "key", "d_head"]


def test_inside_one_expression_the_operands_are_those_on_the_screen() -> None:
    """`q @ k.transpose(-2, -1) / …` is one line: the product has no name, its factors have."""
    page = FrontEnd(four_mistakes())
    found = chosen(page, keys_of(page.explorable, "scores")[0], [0, 1, 2, 0])
    q, k = (keys_of(page.explorable, name)[-1] for name in "qk")
    assert sorted(found["operands"]) == sorted(
        [[q, [0, 1, 2, 0]], [q, [0, 1, 2, 1]], [k, [0, 1, 0, 0]], [k, [0, 1, 0, 1]]]
    )


def test_from_which_positions_a_wrong_merge_comes() -> None:
    """Understood cell by cell: row 1 of `merged` holds other positions than 1."""
    page = FrontEnd(four_mistakes())
    key = {}
    for name in ("the right one", "mystery 2"):
        page.control("function", name)
        key[name] = keys_of(page.explorable, "merged")[-1]
        operands = [chosen(page, key[name], [0, 1, j])["operands"] for j in range(4)]
        positions = {index[2] for cells in operands for _, index in cells}
        assert positions == ({1} if name == "the right one" else {0, 2})


def test_the_first_output_depends_on_the_first_position_only() -> None:
    page = FrontEnd(four_mistakes())
    page.control("function", "the right one")
    page.control("gradient", True)
    chosen(page, keys_of(page.explorable, "merged")[-1], [0, 0, 1])
    slopes = torch.frombuffer(bytearray(page.answer["gradients"]["x"]["data"]), dtype=torch.float64)
    rows = slopes.reshape(3, 4)
    assert rows[0].count_nonzero() > 0
    assert rows[1:].count_nonzero() == 0


class TestNoTextIsRunAsCode:
    """On a served page the reader chooses among the shipped functions; nothing else is ever called."""

    HOSTILE = (
        "__import__('os').system('touch pwned')",
        "attention",
        "mystery 5",
        "",
        "__class__",
        None,
        3,
        ["x"],
    )

    def test_the_control_takes_shipped_names_only(self) -> None:
        page = FrontEnd(four_mistakes())
        before = page.numbers
        for value in self.HOSTILE:
            page.control("function", value)
            assert page.explorable.function == "mystery 1"
            assert page.answer["state"] == "ready"
            assert page.explorable.bar.values["function"] == "mystery 1"
        for name, shown in page.numbers.items():
            assert same_numbers(shown, before[name])

    def test_so_does_the_address(self) -> None:
        page = FrontEnd(four_mistakes())
        for value in self.HOSTILE:
            page.open(f"?function={value}")
            assert page.explorable.function == "mystery 1"
            assert page.answer["message"].startswith("The link's function was not used")

    def test_nothing_else_can_be_set(self) -> None:
        page = FrontEnd(four_mistakes())
        for name in ("functions", "parameters", "axis_names", "fixed", "compute", "presets"):
            before = getattr(page.explorable, name)
            page.control(name, "print")
            page.edit({"input": name, "text": "1"})
            assert getattr(page.explorable, name) == before

    def test_the_list_of_choices_is_the_shipped_one(self) -> None:
        explorable: CodeExplorable = four_mistakes()
        select = explorable.bar.controls[0][0]
        assert [value for value, _ in select["options"]] == ["the right one", *MISTAKES]
