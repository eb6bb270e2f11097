"""Tests run wherever the project is checked out: where there is no GPU, verl is imported under the CPU platform.

They leave nothing behind when they are interrupted: SIGTERM ends a session like Ctrl-C, with every fixture's clean-up.
"""

from __future__ import annotations

import atexit
import gc
import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

from recipe.spiral import extensions
from recipe.spiral.processes.composing import detect_hardware
from recipe.spiral.processes.interrupts import interrupt_on_signals

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page, Playwright, Route

# How long an example takes depends on what else the machine does.
settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")

# Also for what tests start in other environments.
if os.environ.setdefault("SPIRAL_HARDWARE", detect_hardware()) == "cpu":
    os.environ.setdefault("VERL_PLATFORM", "cpu")
    os.environ.setdefault("VERL_USE_EXTERNAL_MODULES", "recipe.spiral.workers.platforms.cpu")
#: What a config chooses for its process, as it is by default.
CHOSEN = {"HYDRA_FULL_ERROR": "0", extensions.NAMES: "recipe.spiral.lab.extension,recipe.spiral.spin.extension"}
os.environ.update(CHOSEN)  # for fixtures of a wider scope than a test


def pytest_configure(config: pytest.Config) -> None:
    interrupt_on_signals()
    # With torch and verl imported, Python's usual thresholds have an eighth of the time go to collecting garbage.
    gc.set_threshold(50_000, 50, 50)
    atexit.register(gc.freeze)


def pytest_collection_finish() -> None:
    gc.freeze()  # what was imported stays


@pytest.fixture(autouse=True)
def chosen_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a test's config chooses is for that test alone."""
    for name, value in CHOSEN.items():
        monkeypatch.setenv(name, value)
    # Hydra would close every handler of the process, and absl's handler a file of pytest's.
    monkeypatch.setattr("hydra._internal.logging_config.configure_logging", lambda settings: None)


@pytest.fixture(scope="session")
def of_the_session(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that all workers of the session have, for what they would otherwise make each for itself."""
    own = tmp_path_factory.getbasetemp()
    return own.parent if os.environ.get("PYTEST_XDIST_WORKER") else own


# -- pages in a real browser: Debian's Chromium, headless, driven by playwright ----------------------------------------
# ``run_scripts/test.sh`` installs it where it may; by hand: ``apt-get install chromium``. Without it tests are skipped.

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
