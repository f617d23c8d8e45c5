"""Which line made a tensor, and what the program calls it."""

# ruff: noqa: F841, RUF059 — the names of unused variables are what is looked at

import importlib.util
import linecache
import os
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from attnlab.engine import Tape, attend, explain, record
from attnlab.engine.explain import stage_name
from attnlab.engine.rules import has_name
from attnlab.engine.source import Spot
from helpers import hand_written
from helpers.hand_written import HeadsInALoop, PackedAttention, in_place_attention

THIS = Path(__file__)
X = torch.arange(1.0, 13.0).reshape(3, 4)
ONES = torch.ones(2)
WRITTEN = torch.zeros(2)


def stages(program: Callable[[], object]) -> list[str]:
    """The name of every version that a call made, in order."""
    with record() as tape:
        program()
    return names_of(tape)


def names_of(tape: Tape) -> list[str]:
    return [stage_name(version) for call in tape.calls for version in call.outputs]


def line_of(text: str, file: Path = THIS) -> int:
    """The number of the only line that contains a text, behind a mark (so that this call isn't one)."""
    (found,) = [
        i for i, line in enumerate(file.read_text().splitlines(), 1) if line.rstrip().endswith(f"# {text}")
    ]
    return found


# ---------------------------------------------------------------- names


def plain() -> None:
    a = X + 1
    b: Tensor = a * 2
    c = d = b - 1
    (e) = d / 2
    _ = c + e


def unpacking() -> None:
    q, k, v = X.split([1, 1, 2], dim=1)
    [a, b] = X[:, :2].unbind(1)
    first, *rest = X.unbind(0)
    largest, place = X.max(-1)
    both = X.min(-1)
    s, t = a + b, first * 2
    (m, n), o = (q * 1, k * 2), v * 3
    r0, r1, r2 = X


def attributes() -> None:
    class Box:
        pass

    box = Box()
    box.weights = X.exp()
    box.inner = Box()
    box.inner.scores, box.other = X + 1, X + 2
    cache = {}
    cache["k"] = X * 2
    box.weights += 1
    box.weights[0] = 0.0


def in_place() -> None:
    x = X.clone()
    x += 1
    x.mul_(2)
    x[0] = 5
    x[0, 1] += 3
    x[1:].zero_()
    y = x.add_(1)
    F.relu(y, inplace=True)
    torch.add(X, 1, out=x)
    x.sub_(1).div_(2)


def in_place_functions() -> None:
    F.relu_(WRITTEN)
    nn.init.constant_(WRITTEN, 2.0)
    torch.sigmoid_(WRITTEN)
    WRITTEN[0] += 1
    WRITTEN.add_(1).mul_(2)
    F.relu(inplace=True, input=WRITTEN)


def branches() -> None:
    yes = True
    a = X + 1 if yes else X - 1
    b = X * 2 if not yes else (X * 3 if yes else X * 4)
    if (c := X.sum()) > 0:
        d = (e := a + c)
    _ = b * d + e


def several_lines() -> None:
    scores = (
        X.view(3, 2, 2)
        .transpose(0, 1)
        .contiguous()
        .softmax(
            dim=-1,
        )
    )
    total = torch.cat(
        [
            scores,
            scores * 2,
        ],
        dim=0,
    )
    turned = (
        total
        .exp()
        .mT
    )  # fmt: skip
    _ = turned + 1


def one_line() -> None:
    a = X + 1; b = a * 2; c = (a + b) * (a - b)  # noqa: E702 # fmt: skip


def unnamed() -> Tensor:
    print(X.sum() * 2, end="")
    [row * 2 for row in X]
    doubled = [X[i] * 2 for i in range(2)]
    double = lambda t: t * 2  # noqa: E731
    y = double(X)

    def inner(z: Tensor) -> Tensor:
        w = z + 1
        return w * 3

    u = inner(y)
    return X @ X.T, (doubled[0] + 1 if len(doubled) else None)


def loops() -> None:
    for row in X:
        y = row * 2
    for i in range(2):
        y = y + i
    for j, part in enumerate(X.unbind(0)):
        z = part * j
    for a, *_b in X[:, :2] * 1:
        z = z + a
    total = sum(row for row in X)
    _ = total + z


def test_plain_names() -> None:
    assert stages(plain) == ["a", "b", "c", "e", "_"]


def test_unpacked_names() -> None:
    assert stages(unpacking) == [
        "q", "k", "v",
        "X[:, :2]", "a", "b",
        "first", "rest[0]", "rest[1]",
        "largest", "place",
        "both[0]", "both[1]",
        "s", "t",
        "m", "n", "o",
        "r0", "r1", "r2",
    ]  # fmt: skip


