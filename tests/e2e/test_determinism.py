"""One seed, one run: twice the same, and the same again when it is killed on the way."""

from __future__ import annotations

import random
import signal
import time
from pathlib import Path

import pytest
import torch

from recipe.spiral.lab.record_folder import RecordFolder
from recipe.spiral.players.records import GameRecord

from .conftest import DETERMINISM, Run, small

pytestmark = [pytest.mark.e2e, pytest.mark.full]
STEPS = 20


def overrides(model: Path) -> list[str]:
    return small(
        model,
        "seed=3",
        *DETERMINISM,
        f"trainer.total_training_steps={STEPS}",
        "trainer.save_freq=3",
        "trainer.val_before_train=false",
        "trainer.test_freq=-1",
        "actor_rollout_ref.actor.entropy_coeff=0.01",
    )


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory, model: Path) -> Path:
    folder = tmp_path_factory.mktemp("uninterrupted") / "run"
    run = Run(folder, *overrides(model))
    try:
        assert run.wait() == 0, run.output[-4000:]
    finally:
        run.close()
    return folder


def test_two_runs_are_the_same(uninterrupted: Path, tmp_path: Path, model: Path, runs: list[Run]) -> None:
    again = Run(tmp_path / "run", *overrides(model))
    runs.append(again)
    assert again.wait() == 0, again.output[-4000:]
    assert_same(uninterrupted, tmp_path / "run")


def test_a_run_killed_at_random_is_the_same(uninterrupted: Path, tmp_path: Path, model: Path, runs: list[Run]) -> None:
    moment = random.Random(time.time_ns())
    for step in (moment.randrange(2, 9), moment.randrange(10, 18)):
        run = Run(tmp_path / "run", *overrides(model))
        runs.append(run)
        run.wait_for(rf"^step *{step}/{STEPS} ")
        pause = moment.random() * 2
        time.sleep(pause)
        print(f"killed {pause:.2f} s after step {step}")
        run.signal(signal.SIGKILL)
        run.wait()
    last = Run(tmp_path / "run", *overrides(model))
    runs.append(last)
    assert last.wait() == 0, last.output[-4000:]
    assert_same(uninterrupted, tmp_path / "run")


def assert_same(one: Path, other: Path) -> None:
    """Tokens, outcomes, baselines and advantages of every step, and the weights at the end."""
    first, second = (list(RecordFolder(run / "games").read("train")) for run in (one, other))
    assert [said(record) for record in first] == [said(record) for record in second]
    differences = [
        abs(a - b)
        for record, twin in zip(first, second, strict=True)
        for turn, same in zip(record.turns, twin.turns, strict=True)
        if turn.tokens and same.tokens
        for a, b in zip(turn.tokens.log_probs or [], same.tokens.log_probs or [], strict=True)
    ]
    print(
        f"{sum(d > 0 for d in differences)} of {len(differences)} log-probabilities differ, at most {max(differences)}"
    )
    assert max(differences) < 1e-5
    mine, others = weights(one), weights(other)
    assert mine.keys() == others.keys()
    assert all(torch.equal(mine[name], others[name]) for name in mine)


def said(record: GameRecord) -> object:
    turns = [(turn.tokens.response_ids if turn.tokens else None, turn.verdict, turn.advantage) for turn in record.turns]
    return record.key, record.game, record.rewards, record.baselines, record.termination, turns


def weights(run: Path) -> dict[str, torch.Tensor]:
    file = run / f"checkpoints/global_step_{STEPS}/actor/model_world_size_1_rank_0.pt"
    shards = torch.load(file, weights_only=False)  # written by the run above
    return {name: getattr(shard, "_local_tensor", shard) for name, shard in shards.items()}
