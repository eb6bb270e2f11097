"""A run's report as data, or an evaluation's: what is counted, what is read again, what damaged folders do, and what is
published of it."""

from __future__ import annotations

import asyncio
import base64
import gzip
import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from recipe.spiral.lab.evaluation.evaluation_folder import EvaluationFolder
from recipe.spiral.lab.record_folder import RecordFolder, unpack
from recipe.spiral.lab.report.__main__ import main, served
from recipe.spiral.lab.report.bundle import Bundle, to_json
from recipe.spiral.lab.report.game_index import COLUMNS
from recipe.spiral.lab.report.run_report import RunReport
from recipe.spiral.storage.run_files import METRICS
from tests.lab.evaluation.made import at_random, manifest, plan
from tests.made import repack
from tests.made_runs import games, write_run


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_run(tmp_path_factory.mktemp("made") / "run", opponents=("self", "step_000000"))


@pytest.fixture
def run(made: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made, tmp_path / "run"))


def unpacked(bundle: Bundle, name: str) -> Any:
    return json.loads(gzip.decompress(base64.b64decode(bundle.read(name))))


def lines(bundle: Bundle, split: str, step: int) -> list[dict[str, Any]]:
    block = bundle.read(f"index/{split}_0")
    rows = [dict(zip(COLUMNS, line, strict=True)) for line in block["steps"][str(step)]["lines"]]
    return [row | {"game": block["names"][row["game"]], "opponent": block["names"][row["opponent"]]} for row in rows]


def test_every_game_is_in_the_index_and_can_be_read(run: Path, tmp_path: Path) -> None:
    report = RunReport(run, tmp_path / "report")
    assert report.renew()
    records = list(RecordFolder(run / "games").read("train"))
    assert report.bundle.read("run")["games"] == {"train": 6 * 16, "val": 3 * 16, "human": 0, "eval": 0}
    for step in range(1, 7):
        played = [game for game in records if game.key.step == step]
        for game, row in zip(played, lines(report.bundle, "train", step), strict=True):
            shown = unpacked(report.bundle, f"games/train_{step}_{row['part']}")[row["place"]]
            assert shown["key"] == str(game.key) and row["game"] == game.game
            assert [one["response"] for one in shown["turns"]] == [one.response for one in game.turns]
            assert row["tokens"] == sum(one.get("tokens", 0) for one in shown["turns"])
            assert len(shown["tables"]) == len(game.turns) + 1


def test_renewal_reads_only_what_is_new(run: Path, tmp_path: Path) -> None:
    report = RunReport(run, tmp_path / "report")
    report.renew()
    times = {file: file.stat().st_mtime_ns for file in (tmp_path / "report/data/games").iterdir()}
    charts = tmp_path / "report/assets/plotly.min.js"
    before = charts.stat()
    assert not report.renew(), "nothing is new"
    assert (charts.stat().st_ino, charts.stat().st_mtime_ns) == (before.st_ino, before.st_mtime_ns)
    write_run(run, steps=7, first=7)
    again = RunReport(run, tmp_path / "report")  # another process
    assert again.games.renew() == 1
    report = RunReport(run, tmp_path / "report")
    assert report.renew()
    after = {file: file.stat().st_mtime_ns for file in (tmp_path / "report/data/games").iterdir()}
    assert times.items() <= after.items() and len(after) == len(times) + 1
    assert report.bundle.read("run")["step"] == 7
    assert sorted(map(int, report.bundle.read("index/train_0")["steps"])) == list(range(1, 8))


def test_steps_that_a_resumed_run_removed_or_played_anew_are_renewed(run: Path, tmp_path: Path) -> None:
    RunReport(run, tmp_path / "report").renew()
    records = RecordFolder(run / "games")
    records.cut_back(4)
    records.write("train", 4, games("train", 4, 4, words="Anew."))
    report = RunReport(run, tmp_path / "report")
    report.renew()
    assert sorted(map(int, report.bundle.read("index/train_0")["steps"])) == [1, 2, 3, 4]
    assert len(lines(report.bundle, "train", 4)) == 4
    assert unpacked(report.bundle, "games/train_4_0")[0]["turns"][0]["response"].startswith("Anew.")
    assert not report.bundle.file("games/train_5_0").exists()


def test_torn_files_cost_what_is_torn(run: Path, tmp_path: Path) -> None:
    records = RecordFolder(run / "games")
    lines, packed = [line.strip() for line in unpack(records.file("train", 2))], records.file("train", 3)
    repack(records.file("train", 2), b"\n".join([*lines[:-1], lines[-1][:40]]))
    packed.write_bytes(packed.read_bytes()[:-40])
    with (run / METRICS).open("ab") as metrics:
        metrics.write(b'{"step": 7, "time')
    (run / "config.yaml").write_text("a: [")
    Bundle(tmp_path / "report").write("version", {"version": 1, "running": False})  # of another form
    report = RunReport(run, tmp_path / "report")
    report.renew()
    facts = report.bundle.read("run")
    assert (facts["broken"], facts["step"]) == (2, 6) and 4 * 16 + 15 <= facts["games"]["train"] < 6 * 16


