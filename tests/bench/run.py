"""`make bench`: speed and size, each as a ratio to a stated alternative measured in the same run.

Absolute times depend on the machine and on what else it does; the ratios hold.
"""

import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import ipywidgets.widgets.widget as ipywidget
import psutil
import torch
from playwright.sync_api import Browser, Page, sync_playwright

from attnlab.engine import attend, causal, record
from attnlab.widgets import AttentionExplorable, DropoutExplorable
from bench.pages import ALTERNATIVE, BARE, BIG, LARGEST, PANEL, SCALING, TRIVIAL, write_notebook
from helpers.browser import find_browser, launch
from helpers.hand_written import PackedAttention
from helpers.servers import attnlab_pages, stock_voila

MOVES = 200
SLOW_MOVES = 40
PAUSE = 100  # milliseconds: a hand that makes ten moves a second

SOURCES = {
    "default": "",
    "bare": BARE,
    "panel": PANEL,
    "big": BIG,
    "largest": LARGEST,
    "alternative": ALTERNATIVE,
}

# From the event to the frame that shows the new number: observe the changed element, wait for the frame
# to be drawn (a task queued from the animation frame runs after the paint).
MEASURE = """
async ({act, watched, count, pause, away}) => {
  const target = document.querySelector(watched);
  target.scrollIntoView({block: "nearest"}); // what can't be seen is written when the hand rests
  const acts = {
    key: () => document.querySelector('[data-stage="q"] .attnlab-cell').dispatchEvent(
      new KeyboardEvent("keydown", {key: acts.up ? "ArrowUp" : "ArrowDown", altKey: true, bubbles: true})),
    press: () => document.querySelector(".bare").click(),
    step: () => document.querySelector(`[data-name="element-${acts.up ? "more" : "less"}"]`).click(),
    type: () => {
      const input = document.querySelector('input[type="number"]');
      input.value = String(acts.up ? 1.1 : 1);
      input.dispatchEvent(new Event("change", {bubbles: true}));
    },
    // Two widths of a head: every number and the plot are others, and the grids stay where they are.
    slide: () => {
      const range = document.querySelector('input[data-name="d_k"]');
      range.value = range.value === "8" ? 6 : 8;
      range.dispatchEvent(new Event("input", {bubbles: true}));
    },
    up: true,
  };
  const painted = () => new Promise((done) => requestAnimationFrame(() => {
    const {port1, port2} = new MessageChannel();
    port1.onmessage = () => done();
    port2.postMessage(0);
  }));
  const times = [];
  for (let i = 0; i < count + 5; i++) {
    const start = performance.now();
    await new Promise((done, fail) => {
      const late = setTimeout(() => fail(new Error("no update within 20 s")), 20000);
      const observer = new MutationObserver(() => {
        const image = act === "type" && target.querySelector("img");
        if (act === "type" && !image) return;
        observer.disconnect();
        clearTimeout(late);
        const shown = image ? image.decode() : Promise.resolve();
        shown.then(painted).then(done);
      });
      // A plot changes by the attributes of its shapes.
      const attributes = "plot" in target.dataset;
      observer.observe(target, {childList: true, characterData: true, subtree: true, attributes});
      acts[act]();
    });
    if (i >= 5) times.push(performance.now() - start);
    if (i || !away) acts.up = !acts.up; // twice up at first: it never comes back to where it began
    if (pause) await new Promise((done) => setTimeout(done, pause));
  }
  return times;
}
"""


def main() -> None:
    with sync_playwright() as playwright, launch(playwright, find_browser()) as browser:
        _latency(browser)
        _plots(browser)
        _first_use(browser)
    _bytes()
    _attend()
    _recording()
    _draws()


