"""How a page looks: an audit, pictures to be looked at, and whether all of it fits."""

import json
from pathlib import Path

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Locator, Page, expect

__all__ = ["audit", "fits", "picture", "theme"]

PICTURES = Path(__file__).parents[2] / "artifacts" / "screenshots"
_AXE = Axe()


def audit(page: Page, within: str | None = None) -> None:
    """No violation of any rule of axe."""
    found = _AXE.run(page, context=within) if within else _AXE.run(page)
    told = [
        [violation["id"], violation["help"], *(node["html"][:160] for node in violation["nodes"][:4])]
        for violation in found.response["violations"]
    ]
    assert not told, json.dumps(told, indent=1)


def picture(of: Page | Locator, name: str) -> None:
    """Leaves a picture for people."""
    PICTURES.mkdir(parents=True, exist_ok=True)
    path = PICTURES / f"{name}.png"
    if isinstance(of, Page):
        of.screenshot(path=path, full_page=True, animations="disabled")
    else:
        of.screenshot(path=path, animations="disabled")


def fits(page: Page) -> None:
    """The page does not scroll sideways."""
    wide, window = page.evaluate(
        "[document.documentElement.scrollWidth, document.documentElement.clientWidth]"
    )
    assert wide <= window, f"{wide} px of content in {window} px"


def theme(page: Page, name: str) -> None:
    """Switches to light or dark, as the reader's system does."""
    page.emulate_media(color_scheme=name)  # type: ignore[arg-type]
    expect(page.locator("html")).to_have_attribute("data-attnlab-theme", name)
    expect(page.locator("body")).to_have_attribute("data-jp-theme-light", str(name == "light").lower())
