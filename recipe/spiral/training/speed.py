"""Metrics of a step's time: how fast it is, who waits, and what is neither playing nor training."""

from __future__ import annotations

from collections.abc import Mapping

from omegaconf import DictConfig

from ..processes.runtime import rollout_processes
from ..rollouts.channel import Played

#: What the policy's workers count in a mini-batch: tokens of its turns, and positions that the model computes.
TOKENS, POSITIONS = "actor/tokens", "actor/positions"
#: A critic's workers count the same.
OF_CRITIC = ("critic/tokens", "critic/positions")
#: verl's timers of a step: of the engine's part, and of those of the policy's workers.
PLAY = "gen"
FORWARD_AND_BACKWARD = ("old_log_prob", "ref", "values", "update_critic", "update_actor")
SYNC = "update_weights"


def speed_metrics(
    metrics: dict[str, float], games: Played, seconds: Mapping[str, float], config: DictConfig
) -> dict[str, float]:
    """``perf/...`` of a step.

    ``{games,turns,response_tokens}_per_second`` are of the whole step. ``rollout/...`` are of the time in which games
    are under way, in the asynchronous modes the whole step: response tokens per second; the share of the games' time in
    which an engine had their requests; the mean number of games under way; how busy a process that plays games is.
    ``update/...``: tokens per second, and the share of the computed positions that are padding. ``idle/...``: the share
    of the step in which the engine, or the policy, has nothing to do. ``overhead``: the share that is neither playing,
    forward, backward, nor the sync of weights.

    Of the step's ``metrics``, verl's among them, what the workers counted is taken out. ``seconds`` are verl's timers.
    """
    step, play, update = seconds["step"], seconds.get(PLAY, 0.0), seconds.get("update_actor", 0.0)
    turns = metrics["turns/count"]
    tokens = turns * metrics["turns/response_tokens"]
    training = sum(seconds.get(name, 0.0) for name in FORWARD_AND_BACKWARD)
    speed = {
        "perf/games_per_second": len(games.records) / step,
        "perf/turns_per_second": turns / step,
        "perf/response_tokens_per_second": tokens / step,
        "perf/idle/engine": 1 - play / step,
        "perf/idle/policy": 1 - training / step,
        "perf/overhead": 1 - (play + training + seconds.get(SYNC, 0.0)) / step,
    }
    if play and (played := sum(pace.seconds for pace in games.paces)):
        under_way = play if config.trainer.v1.trainer_mode == "sync" else step
        busy = sum(pace.cpu for pace in games.paces)
        speed |= {
            "perf/rollout/tokens_per_second": tokens / under_way,
            "perf/rollout/games_under_way": played / under_way,
            "perf/rollout/worker_busy": busy / under_way / rollout_processes(config),
        }
        if engine := sum(pace.engine for pace in games.paces):
            speed["perf/rollout/engine_share"] = engine / played
    for name in OF_CRITIC:
        metrics.pop(name, None)
    computed, positions = metrics.pop(TOKENS, 0.0), metrics.pop(POSITIONS, 0.0)
    if update and positions:
        epochs = int(config.actor_rollout_ref.actor.ppo_epochs)
        speed |= {
            "perf/update/tokens_per_second": epochs * metrics["perf/total_num_tokens"] / update,
            "perf/update/padding": 1 - computed / positions,
        }
    return speed