def _latency(browser: Browser) -> None:
    with tempfile.TemporaryDirectory() as folder:
        for name, source in SOURCES.items():
            write_notebook(Path(folder) / f"{name}.ipynb", source)
        with attnlab_pages(Path(folder), "--notebooks", folder) as server:
            address = server.url
            page = browser.new_page(viewport={"width": 1280, "height": 1000})
            # In a drag: not each second move back at the preset, where the word "edited" goes again too.
            ours = _times(page, f"{address}default", away=True)
            calm = _times(page, f"{address}default", away=True, count=SLOW_MOVES, pause=PAUSE)
            returning = _times(page, f"{address}default")
            bare, bare_calm = (
                _times(page, f"{address}bare", act="press", watched=".bare", count=count, pause=pause)
                for count, pause in ((MOVES, 0), (SLOW_MOVES, PAUSE))
            )
            panel = _times(page, f"{address}panel", away=True)
            big = _times(page, f"{address}big", away=True)
            heads = _times(page, f"{address}largest", act="step", watched=".attnlab-told")
            page.goto(f"{address}alternative")
            page.wait_for_selector(".jp-OutputArea img, .jupyter-widgets img", timeout=90_000)
            other = page.evaluate(MEASURE, _asked("type", ".widget-interact, .jupyter-widgets", SLOW_MOVES))
            page.close()
    _say("event → paint, default 3 × 2, back to back", ours, "≤ 20 ms p50, ≤ 40 ms p95")
    _say(f"event → paint, {PAUSE} ms between events", calm, "≤ 20 ms p50, ≤ 40 ms p95")
    _say("event → paint, to and from the preset", returning)
    _say("event → paint, bare table, back to back", bare, "the least that is possible")
    _say(f"event → paint, bare table, {PAUSE} ms between", bare_calm, "the least that is possible")
    _say("event → paint, a number's panel open", panel, "≤ 20 ms p50, ≤ 40 ms p95")
    _say("event → paint, heads 4 × 8 × 24, 8 heads", heads, "≤ 20 ms p50, ≤ 40 ms p95")
    _say("event → paint, 16 × 16", big)
    _say("event → paint, interact + matplotlib", other)
    for name, own, least in (("back to back", ours, bare), (f"{PAUSE} ms between", calm, bare_calm)):
        above = statistics.median(own) / statistics.median(least)
        print(f"{f'default against the bare table, {name}':44} {above:8.2f} × as long")
    ratio = statistics.median(other) / statistics.median(ours)
    print(f"{'default against interact + matplotlib':44} {ratio:8.1f} × faster     target ≥ 8 ×")


def _plots(browser: Browser) -> None:
    with tempfile.TemporaryDirectory() as folder:
        write_notebook(Path(folder) / "scaling.ipynb", SCALING)
        with attnlab_pages(Path(folder), "--notebooks", folder) as server:
            page = browser.new_page(viewport={"width": 1280, "height": 1000})
            page.goto(f"{server.url}scaling")
            page.wait_for_selector('[data-plot="scores"] svg', timeout=90_000)
            found = {
                watched: page.evaluate(MEASURE, _asked("slide", watched, SLOW_MOVES))
                for watched in ('[data-stage="scores"] tbody tr td', '[data-plot="scores"]')
            }
            page.close()
    numbers, plots = found.values()
    _say("slider → numbers painted, plots following", numbers, "as event → paint")
    _say("slider → plot painted", plots, "≤ 120 ms p95")


def _times(
    page: Page,
    address: str,
    *,
    act: str = "key",
    watched: str = '[data-stage="scores"] tbody tr td',
    count: int = MOVES,
    pause: int = 0,
    away: bool = False,
) -> list[float]:
    page.goto(address)
    page.wait_for_selector(watched, timeout=90_000)
    return page.evaluate(MEASURE, _asked(act, watched, count, pause, away=away))


def _asked(act: str, watched: str, count: int, pause: int = 0, *, away: bool = False) -> dict[str, object]:
    return {"act": act, "watched": watched, "count": count, "pause": pause, "away": away}


def _first_use(browser: Browser) -> None:
    with tempfile.TemporaryDirectory() as folder:
        trivial = Path(folder) / "trivial.ipynb"
        write_notebook(trivial, TRIVIAL)
        attention = Path(folder) / "attention.ipynb"
        write_notebook(attention, "")
        serving = (Path(folder), "--notebooks", folder, "--warm")
        with attnlab_pages(*serving, "0") as ours, stock_voila(Path(folder), trivial) as stock:
            stock_times = [_first(browser, stock.url, "input[type=number]") for _ in range(3)]
            own_times = [_first(browser, f"{ours.url}attention", ".attnlab-cell") for _ in range(3)]
            useful = [_first(browser, f"{ours.url}attention", "h1") for _ in range(3)]
        with attnlab_pages(*serving, "2") as warm:
            _first(browser, f"{warm.url}attention", ".attnlab-cell")
            warm_times = [_first(browser, f"{warm.url}attention", ".attnlab-cell") for _ in range(3)]
    base = statistics.median(stock_times)
    for name, times in (
        ("first use, trivial page of stock Voilà", stock_times),
        ("first use, attention page, cold kernel", own_times),
        ("first use, attention page, warm kernel", warm_times),
        ("title and question of the attention page", useful),
    ):
        middle = statistics.median(times)
        print(f"{name:44} {middle:8.0f} ms   {middle / base:5.2f} × trivial page")