def test_attributes_and_items() -> None:
    assert stages(attributes) == [
        "box.weights",
        "box.inner.scores",
        "box.other",
        "cache['k']",
        "box.weights",
        "box.weights",
    ]


def test_writing_keeps_the_name() -> None:
    found = stages(in_place)
    assert found == [
        "x", "x", "x", "x",
        "x[0, 1]", "x[0, 1]", "x", "x",
        "x[1:]", "x[1:]", "x", "y",
        "y", "x", "x", "x",
    ]  # fmt: skip


def test_functions_in_place_write_their_argument_not_their_module() -> None:
    assert stages(in_place_functions) == [
        *("WRITTEN", "WRITTEN", "WRITTEN"),
        *("WRITTEN[0]", "WRITTEN[0]", "WRITTEN", "WRITTEN"),
        *("WRITTEN", "WRITTEN", "WRITTEN"),
    ]


def test_branches_and_walrus() -> None:
    assert stages(branches) == ["a", "b", "c", "(c := X.sum()) > 0", "e", "b * d", "_"]


def test_expressions_over_several_lines() -> None:
    with record() as tape:
        several_lines()
    found = names_of(tape)
    assert found[-3:] == ["total.exp()", "turned", "_"]
    assert found[3] == "scores"
    assert found[0].startswith("X.view(3, 2, 2)")
    assert found[1] == "X.view(3, 2, 2).transpose(0, 1)"
    assert found[4:6] == ["scores * 2", "total"]
    for call in tape.calls:
        text = linecache.getline(call.spot.file, call.spot.line)
        assert call.name in text or call.name in ("mul", "add"), (call.name, text)


def test_several_calls_on_one_line() -> None:
    assert stages(one_line) == ["a", "b", "a + b", "a - b", "c"]


def test_expressions_without_a_name(capsys: pytest.CaptureFixture[str]) -> None:
    with record() as tape:
        unnamed()
    assert names_of(tape) == [
        "X.sum()", "X.sum() * 2",
        "row[0]", "row[1]", "row[2]", "row * 2", "row * 2", "row * 2",
        "X[i]", "X[i] * 2", "X[i]", "X[i] * 2",
        "y", "w", "u",  # returned as soon as they are made, to a variable
        "X.T", "X @ X.T", "doubled[0] + 1",
    ]  # fmt: skip
    returned = [stage_name(call.outputs[0]) for call in tape.calls if call.spot.returned]
    assert returned == ["y", "u", "X @ X.T", "doubled[0] + 1"]


def test_loops() -> None:
    found = stages(loops)
    assert found == [
        "row[0]", "row[1]", "row[2]", "y", "y", "y",
        "y", "y",
        "X.unbind(0)[0]", "X.unbind(0)[1]", "X.unbind(0)[2]", "z", "z", "z",
        "X[:, :2]", "X[:, :2] * 1", *(f"(X[:, :2] * 1)[{i}]" for i in range(3)),
        *(name for _ in range(3) for name in ("a", "_b", "z")),
        "row[0]", "row[1]", "row[2]", "total", "total", "total",
        "_",
    ]  # fmt: skip


def test_the_same_line_in_a_loop_makes_versions_of_their_own() -> None:
    with record() as tape:
        y = X
        for i in range(3):
            y = y * 2 + i  # looped
    muls = [call for call in tape.calls if call.name == "mul"]
    assert len(muls) == 3
    assert {call.spot.line for call in muls} == {line_of("looped")}
    assert [call.outputs[0].values[0, 0].item() for call in muls] == [2, 4, 10]
    assert explain(tape, y, (0, 0)).text == "10 + 2 = 12"


# ---------------------------------------------------------------- modules and whole programs


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.norm = nn.LayerNorm(4)
        self.drop = nn.Dropout(0.5)
        self.embed = nn.Embedding(5, 4)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.embed(tokens)  # embedding
        h = self.norm(x)
        h = self.drop(F.gelu(self.linear(h)))
        return x + h  # residual


def test_calls_of_modules_point_to_the_line_of_the_user() -> None:
    with record() as tape:
        Block()(torch.tensor([1, 2]))
    calls = {call.name: call for call in tape.calls}
    assert all(Path(call.spot.file) == THIS for call in tape.calls)
    assert calls["embedding"].spot.line == line_of("embedding")
    assert calls["embedding"].spot.names == ("x",)
    assert calls["layer_norm"].spot.names == ("h",)
    assert calls["linear"].spot.text == "self.linear(h)"
    assert calls["gelu"].spot.text == "F.gelu(self.linear(h))"
    assert calls["dropout"].spot.names == ("h",)
    assert (calls["add"].spot.line, calls["add"].spot.returned) == (line_of("residual"), True)


