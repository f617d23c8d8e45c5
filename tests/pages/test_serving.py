"""The server in the open: under a sub-path, with other people's notebooks, slow starts, dying kernels."""

import os
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace

import pytest
from jupyter_server.services.kernels.kernelmanager import AsyncMappingKernelManager
from jupyter_server.services.kernels.websocket import KernelWebsocketHandler
from playwright.sync_api import expect

from attnlab.explorables.channels import PromptChannels
from attnlab.explorables.command import main
from attnlab.explorables.kernels import WarmKernels
from helpers.explorable_page import ExplorablePage
from helpers.loops import in_a_loop
from helpers.own_notebooks import write
from helpers.served import fetch
from helpers.servers import Server, attnlab_pages, until
from helpers.visits import Visits

HOSTILE = "<img src=x onerror=alert(1)>"
LIMIT = 6
IDLE_SECONDS = 30


@dataclass(frozen=True)
class School:
    """A server of somebody's own notebooks behind a sub-path."""

    server: Server
    gate: Path
    """The slow notebook waits for this file."""

    @property
    def url(self) -> str:
        return self.server.url


@pytest.fixture(scope="module")
def school(tmp_path_factory: pytest.TempPathFactory) -> Iterator[School]:
    folder = tmp_path_factory.mktemp("school")
    notebooks = folder / "notebooks"
    notebooks.mkdir()
    gate = folder / "gate"
    make = "from attnlab.widgets import AttentionExplorable, TraceView"
    write(
        notebooks,
        "several",
        "Several explorables",
        f"{make}\nshared = AttentionExplorable()\nshared",
        "shared",
        'AttentionExplorable(name="a")',
        'AttentionExplorable(name="b", preset="two keys")',
    )
    write(
        notebooks,
        "slow",
        "A slow start",
        f"import pathlib, time\nwhile not pathlib.Path({str(gate)!r}).exists(): time.sleep(0.02)\n"
        f"{make}\nAttentionExplorable()",
    )
    write(
        notebooks,
        "labels",
        HOSTILE.replace("<", "&lt;"),
        f"{make}\nimport torch\nfrom attnlab.engine import attend\n"
        "x = torch.eye(2, dtype=torch.float64)\n"
        f"TraceView(attend(x, x, x), labels={{'query': [{HOSTILE!r}, '<pad>'], 'key': ['<b>', '&amp;']}})",
    )
    (notebooks / "secret.csv").write_text("a,b\n")
    arguments = (
        "--notebooks",
        str(notebooks),
        "--limit",
        str(LIMIT),
        "--idle-minutes",
        str(IDLE_SECONDS / 60),
    )
    with attnlab_pages(folder, *arguments, base_url="/school/room-1/") as server:
        yield School(server, gate)
        written = len(server.log.read_text())
    ending = server.log.read_text()[written:]
    assert "Traceback" not in ending, ending


def test_something_useful_is_there_before_python_is(visits: Visits, school: School) -> None:
    page = visits.open().page
    page.goto(f"{school.url}slow", wait_until="commit")
    expect(page.get_by_role("heading", level=1)).to_have_text("A slow start")
    expect(page.get_by_text("What is seen first?").first).to_be_visible()
    expect(page.locator("[data-attnlab-progress]")).to_be_visible()
    expect(page.locator("[data-attnlab-stage]")).to_have_text("Computing the first numbers …", timeout=30_000)
    assert page.locator(".attnlab-explorable").count() == 0
    school.gate.touch()
    ExplorablePage(page, "voila").wait_drawn().shows_cell("weights", 3, "0.3302")
    # It is for screen readers only from now on.
    expect(page.locator("[data-attnlab-progress]")).to_have_attribute("data-state", "done")


def test_two_displays_of_one_explorable_stay_equal_and_named_ones_keep_apart(
    visits: Visits, school: School
) -> None:
    page = visits.open(f"{school.url}several").page
    one, two, a, b = (ExplorablePage(page, "voila", nth).wait_drawn() for nth in range(4))
    for explorable in (one, two, a, b):
        explorable.is_ready()
    one.type_into("q", 0, "3")
    two.shows_cell("q", 0, "3.0000")
    two.shows_cell("scores", 0, "3.0000")
    two.scrub("k", 0, 20)
    one.shows_cell("k", 0, "1.5000")
    one.shows_cell("scores", 0, "4.5000")
    two.set_switch("causal", False)
    expect(one.control("causal")).not_to_be_checked()
    two.shows_cell("weights", 1, "0.0299")  # the switch moves before the numbers
    one.shows("weights", two.texts("weights"))
    assert one.everything() == two.everything()
    assert a.texts("q")[0] == ["1.0000", "0"]

    a.type_into("q", 0, "7")
    a.shows_cell("scores", 0, "7.0000")
    b.type_into("q", 0, "8")
    b.shows_cell("scores", 0, "8.0000")
    for part in ("&a.q=7,0;0,1;1,1", "&b.q=8,0", "&causal=0", "&q=3,0;0,1;1,1"):
        page.wait_for_function(
            "(part) => ('&' + decodeURIComponent(location.search.slice(1))).includes(part)", arg=part
        )
    states = [explorable.everything() for explorable in (one, two, a, b)]
    other = visits.open(page.url).page
    for nth, state in enumerate(states):
        again = ExplorablePage(other, "voila", nth).wait_drawn()
        again.shows("q", state["stages"]["q"])
        again.shows("weights", state["stages"]["weights"])
        assert again.everything() == state


