"""Plots: only the newest, after the numbers, in a thread of their own; named vectors, nothing left behind."""

import asyncio
import gc
import logging
import subprocess
import sys
import threading
import weakref
import xml.etree.ElementTree as ET
from collections.abc import Callable, Mapping

import matplotlib.pyplot as plt
import pytest
import torch

from attnlab.engine import MaskTableTrace, SampleTrace, every_mask, keep_masks, sample_statistics
from attnlab.widgets import DropoutExplorable, ScalingExplorable
from attnlab.widgets.dropout_plots import mean_plot, sum_plot
from attnlab.widgets.figure import StageFigure
from attnlab.widgets.plots import INK, Drawn, plot_axes
from attnlab.widgets.plotter import Picture, Plot, Plotter

SVG = "{http://www.w3.org/2000/svg}"
HREF = "{http://www.w3.org/1999/xlink}href"
PATIENCE = 30  # seconds; reached only by a test that fails


class Ready:
    """A drawable that is its own text."""

    def __init__(self, text: str) -> None:
        self.text = text

    def picture(self) -> str:
        return self.text


class Screen:
    """What a plotter shows, in order; `later` can be awaited."""

    def __init__(self) -> None:
        self.shown: list[dict[str, str]] = []
        self.threads: list[threading.Thread] = []
        self._wanted: Callable[[], bool] = lambda: False
        self._came: asyncio.Event | None = None

    def __call__(self, svgs: Mapping[str, str]) -> None:
        self.shown.append(dict(svgs))
        self.threads.append(threading.current_thread())
        if self._came is not None and self._wanted():
            self._came.set()

    async def until(self, count: int) -> None:
        """Waits until `count` have been shown."""
        self._came = asyncio.Event()
        self._wanted = lambda: len(self.shown) >= count
        if not self._wanted():
            await asyncio.wait_for(self._came.wait(), PATIENCE)


def plot(text: str, seen: list[tuple[str, str]] | None = None) -> Plot:
    """A plot that notes who drew it, and in which thread."""

    def drawn() -> Ready:
        if seen is not None:
            seen.append((text, threading.current_thread().name))
        return Ready(text)

    return drawn


