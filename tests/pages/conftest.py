"""A browser, a server of pages and a JupyterLab for all tests of this folder, and one page of each to share.

Most tests use the shared page of a host: it is brought back to its first state before each test, and given
up for a new one after a test that failed.
"""

import os
import shutil
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Playwright, expect, sync_playwright

from attnlab.explorables.catalogue import NOTEBOOKS
from helpers.browser import find_browser, launch
from helpers.explorable_page import SECONDS, ExplorablePage
from helpers.servers import Server, attnlab_pages, jupyter_lab
from helpers.visits import Opened, Visits, run_notebook


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.browser)


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    outcome = yield
    if outcome.get_result().failed:
        item.stash[_FAILED] = True


_FAILED = pytest.StashKey[bool]()


# ---------------------------------------------------------------- the browser


@pytest.fixture(scope="package")
def _playwright() -> Iterator[Playwright]:
    expect.set_options(timeout=1000 * SECONDS)
    with sync_playwright() as playwright:
        yield playwright


@pytest.fixture(scope="package")
def browser(_playwright: Playwright) -> Iterator[Browser]:
    """Chromium or Chrome: the one of ATTNLAB_BROWSER, of the system, or Playwright's own."""
    path = find_browser(_playwright)
    if not path:
        missing = "NO BROWSER: the pages are not tested. Install Chromium, or name one in ATTNLAB_BROWSER."
        if os.environ.get("CI") == "true":
            pytest.fail(missing)
        with warnings.catch_warnings():
            warnings.simplefilter("always")  # seen, but no error
            warnings.warn(missing, stacklevel=1)
        pytest.skip(missing)
    browser = launch(_playwright, path)
    yield browser
    browser.close()


# ---------------------------------------------------------------- the servers


@pytest.fixture(scope="package")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """The pages as `attnlab serve` shows them, with one warm kernel."""
    with attnlab_pages(tmp_path_factory.mktemp("pages"), "--warm", "1") as server:
        yield server


@pytest.fixture(scope="package")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """JupyterLab on copies of the notebooks."""
    folder = tmp_path_factory.mktemp("lab")
    notebooks = folder / "notebooks"
    notebooks.mkdir()
    for notebook in NOTEBOOKS.glob("*.ipynb"):
        shutil.copy(notebook, notebooks)
    with jupyter_lab(folder, notebooks) as server:
        yield server


# ---------------------------------------------------------------- pages


@pytest.fixture
def visits(browser: Browser) -> Iterator[Visits]:
    """New visitors for one test; none may have met an error or another machine."""
    visits = Visits(browser)
    yield visits
    faults = [fault for visit in visits.opened for fault in visit.watch.take()]
    visits.close()
    assert not faults


@pytest.fixture
def open_notebook(lab: Server, visits: Visits) -> Callable[[str], ExplorablePage]:
    """Opens an address of JupyterLab and runs the notebook."""

    def open_(url: str) -> ExplorablePage:
        page = visits.open(url).page
        run_notebook(page)
        return ExplorablePage(page, "lab").wait_drawn()

    return open_


@dataclass
class Shared:
    """The shared page of each host."""

    browser: Browser
    pages: dict[str, tuple[Opened, Visits]] = field(default_factory=dict)

    def drop(self, host: str) -> None:
        """The next test gets a new page."""
        if host in self.pages:
            self.pages.pop(host)[1].close()


@pytest.fixture(scope="package")
def _shared(browser: Browser) -> Iterator[Shared]:
    shared = Shared(browser)
    yield shared
    for host in tuple(shared.pages):
        shared.drop(host)


def _lend(host: str, shared: Shared, request: pytest.FixtureRequest) -> Iterator[Opened]:
    if host not in shared.pages:
        visits = Visits(shared.browser)
        server: Server = request.getfixturevalue("pages" if host == "voila" else "lab")
        name = "attention" if host == "voila" else "lab/tree/01-attention.ipynb"
        visit = visits.open(server.url + name)
        shared.pages[host] = (visit, visits)
        if host == "lab":
            run_notebook(visit.page)
        ExplorablePage(visit.page, host).wait_drawn()
    visit, _ = shared.pages[host]
    try:
        ExplorablePage(visit.page, host).fresh()
    except BaseException as error:
        error.add_note(f"The page said: {visit.watch.take() or 'nothing'}")
        shared.drop(host)
        raise
    visit.wire.clear()
    yield visit
    faults = visit.watch.take()
    if request.node.stash.get(_FAILED, False) or faults:
        shared.drop(host)
    assert not faults


@pytest.fixture(params=["voila", "lab"])
def opened(request: pytest.FixtureRequest, _shared: Shared) -> Iterator[Opened]:
    """The shared page of a host; a test that asks for it runs under both."""
    yield from _lend(request.param, _shared, request)


@pytest.fixture
def explorable(opened: Opened, request: pytest.FixtureRequest) -> ExplorablePage:
    """The attention explorable in its first state, under both hosts."""
    return ExplorablePage(opened.page, request.node.callspec.params["opened"])


@pytest.fixture
def opened_page(request: pytest.FixtureRequest, _shared: Shared) -> Iterator[Opened]:
    """The shared page of the server of pages."""
    yield from _lend("voila", _shared, request)


@pytest.fixture
def page_explorable(opened_page: Opened) -> ExplorablePage:
    """The attention explorable in its first state, on its page."""
    return ExplorablePage(opened_page.page, "voila")
