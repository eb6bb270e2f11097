"""What a machine's runs cost, fitted to their metrics and records; and how well that predicts another run there.

Runs of the sync mode are fitted. The learner waits there while games are played, so that each phase is seen alone. The
engine's part is ``iteration * length of the longest game + turn * turns``: what rollout worker and TransferQueue do for
a turn is in it, as these do it meanwhile on the same cores.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean, median
from typing import Any

import numpy as np
from scipy.optimize import linprog

from recipe.spiral.processes.runtime import rollout_processes
from recipe.spiral.storage.metrics_file import METRICS, read_metrics

from . import games, runs
from .figures import Costs, EngineCosts, LearnerCosts
from .games import Game
from .run import DROP, SEPARATE, SYNC, WAIT, Result, Setup, simulate

#: What counts as the learner's phases.
LEARNING = ("old_log_prob", "ref", "values", "update_critic", "update_actor")
#: The driver's process, by the name after the colons (``recipe.spiral.processes.trainer_process.TRAINER``).
DRIVER = "trainer"
#: What few steps have besides: these are left out.
OTHERS = {"testing", "save_checkpoint"}
#: The first steps load libraries and fill caches.
SKIP = 2
#: Steps of a simulation that is compared with a run.
STEPS = 60


@dataclass(frozen=True)
class Step:
    """A measured step: its seconds, from the end of the one before to its own, by phase, and its games.

    Attributes:
        play: while the learner waits for games.
        rest: the driver's, between the phases.
        engine_idle: the share of the step in which the engine has nothing to do; None: not known.
        staleness: shares of the games by staleness.
        cpu: seconds of CPU that its processes used, by name; {}: not noted.
    """

    whole: float
    play: float
    learn: float
    update: float
    games: tuple[Game, ...]
    engine_idle: float | None
    staleness: dict[int, float]
    cpu: dict[str, float] = field(default_factory=dict)

    @property
    def rest(self) -> float:
        return self.whole - self.play - self.learn - self.update

    @property
    def turns(self) -> int:
        return sum(map(len, self.games))

    @property
    def tokens(self) -> int:
        return sum(map(games.tokens, self.games))

    @property
    def responses(self) -> int:
        return sum(response for game in self.games for _, response in game)

    @property
    def longest(self) -> int:
        return max(sum(response for _, response in game) for game in self.games)


def steps_of(run_dir: Path) -> list[Step]:
    """A run's steps, without the first ones and those that save or validate.

    Raises:
        ValueError: fewer than three are left.
    """
    played, cpu, steps, before = games.of_run(run_dir), runs.cpu_of_steps(run_dir), [], None
    for logged, _ in read_metrics(run_dir / METRICS):
        seconds = {name[9:]: value or 0.0 for name, value in logged.metrics.items() if name.startswith("timing_s/")}
        if logged.step in played and before is not None and logged.step > SKIP and not OTHERS & seconds.keys():
            learn = sum(seconds.get(name, 0.0) for name in LEARNING)
            ages = {age: logged.metrics.get(f"async/staleness/{age}") or 0.0 for age in range(9)}
            whole, update = logged.time - before, seconds["update_weights"]
            used = cpu.get(logged.step, {})
            idle = logged.metrics.get("perf/idle/engine")
            steps.append(Step(whole, seconds["gen"], learn, update, tuple(played[logged.step]), idle, ages, used))
        before = logged.time
    if len(steps) < 3:
        raise ValueError(f"{run_dir}: has {len(steps)} steps to measure, after the first {SKIP}; 3 are needed")
    return steps


def fit(steps: Sequence[Step], poll: float) -> Costs:
    """The costs with which a simulation's steps are most like these.

    Args:
        steps: of runs with different numbers of games in a step, one rank, and one engine.
        poll: seconds between two looks for finished games; on average half of them are waited for.
    """
    iteration, turn = _line([(step.longest, step.turns) for step in steps], [step.play - poll / 2 for step in steps])
    learner_fixed, token = _line([(1, step.tokens) for step in steps], [step.learn for step in steps])
    driver_step, driver_row = _line([(1, step.turns) for step in steps], [step.rest for step in steps])
    prompt, _ = games.mean_turn(game for step in steps for game in step.games)
    return Costs(
        engine=EngineCosts(iteration, 0.0, turn / prompt),
        learner=LearnerCosts(learner_fixed, token),
        update=median(step.update for step in steps),
        driver_step=driver_step,
        driver_row=driver_row,
        poll=poll,
    )


def driver(steps: Sequence[Step]) -> dict[str, float]:
    """CPU seconds of the driver for a step and for each of its turns, of runs that noted it (``runs.make``).

    Raises:
        ValueError: they did not.
    """
    noted = [step for step in steps if DRIVER in step.cpu]
    if len(noted) < 3:
        raise ValueError(f"{len(noted)} steps have the driver's CPU time; make runs with the part `run`")
    fixed, row = _line([(1, step.turns) for step in noted], [step.cpu[DRIVER] for step in noted])
    return {"driver_step": fixed, "driver_row": row}


def _line(features: Sequence[tuple[float, float]], seconds: Sequence[float]) -> tuple[float, float]:
    """Coefficients, none below 0, of the sum whose relative errors have the smallest mean: a few steps in which the
    machine did something else hardly move them."""
    scaled = np.array(features, float) / np.maximum(np.array(seconds), 1e-3)[:, None]
    number = len(scaled)
    # the errors are variables as well: above 1 and below it
    equal = np.hstack([scaled, np.eye(number), -np.eye(number)])
    found = linprog([0.0, 0.0] + [1.0] * (2 * number), A_eq=equal, b_eq=np.ones(number)).x
    return float(found[0]), float(found[1])


def compare(run_dir: Path, setup: Setup, costs: Costs, drawn: Sequence[Game]) -> dict[str, Any]:
    """A run's median steps beside a simulation of it, whose games are drawn from other runs."""
    steps = steps_of(run_dir)
    shares = [1 - step.play / step.whole if setup.mode == SYNC else step.engine_idle for step in steps]
    idle = [share for share in shares if share is not None]
    measured = {
        "seconds": median(step.whole for step in steps),
        "play": median(step.play for step in steps),
        "learn": median(step.learn for step in steps),
        "update": median(step.update for step in steps),
        "rest": median(step.rest for step in steps),
        "games": median(len(step.games) / step.whole for step in steps),
        "turns": median(step.turns / step.whole for step in steps),
        "response_tokens": median(step.responses / step.whole for step in steps),
        "engine_idle": median(idle) if idle else None,
        "learner_idle": 1 - median(step.learn / step.whole for step in steps),
        "staleness": fmean(_mean_age(step.staleness) for step in steps),
    }
    slowest, fastest = max(step.whole for step in steps), min(step.whole for step in steps)
    result = simulate(setup, costs, games.recorded(drawn))
    about = {"mode": setup.mode, "batch": setup.batch, "steps": len(steps), "fastest": fastest, "slowest": slowest}
    about |= {"cpu": median(sum(step.cpu.values()) for step in steps)}
    return about | {"measured": measured, "predicted": _predicted(result)}


