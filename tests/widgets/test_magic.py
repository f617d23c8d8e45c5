"""%%explore in a real IPython: the cell runs as any cell does, and explains itself."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from IPython.core.interactiveshell import ExecutionResult, InteractiveShell
from traitlets.config import Config

from attnlab.widgets import CodeExplorable
from helpers.front_end import FrontEnd, receive
from helpers.programs_on_screen import assert_explained, failing, keys_of, tensor, titles


class Shell:
    """An IPython with the extension loaded, and torch imported."""

    def __init__(self) -> None:
        self.shell = InteractiveShell(config=Config({"HistoryManager": {"enabled": False}}))
        self.run("%load_ext attnlab.widgets")
        self.run("import torch, math\nimport torch.nn.functional as F\n_ = torch.manual_seed(0)")

    def execute(self, cell: str) -> ExecutionResult:
        return self.shell.run_cell(cell)

    def run(self, cell: str) -> Any:
        """What the cell shows; it must not raise."""
        result = self.execute(cell)
        result.raise_error()
        return result.result

    def explore(self, cell: str, line: str = "") -> CodeExplorable:
        found = self.run(f"%%explore {line}\n{cell}")
        assert isinstance(found, CodeExplorable)
        return found

    def refused(self, cell: str) -> BaseException:
        result = self.execute(cell)
        error = result.error_in_exec or result.error_before_exec
        assert error is not None
        return error

    @property
    def names(self) -> dict[str, Any]:
        return self.shell.user_ns


@pytest.fixture(scope="module")
def _shell(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shell]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("IPYTHONDIR", str(tmp_path_factory.mktemp("ipython")))
        yield Shell()


@pytest.fixture
def shell(_shell: Shell, capsys: pytest.CaptureFixture[str]) -> Iterator[Shell]:
    """Every test finds x, w and tokens, and nothing that another one has left."""
    kept = dict(_shell.names)
    _shell.run(
        "x = torch.tensor([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]).double()\n"
        "w = torch.tensor([[1.0, -1.0], [0.5, 2.0]]).double()\n"
        "tokens = torch.tensor([2, 0, 1])"
    )
    yield _shell
    _shell.names.clear()
    _shell.names.update(kept)


CELL = "y = x @ w\nz = y.softmax(-1)\n"


class TestInputs:
    def test_named(self, shell: Shell) -> None:
        explorable = shell.explore(CELL, "w x")
        assert titles(explorable) == ["w", "x", "y", "z"]
        assert list(explorable._inputs) == ["w", "x"]

    def test_one_of_them(self, shell: Shell) -> None:
        assert titles(shell.explore(CELL, "x")) == ["x", "y", "z"]

    def test_found_in_the_order_of_reading(self, shell: Shell) -> None:
        assert titles(shell.explore("z = (x @ w).softmax(-1) @ w\n"))[:2] == ["x", "w"]
        assert titles(shell.explore("z = w.mT @ x.mT\n"))[:2] == ["w", "x"]

    def test_what_the_cell_makes_itself_is_no_input(self, shell: Shell) -> None:
        shell.run("y = torch.ones(9, 9)")
        assert titles(shell.explore(CELL)) == ["x", "w", "y", "z"]
        assert titles(shell.explore("x = w * 2\ny = x + 1")) == ["w", "x", "y"]

    def test_neither_are_numbers_integers_nor_modules(self, shell: Shell) -> None:
        shell.run("n = 3\nlayer = torch.nn.Linear(2, 2).double()")
        explorable = shell.explore("y = layer(x) * n\nz = y[tokens]")
        assert titles(explorable) == ["x", "y", "z"]

    @pytest.mark.parametrize("name", ["nothing", "torch", "n", "x.mT", "x;w", "__import__('os')", "x=1"])
    def test_what_is_no_tensor_is_refused(self, name: str, shell: Shell) -> None:
        shell.run("n = 3")
        error = shell.refused(f"%%explore x {name}\ny = x * 2\n")
        assert type(error) is ValueError
        assert f"%%explore {name}: expected a tensor of this notebook" in str(error)
        assert "y" not in shell.names

    def test_a_name_that_comes_twice(self, shell: Shell) -> None:
        error = shell.refused("%%explore x x\ny = x * 2\n")
        assert str(error) == "%%explore x x: expected each name once, got x several times"

    def test_a_cell_without_tensors(self, shell: Shell) -> None:
        error = shell.refused("%%explore\na = 1 + 1\n")
        assert type(error) is ValueError
        assert "at least one floating-point tensor" in str(error)

    def test_a_name_that_widgets_have_too(self, shell: Shell) -> None:
        shell.run("keys = x")
        explorable = shell.explore("y = keys * 2\n")
        assert titles(explorable) == ["keys", "y"]
        assert torch.equal(shell.names["y"], shell.names["x"] * 2)

    def test_too_large(self, shell: Shell) -> None:
        shell.run("big = torch.zeros(40, 40)")
        assert "big: expected at most 1,024 elements" in str(shell.refused("%%explore\ny = big * 2\n"))


class TestTheCell:
    def test_what_it_learns_from(self, shell: Shell) -> None:
        shell.run("w1 = torch.nn.Parameter(torch.ones(2)); w2 = torch.ones(2, requires_grad=True)")
        shell.explore("loss = (w1 * w2 * 3).sum()\nloss.backward()\n")
        assert shell.names["loss"].requires_grad
        shell.run("(w1 * w2 * 3).sum().backward()")
        assert shell.names["w1"].grad.tolist() == shell.names["w2"].grad.tolist() == [6, 6]

    def test_what_it_draws_is_drawn(self, shell: Shell) -> None:
        shell.run("_ = torch.manual_seed(7); first = torch.rand(2); second = torch.rand(2)")
        shell.run("_ = torch.manual_seed(7)")
        explorable = shell.explore("mine = torch.rand(2) * x[0, 0]**0\n")
        assert shell.run("torch.equal(mine, first)")
        FrontEnd(explorable).value("x", [0, 0], 2)  # a later run draws the same again, for itself
        assert shell.run("torch.equal(torch.rand(2), second)")

    def test_its_variables_are_there_afterwards(self, shell: Shell) -> None:
        shell.explore("y = x @ w\nn = 7\ndef f(a):\n    return a * n\n")
        assert torch.equal(shell.names["y"], shell.names["x"] @ shell.names["w"])
        assert shell.names["n"] == 7
        assert shell.run("f(2)") == 14
        assert "__builtins__" not in shell.names or shell.names["__builtins__"] is not None

    def test_an_input_that_it_assigns_anew(self, shell: Shell) -> None:
        shell.explore("x = x * 2\ny = x + 1")
        assert shell.names["x"][0].tolist() == [2, 4]
        assert shell.names["y"][0].tolist() == [3, 5]

    def test_later_runs_leave_the_notebook_alone(self, shell: Shell) -> None:
        page = FrontEnd(shell.explore(CELL))
        kept = shell.names["y"].clone()
        shell.run("z = 'mine'")
        page.value("x", [0, 0], 9)
        assert tensor(page.explorable, "y")[0, 0] == 10
        assert torch.equal(shell.names["y"], kept)
        assert shell.names["z"] == "mine"
        assert shell.names["x"][0, 0] == 1

    @pytest.mark.parametrize(
        ("cell", "made"),
        [
            ("bias = bias / 2\nz = x + bias", "z"),
            ("bias += 1\nz = x + bias", "z"),
            ("count = count + 1\nz = x * count", "z"),
            ("kept.append(x * len(kept))\nz = kept[-1] + 0", "z"),
            ("rest['n'].append(1)\nz = x * len(rest['n'])", "z"),
            ("row[0] = 0\nz = x * bias.sum()", "z"),  # a view of bias
            ("x *= 2\nz = x + 1", "z"),
            ("note()\nz = x * len(kept)", "z"),
            ("count = 7\nz = times(x) + 0", "z"),
        ],
    )
    def test_every_run_starts_from_what_was_there_before(self, cell: str, made: str, shell: Shell) -> None:
        """Notebook and screen agree, and an edit doesn't go on where the last run stopped."""
        shell.run(
            "bias = torch.tensor([8.0, 6.0]).double()\nrow = bias[:1]\ncount = 3\nkept = [1]\n"
            "rest = {'n': [1]}\ndef note():\n    kept.append(1)\ndef times(a):\n    return a * count\n"
        )
        page = FrontEnd(shell.explore(cell, "x"))
        shown = tensor(page.explorable, made).clone()
        assert torch.equal(shell.names[made], shown)
        notebook = {name: str(shell.names[name]) for name in ("x", "bias", "row", "count", "kept", "rest")}
        for number in (9, 1):
            page.value("x", [0, 0], number)
        assert page.answer["state"] == "ready"
        assert torch.equal(tensor(page.explorable, made), shown)
        assert notebook == {name: str(shell.names[name]) for name in notebook}

    def test_what_a_cell_writes_into_its_input_is_in_the_notebook(self, shell: Shell) -> None:
        own = shell.names["x"]
        shell.explore("x += 1\nsame = x")
        assert own[0].tolist() == [2, 3]
        assert shell.names["x"] is shell.names["same"] is own

    def test_a_cell_runs_once_for_what_it_shows(
        self, shell: Shell, capsys: pytest.CaptureFixture[str]
    ) -> None:
        shell.explore("print('it ran')\ny = x * 2")
        assert capsys.readouterr().out.count("it ran") == 1

    def test_an_input_may_be_called_run(self, shell: Shell) -> None:
        shell.run("run = x * 2\nnext = x")
        page = FrontEnd(shell.explore("y = run + next"))
        assert page.answer["state"] == "ready"
        assert titles(page.explorable) == ["run", "next", "y"]

    def test_the_line_that_ran(self, shell: Shell) -> None:
        page = FrontEnd(shell.explore(f"# a comment\n\n{CELL}"))
        receive(page.explorable.view, selected={"stage": keys_of(page.explorable, "z")[0], "index": [1, 0]})
        source = page.answer["explanation"]["source"]
        assert source["line"] == 4
        assert [4, "z = y.softmax(-1)"] in source["lines"]
        assert "/" not in source["file"]

    def test_two_cells_do_not_mix_their_lines(self, shell: Shell) -> None:
        first = FrontEnd(shell.explore("y = x * 2"))
        second = FrontEnd(shell.explore("z = x * 3"))
        for page, title, text in ((first, "y", "y = x * 2"), (second, "z", "z = x * 3")):
            receive(
                page.explorable.view, selected={"stage": keys_of(page.explorable, title)[0], "index": [0, 0]}
            )
            assert page.answer["explanation"]["source"]["lines"] == [[1, text]]

    def test_a_syntax_error(self, shell: Shell, capsys: pytest.CaptureFixture[str]) -> None:
        error = shell.refused("%%explore x\ny = x @\n")
        assert isinstance(error, SyntaxError)
        assert error.lineno == 1

    def test_a_cell_that_stops(self, shell: Shell) -> None:
        explorable = shell.explore("y = x * 2\nz = y @ y\nu = z + 1\n")
        assert explorable.state == "stopped"
        assert explorable.message.startswith("Line 2 stopped: y @ y · torch says: mat1 and mat2 shapes")
        assert titles(explorable) == ["x", "y"]
        assert "y" in shell.names
        assert "u" not in shell.names

    def test_a_cell_that_stops_for_another_reason(self, shell: Shell) -> None:
        explorable = shell.explore("y = x * 2\nz = y + missing\n")
        assert explorable.message.startswith("Line 2 stopped: z = y + missing · NameError: name 'missing'")

    def test_a_function_of_an_earlier_cell(self, shell: Shell) -> None:
        shell.run("def twice(a):\n    b = a * 2\n    return b\n")
        explorable = shell.explore("y = twice(x) + 1")
        assert titles(explorable) == ["x", "b", "y"]
        assert_explained(explorable)


