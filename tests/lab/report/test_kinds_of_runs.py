"""Reports of what is not the usual run, in a real browser: a run on questions, and games with people."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from recipe.spiral.games import make
from recipe.spiral.lab.play.playing import PERSON, SPLIT
from recipe.spiral.lab.play.session import save
from recipe.spiral.lab.record_folder import RecordFolder
from recipe.spiral.lab.report.run_report import RunReport
from recipe.spiral.match import Rules, play
from recipe.spiral.players.records import GameRecord
from recipe.spiral.players.seeds import GameKey
from recipe.spiral.spin.training_questions import GRADER
from recipe.spiral.storage.metrics_file import MetricsFile
from recipe.spiral.training.metrics import training_metrics, validation_metrics
from tests.lab.report.test_pages import scroll_through, show, wait_until
from tests.made import Scripted, record, turn
from tests.made_runs import finished

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = pytest.mark.e2e


def response(index: int, score: float) -> GameRecord:
    """A graded response to a question."""
    answered = turn(0, 0, observation="What is 1 + 1?", response="\\boxed{2}", action="2", advantage=0.5)
    made = record(index, game="sums", rewards=(score, 1 - score), turns=[answered], trainable=(0,), opponent=GRADER)
    return replace(made, players=("policy", GRADER), baselines=(0.5, None))


def test_a_run_on_questions_has_answers_and_no_opponents(page: Page, tmp_path: Path) -> None:
    run = tmp_path / "run"
    responses = [response(index, score) for index, score in enumerate((1.0, 1.0, 0.5, 0.0))]
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


def played(number: int, model: str, role: int, *answers: str) -> GameRecord:
    """A game of TicTacToe that a person played as a role; the answers are all players' in turn."""
    players = [Scripted(*answers[player::2], name="") for player in (0, 1)]
    players[role].name, players[1 - role].name = PERSON, model
    key = GameKey(SPLIT, 7, 0, number)
    made = finished(play(key, "TicTacToe", make("TicTacToe", 7), players, (1 - role,), Rules()))
    return replace(made, opponent=PERSON)


WON = [f"\\boxed{{[{square}]}}" for square in (0, 3, 1, 4, 2)]


@pytest.fixture(scope="module")
def with_people(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("made") / "played"
    for number, (model, role) in enumerate((("tiny", 0), ("tiny", 0), ("a <b>run</b>", 1))):
        save(folder, played(number, model, role, *WON))
    RunReport(folder, folder / "report").renew()
    return folder / "report"


def test_games_with_people_are_told_from_their_side(with_people: Path, page: Page) -> None:
    show(page, with_people, "index.html")
    text = page.locator("body").inner_text()
    assert "Step" not in text and "Settings" not in text
    rows = page.evaluate("[...document.querySelectorAll('tbody tr')].map(row => row.innerText.split('\\t'))")
    assert rows == [
        ["TicTacToe", "a <b>run</b>", "player 1", "0", "0", "1", "games"],
        ["TicTacToe", "tiny", "player 0", "2", "0", "0", "games"],
    ]
    page.click("text=Look at the games")
    page.wait_for_selector("tbody tr")
    page.select_option("select[name=outcome]", label="you won")
    wait_until(page, "document.querySelectorAll('tbody tr').length === 2")
    page.locator("tbody tr a").first.click()
    page.wait_for_selector(".board")
    page.keyboard.press("n")
    wait_until(page, "document.querySelector('main').innerText.includes('Game with a person, number 1: player 0 won')")
