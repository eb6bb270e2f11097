"""Reports of runs that are not the usual one, in a real browser: asynchronous, on questions, of games with people."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from recipe.spiral.games import make
from recipe.spiral.lab.play.playing import PERSON, SPLIT
from recipe.spiral.lab.play.session import save
from recipe.spiral.lab.report.run_report import RunReport
from recipe.spiral.match import Rules, play
from recipe.spiral.players.records import GameRecord
from recipe.spiral.players.seeds import GameKey
from recipe.spiral.spin.training_questions import GRADER
from recipe.spiral.storage.metrics_file import MetricsFile
from recipe.spiral.storage.record_folder import RecordFolder
from recipe.spiral.training.metrics import training_metrics, validation_metrics
from tests.lab.report.test_pages import scroll_through, show, wait_until
from tests.made import Scripted, record, turn
from tests.made_runs import finished, write_run

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = pytest.mark.e2e


def titles(page: Page) -> set[str]:
    return set(page.locator("figure h3").all_inner_texts())


def test_an_asynchronous_run_shows_how_old_its_games_are(page: Page, tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", steps=2, per_step=4)
    RunReport(run, tmp_path / "report").renew()
    show(page, tmp_path / "report", "index.html")
    assert not {"Staleness of the trained games", "Symptoms that the guard has seen"} & titles(page)
    for step in (1, 2):
        logged = {"async/staleness/mean": 0.5, "async/staleness/max": 2.0, "async/in_flight": 12.0}
        logged |= {"async/dropped": 1.0, "guard/low_entropy": step - 1.0, "guard/invalid": 0.0}
        logged |= {"async/off_policy/kl/0": 0.001, "async/off_policy/kl/1": 0.01, "async/bias/outcomes": 0.02}
        MetricsFile(run).log(logged, step)
    RunReport(run, tmp_path / "report").renew()
    show(page, tmp_path / "report", "index.html")
    scroll_through(page)
    found = {"Staleness of the trained games", "Games in flight", "Games that were too old"}
    assert found | {"Symptoms that the guard has seen"} <= titles(page)
    said = page.locator(".plot[aria-label^='Symptoms']").get_attribute("aria-label") or ""
    assert "low entropy" in said and "invalid" not in said


def test_a_pool_is_shown_where_no_game_is_recorded(page: Page, tmp_path: Path) -> None:
    run = tmp_path / "run"
    MetricsFile(run).log({"fsp/size": 1.0, "fsp/rating": 20.0, "games/count": 12.0}, 1)
    (run / "config.yaml").write_text("trainer: {experiment_name: bare}\n")
    RunReport(run, tmp_path / "report").renew()
    show(page, tmp_path / "report", "index.html")
    assert "GAMES TRAINED\n12" in page.locator("dl.tiles").inner_text().upper()
    page.click("nav >> text=Opponents")
    page.wait_for_selector("figure")
    assert "Members of the pool" in titles(page) and "no game with an opponent" in page.locator("main").inner_text()


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
    assert {"Answers in training", "Outcome and baseline", "Advantages"} <= titles(page)
    text = page.locator("body").inner_text()
    assert "player" not in text and "Opponents" not in text and "Responses trained" in text
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


def test_results_of_both_roles_are_drawn_where_they_differ(page: Page, tmp_path: Path) -> None:
    alone = write_run(tmp_path / "alone", steps=3, per_step=8)
    others = write_run(tmp_path / "others", steps=3, per_step=16, opponents=("random", "self"))
    roles = []
    for run in (alone, others):
        RunReport(run, run / "report").renew()
        show(page, run / "report", "index.html")
        roles.append(page.locator("figure", has_text="Results in training").all_inner_texts())
    assert all("of the policy with itself" in text for text in roles[0]) and len(roles[0]) == 2
    assert sum("the policy was player 0" in text for text in roles[1]) == 2
    assert sum("the policy was player 1" in text for text in roles[1]) == 2


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
    assert "Step" not in text and "Settings" not in text and "All metrics" not in text
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


def test_a_page_of_a_game_without_a_game_leads_to_all_of_them(with_people: Path, page: Page) -> None:
    page.goto(f"file://{with_people}/game.html")
    page.wait_for_selector("form.filters")
    assert page.url.endswith("/games.html")


def test_figures_are_written_out_and_piles_of_marks_are_not(with_people: Path, page: Page) -> None:
    show(page, with_people, "index.html")
    figures = page.evaluate("[12345.6, 1234, 0.3391, 99.96].map(value => number(value))")
    assert figures == ["12,346", "1,234", "0.339", "100"]
    assert page.evaluate("plain('e' + '\\u0301'.repeat(50) + 'x')") == "e" + "\u0301" * 4 + "x"


def test_an_action_of_a_megabyte_does_not_stop_a_replay(page: Page, tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", steps=1, per_step=2)
    long = "word " * 200_000
    game = record(0, turns=[turn(0, 0, response=f"\\boxed{{{long}}}", action=long, observation=long), turn(1, 0)])
    RecordFolder(run / "games").write("train", 1, [replace(game, past=[long], reason=long)])
    RunReport(run, tmp_path / "report").renew()
    show(page, tmp_path / "report", "game.html#train/1/0/0")
    page.wait_for_selector(".right .text")
    page.keyboard.press("ArrowRight")
    wait_until(page, "document.querySelector('.controls output').innerText === 'turn 2 of 2'")
    assert page.evaluate("document.querySelector('main').textContent.length") < 200_000
    assert page.evaluate("document.documentElement.scrollHeight") < 20_000