# ---------------------------------------------------------------- three published styles, and a fault

SETUP = """
batch, time, width, heads = 1, 3, 4, 2
h = torch.randn(batch, time, width).double()
w_q, w_k, w_v, w_o = (torch.randn(width, width).double() for _ in range(4))
w_qkv = torch.cat([w_q, w_k, w_v], dim=1)
"""

# One packed projection, heads by view and transpose, a triangle of ones as mask.
PACKED = """
q, k, v = (h @ w_qkv).split(width, dim=2)
q = q.view(batch, time, heads, width // heads).transpose(1, 2)
k = k.view(batch, time, heads, width // heads).transpose(1, 2)
v = v.view(batch, time, heads, width // heads).transpose(1, 2)
att = (q @ k.transpose(-2, -1)) * (1.0 / math.sqrt(k.size(-1)))
bias = torch.tril(torch.ones(time, time)).view(1, 1, time, time)
att = att.masked_fill(bias == 0, float('-inf'))
att = F.softmax(att, dim=-1)
y = att @ v
y = y.transpose(1, 2).contiguous().view(batch, time, width)
out = y @ w_o
"""

# Heads become part of the batch; a padding mask with a large negative number.
FOLDED = """
def fold(t):
    t = t.reshape(batch, time, heads, -1).permute(0, 2, 1, 3)
    return t.reshape(batch * heads, time, -1)

queries, ks, vals = fold(h @ w_q), fold(h @ w_k), fold(h @ w_v)
scores = torch.bmm(queries, ks.transpose(1, 2)) / math.sqrt(queries.shape[-1])
valid = torch.arange(time)[None, :] < 2
scores = torch.where(valid, scores, torch.tensor(-1e6).double())
attention_weights = F.softmax(scores, dim=-1)
mixed = torch.bmm(attention_weights, vals).reshape(batch, heads, time, -1)
merged = mixed.permute(0, 2, 1, 3).reshape(batch, time, -1)
out = merged @ w_o
"""

