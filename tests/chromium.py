"""Pages in a real browser: Debian's Chromium, headless, driven by playwright.

``run_scripts/test.sh`` installs it where it may; by hand: ``apt-get install chromium``. Without it these tests are
skipped.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page, Playwright, Route

#: What a page may load: files, and servers on this machine.
_HERE = ("file:", "data:", "blob:", "http://127.0.0.1", "http://localhost")


@dataclass
class Opened:
    """A page, and what went wrong in it: the console's errors, exceptions, and whatever it wanted from the network."""

    page: Page
    problems: list[str] = field(default_factory=list)

    def listen(self) -> None:
        self.page.on("console", lambda message: message.type == "error" and self.problems.append(message.text))
        self.page.on("pageerror", lambda error: self.problems.append(str(error)))
        self.page.on("dialog", lambda dialog: (self.problems.append(f"dialog: {dialog.message}"), dialog.dismiss()))
        self.page.route("**/*", self._only_here)

    def _only_here(self, route: Route) -> None:
        if route.request.url.startswith(_HERE):
            route.continue_()
        else:
            self.problems.append(f"network: {route.request.url}")
            route.abort()


@pytest.fixture(scope="module")
def playwright() -> Iterator[Playwright]:
    """Of one module only: while it is there, ``asyncio.run`` does not work in this thread."""
    if chromium() is None:
        pytest.skip("no Chromium here: apt-get install chromium")
    sync_playwright = pytest.importorskip(
        "playwright.sync_api", reason="playwright is in the extra dev"
    ).sync_playwright
    with sync_playwright() as started:
        yield started


@pytest.fixture(scope="module")
def browser(playwright: Playwright) -> Iterator[Browser]:
    # Chromium's own sandbox does not start as root.
    arguments = ["--no-sandbox"] if os.geteuid() == 0 else []
    launched = playwright.chromium.launch(executable_path=chromium(), args=arguments)
    yield launched
    launched.close()


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    """A page of 1280 by 800 points. The test fails if there was an error in it, a dialog, or a look at the network."""
    context = browser.new_context(viewport={"width": 1280, "height": 800}, reduced_motion="reduce")
    context.set_default_timeout(15_000)
    opened = Opened(context.new_page())
    opened.listen()
    yield opened.page
    context.close()
    assert not opened.problems, opened.problems


def chromium() -> str | None:
    return shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