class Gate:
    """A plot that is being drawn until it is opened."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.begun = threading.Event()
        self.opened = threading.Event()

    def __call__(self) -> Ready:
        self.begun.set()
        assert self.opened.wait(PATIENCE)
        return Ready(self.text)


class TestWithoutALoop:
    def test_nothing_is_drawn_until_it_is_finished(self) -> None:
        screen, seen = Screen(), []
        plotter = Plotter(screen)
        for n in range(5):
            plotter.draw({"a": plot(f"a{n}", seen), "b": plot(f"b{n}", seen)})
        assert (screen.shown, seen) == ([], [])
        plotter.finish()
        assert screen.shown == [{"a": "a4", "b": "b4"}]
        assert [text for text, _ in seen] == ["a4", "b4"]

    def test_what_was_finished_is_not_drawn_again(self) -> None:
        screen = Screen()
        plotter = Plotter(screen)
        plotter.finish()
        assert screen.shown == []
        plotter.draw({"a": plot("a")})
        plotter.finish()
        plotter.finish()
        assert screen.shown == [{"a": "a"}]

    def test_no_plots_are_shown_as_none_once(self) -> None:
        screen = Screen()
        plotter = Plotter(screen)
        for plots in ({}, {"a": plot("a")}, {}, {}):
            plotter.draw(plots)
            plotter.finish()
        assert screen.shown == [{"a": "a"}, {}]

    def test_after_stop_nothing_is_shown(self) -> None:
        screen, seen = Screen(), []
        plotter = Plotter(screen)
        plotter.draw({"a": plot("a", seen)})
        plotter.stop()
        plotter.finish()
        plotter.draw({"a": plot("later")})
        plotter.finish()
        assert (screen.shown, seen) == ([], [])

    def test_a_plot_that_fails_is_logged_and_the_others_are_there(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        screen = Screen()
        plotter = Plotter(screen)

        def broken() -> Ready:
            raise ArithmeticError("no such plot")

        with caplog.at_level(logging.ERROR, "attnlab"):
            plotter.draw({"one": plot("1"), "two": broken, "three": plot("3")})
            plotter.finish()
        assert screen.shown == [{"one": "1", "three": "3"}]
        assert [record.getMessage() for record in caplog.records] == ["the plot two could not be drawn"]
        assert "no such plot" in caplog.text


class TestWithALoop:
    def test_a_burst_is_drawn_twice_at_most_the_newest_last(self) -> None:
        screen, seen, first = Screen(), [], Gate("first")

        async def moves() -> None:
            plotter = Plotter(screen)
            plotter.draw({"a": first})
            assert first.begun.wait(PATIENCE)  # begun at once, in another thread than this one
            for n in range(20):
                plotter.draw({"a": plot(f"move {n}", seen)})
            assert screen.shown == []  # nobody waits for a plot
            first.opened.set()
            await screen.until(2)

        asyncio.run(moves())
        assert screen.shown == [{"a": "first"}, {"a": "move 19"}]
        assert [text for text, _ in seen] == ["move 19"]
        assert seen[0][1].startswith("attnlab-plots")
        assert screen.threads == [threading.current_thread()] * 2  # widgets are touched by their own thread

    def test_all_plotters_share_one_thread(self) -> None:
        screens, seen = [Screen(), Screen(), Screen()], []

        async def moves() -> None:
            for n, screen in enumerate(screens):
                Plotter(screen).draw({"a": plot(str(n), seen)})
            for screen in screens:
                await screen.until(1)

        asyncio.run(moves())
        assert [text for text, _ in seen] == ["0", "1", "2"]
        assert len({thread for _, thread in seen}) == 1

    def test_what_is_being_drawn_when_it_stops_is_shown_to_nobody(self) -> None:
        screen, other, gate = Screen(), Screen(), Gate("late")

        async def moves() -> None:
            plotter = Plotter(screen)
            plotter.draw({"a": gate})
            plotter.draw({"a": plot("later")})
            plotter.stop()
            gate.opened.set()
            Plotter(other).draw({"a": plot("the thread is free again")})
            await other.until(1)

        asyncio.run(moves())
        assert screen.shown == []

    def test_finish_shows_the_newest_and_nothing_older_comes_after_it(self) -> None:
        screen, other, gate = Screen(), Screen(), Gate("older")

        async def moves() -> None:
            plotter = Plotter(screen)
            plotter.draw({"a": gate})
            plotter.draw({"a": plot("newest")})
            gate.opened.set()
            plotter.finish()
            assert screen.shown == [{"a": "newest"}]
            Plotter(other).draw({"a": plot("the older one has come and gone")})
            await other.until(1)

        asyncio.run(moves())
        assert screen.shown == [{"a": "newest"}]

    def test_finish_waits_for_what_is_being_drawn(self) -> None:
        screen = Screen()

        async def moves() -> None:
            plotter = Plotter(screen)
            plotter.draw({"a": plot("begun")})
            plotter.finish()

        asyncio.run(moves())
        assert screen.shown == [{"a": "begun"}]

    def test_a_loop_that_has_ended_is_no_dead_end(self, caplog: pytest.LogCaptureFixture) -> None:
        screen, gate = Screen(), Gate("for a loop that is gone")
        plotter = Plotter(screen)

        async def left() -> None:
            plotter.draw({"a": gate})

        async def again() -> None:
            plotter.draw({"a": plot("again")})
            await screen.until(1)

        asyncio.run(left())
        gate.opened.set()
        asyncio.run(again())
        assert screen.shown == [{"a": "again"}]
        assert caplog.records == []


def table_and_sample(keys: int, p: float, draws: int) -> tuple[MaskTableTrace, SampleTrace]:
    weights = torch.arange(1, keys + 1, dtype=torch.float64)
    weights /= weights.sum()
    masks = keep_masks(keys)[torch.arange(draws) * 5 % 2**keys]
    return every_mask(weights, p), sample_statistics(weights, masks, p)


def words(svg: str) -> list[str]:
    return ["".join(node.itertext()).strip() for node in ET.fromstring(svg).iter(f"{SVG}text")]


class TestFigures:
    @pytest.mark.parametrize("made", [DropoutExplorable, ScalingExplorable])
    def test_every_plot_is_xml_with_a_name(self, made: type) -> None:
        explorable = made()
        if made is DropoutExplorable:
            explorable.draw(7)
        asked = [
            name
            for block in explorable.view.layout_blocks
            if block["kind"] == "plots"
            for name in block["plots"]
        ]
        explorable.plotter.finish()
        assert list(explorable.view.plots) == list(explorable.view.grounds) == asked
        plots = {name: made().svg() for name, made in explorable._last.plots.items()}
        for name, sent in explorable.view.plots.items():
            assert plots[name] == Picture(explorable.view.grounds[name], **sent).svg()
        assert len(asked) >= 2
        for svg in plots.values():
            root = ET.fromstring(svg)
            assert root.tag == f"{SVG}svg"
            assert root.get("role") == "img"
            name, title = root.get("aria-label"), root.find(f"{SVG}title").text
            assert name.startswith(title)  # on a curve the place of the point is told after it
            assert title in words(svg)
            assert not list(root.iter(f"{SVG}image"))
            assert all(
                node.get(HREF, "#").startswith("#") and node.get("href", "#").startswith("#")
                for node in root.iter()
            )
        assert len({ET.fromstring(svg).get("aria-label") for svg in plots.values()}) == len(asked)

    def test_a_name_with_signs_of_xml_stays_text(self) -> None:
        name = 'a < b & "c" > d'
        figure, axes = plot_axes(name, "x", "y")
        axes.set_xlim(0, 1)
        assert ET.fromstring(figure.svg()).get("aria-label") == name
        other = 'e\\1 < \\g<0> & "f"'
        placed = Drawn.of(figure).with_points([(0.5, 0.5, "#D55E00")], other)
        assert ET.fromstring(placed.svg()).get("aria-label") == other

    @pytest.mark.parametrize(
        ("p", "weights", "told"),
        [
            (0.5, [0.2, 0.3, 0.5], "the sum need not be 1"),
            (0.0, [0.2, 0.3, 0.5], "the sum is 1"),  # evaluation: other masks are never drawn
            (0.0, [1.0], "the sum is 1"),
            (0.3, [1.0], "the sum need not be 1"),
        ],
    )
    def test_the_title_of_the_sums_says_what_is_seen(self, p: float, weights: list[float], told: str) -> None:
        figure = sum_plot(every_mask(torch.tensor(weights, dtype=torch.float64), p), None)
        assert figure.get_label() == f"Row sums over all masks: {told}"

    def test_bars_are_the_probabilities_of_the_sums(self) -> None:
        """.2, .3, .5 at p = .5: 110 and 001 have the same sum, so it is twice as likely."""
        weights = torch.tensor([0.2, 0.3, 0.5], dtype=torch.float64)
        keep = keep_masks(3)[[5, 5, 5, 2]]
        figure = sum_plot(every_mask(weights, 0.5), sample_statistics(weights, keep, 0.5))
        exact, drawn = figure.axes[0].containers
        middle = {round(b.get_x() + b.get_width(), 9): b.get_height() for b in exact}
        assert middle == pytest.approx(
            {0: 0.125, 0.4: 0.125, 0.6: 0.125, 1: 0.25, 1.4: 0.125, 1.6: 0.125, 2: 0.125}
        )
        shares = {round(b.get_x(), 9): b.get_height() for b in drawn if b.get_height()}
        assert shares == {1.4: 0.75, 0.6: 0.25}

    @pytest.mark.parametrize("draws", [1, 2, 7, 10, 239, 1000, 1001])
    def test_the_mean_is_drawn_from_the_first_draw_to_the_last(self, draws: int) -> None:
        table, sample = table_and_sample(3, 0.25, draws)
        lines = [
            line for line in mean_plot(table, sample).axes[0].lines if line.get_label().startswith("key")
        ]
        assert len(lines) == 3
        for key, line in enumerate(lines):
            x, y = (list(map(float, values)) for values in line.get_data())
            assert (x[0], x[-1]) == (1, draws)
            assert x == sorted(set(x))
            assert y == [sample.running_mean[int(n) - 1, key].item() for n in x]

    def test_six_keys_are_told_apart_without_colour(self) -> None:
        table, sample = table_and_sample(6, 0.5, 3)
        lines = [
            line for line in mean_plot(table, sample).axes[0].lines if line.get_label().startswith("key")
        ]
        # Dashes as drawn: two dash-dot patterns may have the same style by name.
        assert len({(line.get_linestyle(), str(line._unscaled_dash_pattern)) for line in lines}) == 6


class TestPoints:
    POINTS = ((1.0, 0.25), (4096.0, 2.0), (64.0, -1.0), (3.0, 1.7))

    @pytest.mark.parametrize("powers", [(), (1, 4, 16, 64, 256, 1024, 4096)], ids=["linear", "logarithmic"])
    @pytest.mark.parametrize("size", [(5.2, 2.9), (3, 4)])
    def test_a_dot_is_where_matplotlib_would_put_it(
        self, powers: tuple[int, ...], size: tuple[float, float]
    ) -> None:
        figure, axes = plot_axes("curve", "x", "y", powers=powers, size=size)
        axes.plot([1, 10, 5000], [0, 3, -2])
        drawn = Drawn.of(figure)
        colours = [f"#00{n}000" for n in range(len(self.POINTS))]
        points = [(x, y, colour) for (x, y), colour in zip(self.POINTS, colours, strict=True)]
        dots = list(ET.fromstring(drawn.with_points(points, "curve").svg()).iter(f"{SVG}circle"))
        assert [dot.get("style") for dot in dots] == [f"fill: {c}; stroke: {INK}" for c in colours]
        for dot, (x, y) in zip(dots, self.POINTS, strict=True):
            (line,) = axes.plot([x], [y], marker="o", scalex=False, scaley=False)
            line.set_gid("oracle")
            (use,) = ET.fromstring(figure.svg()).find(".//*[@id='oracle']").iter(f"{SVG}use")
            line.remove()
            assert float(dot.get("cx")) == pytest.approx(float(use.get("x")), abs=0.006)
            assert float(dot.get("cy")) == pytest.approx(float(use.get("y")), abs=0.006)

    def test_points_do_not_add_up(self) -> None:
        figure, axes = plot_axes("curve", "x", "y")
        axes.plot([0, 1], [0, 1])
        drawn = Drawn.of(figure)
        for n in range(3):
            placed = drawn.with_points([(n / 2, n / 2, "#000000")], f"at {n}")
            root = ET.fromstring(placed.svg())
            assert len(list(root.iter(f"{SVG}circle"))) == 1
            assert root.get("aria-label") == f"at {n}"
        assert "<circle" not in drawn.svg()

    @pytest.mark.parametrize("d_k", [1, 64, 100, 4096])
    def test_the_points_of_a_curve_are_the_row_that_is_shown(self, d_k: int) -> None:
        explorable = ScalingExplorable(d_k=d_k)
        plot = explorable._last.plots["entropy"]
        drawn = plot()
        trace = explorable.trace
        dots = list(ET.fromstring(drawn.svg()).iter(f"{SVG}circle"))
        for dot, entropy in zip(dots, (trace.entropy_raw, trace.entropy_scaled), strict=True):
            right, down = drawn.placed([(d_k, float(entropy))])[0]
            assert (float(dot.get("cx")), float(dot.get("cy"))) == pytest.approx((right, down), abs=0.006)
        name = ET.fromstring(drawn.svg()).get("aria-label")
        raw, scaled = (float(x) for x in (trace.entropy_raw, trace.entropy_scaled))
        assert name == (f"Entropy of a row, at width {d_k}: not scaled {raw:.3g}, scaled {scaled:.3g}")


def living() -> list[StageFigure]:
    gc.collect()
    # By type: to be asked for its class makes many a lazy object warn.
    return [thing for thing in gc.get_objects() if issubclass(type(thing), StageFigure)]


class TestNothingIsLeft:
    def test_200_figures_are_freed(self) -> None:
        made: list[weakref.ref[StageFigure]] = []

        def empty() -> StageFigure:
            figure = StageFigure(figsize=(1, 1))
            figure.set_label("empty")
            made.append(weakref.ref(figure))
            return figure

        screen = Screen()
        plotter = Plotter(screen)
        for _ in range(200):
            plotter.draw({"a": empty})
            plotter.finish()
        gc.collect()
        assert len(made) == len(screen.shown) == 200
        assert [figure for figure in made if figure() is not None] == []
        assert plt.get_fignums() == []

    def test_200_moves_keep_the_number_of_figures(self) -> None:
        """Each 80th is drawn. The curves of the present setting are kept on purpose."""
        before = len(living())
        dropout, scaling = DropoutExplorable(weights=[0.4, 0.6], keep=[1, 0]), ScalingExplorable(d_k=2)
        for move in range(200):
            dropout.p = move / 250
            scaling.d_k = move + 1
            if move % 80 == 0:
                scaling.n_keys = 2 + move // 80  # another setting, other curves
                dropout.plotter.finish()
                scaling.plotter.finish()
        assert len(living()) - before <= 2
        assert plt.get_fignums() == []
        dropout.close()
        scaling.close()
        del dropout, scaling
        assert len(living()) == before


def test_matplotlib_is_loaded_for_a_plot_only() -> None:
    # In a process of its own: here it has been loaded long ago.
    program = (
        "import sys; from attnlab.widgets import AttentionExplorable; AttentionExplorable(); "
        "sys.exit('matplotlib' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
