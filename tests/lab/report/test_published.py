"""What is published of a run: text that stays text, nothing from outside its folder, and its files to whoever has the
address."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from recipe.spiral.lab.record_folder import RecordFolder
from recipe.spiral.lab.report.__main__ import main, served
from recipe.spiral.lab.report.bundle import Bundle, to_json
from recipe.spiral.lab.report.run_report import RunReport
from recipe.spiral.storage.run_files import METRICS
from tests.made_runs import write_run

httpx = pytest.importorskip("httpx", reason="needs the extra cpu")
pytest.importorskip("starlette", reason="needs the extra web")

HOSTILE = "</script><script>alert(1)</script><!-- \u2028\u202e\x1b[31m\x00\ud800 ' \" \\ ]]>"
TOKEN = "the-token"


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = write_run(tmp_path_factory.mktemp("made") / "run", steps=2, per_step=4)
    RunReport(run, run / "report").renew()
    (run / "report" / "data" / "link.js").symlink_to(run / "config.yaml")
    return run


def test_json_is_ascii_without_tags() -> None:
    text = to_json({"a": [HOSTILE, float("nan"), float("inf"), 1.5, None]})
    assert text.isascii() and "<" not in text and "\n" not in text
    assert json.loads(text) == {"a": [HOSTILE, None, None, 1.5, None]}


def test_a_value_is_read_again(tmp_path: Path) -> None:
    made = Bundle(tmp_path)
    made.write("deep/value", {"text": HOSTILE, "numbers": [1, 2]})
    assert made.read("deep/value") == {"text": HOSTILE, "numbers": [1, 2]}
    made.file("deep/value").write_text("torn")
    assert made.read("deep/value") is None is made.read("not there")


def test_a_report_has_all_pages_and_nothing_from_elsewhere(tmp_path: Path) -> None:
    Bundle(tmp_path).begin()
    pages = {page.name: page.read_text() for page in tmp_path.glob("*.html")}
    assert set(pages) == {"index.html", "games.html", "game.html", "evaluation.html"}
    for text in pages.values():
        assert "http:" not in text and "https:" not in text and "default-src 'none'" in text
        for address in (part.split('"')[0] for part in text.split('src="')[1:]):
            assert (tmp_path / address).is_file()
    assert (tmp_path / "assets" / "plotly.min.js").stat().st_size > 1_000_000


def test_data_that_no_report_has_made_are_left_alone(run: Path, tmp_path: Path) -> None:
    data = tmp_path / "mine" / "data"
    data.mkdir(parents=True)
    (data / "thesis.txt").write_text("years of work")
    assert main([str(run), "--out", str(data.parent)]) == 2
    assert (data / "thesis.txt").is_file() and not (data.parent / "index.html").exists()


def test_links_that_lead_out_of_the_folder_are_not_followed(tmp_path: Path) -> None:
    """A report is sent to others, who must not read another file of its maker."""
    run = write_run(tmp_path / "run", steps=2, per_step=4)
    other = write_run(tmp_path / "other", steps=1, first=9, words=lambda step: "a secret")
    file = RecordFolder(other / "games").file("train", 9)
    (run / "games" / file.name).symlink_to(file)
    (run / METRICS).unlink()
    (run / METRICS).symlink_to(other / METRICS)
    report = RunReport(run, tmp_path / "report")
    report.renew()
    assert report.curves.latest is None
    assert report.bundle.read("run")["step"] == 2


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