def _first(browser: Browser, address: str, selector: str) -> float:
    page = browser.new_page()
    start = time.perf_counter()
    page.goto(address, wait_until="commit")
    page.wait_for_selector(selector, timeout=90_000)
    elapsed = (time.perf_counter() - start) * 1000
    page.close()
    return elapsed


def _bytes() -> None:
    torch.manual_seed(0)
    for name, size in (("default 3 × 2", None), ("16 × 16", 16)):
        inputs = {} if size is None else {n: torch.randn(size, size, dtype=torch.float64) for n in "qkv"}
        explorable = AttentionExplorable(**inputs)
        state, _, buffers = ipywidget._remove_buffers({"answer": explorable.view.answer})
        bar = {
            name: getattr(explorable.bar, name) for name in ("values", "address", "ack", "limits", "notes")
        }
        sent = len(repr(state)) + len(repr(bar)) + sum(map(len, buffers))
        print(f"{'bytes per update, ' + name:44} {sent / 1000:8.1f} kB   target ≤ 50 kB")
        explorable.close()


def _attend() -> None:
    torch.manual_seed(0)
    q, k, v = (torch.randn(512, 64, dtype=torch.float64) for _ in range(3))
    allowed = causal(512)

    def bare() -> torch.Tensor:
        scores = q @ k.mT
        scaled = scores * 0.125
        masked = scaled.masked_fill(~allowed, -torch.inf)
        weights = masked.softmax(dim=-1)
        return weights @ v

    name = "attend against the bare lines, 512 × 64"
    _say_ratio(name, lambda: attend(q, k, v, allowed=allowed), bare, "≤ 1.3 ×")


def _recording() -> None:
    torch.manual_seed(0)
    attention = PackedAttention(64, 4).double()
    x = torch.randn(1, 64, 64, dtype=torch.float64)

    def recorded() -> torch.Tensor:
        with record():
            return attention(x)

    name = "hand-written attention recorded, 64 × 64"
    _say_ratio(name, recorded, lambda: attention(x), "≤ 3 ×", rounds=200)


def _draws() -> None:
    explorable = DropoutExplorable()
    process = psutil.Process()
    times = []
    for turn in range(30):
        if turn == 5:
            before = process.memory_info().rss
        explorable.draws = ""
        start = time.perf_counter()
        explorable.draw(10_000)
        times.append((time.perf_counter() - start) * 1000)
    grown = (process.memory_info().rss - before) / 2**20
    _say(
        "10,000 masks drawn, counted and sent",
        times,
        f"≤ 100 ms; memory grown by {grown:.1f} MiB in 25 rounds",
    )
    explorable.close()


def _alternating(
    first: Callable[[], object], second: Callable[[], object], rounds: int = 60
) -> tuple[float, float]:
    """Medians of both, measured in turn, so that a busy machine slows both."""
    times: tuple[list[float], list[float]] = ([], [])
    for _ in range(rounds):
        for call, found in zip((first, second), times, strict=True):
            start = time.perf_counter()
            call()
            found.append(time.perf_counter() - start)
    return statistics.median(times[0]), statistics.median(times[1])


def _say_ratio(
    name: str, ours: Callable[[], object], bare: Callable[[], object], target: str, rounds: int = 60
) -> None:
    """In one thread, as on a served page, and in as many as torch takes, where those that wait cost too."""
    usual = torch.get_num_threads()
    for threads in sorted({1, usual}):
        torch.set_num_threads(threads)
        own, least = _alternating(ours, bare, rounds)
        print(f"{f'{name}, {threads} threads':60} {own / least:8.2f} ×    target {target}")
    torch.set_num_threads(usual)


def _say(name: str, times: list[float], target: str = "") -> None:
    p50 = statistics.median(times)
    p95 = statistics.quantiles(times, n=20)[-1]
    print(f"{name:44} {p50:8.1f} ms p50  {p95:6.1f} ms p95   {target}")


if __name__ == "__main__":
    main()