def test_the_command_says_what_it_made_and_what_is_missing(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([str(run)]) == 0
    assert str(run / "report" / "index.html") in capsys.readouterr().out
    assert main([str(tmp_path / "nothing")]) == 2
    assert "no run is here" in capsys.readouterr().err
    assert main([str(run), "--watch"]) == 0, "watching ends when nobody trains"


def test_settings_are_shown_with_the_step_from_which_they_hold(run: Path, tmp_path: Path) -> None:
    changed = {"seed": [7, 8], "algorithm.gamma": [1.0, 0.9]}
    (run / "settings.jsonl").write_text(json.dumps({"step": 4, "changed": changed}) + "\n[]\ntorn")
    report = RunReport(run, tmp_path / "report")
    report.renew()
    changes = report.bundle.read("run")["changes"]
    assert changes == [[4, "seed", 7, 8], [4, "algorithm.gamma", 1.0, 0.9]]


# -- evaluations -------------------------------------------------------------------------------------------------------


def test_every_game_of_an_evaluation_is_there_with_its_policy_and_its_table(tmp_path: Path) -> None:
    planned = plan(3, ("policy <b>a</b>", "random", "TicTacToe"), ("b", "random", "KuhnPoker"))
    made = EvaluationFolder(tmp_path, manifest("policy <b>a</b>", "b", "random"))
    for game in planned:
        made.add(at_random(game))
    (tmp_path / "results.json").write_text('{"results": [], "ratings": [], "notes": ["a note"]}')
    assert main([str(tmp_path)]) == 0
    bundle = RunReport(tmp_path, tmp_path / "report").bundle
    facts: dict[str, Any] = bundle.read("run")
    assert (facts["kind"], facts["games"]["eval"]) == ("evaluation", 12)
    assert (
        {policy for policy, *_ in facts["results"]} == {*bundle.read("games")["policies"]} == {"b", "policy <b>a</b>"}
    )
    assert sum(sum(counts[:3]) for _, _, _, _, *counts in facts["results"]) == 12
    assert bundle.read("evaluation")["notes"] == ["a note"]
    rows = lines(bundle, "eval", 1)
    assert [(row["game"], row["roles"], row["index"]) for row in rows] == [
        (game.game, game.role, game.place) for game in planned
    ]
    for row, game in zip(rows, planned, strict=True):
        shown = unpacked(bundle, f"games/eval_1_{row['part']}")[row["place"]]
        assert shown["players"] == list(game.players) and None not in shown["tables"]
    cards = shown["tables"][0]["now"]["cards"]
    assert {*cards} < {"J", "Q", "K"} and len(cards) == 2


# -- what is published: text that stays text, nothing from outside the folder, and to whoever has the address ----------

HOSTILE = "</script><script>alert(1)</script><!-- \u2028\u202e\x1b[31m\x00\ud800 ' \" \\ ]]>"
TOKEN = "the-token"


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> Path:
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


def test_data_that_no_report_has_made_are_left_alone(published: Path, tmp_path: Path) -> None:
    data = tmp_path / "mine" / "data"
    data.mkdir(parents=True)
    (data / "thesis.txt").write_text("years of work")
    assert main([str(published), "--out", str(data.parent)]) == 2
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
    httpx = pytest.importorskip("httpx", reason="needs the extra cpu")
    pytest.importorskip("starlette", reason="needs the extra web")
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


def test_a_reports_files_are_served_and_the_address_leads_to_its_first_page(published: Path) -> None:
    served = ("", "index.html", "games.html", "assets/base.js", "assets/plotly.min.js", "data/index/train_0.js")
    for status, text in answers(published / "report", f"/{TOKEN}", *(f"/{TOKEN}/{path}" for path in served)):
        assert status == 200 and len(text) > 100


@pytest.mark.parametrize(
    "path",
    [
        *("config.yaml", "../config.yaml", "%2e%2e/config.yaml", "..%2fconfig.yaml", "data/../../config.yaml"),
        *("data/link.js", "%2fetc/passwd", "data", "data/%00.js", "x" * 5000 + ".js"),
        *("assets/..%2f..%2fconfig.yaml", "nothing.js", "data//etc/passwd"),
    ],
)
def test_no_other_file_is_served(published: Path, path: str) -> None:
    [(status, text)] = answers(published / "report", f"/{TOKEN}/{path}")
    assert status in (403, 404) and "seed" not in text and "root:" not in text


def test_nothing_is_served_without_the_token(published: Path) -> None:
    for path in ("/", "/index.html", "/other/index.html", f"/{TOKEN}2/index.html", f"//{TOKEN}/"):
        assert answers(published / "report", path)[0][0] == 403