def test_labels_are_text_whatever_they_say(visits: Visits, school: School) -> None:
    page = visits.open(f"{school.url}labels").page
    rows = page.locator('.attnlab-stage[data-stage="weights"] tbody th')
    expect(rows).to_have_text([HOSTILE, "<pad>"], timeout=60_000)
    expect(page.locator('.attnlab-stage[data-stage="weights"] thead th').nth(1)).to_have_text("<b>")
    expect(page.get_by_role("heading", level=1)).to_have_text(HOSTILE)
    assert page.title() == f"{HOSTILE} · attnlab"
    assert page.locator("main img, main b").count() == 0


def test_dead_kernel_is_told_and_the_typed_numbers_are_still_there(visits: Visits, school: School) -> None:
    visit = visits.open(f"{school.url}several")
    explorable = ExplorablePage(visit.page, "voila", 2).wait_drawn()
    explorable.type_into("q", 1, "0.625")
    explorable.shows_cell("scores", 1, "0.6250")
    # From now on the browser tells of connections that fail; that is what happened.
    visit.watch.expect("WebSocket", "Failed to load resource", "kernel", "Connection lost")
    kernel = visit.page.evaluate(
        "JSON.parse(document.getElementById('jupyter-config-data').textContent).kernelId"
    )
    os.kill(school.server.kernels()[kernel], signal.SIGKILL)
    explorable.type_into("q", 2, "9.5")
    notice = visit.page.get_by_role("alert")
    expect(notice).to_contain_text("The connection to Python is gone", timeout=30_000)
    expect(notice.get_by_role("button", name="Reload")).to_be_visible()
    expect(explorable.view).to_have_attribute("data-state", "disconnected", timeout=15_000)
    expect(explorable.message).to_contain_text("Your numbers are still here")
    assert explorable.texts("q")[0][1] == "0.6250"
    expect(explorable.cell("q", 2)).to_contain_text("9.5") if not explorable.cell("q", 2).locator(
        "input"
    ).count() else expect(explorable.cell("q", 2).locator("input")).to_have_value("9.5")


def test_reloads_and_closed_pages_give_their_kernels_back(visits: Visits, school: School) -> None:
    before = set(school.server.kernels())
    visit = visits.open(f"{school.url}labels")
    cells = visit.page.locator(".attnlab-cell").first
    cells.wait_for(timeout=60_000)
    for _ in range(10):
        visit.page.goto(f"{school.url}labels", wait_until="commit")
    # A page that was complete before it was left may hold its place for a minute.
    until(
        lambda: visit.page.goto(f"{school.url}labels").status == 200,
        seconds=90,
        what="there is a place again",
    )
    cells.wait_for(timeout=60_000)
    visit.watch.take()  # pages that were left in the middle of their start
    visit.page.goto("about:blank")
    until(
        lambda: len(school.server.kernels()) <= max(1, len(before)),
        seconds=IDLE_SECONDS + 30,
        what="there are no more kernels than before",
    )


def test_kernel_that_has_waited_long_begins_anew_with_its_visitor(monkeypatch: pytest.MonkeyPatch) -> None:
    async def started(manager: WarmKernels, **_: object) -> str:
        manager._kernels["k"] = SimpleNamespace(last_activity=datetime.now(UTC) - timedelta(hours=1))
        return "k"

    async def visit() -> float:
        manager = WarmKernels(warm=0)
        kernel = manager.get_kernel(await manager.start_kernel())
        manager._folder.cleanup()
        return (datetime.now(UTC) - kernel.last_activity).total_seconds()

    monkeypatch.setattr(AsyncMappingKernelManager, "start_kernel", started)
    assert in_a_loop(visit()) < 10


def test_bare_page_for_a_frame(visits: Visits, school: School) -> None:
    page = visits.open(f"{school.url}labels?embed=1").page
    page.locator(".attnlab-cell").first.wait_for(timeout=60_000)
    assert page.locator("header, footer").count() == 0
    expect(page.get_by_role("heading", level=1)).to_be_visible()


def test_only_pages_are_given_out(school: School) -> None:
    for path in ("secret.csv", "files/secret.csv", "voila/files/secret.csv", "several.ipynb/../secret.csv"):
        assert fetch(school.url + path).status in (403, 404), path
    assert fetch(f"{school.url}api/contents").status in (403, 404)
    assert fetch(f"{school.url}nothing").status == 404
    assert fetch(school.url).status == 200
    assert fetch(school.url.replace("/school/room-1/", "/")).status in (302, 404)


def test_messages_of_a_kernel_leave_at_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    steps: list[object] = []
    monkeypatch.setattr(PromptChannels.__mro__[1], "connect", lambda self: steps.append("connected"))
    monkeypatch.setattr(KernelWebsocketHandler, "set_nodelay", lambda self, value: steps.append(value))
    handler = KernelWebsocketHandler.__new__(KernelWebsocketHandler)
    PromptChannels(websocket_handler=handler).connect()
    assert steps == [True, "connected"]
    # JupyterLab is told by its arguments.
    given: list[str] = []
    monkeypatch.setattr("jupyterlab.labapp.main", given.extend)
    assert main(["lab", str(tmp_path / "notebooks"), "--no-browser"]) == 0
    assert (
        f"--ServerApp.kernel_websocket_connection_class={PromptChannels.__module__}.PromptChannels" in given
    )
