"""An asynchronous mode together with what else a run can have: a pool of adapters, and batches of turns."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from recipe.spiral.lab.audit.__main__ import main as audit
from recipe.spiral.players.records import GameRecord
from recipe.spiral.storage.run_files import METRICS, read_metrics

from .conftest import Run, killed_and_resumed
from .counted import count
from .test_asynchronous import asynchronous, steps_of

pytestmark = [pytest.mark.e2e, pytest.mark.full]


def games(run_dir: Path) -> list[GameRecord]:
    return [record for records in steps_of(run_dir).values() for record in records]


def metrics(run_dir: Path) -> list[dict[str, float]]:
    return [{name: value or 0.0 for name, value in line.metrics.items()} for line, _ in read_metrics(run_dir / METRICS)]


def check_who_answered(records: list[GameRecord]) -> Counter[str]:
    """Each turn by whose it should be, and only the policy's are trained; returns each member's games."""
    played: Counter[str] = Counter()
    for record in records:
        if record.opponent == "pool":
            played.update({*record.players} - {"policy"})
        for turn in record.turns:
            learns = turn.player in record.trainable
            assert turn.tokens is not None
            assert turn.tokens.answered_by == (None if learns else record.players[turn.player])
            assert (turn.advantage is not None) == (learns and record.discarded is None)
    return played


def test_thirty_adapters_through_a_pool_of_four_in_batches_of_turns(
    tmp_path: Path, model: Path, runs: list[Run]
) -> None:
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
        *("actor_rollout_ref.model.lora_rank=8", "actor_rollout_ref.model.lora_alpha=16"),
    )
    killed_and_resumed(runs, tmp_path / "run", 13, settings)
    assert count(tmp_path / "run") == "each once" and audit([str(tmp_path / "run")]) == 0
    members = check_who_answered(games(tmp_path / "run"))
    assert len(members) > 15, members
    assert all(step["fsp/size"] <= 4.0 for step in metrics(tmp_path / "run"))
    assert all(step["turns/count"] >= 24 for step in metrics(tmp_path / "run"))
