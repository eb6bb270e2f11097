"""Real runs with batches of turns (the fewest whole games a step, the others on record, the same after a resume) and
with a game of a user's own package.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from recipe.spiral.players.records import GameRecord
from tests.e2e.conftest import NO_VALIDATION, Runs, games_of, logged, said, small
from tests.e2e.test_train_resume import check_arithmetic
from tests.games.playouts import PENNIES

pytestmark = [pytest.mark.e2e, pytest.mark.full]
STEPS = 3
TURNS = 32


def overrides(model: Path) -> list[str]:
    return small(
        model,
        "batch_unit=turns",
        f"data.train_batch_size={TURNS}",
        "num_mini_batches=2",
        f"trainer.total_training_steps={STEPS}",
        "trainer.save_freq=1",
        "trainer.max_actor_ckpt_to_keep=3",
        *NO_VALIDATION,
    )


def test_steps_of_32_turns(tmp_path: Path, model: Path, runs: Runs) -> None:
    runs.train(tmp_path / "whole", *overrides(model))
    records, metrics = games_of(tmp_path / "whole"), logged(tmp_path / "whole")
    assert [*metrics] == [1, 2, 3]
    for step, measured in metrics.items():
        check_step([record for record in records if record.key.step == step], measured)
    check_arithmetic([record for record in records if record.discarded is None])
    assert any(record.discarded for record in records), "no surplus in three steps: take another seed"

    checkpoint = tmp_path / "whole" / "checkpoints" / "global_step_1"
    runs.train(
        tmp_path / "resumed",
        *overrides(model),
        "trainer.resume_mode=resume_path",
        f"trainer.resume_from_path={checkpoint}",
    )
    assert list(map(said, games_of(tmp_path / "resumed"))) == [
        said(record) for record in records if record.key.step > 1
    ]


def check_step(games: list[GameRecord], metrics: dict[str, float]) -> None:
    """The step is the fewest games of it that give enough turns; the others are surplus, and count for nothing."""
    assert [game.key.index for game in games] == list(range(len(games)))
    trained = [game for game in games if game.discarded is None]
    surplus = [game for game in games if game.discarded == "surplus"]
    assert games == trained + surplus
    turns = [len(game.turns) for game in trained]
    assert sum(turns) >= TURNS > sum(turns[:-1])
    assert all(turn.advantage is not None for game in trained for turn in game.turns)
    assert all(turn.advantage is None for game in surplus for turn in game.turns)
    assert all(game.baselines == (None, None) for game in surplus)
    assert metrics["games/discarded/surplus"] == len(surplus)
    assert (metrics["games/count"], metrics["turns/count"]) == (len(trained), sum(turns))
    assert metrics["games/rounds"] >= 1


PENNY = "mine.pennies:Pennies"


def test_a_users_game_is_trained_and_audited(tmp_path: Path, model: Path, runs: Runs) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "pennies.py").write_text(PENNIES, encoding="utf-8")
    short = ["trainer.total_training_steps=2", "trainer.test_freq=2"]
    runs.train(tmp_path / "run", *small(model, *short), f"games=[{PENNY}]", cwd=tmp_path)
    trained, validated = games_of(tmp_path / "run"), games_of(tmp_path / "run", "val")
    assert {record.game for record in (*trained, *validated)} == {PENNY} and len(trained) == 32
    assert {record.opponent for record in validated} == {"random"}
    metrics = {name for data in logged(tmp_path / "run").values() for name in data}
    assert {name.split("/")[1] for name in metrics if name.startswith("games/") and "/p0/" in name} == {PENNY}
    audit = [sys.executable, "-m", "recipe.spiral.audit", str(tmp_path / "run")]
    ran = subprocess.run(audit, cwd=tmp_path, capture_output=True, text=True)
    assert ran.returncode == 0 and PENNY in ran.stdout, ran.stdout + ran.stderr
