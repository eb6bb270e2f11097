"""Validation in a real run: two opponents, a game that is not trained on, and questions with their own sampling."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from recipe.spiral.storage.record_folder import RecordFolder

from .conftest import Run, small

pytestmark = [pytest.mark.e2e, pytest.mark.full]
pytest.importorskip("math_verify")


def test_games_and_questions_are_validated_side_by_side(tmp_path: Path, model: Path, runs: list[Run]) -> None:
    questions = [{"id": f"q{number}", "problem": f"{number}?", "answer": str(number)} for number in range(5)]
    (tmp_path / "math500.jsonl").write_text("".join(json.dumps(question) + "\n" for question in questions))
    overrides = small(
        model,
        "games=[TicTacToe]",
        "validation.games=[TicTacToe,Nim]",
        "validation.opponents=[perfect,random]",
        f"validation.benchmarks=[{{id: math500, path: {tmp_path}, limit: 4, samples: 3, max_tokens: 8}}]",
        "trainer.total_training_steps=1",
        "trainer.test_freq=1",
        "trainer.save_freq=-1",
    )
    run = Run(tmp_path / "run", *overrides)
    runs.append(run)
    assert run.wait() == 0, run.output[-4000:]

    files = sorted((tmp_path / "run").glob("metrics-*.jsonl"))
    logged = [json.loads(line) for file in files for line in file.read_text().splitlines()]
    before, after = (entry["data"] for entry in logged if "val-core/math500/avg@3" in entry["data"])
    for metrics in (before, after):
        for opponent in ("perfect", "random"):
            for game in ("TicTacToe", "Nim"):
                assert [metrics[f"val-core/{opponent}/{game}/p{role}/games"] for role in (0, 1)] == [4.0, 4.0]
        assert (metrics["val-core/math500/count"], metrics["val-core/math500/answers"]) == (4.0, 12.0)
        assert metrics["val-core/TicTacToe/p0/win"] == metrics["val-core/perfect/TicTacToe/p0/win"]
    for step, metrics in ((0, before), (1, after)):
        lines = (tmp_path / f"run/benchmarks/step_{step:06d}.jsonl").read_text().splitlines()
        answers = [json.loads(line) for line in lines]
        assert len({(answer["question"], answer["number"]) for answer in answers}) == len(answers) == 12
        assert len({answer["seed"] for answer in answers}) == 12
        assert all(1 <= answer["tokens"] <= 8 for answer in answers)
        assert metrics["val-core/math500/truncated"] == pytest.approx(sum(one["truncated"] for one in answers) / 12)
        games = list(RecordFolder(tmp_path / "run/games").read_step("val", step))
        assert len(games) == 2 * 2 * 2 * 4
        assert {record.opponent for record in games} == {"perfect", "random"}
    assert "math500" in run.output
