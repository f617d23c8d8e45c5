"""Visitors: each a browser context of its own, watched from its first request on."""

from dataclasses import dataclass, field

from playwright.sync_api import Browser, BrowserContext, Page, expect

from helpers.explorable_page import SECONDS
from helpers.watch import Watch, Wire

__all__ = ["Opened", "Visits", "run_notebook"]

WIDTH, HEIGHT = 1440, 1000


@dataclass
class Opened:
    """A context with one page and what was noticed about it."""

    context: BrowserContext
    page: Page
    watch: Watch
    wire: Wire


@dataclass
class Visits:
    """Opens pages, and closes them all."""

    browser: Browser
    opened: list[Opened] = field(default_factory=list)

    def open(self, url: str = "", *, width: int = WIDTH, height: int = HEIGHT, dark: bool = False) -> Opened:
        """A new visitor's page, who may use the clipboard."""
        context = self.browser.new_context(
            viewport={"width": width, "height": height}, color_scheme="dark" if dark else "light"
        )
        context.set_default_timeout(1000 * SECONDS)
        context.set_default_navigation_timeout(60_000)  # a page may wait for a kernel, a reloaded one too
        context.grant_permissions(["clipboard-read", "clipboard-write"])
        watch = Watch(context)
        page = context.new_page()
        visit = Opened(context, page, watch, Wire(page))
        self.opened.append(visit)
        if url:
            page.goto(url)
        return visit

    def close(self) -> None:
        """Ends all visits."""
        for visit in self.opened:
            visit.context.close()
        self.opened.clear()


def run_notebook(page: Page) -> None:
    """Runs the notebook that is open in JupyterLab by its menu."""
    expect(page.locator(".jp-Notebook .jp-CodeCell").first).to_be_visible(timeout=60_000)
    # Before its kernel is there a notebook says "idle" too, and running does nothing.
    panel = page.locator(".jp-NotebookPanel-toolbar")
    expect(panel).to_contain_text("Python 3", timeout=60_000)
    idle = panel.locator('.jp-Notebook-ExecutionIndicator[data-status="idle"]')
    expect(idle).to_be_attached(timeout=60_000)
    page.locator(".lm-MenuBar-item", has_text="Run").click()
    page.locator('.lm-Menu-item[data-command="runmenu:run-all"]').click()
