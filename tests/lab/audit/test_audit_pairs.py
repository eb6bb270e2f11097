"""The audit of a run with ``loss=dpo``: which turns were chosen and rejected follows from tokens and outcomes."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from recipe.spiral.games import make
from recipe.spiral.match import Rules, play
from recipe.spiral.players.records import GameRecord, Tokens
from recipe.spiral.players.seeds import GameKey
from recipe.spiral.spin.answer_loop import answer_record
from recipe.spiral.spin.branches import branch_keys
from recipe.spiral.spin.dpo_settings import DpoSettings
from recipe.spiral.spin.pairs import PairObjective
from recipe.spiral.spin.response_scores import Score
from recipe.spiral.spin.training_questions import TrainingQuestion
from recipe.spiral.storage.record_folder import RecordFolder
from tests.lab.audit import test_audit
from tests.lab.audit.test_audit import GAMES, SEED, STEPS, Sampler, audit, make_run, play_step
from tests.made_rows import rows_of

original = play_step


def train(settings: object, records: list[GameRecord], moving: object) -> None:
    rows = rows_of(records)
    pairs = PairObjective(DpoSettings()).choose(rows)
    for keys in pairs.keys:
        for key, mark in zip(keys, (1.0, -1.0), strict=True):
            rows.turns[rows.keys.index(key)].advantage = mark


@pytest.fixture
def run_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Trained by the trainer's own functions."""
    monkeypatch.setattr(test_audit, "train", train)
    return make_run(tmp_path, algorithm__adv_estimator="dpo", data__games_per_start=4)


def test_pairs_of_a_run_in_order(run_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, report, found = audit(run_dir, capsys)
    assert (status, found["problems"], found["steps"]) == (0, [], [*range(1, STEPS + 1)])
    assert "not recomputed" not in report
    records = RecordFolder(run_dir / "games").read_step("train", 1)
    marks = [turn.advantage for record in records for turn in record.turns]
    assert marks.count(1.0) == marks.count(-1.0) > 0 and marks.count(None) > 0


def test_a_pair_the_wrong_way_round_and_one_too_many_are_found(
    run_dir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = RecordFolder(run_dir / "games")
    records = list(folder.read_step("train", 2))
    turns = [turn for record in records for turn in record.turns]
    wrong = next(turn for turn in turns if turn.advantage == 1.0)
    wrong.advantage = -1.0
    other = next(turn for turn in turns if turn.left_out == "unpaired")
    other.advantage, other.left_out = 1.0, None
    folder.write("train", 2, records)
    status, _, found = audit(run_dir, capsys)
    assert status == 1 and len(found["problems"]) == 2
    assert sum("advantage -1 should be 1" in problem for problem in found["problems"]) == 1
    assert sum("left out for None, should be for unpaired" in problem for problem in found["problems"]) == 1


def answers(settings: object, step: int) -> list[GameRecord]:
    """A step's responses to questions, four to each, as ``spin.answer_loop`` records them."""
    records = []
    for index in range(GAMES):
        key = replace(GameKey("train", SEED, step, index), group=index // 4 * 4)
        asked = TrainingQuestion("sums", "3", f"What is {index // 4} + 1?", "1", "sums", "1", {})
        tokens = Tokens([1, index // 4], [index % 3], [-0.5], (step - 1, step - 1))
        score = Score(None, problem="time-out") if index == step else Score(float(index % 3 == 0))
        records.append(answer_record(key, asked, "text", tokens, False, score))
    return records


def test_a_run_on_questions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("recipe.spiral.training.rows.tq.kv_clear", lambda **kwargs: None)
    monkeypatch.setattr(test_audit, "train", train)
    monkeypatch.setattr(test_audit, "play_step", answers)
    changes = {"custom_cls__name": "QuestionDataset", "train_batch_size": GAMES // 4}
    made = make_run(
        tmp_path,
        algorithm__adv_estimator="dpo",
        actor_rollout_ref__rollout__n=4,
        **{f"data__{name}": value for name, value in changes.items()},
    )
    status, report, found = audit(made, capsys)
    assert (status, found["problems"], found["discarded"]) == (0, [], {"void": STEPS})
    assert "answers to questions are not graded again" in report
    records = list(RecordFolder(made / "games").read_step("train", 2))
    records[0].key = replace(records[0].key, group=8)
    RecordFolder(made / "games").write("train", 2, records)
    assert any(
        "is no response to the question at its place" in problem for problem in audit(made, capsys)[2]["problems"]
    )


def with_branches(settings: object, step: int) -> list[GameRecord]:
    """A step's games, each with two branches from one of its turns, as ``rollout`` plays them."""
    made = []
    for record in original(settings, step):
        made.append(record)
        if record.discarded is not None:
            continue
        for key, place in branch_keys(record.key, len(record.turns), states=1, continuations=2):
            past = [str(turn.action) for turn in record.turns[:place]]
            game = make(record.game, key.game_seed())
            playing = play(key, record.game, game, [Sampler(), Sampler()], (0, 1), Rules(), past=past)
            made.append(asyncio.run(playing))
    return made


def test_a_run_with_branches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("recipe.spiral.training.rows.tq.kv_clear", lambda **kwargs: None)
    monkeypatch.setattr(test_audit, "train", train)
    monkeypatch.setattr(test_audit, "play_step", with_branches)
    made = make_run(tmp_path, algorithm__adv_estimator="dpo", branching__states=1, branching__continuations=2)
    status, _, found = audit(made, capsys)
    assert (status, found["problems"]) == (0, [])
    assert sum(tally["replayed"] for tally in found["games"].values()) > 2 * STEPS * GAMES

    folder = RecordFolder(made / "games")
    records = list(folder.read_step("train", 2))
    assert any(turn.advantage for record in records if record.key.retry for turn in record.turns)
