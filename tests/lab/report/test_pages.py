"""A report in a real browser, opened from the disk: no errors, nothing from the network, and text stays text."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from recipe.spiral.lab.record_folder import RecordFolder
from recipe.spiral.lab.report.__main__ import main
from recipe.spiral.lab.report.run_report import RunReport
from recipe.spiral.players.records import GameRecord
from recipe.spiral.players.seeds import GameKey
from recipe.spiral.spin.training_questions import GRADER
from recipe.spiral.storage.disk import only_one
from recipe.spiral.storage.run_files import MetricsFile
from recipe.spiral.training.metrics import training_metrics, validation_metrics
from tests.made import record, turn
from tests.made_runs import write_run

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

pytestmark = pytest.mark.e2e

#: What a model may write to break out of a page, or to look like something else.
HOSTILE = (
    "</script><script>window.hacked = 1</script><img src=x onerror='window.hacked = 1'><b>bold</b>"
    "\x1b[31mred\x1b[0m \u202efdp.exe\u202c \u0000 \u2028 {{x}} ${y} ]]> -->"
)
PAGES = ("index.html", "games.html", "evaluation.html", "game.html#train/1/0/0")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    opponents = ("self", "step_000000", "self", "<img src=x onerror=alert(1)>")
    return write_run(tmp_path_factory.mktemp("made") / "run", steps=5, per_step=24, opponents=opponents)


@pytest.fixture(scope="module")
def report(run: Path) -> Path:
    RunReport(run, run / "report").renew()
    return run / "report"


def show(page: Page, report: Path, address: str) -> None:
    page.goto(f"file://{report}/{address}")
    page.wait_for_selector("main h1")


def wait_until(page: Page, condition: str) -> None:
    """As ``page.wait_for_function``, which the pages' own policy against foreign scripts refuses."""
    end = time.monotonic() + 30
    while not page.evaluate(condition):
        assert time.monotonic() < end, condition
        page.wait_for_timeout(50)


def scroll_through(page: Page) -> None:
    """To each chart that is not drawn yet, and back: a chart is drawn when it is in sight."""
    undrawn = "[...document.querySelectorAll('.plot')].find(plot => !plot.dataset.drawn)"
    wait_until(page, f"(plot => {{ plot?.scrollIntoView(); return !plot; }})({undrawn})")
    page.evaluate("scrollTo(0, 0)")


@pytest.mark.parametrize("address", PAGES)
def test_a_page_opens_without_an_error(page: Page, report: Path, address: str) -> None:
    show(page, report, address)
    scroll_through(page)
    assert page.locator("main").inner_text().strip()
    assert "null" not in page.locator("main").inner_text() and "undefined" not in page.locator("main").inner_text()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_pages_fit_a_phone_in_both_schemes(browser: Browser, report: Path, scheme: str) -> None:
    context = browser.new_context(viewport={"width": 390, "height": 700}, color_scheme=scheme, has_touch=True)  # type: ignore[arg-type]
    page, errors = context.new_page(), list[str]()
    page.on("pageerror", lambda error: errors.append(str(error)))
    for address in PAGES:
        show(page, report, address)
        assert page.evaluate("document.documentElement.scrollWidth") <= 390, address
        ends = page.evaluate("[...document.querySelectorAll('nav a')].map(link => link.getBoundingClientRect().right)")
        assert len(ends) == 3 and max(ends) <= 390
    background = page.evaluate("getComputedStyle(document.body).backgroundColor")
    context.close()
    assert not errors
    assert (int(background.split("(")[1].split(",")[0]) < 128) == (scheme == "dark")


def test_filters_filter(page: Page, report: Path) -> None:
    show(page, report, "games.html")
    page.wait_for_selector("tbody tr")
    page.select_option("select[name=split]", "train")
    page.select_option("select[name=game]", "TicTacToe")
    page.select_option("select[name=opponent]", "step_000000")
    page.select_option("select[name=outcome]", "won")
    page.fill("input[name=from]", "3")
    page.locator("input[name=from]").dispatch_event("change")
    # until then the newest games are shown, whose steps are above 3 as well
    fits = "([step, , outcome, opponent, role]) => step >= 3 && opponent.includes('step_0') && outcome == `${role} won`"
    wait_until(page, f"[...document.querySelectorAll('tbody tr')].map(row => row.innerText.split('\\t')).every({fits})")
    rows = [
        text.split("\t")
        for text in page.evaluate("[...document.querySelectorAll('tbody tr')].map(row => row.innerText)")
    ]
    assert rows
    for step, game, outcome, opponent, role, *_ in rows:
        assert int(step) >= 3 and (game, opponent.strip()) == ("TicTacToe", "step_000000")
        assert outcome == f"{role} won"
    assert page.locator("[role=status].note").inner_text() == f"{len(rows)} games"
    page.reload()  # the address has the filters
    page.wait_for_selector("tbody tr")
    assert page.locator("tbody tr").count() == len(rows)


