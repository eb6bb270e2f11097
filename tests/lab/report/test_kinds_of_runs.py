"""The report of a run on questions, in a real browser."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from recipe.spiral.lab.record_folder import RecordFolder
from recipe.spiral.lab.report.run_report import RunReport
from recipe.spiral.players.records import GameRecord
from recipe.spiral.players.seeds import GameKey
from recipe.spiral.spin.training_questions import GRADER
from recipe.spiral.storage.run_files import MetricsFile
from recipe.spiral.training.metrics import training_metrics, validation_metrics
from tests.lab.report.test_pages import scroll_through, show, wait_until
from tests.made import record, turn

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