def test_names_of_hand_written_attention() -> None:
    torch.manual_seed(0)
    with record() as tape:
        PackedAttention(4, 2, 0.5)(torch.randn(1, 3, 4))
    found = names_of(tape)
    order = ["q", "k", "v", "q", "k", "v", "scores", "future", "scores", "weights", "weights", "mixed"]
    assert [name for name in found if name.isidentifier() and name in order] == order
    assert found[-1] == "self.merge(mixed)"
    with record() as tape:
        HeadsInALoop(4, 2)(torch.randn(1, 3, 4))
    found = names_of(tape)
    for name in ("normed", "q", "k", "v", "scores", "weights", "merged", "x", "hidden"):
        assert name in found
    assert found[-1] == "torch.stack(maps, dim=1)"
    with record() as tape:
        in_place_attention(*(torch.randn(2, 3, 4) for _ in range(3)), torch.zeros(3, 3))
    found = names_of(tape)
    assert {"scores", "weights", "first", "output"} <= set(found)
    assert all(
        Path(call.spot.file) == Path(hand_written.__file__)
        for call in tape.calls
        if call.name != "randn" and call.name != "zeros"
    )


def test_the_engine_shows_its_own_lines() -> None:
    q = torch.ones(2, 3)
    with record() as tape:
        trace = attend(q, q, q)
    spot = tape.version(trace.scores).call.spot
    assert spot.names == ("scores",)
    assert linecache.getline(spot.file, spot.line).strip() == "scores = q @ k.mT"
    assert stage_name(tape.version(trace.weights)) == "weights"


def test_context_marks_the_line_among_its_neighbours() -> None:
    with record() as tape:
        y = X * 2  # marked
        z = y + 1
    spot = tape.version(y).call.spot
    lines = spot.context(before=1, after=1)
    assert [number for number, _ in lines] == [spot.line - 1, spot.line, spot.line + 1]
    assert lines[1][1] == "        y = X * 2  # marked"
    assert lines[2][1].strip() == "z = y + 1"
    assert spot.line == line_of("marked")
    assert Spot(str(THIS), 1, (), "").context(5, 0) == [(1, THIS.read_text().splitlines()[0])]
    assert tape.version(z).call.spot.text == "y + 1"


# ---------------------------------------------------------------- files


def test_code_without_source() -> None:
    space = {"x": torch.ones(2)}
    with record() as tape:
        exec("y = x * 2\nz = y.exp()", space)
    assert [stage_name(v) for call in tape.calls for v in call.outputs] == ["mul", "exp"]
    spot = tape.calls[1].spot
    assert (spot.file, spot.line, spot.names, spot.text) == ("<string>", 2, (), "")
    assert spot.context() == []
    assert explain(tape, space["z"], (0,)).text == "e^(2) = 7.3891"


def test_a_cell_of_a_notebook() -> None:
    """IPython puts the text of a cell into `linecache`, under a name that is no file."""
    file = "<ipython-input-1-0123456789ab>"
    text, x = "y = x @ x\n", torch.ones(2, 2)
    linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
    with record() as tape:
        exec(compile(text, file, "exec"), {"x": x})
    assert tape.calls[0].spot.names == ("y",)
    assert tape.calls[0].spot.context() == [(1, "y = x @ x")]


