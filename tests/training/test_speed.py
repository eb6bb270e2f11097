"""Metrics of a step's time, from verl's timers and what the games reported."""

from __future__ import annotations

import pytest
from omegaconf import OmegaConf

from recipe.spiral.rollouts.channel import Played
from recipe.spiral.rollouts.pace import Pace
from recipe.spiral.training.speed import POSITIONS, TOKENS, speed_metrics
from tests.made import record

CONFIG = OmegaConf.create(
    {
        "actor_rollout_ref": {"rollout": {"agent": {"num_workers": 2}}, "actor": {"ppo_epochs": 2}},
        "trainer": {"v1": {"trainer_mode": "sync"}},
    }
)
SECONDS = {"step": 10.0, "gen": 4.0, "old_log_prob": 1.0, "update_actor": 3.0, "update_weights": 0.5, "adv": 0.2}


def counted() -> dict[str, float]:
    return {
        "turns/count": 100.0,
        "turns/response_tokens": 8.0,
        "perf/total_num_tokens": 3000.0,
        TOKENS: 90.0,
        POSITIONS: 100.0,
    }


def games(*paces: Pace) -> Played:
    return Played([record(index) for index in range(20)], [], paces=list(paces))


def speed(seconds: dict[str, float] = SECONDS, paces: tuple[Pace, ...] = (), mode: str = "sync") -> dict[str, float]:
    config = OmegaConf.merge(CONFIG, {"trainer": {"v1": {"trainer_mode": mode}}})
    return speed_metrics(counted(), games(*paces), seconds, config)


def test_a_steps_time() -> None:
    found = speed()
    assert found["perf/games_per_second"] == 2.0
    assert found["perf/turns_per_second"] == 10.0
    assert found["perf/response_tokens_per_second"] == 80.0
    assert found["perf/idle/engine"] == pytest.approx(0.6)
    assert found["perf/idle/policy"] == pytest.approx(0.6)
    assert found["perf/overhead"] == pytest.approx(0.15)


def test_a_rollouts_time() -> None:
    found = speed(paces=(Pace(2.0, 1.0, 0.5), Pace(6.0, 5.0, 3.5)))
    assert found["perf/rollout/tokens_per_second"] == 200.0
    assert found["perf/rollout/engine_share"] == 0.75
    assert found["perf/rollout/games_under_way"] == 2.0
    assert found["perf/rollout/worker_busy"] == 0.5


def test_games_that_go_on_are_under_way_in_the_whole_step() -> None:
    found = speed(paces=(Pace(5.0, 1.0, 0.5), Pace(15.0, 9.0, 3.5)), mode="separate_async")
    assert found["perf/rollout/tokens_per_second"] == 80.0
    assert found["perf/rollout/engine_share"] == 0.5
    assert found["perf/rollout/games_under_way"] == 2.0
    assert found["perf/rollout/worker_busy"] == 0.2


def test_an_updates_time() -> None:
    found = speed()
    assert found["perf/update/tokens_per_second"] == 2000.0, "each epoch computes all tokens"
    assert found["perf/update/padding"] == pytest.approx(0.1)


def test_what_was_not_done_has_no_metrics() -> None:
    found = speed({"step": 10.0})
    assert not [name for name in found if "/rollout/" in name or "/update/" in name]
    assert found["perf/overhead"] == 1.0


def test_an_engine_that_does_not_say_its_seconds_has_no_share() -> None:
    assert "perf/rollout/engine_share" not in speed(paces=(Pace(2.0, 0.0, 0.5),))


def test_what_the_workers_counted_is_not_logged_twice() -> None:
    metrics = counted() | {"critic/tokens": 90.0, "critic/positions": 100.0}
    speed_metrics(metrics, games(), SECONDS, CONFIG)
    assert not [name for name in metrics if name.endswith(("/tokens", "/positions"))]
