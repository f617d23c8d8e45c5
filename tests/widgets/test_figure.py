"""Pictures of stages: vectors, named, and nothing left behind."""

import math
import warnings
import xml.etree.ElementTree as ET

import matplotlib
import pytest
import torch
from matplotlib._pylab_helpers import Gcf

from attnlab.engine import Stage, attend
from attnlab.widgets import (
    AttentionExplorable,
    DropoutExplorable,
    Explorable,
    HeadSplitExplorable,
    LayoutExplorable,
    ProjectionExplorable,
    ScalingExplorable,
)
from attnlab.widgets.figure import StageFigure, _text, stage_figure
from helpers.front_end import FrontEnd

SVG = "{http://www.w3.org/2000/svg}"
MINUS = "\N{MINUS SIGN}"


def texts(svg: str) -> list[str]:
    return ["".join(node.itertext()).strip() for node in ET.fromstring(svg).iter(f"{SVG}text")]


def written(figure: StageFigure) -> list[str]:
    return [text.get_text() for text in figure.axes[0].texts]


@pytest.fixture
def explorable() -> AttentionExplorable:
    return AttentionExplorable()


def test_svg(explorable: AttentionExplorable) -> None:
    svg = explorable.figure("weights")._repr_svg_()  # what a notebook asks for
    root = ET.fromstring(svg)
    assert root.get("role") == "img"
    assert root.get("aria-label") == "weights · query 3 × key 3"
    assert root.find(f"{SVG}title").text == "weights · query 3 × key 3"
    assert not list(root.iter(f"{SVG}image")), "a bitmap is no vector"
    shown = texts(svg)
    for text in (
        "1.0000",
        "0.3302",
        "0.6698",
        "0.2483",
        "0.5035",
        "query",
        "key",
        "weights · query 3 × key 3",
    ):
        assert text in shown, text
    assert shown.count("0") >= 3  # masked weights are exactly 0
    assert "href" not in svg.replace('xlink:href="#', "").replace("xmlns:xlink", "")  # nothing from elsewhere
    assert "<dc:date>" not in svg  # a saved notebook does not change by itself


@pytest.mark.parametrize(
    "stage", ["q", "k", "v", "scores", "scaled", "masked", "weights", "dropped", "output", "allowed"]
)
def test_every_matrix(stage: str, explorable: AttentionExplorable) -> None:
    figure = explorable.figure(stage)
    assert figure.get_label().startswith(f"{stage} · ")
    assert len(figure.axes[0].texts) == explorable.trace.stage(stage).tensor.numel()


def test_axis_names_are_written_as_on_the_page(explorable: AttentionExplorable) -> None:
    assert explorable.figure("q").get_label() == "q · query 3 × dₖ 2"


def test_rows_run_down_and_columns_right() -> None:
    explorable = AttentionExplorable(v="1 2 3; 4 5 6; 7 8 9")
    figure = explorable.figure("v")
    axes = figure.axes[0]
    places = {text.get_text(): axes.transData.transform(text.get_position()) for text in axes.texts}
    assert places["1.0000"][1] > places["7.0000"][1]
    assert places["1.0000"][0] < places["3.0000"][0]
    colours = axes.collections[0].get_array()
    assert colours.tolist() == explorable.v.tolist()


def test_masked_cells_are_hatched(explorable: AttentionExplorable) -> None:
    for stage, hatched in (("weights", 3), ("masked", 3), ("scores", 0), ("output", 0)):
        patches = [patch for patch in explorable.figure(stage).axes[0].patches if patch.get_hatch()]
        assert len(patches) == hatched


def test_weights_are_coloured_from_0_to_1_and_signed_values_about_0(explorable: AttentionExplorable) -> None:
    explorable.q = [[-30, 0], [0, 1], [1, 1]]
    for stage, ends in (("weights", (0, 1)), ("scores", (-30, 30)), ("output", (-1, 1))):
        assert explorable.figure(stage).axes[0].collections[0].get_clim() == ends


def test_what_has_no_value() -> None:
    """Infinities and NaN are written, and never move the colours."""
    explorable = AttentionExplorable(
        q=[[100] * 8, [0] * 8, [1] + [0] * 7], k=[[100] * 8] * 2, v=[[1], [2]], query=1, dtype="float16"
    )
    assert "NaN" in written(explorable.figure("weights"))
    assert f"{MINUS}∞" in written(explorable.figure("masked"))
    assert all(math.isfinite(end) for end in explorable.figure("scores").axes[0].collections[0].get_clim())


def test_digits(explorable: AttentionExplorable) -> None:
    explorable.decimals = 2
    assert "0.33" in written(explorable.figure())


