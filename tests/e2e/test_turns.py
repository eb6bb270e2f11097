"""Batches of turns in real runs: the fewest whole games a step, the others on record, and the same after a resume."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from recipe.spiral.lab.record_folder import RecordFolder
from recipe.spiral.players.records import GameRecord

from .conftest import Run, small
from .test_train_resume import check_arithmetic

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
        "trainer.val_before_train=false",
        "trainer.test_freq=-1",
    )


def test_steps_of_32_turns(tmp_path: Path, model: Path, runs: list[Run]) -> None:
    whole = Run(tmp_path / "whole", *overrides(model))
    runs.append(whole)
    assert whole.wait() == 0, whole.output[-4000:]
    records = list(RecordFolder(tmp_path / "whole" / "games").read("train"))
    metrics = steps_metrics(tmp_path / "whole")
    assert [step["training/global_step"] for step in metrics] == [1, 2, 3]
    for step, measured in enumerate(metrics, start=1):
        check_step([record for record in records if record.key.step == step], measured)
    check_arithmetic([record for record in records if record.discarded is None])
    assert any(record.discarded for record in records), "no surplus in three steps: take another seed"

    checkpoint = tmp_path / "whole" / "checkpoints" / "global_step_1"
    resumed = Run(
        tmp_path / "resumed",
        *overrides(model),
        "trainer.resume_mode=resume_path",
        f"trainer.resume_from_path={checkpoint}",
    )
    runs.append(resumed)
    assert resumed.wait() == 0, resumed.output[-4000:]
    again = list(RecordFolder(tmp_path / "resumed" / "games").read("train"))
    assert list(map(said, again)) == [said(record) for record in records if record.key.step > 1]


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


def steps_metrics(run_dir: Path) -> list[dict[str, float]]:
    lines = [line for file in sorted(run_dir.glob("metrics-*.jsonl")) for line in file.read_text().splitlines()]
    metrics = [json.loads(line)["data"] for line in lines]
    return [step for step in metrics if "actor/grad_norm" in step]


def said(record: GameRecord) -> tuple[object, ...]:
    turns = [(turn.player, turn.observation, turn.response, turn.advantage) for turn in record.turns]
    return record.key, record.game, record.discarded, record.rewards, record.baselines, turns