def _predicted(result: Result) -> dict[str, float]:
    rest = result.seconds - result.play - result.learn - result.update
    shown = ("seconds", "play", "learn", "update", "games", "turns", "response_tokens", "engine_idle", "learner_idle")
    return {name: getattr(result, name) for name in shown} | {"rest": rest, "staleness": _mean_age(result.staleness)}


def _mean_age(shares: dict[int, float]) -> float:
    return sum(age * share for age, share in shares.items())


def setup_of(config: Any) -> Setup:
    """The settings of a run on one rank and one engine, from its config."""
    mode = str(config.trainer.v1.trainer_mode)
    asynchronous = config.get("asynchronous") or {"max_staleness": None, "on_stale": WAIT}
    stale = DROP if asynchronous["on_stale"] == DROP else WAIT
    ranks, rollout = int(config.trainer.n_gpus_per_node), config.actor_rollout_ref.rollout
    return Setup(
        mode=mode,
        engines=int(rollout.nnodes) * int(rollout.n_gpus_per_node) if mode == SEPARATE else ranks,
        learner=ranks,
        batch=int(config.data.train_batch_size),
        steps=STEPS,
        ahead=0.0 if mode == SYNC else float(config.trainer.v1[mode].num_warmup_batches),
        max_staleness=asynchronous["max_staleness"],
        on_stale=stale,
        workers=rollout_processes(config),
    )
