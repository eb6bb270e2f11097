"""Each alternative in a short run of its own: other estimators and losses, KL, LoRA, more ranks."""

from __future__ import annotations

from pathlib import Path

import pytest

from recipe.spiral.players.records import GameRecord
from recipe.spiral.training.credit import GroupBaselines
from tests.e2e.conftest import LORA, NO_VALIDATION, Runs, games_of, logged, said, small

pytestmark = [pytest.mark.e2e, pytest.mark.full]


def train(folder: Path, model: Path, runs: Runs, *overrides: str) -> tuple[list[GameRecord], list[dict[str, float]]]:
    """Two steps; returns the games that were trained on, and the metrics of each step."""
    run = runs.train(folder / "run", *small(model, "trainer.total_training_steps=2", *NO_VALIDATION), *overrides)
    return games_of(run.run_dir), [*logged(run.run_dir).values()]


def advantages(records: list[GameRecord]) -> list[float]:
    return [turn.advantage for record in records for turn in record.turns if turn.advantage is not None]


def test_grpo_per_role(tmp_path: Path, model: Path, runs: Runs) -> None:
    """Its group means are not identically nought, and what is trained is what they say. Two processes of their own play
    the games."""
    records, metrics = train(
        tmp_path,
        model,
        runs,
        "actor_rollout_ref.rollout.agent.num_workers=2",
        "algorithm.adv_estimator=grpo_role",
        "data.games_per_start=8",
        "data.train_batch_size=2",
        "num_mini_batches=2",
        "actor_rollout_ref.actor.ppo_epochs=2",
    )
    assert len(metrics) == 2
    for step in (1, 2):
        games = [record for record in records if record.key.step == step]
        groups = GroupBaselines(games, by_deviation=True)
        assert any(baseline for game in games for baseline in groups.of(game))
        for game in games:
            assert game.baselines == pytest.approx(groups.of(game))
            for turn in game.turns:
                baseline = groups.of(game)[turn.player]
                assert baseline is not None
                expected = (game.rewards[turn.player] - baseline) * groups.scale(game, turn.player)
                assert turn.advantage == pytest.approx(expected, abs=1e-5)
    starts = {(record.key.step, record.key.group, record.turns[0].observation) for record in records}
    assert len(starts) == 2 * 2, "eight games from one state, two groups a step"


def test_gae_with_a_critic(tmp_path: Path, model: Path, runs: Runs) -> None:
    records, metrics = train(tmp_path, model, runs, "algorithm.adv_estimator=gae", "num_mini_batches=2")
    assert all("critic/vf_loss" in step for step in metrics)
    assert len(set(advantages(records))) > 2
    assert {record.baselines for record in records} == {(None, None)}


def test_reinforce_plus_plus_unclipped_and_corrected(tmp_path: Path, model: Path, runs: Runs) -> None:
    """With truncated importance sampling from the engine's log-probabilities."""
    records, metrics = train(
        tmp_path,
        model,
        runs,
        "algorithm.adv_estimator=reinforce_plus_plus",
        "loss=importance_sampling",
        "algorithm.rollout_correction.rollout_is=token",
        "algorithm.rollout_correction.rollout_is_threshold=2.0",
    )
    assert len(set(advantages(records))) > 2
    assert all(step["rollout_corr/rollout_is_mean"] == pytest.approx(1.0, abs=1e-3) for step in metrics)


def test_kl_in_loss_and_reward_with_filters(tmp_path: Path, model: Path, runs: Runs) -> None:
    records, metrics = train(
        tmp_path,
        model,
        runs,
        "actor_rollout_ref.actor.use_kl_loss=true",
        "algorithm.use_kl_in_reward=true",
        "algorithm.filter_draws=true",
        "rules.illegal_rewards=[-1,1]",
        "algorithm.reward_scale=0.5",
    )
    assert all("actor/kl_loss" in step for step in metrics)
    drawn = [record for record in records if record.result(0) == "draw"]
    assert all(turn.left_out == "draw" and turn.advantage is None for record in drawn for turn in record.turns)
    illegal = [record for record in records if record.termination == "illegal"]
    assert {tuple(sorted(record.rewards)) for record in illegal} <= {(-1.0, 1.0)}
    first = [record for record in records if record.key.step == 1 and record not in drawn]
    for record in first:
        for turn in record.turns:
            assert turn.advantage == pytest.approx(0.5 * record.rewards[turn.player], abs=1e-5), "no KL to itself yet"


@pytest.mark.parametrize("merge", [False, True])
def test_lora(tmp_path: Path, model: Path, runs: Runs, merge: bool) -> None:
    """The engine samples from the adapted weights: its probabilities are the trainer's, to bfloat16 if they are merged,
    which is how verl sends merged weights."""
    _, metrics = train(
        tmp_path,
        model,
        runs,
        *LORA,
        "actor_rollout_ref.actor.optim.lr=1e-2",
        f"actor_rollout_ref.model.lora.merge={merge}",
    )
    assert all(step["training/rollout_probs_diff_max"] < (0.02 if merge else 1e-3) for step in metrics)


def test_two_ranks_play_and_train_as_one(tmp_path: Path, model: Path, runs: Runs) -> None:
    """Two FSDP ranks with an engine each: the same games, baselines and advantages in the first step, as with one."""
    one, _ = train(tmp_path / "one", model, runs)
    two, metrics = train(tmp_path / "two", model, runs, "trainer.n_gpus_per_node=2")
    assert len(metrics) == 2

    first, second = ([said(record) for record in records if record.key.step == 1] for records in (one, two))
    assert first == second
