"""Finding and starting a real browser."""

import os
import shutil
import sys
from pathlib import Path

from playwright.sync_api import Browser, Playwright, sync_playwright

# First the shell without windows: the same browser, and a page costs it a quarter less.
NAMES = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
ARGUMENTS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking"]


def find_browser(playwright: Playwright | None = None) -> str | None:
    """Path of a Chromium or Chrome: `ATTNLAB_BROWSER`, then the PATH, then Playwright's own, or None."""
    candidates = [os.environ.get("ATTNLAB_BROWSER"), *map(shutil.which, NAMES)]
    if playwright is not None:
        candidates.append(playwright.chromium.executable_path)
    return next((path for path in candidates if path and Path(path).exists()), None)


def launch(playwright: Playwright, path: str | None) -> Browser:
    """A headless browser that asks nothing of the network."""
    return playwright.chromium.launch(executable_path=path, args=ARGUMENTS)


if __name__ == "__main__":
    with sync_playwright() as found_by:
        path = find_browser(found_by)
    print(path or "")
    sys.exit(path is None)