# Queries are scaled before the product, letters say what is multiplied.
LETTERS = """
q = torch.einsum('b t w, w e -> b t e', h, w_q).unflatten(-1, (heads, -1)) * (width // heads) ** -0.5
k = torch.einsum('b t w, w e -> b t e', h, w_k).unflatten(-1, (heads, -1))
v = torch.einsum('b t w, w e -> b t e', h, w_v).unflatten(-1, (heads, -1))
sim = torch.einsum('b i h d, b j h d -> b h i j', q, k)
i, j = sim.shape[-2:]
causal_mask = torch.ones(i, j, dtype=torch.bool).triu(j - i + 1)
sim = sim.masked_fill(causal_mask, -torch.finfo(sim.dtype).max)
attn = sim.softmax(dim=-1)
out = torch.einsum('b h i j, b j h d -> b i h d', attn, v).flatten(2) @ w_o
"""


def reference(shell: Shell, allowed: torch.Tensor) -> torch.Tensor:
    """By torch's own attention."""
    h, w_o = shell.names["h"], shell.names["w_o"]
    q, k, v = ((h @ shell.names[w]).unflatten(-1, (2, 2)).transpose(1, 2) for w in ("w_q", "w_k", "w_v"))
    mixed = torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=allowed)
    return mixed.transpose(1, 2).flatten(2) @ w_o