@pytest.mark.parametrize(
    ("x", "decimals", "text"),
    [
        (0.0, 4, "0"),
        (-0.0, 4, "0"),
        (1e-7, 4, "1.0e−07"),
        (-1e-7, 2, "−1.0e−07"),
        (0.00005, 4, "0.0001"),
        (5e-7, 6, "5.0e−07"),
        (5e-8, 7, "5.0e−08"),
        (0.004, 2, "4.0e−03"),
        (2e6, 4, "2.0e+06"),
        (-1.5, 3, "−1.500"),
        (math.nan, 4, "NaN"),
        (math.inf, 4, "∞"),
        (-math.inf, 4, "−∞"),
    ],
)
def test_numbers(x: float, decimals: int, text: str) -> None:
    assert _text(x, decimals) == text


def test_nothing_is_left_behind() -> None:
    explorable = AttentionExplorable(preset="two keys")
    before = dict(Gcf.figs), dict(matplotlib.rcParams)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        figures = [explorable.figure() for _ in range(25)]
    figures[0].svg()
    assert len({figure.get_label() for figure in figures}) == 1
    assert (dict(Gcf.figs), dict(matplotlib.rcParams)) == before


def test_a_stage_there_is_not(explorable: AttentionExplorable) -> None:
    with pytest.raises(KeyError, match=r"weights, .*got 'weight'"):
        explorable.figure("weight")


def test_a_stage_of_other_axes(explorable: AttentionExplorable) -> None:
    row = explorable.figure("empty_rows")
    assert row.get_label() == "empty_rows · query 3"
    assert written(row) == ["0", "0", "0"]
    single = torch.ones(1, 3, 4)
    assert (
        stage_figure(attend(single, single, single).stage("weights")).get_label()
        == "weights · query 3 × key 3"
    )


def test_leading_axes_are_a_picture_each() -> None:
    q, k = (torch.randn(2, 3, n, 4, generator=torch.manual_seed(n)) for n in (5, 6))
    trace = attend(q, k, k)
    figure = stage_figure(trace.stage("weights"), unit=True)
    assert figure.get_label() == "weights · batch 2 × head 3 × query 5 × key 6"
    pictures = [axes for axes in figure.axes if axes.get_title(loc="left")]
    assert [axes.get_title(loc="left") for axes in pictures] == [
        f"batch {b}, head {h}" for b in range(2) for h in range(3)
    ]
    shown = [[text.get_text() for text in axes.texts] for axes in pictures]
    assert shown == [
        [f"{x:.4f}" for x in matrix.flatten().tolist()] for matrix in trace.weights.flatten(0, 1)
    ]
    assert figure.svg().count("<svg") == 1


EVERY_STATE = [
    (kind, preset)
    for kind in (
        AttentionExplorable,
        DropoutExplorable,
        HeadSplitExplorable,
        LayoutExplorable,
        ProjectionExplorable,
        ScalingExplorable,
    )
    for preset in kind.presets
]


@pytest.mark.parametrize(("kind", "preset"), EVERY_STATE)
def test_the_picture_can_be_saved_in_every_state(kind: type[Explorable], preset: str) -> None:
    page = FrontEnd(kind(preset=preset))
    page.control("export", "svg")
    download = page.explorable.bar.download
    assert download["filename"].endswith(".svg")
    assert ET.fromstring(download["text"]).tag.endswith("svg")
    assert page.answer["state"] == "ready"
    page.explorable.close()


@pytest.mark.parametrize(
    ("kind", "first"),
    [
        (DropoutExplorable, "0"),
        (HeadSplitExplorable, "0"),
        (LayoutExplorable, "0"),
        (ProjectionExplorable, "5.9193"),
        (ScalingExplorable, None),
    ],
)
def test_every_explorable_has_a_picture(kind: type[Explorable], first: str | None) -> None:
    made = kind()
    shown = {stage.name: stage.tensor for stage in made.all_stages()}
    numbers = written(made.figure())
    assert len(numbers) == shown[next(n for n in made.cover if n in shown)].numel()
    if first is not None:
        assert numbers[0] == first
    with pytest.raises(KeyError, match="nothing"):
        made.figure("nothing")
    made.close()


def test_names_are_escaped() -> None:
    stage = Stage('a"<b>&', torch.zeros(1, 1), ("row", "column"), "")
    figure = stage_figure(stage)
    assert isinstance(figure, StageFigure)
    root = ET.fromstring(figure.svg())
    assert root.get("aria-label") == 'a"<b>& · row 1 × column 1'
