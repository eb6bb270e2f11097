"""Makes the pictures of README.md and docs/report.md: pages of a real run, as Chromium shows them.

python docs/pictures.py RUN_DIR     for example outputs/spiral/quickstart
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path

from playwright.sync_api import Page, sync_playwright

from recipe.spiral.lab.report.run_report import RunReport

DOCS = Path(__file__).resolve().parent
#: Picture -> page, width and height in points.
PICTURES = {
    "report.png": ("index.html", 1280, 720),
    "replay.png": ("games.html#split=train&game=TicTacToe&outcome=0", 1000, 560),
}


def main(run_dir: Path) -> None:
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        RunReport(run_dir, Path(folder)).renew()
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        for picture, (address, width, height) in PICTURES.items():
            page = browser.new_page(viewport={"width": width, "height": height})
            page.goto(f"file://{folder}/{address}")
            page.wait_for_selector("main h1")
            if picture == "replay.png":
                _open_a_replay(page)
            page.wait_for_timeout(4000)  # for the charts in sight
            page.screenshot(path=DOCS / picture)
            page.close()
        browser.close()


def _open_a_replay(page: Page) -> None:
    """The newest game that fits, at its last turn."""
    page.locator("tbody tr a").first.click()
    page.wait_for_selector(".replay")
    page.keyboard.press("End")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