CAUSAL = torch.ones(3, 3, dtype=torch.bool).tril()
PADDED = torch.tensor([True, True, False]).expand(3, 3)
STYLES = {
    "packed": (PACKED, CAUSAL, ["h", "w_qkv", "w_o"], "q k v q k v att bias att att y y out"),
    "folded": (
        FOLDED,
        PADDED,
        ["h", "w_q", "w_k", "w_v", "w_o"],
        "t queries t ks t vals scores valid scores attention_weights mixed merged out",
    ),
    "letters": (
        LETTERS,
        CAUSAL,
        ["h", "w_q", "w_k", "w_v", "w_o"],
        "q k v sim causal_mask sim attn out",
    ),
}


@pytest.mark.parametrize("style", STYLES)
def test_published_styles(style: str, shell: Shell) -> None:
    cell, allowed, inputs, names = STYLES[style]
    shell.run(SETUP)
    explorable = shell.explore(cell)
    assert explorable.state == "ready"
    assert titles(explorable) == inputs + names.split()
    assert_explained(explorable)
    assert failing(explorable) == []
    assert bool(explorable.view.answer["checks"]) == (style != "letters")
    assert torch.allclose(tensor(explorable, "out"), reference(shell, allowed))


@pytest.mark.parametrize(
    ("right", "wrong", "check"),
    [
        ("math.sqrt(k.size(-1))", "math.sqrt(width)", "scores are scaled by 1/√2"),
        ("F.softmax(att, dim=-1)", "F.softmax(att, dim=2)", "each query's weights sum to 1"),
        (".transpose(1, 2).contiguous().view(batch", ".reshape(batch", "merged heads keep each position"),
    ],
)
def test_a_fault_is_found_and_pointed_at(right: str, wrong: str, check: str, shell: Shell) -> None:
    """The check says what is wrong; a number near it tells its line."""
    assert PACKED.count(right) == 1
    shell.run(SETUP)
    page = FrontEnd(shell.explore(PACKED.replace(right, wrong)))
    assert failing(page.explorable) == [check]
    line = next(n for n, text in enumerate(PACKED.replace(right, wrong).splitlines(), 1) if wrong in text)
    stages = page.explorable.view.stages
    key = next(key for key in stages if stages[key]["note"] == f"line {line}")
    receive(page.explorable.view, selected={"stage": key, "index": [0] * len(stages[key]["axes"])})
    source = page.answer["explanation"]["source"]
    assert wrong in dict(map(tuple, source["lines"]))[line]


def test_loading_twice_and_nothing_left_of_the_machine(shell: Shell, tmp_path: Path) -> None:
    shell.run("%reload_ext attnlab.widgets")
    assert titles(shell.explore("y = x * 2")) == ["x", "y"]
