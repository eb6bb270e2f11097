"""Asynchronous runs with a pool of adapters and batches of turns, and with games 50 times as long as the others."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from recipe.spiral.lab.audit.__main__ import main as audit
from recipe.spiral.lab.models import embedded
from recipe.spiral.lab.watching.game_metrics import staleness
from tests.e2e.conftest import LORA, Runs, check_who_answered, games_of, logged
from tests.e2e.test_asynchronous import asynchronous, count, steps_of

pytestmark = [pytest.mark.e2e, pytest.mark.full]


def test_thirty_adapters_through_a_pool_of_four_in_batches_of_turns(tmp_path: Path, model: Path, runs: Runs) -> None:
    settings = asynchronous(
        model,
        "colocate_async",
        "trainer.total_training_steps=30",
        "trainer.save_freq=5",
        "trainer.max_actor_ckpt_to_keep=2",
        "games=[KuhnPoker]",
        "batch_unit=turns",
        "data.train_batch_size=24",
        *("fsp.enabled=true", "fsp.size=4", "fsp.update_interval=1", "fsp.members_per_step=2", "fsp.sample=hard"),
        *LORA,
    )
    runs.kill_and_resume(tmp_path / "run", 13, *settings)
    assert count(tmp_path / "run") == "each once" and audit([str(tmp_path / "run")]) == 0
    records = games_of(tmp_path / "run")
    check_who_answered(records)
    members = {name for record in records if record.opponent == "pool" for name in record.players} - {"policy"}
    assert len(members) > 15, members
    assert all(step["fsp/size"] <= 4.0 and step["turns/count"] >= 24 for step in logged(tmp_path / "run").values())


#: The observations are those of one round, which the model has learned to read.
MARATHON = '''
from recipe.spiral.games.kuhn_poker import KuhnPoker


class Marathon(KuhnPoker):
    """One round of Kuhn poker, and every fourth game 50 rounds."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed, rounds=1 if seed % 4 else 50)

    def _score(self, player: int) -> list[str]:
        return []
'''


@pytest.mark.parametrize("mode", ["colocate_async", "separate_async"])
def test_long_games_are_trained_like_the_others(tmp_path: Path, runs: Runs, mode: str) -> None:
    """None is dropped and none becomes too old. Whether long ones are older than others depends on who is slower, the
    engine or the learner.

    With the shipped model, whose answers are nearly always legal: the other tests' one would soon end the long games.
    """
    model = embedded("tiny", ["KuhnPoker", "TicTacToe"])
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "marathon.py").write_text(MARATHON, encoding="utf-8")
    settings = asynchronous(
        model,
        mode,
        "games=[mine.marathon:Marathon]",
        "trainer.total_training_steps=16",
        f"trainer.v1.{mode}.num_warmup_batches=2",
        "trainer.save_freq=2",
        "trainer.max_actor_ckpt_to_keep=2",
        "actor_rollout_ref.actor.optim.lr=1e-5",
    )
    runs.kill_and_resume(tmp_path / "run", 7, *settings, cwd=tmp_path)
    assert count(tmp_path / "run") == "each once"
    command = [sys.executable, "-m", "recipe.spiral.audit", str(tmp_path / "run")]  # where it finds the game
    audited = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert audited.returncode == 0, audited.stdout + audited.stderr
    ages: dict[bool, list[int]] = {False: [], True: []}
    for step, records in steps_of(tmp_path / "run").items():
        for record in records:
            assert record.discarded is None and staleness(record, step) <= 4
            ages[len(record.turns) > 50].append(staleness(record, step))
    assert len(ages[True]) > 10, "illegal answers end games early, but not so many"
    assert max(ages[True]) > 0, "they last longer than a step"