def load(file: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(file.stem, file)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    sys.dont_write_bytecode, before = True, sys.dont_write_bytecode
    try:
        spec.loader.exec_module(module)
    finally:
        sys.dont_write_bytecode = before
    return module


def test_a_changed_file_is_read_anew(tmp_path: Path) -> None:
    file = tmp_path / "changing.py"
    text = "def program(x):\n    weights = x * 2\n    return weights\n"
    file.write_text(text)
    with record() as tape:
        load(file).program(ONES)
    assert tape.calls[0].spot.names == ("weights",)
    assert tape.calls[0].spot.context(0, 0) == [(2, "    weights = x * 2")]
    file.write_text("# another first line\n" + text.replace("x * 2", "x.exp() * 3"))
    os.utime(file, (1, 1))
    with record() as later:
        load(file).program(ONES)
    assert [stage_name(call.outputs[0]) for call in later.calls] == ["x.exp()", "weights"]
    assert later.calls[1].spot.context(0, 0) == [(3, "    weights = x.exp() * 3")]


def test_a_copy_of_a_file_is_not_taken_for_the_original(tmp_path: Path) -> None:
    """Python calls code objects of equal text equal, whatever their file."""
    text = Path(hand_written.__file__).read_text()
    for name in ("one", "two"):
        (tmp_path / f"{name}.py").write_text(text)
    for name in ("one", "two"):
        module = load(tmp_path / f"{name}.py")
        with record() as tape:
            module.rms_block(torch.ones(2, 3), torch.ones(3), torch.ones(3, 3))
        assert {call.spot.file for call in tape.calls if call.name != "ones"} == {
            str(tmp_path / f"{name}.py")
        }


def test_a_file_that_is_gone(tmp_path: Path) -> None:
    file = tmp_path / "gone.py"
    file.write_text("def program(x):\n    y = x * 2\n    return y\n")
    module = load(file)
    file.unlink()
    with record() as tape:
        y = module.program(ONES)
    assert tape.calls[0].spot.line == 2
    assert explain(tape, y, (0,)).text == "1 · 2 = 2"


def test_a_file_that_is_no_longer_python(tmp_path: Path) -> None:
    file = tmp_path / "broken.py"
    file.write_text("def program(x):\n    y = x * 2\n    return y\n")
    module = load(file)
    with record() as tape:
        module.program(ONES)
    file.write_text("def program(x:\n    y = x *\n")
    os.utime(file, (1, 1))
    assert tape.calls[0].spot.names == ()
    assert tape.calls[0].spot.line == 2


def test_letters_of_more_than_one_byte() -> None:
    with record() as tape:
        μ = X.mean(); σ = (X - μ).std()  # noqa: E702 # fmt: skip
    assert names_of(tape) == ["μ", "X - μ", "σ"]
    assert σ > 0


def test_torch_is_recognised_by_its_folder_not_by_its_first_letters(tmp_path: Path) -> None:
    folder = Path(torch.__file__).parent
    code = compile("y = x * 2\n", f"{folder}vision/ops.py", "exec")
    with record() as tape:
        exec(code, {"x": ONES})
    assert tape.calls[0].spot.file == f"{folder}vision/ops.py"


# ---------------------------------------------------------------- names that a line gives on the way


def given_back() -> Tensor:
    weights = F.softmax(X @ X.mT, dim=-1).to(X.dtype)
    weights = F.dropout(weights, training=False)
    hidden = nn.Dropout(0.5).eval()(F.relu(X - 3))
    mixed = (weights @ X).contiguous()
    deeper = nn.Sequential(nn.Dropout(0.5), nn.Softmax(-1)).eval()(X * 3)
    return (mixed + 1).float()


def test_what_is_given_back_as_it_was_has_the_name_of_the_whole() -> None:
    assert stages(given_back) == [
        "X.mT", "X @ X.mT", "weights", "X - 3", "hidden", "mixed", "X * 3", "deeper", "mixed + 1",
    ]  # fmt: skip
    with record() as tape:
        given_back()
    assert tape.calls[-1].spot.returned


def taken_out() -> Tensor:
    largest = X.max(-1)[0]
    place = X.max(-1)[-1]
    row = X.exp()[0]
    part = X.split(2, -1)[1]
    out = nn.LSTM(4, 2)(X[None])[0]
    unbatched = nn.LSTM(4, 2)(X)[0]
    attended = nn.MultiheadAttention(4, 2)(X, X, X, need_weights=False)[0]
    first = nn.Linear(4, 2)(X)[0]
    return X.sort(-1)[0]


def test_one_of_several_results() -> None:
    with record() as tape:
        taken_out()
    named = {
        spot.names[version.output]: version.shape
        for call in tape.calls
        for version in call.outputs
        if len((spot := call.spot).names) == len(call.outputs) and spot.names[version.output]
    }
    assert list(named) == ["largest", "place", "row", "part", "out", "attended", "first"]
    assert [*named.values()] == [(3,), (3,), (4,), (3, 2), (1, 3, 2), (3, 4), (2,)]
    last = tape.calls[-1]
    assert (last.name, last.spot.returned, last.spot.item) == ("sort", True, 0)
    assert [has_name(version) for version in last.outputs] == [True, False]
    assert [has_name(call.outputs[0]) for call in tape.calls if call.name == "exp"] == [False]


def of_a_dictionary() -> dict[str, Tensor]:
    cache: dict[str, Tensor] = {}
    cache["k"] = X * 2
    rows = [X + 1]
    rows[0] = X + 2
    return cache


def test_entries_of_a_dictionary() -> None:
    assert stages(of_a_dictionary) == ["cache['k']", "X + 1", "X + 2"]


def asked_by_python() -> None:
    best = max(X.sum(), X[0].sum())
    order = sorted([X[1].sum(), X[0].sum()])
    more = X > 2
    less = X.lt(2)
    layer = nn.Linear(4, 2)
    encoder = nn.TransformerEncoderLayer(4, 2, 8)


def test_what_python_asks_and_what_modules_are_made_of_has_no_name() -> None:
    with record() as tape:
        asked_by_python()
    shown = [stage_name(v) for call in tape.calls for v in call.outputs if has_name(v)]
    assert shown == ["more", "less"]
