"""The audit of a run with ``loss=dpo``: which turns were chosen and rejected follows from tokens and outcomes."""

from __future__ import annotations

from pathlib import Path

import pytest

from recipe.spiral.play.records import GameRecord
from recipe.spiral.storage.record_folder import RecordFolder
from recipe.spiral.training.pairs import choose_pairs
from recipe.spiral.training.rows import Row
from tests.audit import test_audit
from tests.audit.test_audit import STEPS, audit, make_run


class Batch:
    """verl's batch, as far as it is looked at here."""

    def __init__(self, keys: list[str]) -> None:
        self.keys, self.partition_id = keys, "train"

    def __len__(self) -> int:
        return len(self.keys)

    def select_keys(self, keys: list[str]) -> Batch:
        return Batch(keys)


@pytest.fixture
def run_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Trained by the trainer's own functions."""
    monkeypatch.setattr("recipe.spiral.training.rows.tq.kv_clear", lambda **kwargs: None)

    def train(settings: object, records: list[GameRecord], moving: object) -> None:
        rows = {f"{r.key}/{t.player}/{t.turn}": Row(r, t) for r in records for t in r.turns}
        _, pairs = choose_pairs(Batch([*rows]), rows)
        for chosen, rejected in pairs.keys:
            rows[chosen].turn.advantage, rows[rejected].turn.advantage = 1.0, -1.0

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
