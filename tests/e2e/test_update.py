"""What changes the update and not the games: each setting against the same step without it."""

from __future__ import annotations

from pathlib import Path

import pytest

from recipe.spiral.players.records import GameRecord

from .conftest import DETERMINISM, Run
from .test_knobs import train

pytestmark = [pytest.mark.e2e, pytest.mark.full]
ACTOR = "actor_rollout_ref.actor"


def step(folder: Path, model: Path, runs: list[Run], *overrides: str) -> tuple[list[object], float]:
    """One step: what was played and trained, and the gradient's norm."""
    records, (metrics,) = train(folder, model, runs, *DETERMINISM, "trainer.total_training_steps=1", *overrides)
    return [said(record) for record in records], metrics["actor/grad_norm"]


def said(record: GameRecord) -> object:
    return record.key, record.rewards, [(turn.response, turn.advantage) for turn in record.turns]


@pytest.fixture(scope="module")
def plain(model: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[list[object], float]:
    runs: list[Run] = []
    try:
        return step(tmp_path_factory.mktemp("plain"), model, runs)
    finally:
        for run in runs:
            run.close()


@pytest.mark.parametrize(
    ("setting", "same"),
    [
        # recomputed in the backward pass instead of kept: memory, not mathematics
        ("actor_rollout_ref.model.enable_gradient_checkpointing=true", True),
        (f"{ACTOR}.loss_agg_mode=token-mean", False),
        (f"{ACTOR}.entropy_coeff=0.1", False),
        (f"{ACTOR}.ppo_epochs=3", False),
    ],
)
def test_a_setting_of_the_update(
    tmp_path: Path, model: Path, runs: list[Run], plain: tuple[list[object], float], setting: str, same: bool
) -> None:
    games, norm = step(tmp_path, model, runs, setting)
    assert games == plain[0]
    assert (norm == pytest.approx(plain[1], rel=1e-4)) == same
