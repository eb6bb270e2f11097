"""A pool on two ranks: a member has an engine on each of them, and their number changes nothing but the time."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from recipe.spiral.lab.audit.__main__ import main as audit
from recipe.spiral.players.records import GameRecord
from recipe.spiral.storage.record_folder import RecordFolder

from .conftest import DETERMINISM, Run, small

pytestmark = [pytest.mark.e2e, pytest.mark.full]
STEPS = 6


def test_a_member_on_two_ranks_plays_the_same_games_as_on_one(tmp_path: Path, model: Path, runs: list[Run]) -> None:
    played = {}
    for engines, replicas in ((2, "null"), (1, "1")):
        run = Run(
            tmp_path / f"engines-{engines}",
            *small(model, "seed=5", *DETERMINISM, f"trainer.total_training_steps={STEPS}"),
            *("trainer.n_gpus_per_node=2", "trainer.val_before_train=false", "trainer.test_freq=-1"),
            *("fsp.enabled=true", "fsp.update_interval=3", f"opponent_engine.replicas={replicas}"),
            *("trainer.save_freq=-1", "games=[TicTacToe,KuhnPoker]"),
        )
        runs.append(run)
        assert run.wait() == 0, run.output[-4000:]
        games = list(RecordFolder(run.run_dir / "games").read("train"))
        check_loads(run.run_dir, games, engines)
        assert audit([str(run.run_dir)]) == 0
        played[engines] = [said(record) for record in games]
    assert played[1] == played[2]


def check_loads(run_dir: Path, games: list[GameRecord], engines: int) -> None:
    """A member is loaded into every engine when it was not played in the step before, and not otherwise."""
    (log,) = run_dir.glob("metrics-*.jsonl")
    before: set[str] = set()
    members: set[str] = set()
    for line in log.read_text().splitlines():
        step, metrics = json.loads(line)["step"], json.loads(line)["data"]
        (member,) = {
            name
            for record in games
            if record.key.step == step and record.opponent == "pool"
            for name in record.players
            if name != "policy"
        }
        loads = 0 if member in before else engines
        assert (metrics["opponents/loads"], metrics["opponents/kept"]) == (loads, engines - loads), step
        before = {member}
        members |= before
    assert "step_000000" in members and step == STEPS


def said(record: GameRecord) -> object:
    turns = [(turn.response, turn.advantage, turn.tokens and turn.tokens.answered_by) for turn in record.turns]
    return record.key, record.game, record.players, record.trainable, record.rewards, turns
