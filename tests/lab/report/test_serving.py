"""A report over the network's loopback: its own files to whoever has the address, and nothing else to anybody."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from recipe.spiral.lab.report.__main__ import served
from recipe.spiral.lab.report.run_report import RunReport
from tests.made_runs import write_run

httpx = pytest.importorskip("httpx", reason="needs the extra cpu")
pytest.importorskip("starlette", reason="needs the extra web")

TOKEN = "the-token"


def answers(report: Path, *paths: str) -> list[tuple[int, str]]:
    """Status and text of each path of a report."""
    application = served(report, TOKEN)

    async def ask() -> list[tuple[int, str]]:
        transport = httpx.ASGITransport(application)
        async with httpx.AsyncClient(
            transport=transport, base_url="http://127.0.0.1:80/", follow_redirects=True
        ) as client:
            got = [await client.get(path) for path in paths]
        assert all("default-src 'none'" in one.headers["content-security-policy"] for one in got)
        return [(one.status_code, one.text) for one in got]

    return asyncio.run(ask())


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = write_run(tmp_path_factory.mktemp("made") / "run", steps=2, per_step=4)
    RunReport(run, run / "report").renew()
    (run / "report" / "data" / "link.js").symlink_to(run / "config.yaml")
    return run


def test_a_reports_files_are_served_and_the_address_leads_to_its_first_page(run: Path) -> None:
    served = ("", "index.html", "games.html", "assets/base.js", "assets/plotly.min.js", "data/index/train_0.js")
    for status, text in answers(run / "report", f"/{TOKEN}", *(f"/{TOKEN}/{path}" for path in served)):
        assert status == 200 and len(text) > 100


@pytest.mark.parametrize(
    "path",
    [
        *("config.yaml", "../config.yaml", "%2e%2e/config.yaml", "..%2fconfig.yaml", "data/../../config.yaml"),
        *("data/link.js", "%2fetc/passwd", "data", "data/%00.js", "x" * 5000 + ".js"),
        *("assets/..%2f..%2fconfig.yaml", "nothing.js", "data//etc/passwd"),
    ],
)
def test_no_other_file_is_served(run: Path, path: str) -> None:
    [(status, text)] = answers(run / "report", f"/{TOKEN}/{path}")
    assert status in (403, 404) and "seed" not in text and "root:" not in text


def test_nothing_is_served_without_the_token(run: Path) -> None:
    for path in ("/", "/index.html", "/other/index.html", f"/{TOKEN}2/index.html", f"//{TOKEN}/"):
        assert answers(run / "report", path)[0][0] == 403