def test_a_replay_goes_forwards_and_back_by_buttons_and_keys(page: Page, report: Path) -> None:
    show(page, report, "games.html#split=train&game=TicTacToe&invalid=none&outcome=0")
    page.click("tbody tr a")
    page.wait_for_selector(".board")
    marks = "[...document.querySelectorAll('.board td')].filter(cell => 'XO'.includes(cell.innerText)).length"
    turns = page.locator("ol.turns li").count()
    assert page.evaluate(marks) == 1, "after the first turn"
    page.click("[data-do=forward]")
    assert page.evaluate(marks) == 2 and page.locator(".controls output").inner_text() == f"turn 2 of {turns}"
    page.keyboard.press("ArrowRight")
    assert page.evaluate(marks) == 3
    page.keyboard.press("ArrowLeft")
    page.click("[data-do=back]")
    assert page.evaluate(marks) == 1
    page.keyboard.press("End")
    assert page.evaluate(marks) == turns and "The end: player 0 won" in page.locator("main").inner_text()
    assert page.locator(".text mark").first.inner_text().startswith("\\boxed{[")
    assert page.locator("dt", has_text="log-probability").count() == 1
    page.keyboard.press("Home")
    assert page.evaluate(marks) == 0
    before = page.locator("p.soft").first.inner_text()
    page.keyboard.press("n")
    wait_until(page, f"document.querySelector('p.soft').innerText !== {before!r}")
    page.keyboard.press("p")
    wait_until(page, f"document.querySelector('p.soft').innerText === {before!r}")


def test_hostile_text_is_shown_and_does_nothing(page: Page, tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", steps=1, per_step=4, words=lambda step: HOSTILE)
    RunReport(run, tmp_path / "report").renew()
    show(page, tmp_path / "report", "game.html#train/1/0/0")
    page.wait_for_selector(".right .text")
    shown = page.locator(".right .text").first.inner_text()
    assert "</script><script>window.hacked = 1</script><img src=x onerror" in shown and "<b>bold</b>" in shown
    assert "U+001B[31mredU+001B[0m" in shown and "U+202Efdp.exeU+202C" in shown
    assert "U+0000" in shown and "U+2028" in shown
    assert page.evaluate("window.hacked") is None
    assert page.locator(".right script, .right img, .right b:not(dd b)").count() == 0


def test_a_run_that_is_watched_shows_its_new_step(page: Page, tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", steps=2, per_step=4, total=3)
    with only_one(run):
        RunReport(run, run / "report").renew()
    # As long as somebody trains there; another process would hold the lock.
    data = run / "report" / "data" / "version.js"
    data.write_text(data.read_text().replace("false", "true"))
    show(page, run / "report", "index.html")
    assert "step 2 of 3" in page.locator("header").inner_text()
    write_run(run, steps=3, first=3, per_step=4)
    assert main([str(run), "--watch"]) == 0
    wait_until(page, "document.querySelector('header').innerText.includes('step 3 of 3')")


def graded(index: int, score: float) -> GameRecord:
    """A graded response to a question."""
    answered = turn(0, 0, observation="What is 1 + 1?", response="\\boxed{2}", action="2", advantage=0.5)
    made = record(index, game="sums", rewards=(score, 1 - score), turns=[answered], trainable=(0,), opponent=GRADER)
    return replace(made, players=("policy", GRADER), baselines=(0.5, None))


def test_a_run_on_questions_has_answers_and_no_opponents(page: Page, tmp_path: Path) -> None:
    run = tmp_path / "run"
    responses = [graded(index, score) for index, score in enumerate((1.0, 1.0, 0.5, 0.0))]
    RecordFolder(run / "games").write("train", 1, responses)
    RecordFolder(run / "games").write("val", 1, [replace(responses[0], key=GameKey("val", 7, 1, 0))])
    validated = validation_metrics([replace(responses[0], key=GameKey("val", 7, 1, 0))])
    MetricsFile(run).log(training_metrics(responses, []) | validated, 1)
    (run / "config.yaml").write_text("data: {custom_cls: {name: QuestionDataset}}\ntrainer: {experiment_name: sums}\n")
    RunReport(run, tmp_path / "report").renew()
    show(page, tmp_path / "report", "index.html")
    scroll_through(page)
    text = page.locator("body").inner_text()
    assert "player" not in text and "Responses trained" in text
    page.click("text=Evaluation")
    page.wait_for_selector("main table")
    text = page.locator("main").inner_text()
    assert "player" not in text and "100.0%" in text and "cannot be read" in text
    page.go_back()
    page.click("text=Look at the responses")
    page.wait_for_selector("tbody tr")
    assert page.locator("tbody tr").count() == 5 and "player" not in page.locator("main").inner_text()
    page.select_option("select[name=outcome]", label="half right")
    wait_until(page, "document.querySelectorAll('tbody tr').length === 1")
    assert page.locator("[role=status].note").inner_text() == "1 response"
    page.click("tbody tr a")
    page.wait_for_selector(".replay")
    text = page.locator("main").inner_text()
    assert "half right" in text and "The end: half right" in text and "can be read" in text and "What is 1 + 1?" in text
