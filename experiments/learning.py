"""Measures what is learned in training: ``python -m experiments.learning -cn kuhn``.

Each arm is trained with each seed: by ``main_spiral``, one run after another, with ``main_eval`` to measure every
checkpoint, or by the quick loop. The figures become a result file and its page. A stopped experiment goes on: a run
from its latest checkpoint, an evaluation with what it has not measured yet, the quick loop with unfinished runs.
"""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import Any

from omegaconf import DictConfig, OmegaConf

from experiments import quick_runs
from experiments.command import Failed, run_experiment
from experiments.composed import compose_run, differences, warm_start
from experiments.curve_points import Point, average_policy, points_of
from experiments.learning_page import EXPERIMENTS, REFERENCE
from experiments.regularised_equilibrium import measures_at_rest
from experiments.result import (
    Curve,
    Result,
    add_commit,
    command_line,
    commits_of,
    current_commit,
    weights_digest,
)
from experiments.tabular_methods import at_the_end
from experiments.targets import OF
from recipe.spiral.lab.evaluation.outputs.points import NASH_CONV
from recipe.spiral.lab.sweep.jobs import Job, State
from recipe.spiral.lab.sweep.runner import Sweep
from recipe.spiral.rollouts.schedule import parse_games
from recipe.spiral.storage.metrics_file import METRICS, read_metrics
from recipe.spiral.storage.record_folder import RecordFolder

MODULE = "experiments.learning"
#: The name of a run in its evaluation.
RUN = "run"
#: What main_spiral's validation calls NashConv of a reference that moves.
OF_REFERENCE = "val-core/KuhnPoker/reference/nash_conv"
#: What can train: the real trainer, or the quick loop.
QUICK = "quick"
LOOPS = ("verl", QUICK)

_CHAT = "apply_chat_template_kwargs"


@dataclass(frozen=True)
class Run:
    """One arm with one seed.

    Attributes:
        arm: the arm's name.
        seed: the seed.
        start: the seed of the tiny model that it begins with; None: the config names the model.
        job: the arguments of ``main_spiral``, and the run's folder.
        config: the composed config of the arm, with any seed.
    """

    arm: str
    seed: int
    start: int | None
    job: Job
    config: DictConfig

    @property
    def folder(self) -> Path:
        """Where ``main_spiral`` leaves the run."""
        return self.job.folder

    @property
    def quick_folder(self) -> Path:
        """Where the quick loop leaves the run."""
        return self.folder.with_name(f"{self.folder.name}-quick")

    @property
    def trained_config(self) -> Any:
        """The config that ``main_spiral`` trained the run with."""
        return OmegaConf.load(self.folder / "config.yaml")


def plan(config: Mapping[str, Any]) -> list[Run]:
    """The runs of an experiment, seed by seed, so that one seed of every arm is finished first.

    With ``warm_starts`` each arm and seed is trained from each of these tiny models.

    Raises:
        ValueError: a setting is wrong; the message names it.
    """
    seeds, steps, every = config["seeds"], config["steps"], config["every"]
    starts = config.get("warm_starts") or [None]
    _check_numbers("seeds", seeds)
    if starts != [None]:
        _check_numbers("warm_starts", starts)
    if config["loop"] not in LOOPS:
        raise ValueError(f"loop={config['loop']!r}: must be one of {', '.join(LOOPS)}")
    if not config["arms"]:
        raise ValueError("arms: there are none; name at least one")
    if not all(type(number) is int and number > 0 for number in (steps, every)) or steps % every:
        raise ValueError(f"steps={steps}, every={every}: must be whole numbers, and steps a multiple of every")
    _check_page(config)
    work = Path(config["work"]).absolute()
    arguments = {arm: _arguments(config, overrides) for arm, overrides in config["arms"].items()}
    composed = {arm: compose_run(of_arm) for arm, of_arm in arguments.items()}
    if config["loop"] == QUICK and len({str(of_arm.games) for of_arm in composed.values()}) > 1:
        raise ValueError("arms: with loop=quick all arms must play the same game, because their measures are compared")
    return [
        Run(arm, seed, start, _job(arm, seed, start, arguments[arm], composed[arm], work), composed[arm])
        for seed in seeds
        for start in starts
        for arm in arguments
    ]


def _check_numbers(name: str, numbers: Any) -> None:
    if not (isinstance(numbers, list) and numbers and all(type(number) is int for number in numbers)):
        raise ValueError(f"{name}={numbers}: must be a list of whole numbers, at least one")
    if len(set(numbers)) < len(numbers):
        raise ValueError(f"{name}={numbers}: has one twice")


def _check_page(config: Mapping[str, Any]) -> None:
    """Check what only the page needs, so that nobody trains for hours before a mistake there shows."""
    if config["name"] not in EXPERIMENTS:
        raise ValueError(f"name={config['name']}: only these have a page (learning_page.py): {', '.join(EXPERIMENTS)}")
    if not isinstance(config["mean_over"], int) or config["mean_over"] < 1:
        raise ValueError(f"mean_over={config['mean_over']}: must be a whole number of games, at least 1")
    for target in config["targets"]:
        limits = target.keys() & {"at_most", "at_least"}
        if len(limits) != 1 or target.keys() - limits != {"measure", "games", "of"} or target["of"] not in OF:
            of = f"{', '.join(OF[:-1])} or {OF[-1]}"
            raise ValueError(f"targets: {target}: must have measure, games, at_most or at_least, and of: {of}")


def _arguments(config: Mapping[str, Any], overrides: Sequence[str]) -> list[str]:
    """The arguments of ``main_spiral`` for an arm with any seed."""
    return [
        *map(str, config["overrides"]),
        *map(str, overrides),
        f"trainer.total_training_steps={config['steps']}",
        f"trainer.save_freq={config['every']}",
        "trainer.max_actor_ckpt_to_keep=null",
        # checkpoints are measured afterwards, and more closely
        f"trainer.test_freq={config['test_freq']}",
        "trainer.val_before_train=false",
    ]


def _job(arm: str, seed: int, start: int | None, arguments: Sequence[str], composed: DictConfig, work: Path) -> Job:
    # a preset's file may have changed since, so the digest is of the composed config, not of the arguments alone
    settings = json.dumps(OmegaConf.to_container(composed, resolve=False), sort_keys=True, default=str)
    name, arguments = f"{arm}, seed {seed}", [*arguments, f"seed={seed}"]
    if start is not None:
        name = f"{name}, warm start {start}"
        arguments = [*arguments, f"actor_rollout_ref.model.path='{warm_start(composed, start)}'"]
    digest = _digest([*arguments, settings])
    folder = work / re.sub(r"[^\w.-]+", "_", arm) / f"seed-{seed}-{digest}"
    swept = {"arm": arm, "seed": str(seed)}
    return Job(name, folder, swept, (*arguments, f"run_dir='{folder}'"), digest)


def _digest(settings: Sequence[str]) -> str:
    """Part of a folder's name: other settings get another folder, so results of different settings never mix."""
    return hashlib.sha256("\0".join(settings).encode()).hexdigest()[:8]


def train_with_verl(runs: Sequence[Run], config: Mapping[str, Any]) -> list[Curve]:
    """Train with ``main_spiral`` what is not trained yet, and measure with ``main_eval``.

    Raises:
        Failed: a run or an evaluation failed.
    """
    train(runs, Path(config["work"]))
    return [measured_curve(run, config) for run in runs]


def train(runs: Sequence[Run], work: Path) -> None:
    """Train what is not trained yet; the lines of the run that is training are shown as they come.

    Raises:
        Failed: a run failed, or its guard stopped it.
    """
    work.mkdir(parents=True, exist_ok=True)
    jobs = [run.job for run in runs]
    if all(_is_trained(job) for job in jobs):
        return
    command = [sys.executable, "-m", "recipe.spiral.main_spiral"]
    # noted when each job starts: hours may lie between two jobs, and each runs the code of its start
    sweep = Sweep(jobs, work, 1, command, on_start=lambda job: add_commit(job.folder, current_commit()))
    if sweep.run() != 0:
        unfinished = [name for name, state in sweep.states.items() if state.status != "ok"]
        raise Failed(f"{work}: not trained to the end: {', '.join(unfinished)}; see output.txt in their folders")


def _is_trained(job: Job) -> bool:
    state = State.read(job.folder)
    return state.status == "ok" and state.config == job.config


def measured_curve(run: Run, config: Mapping[str, Any]) -> Curve:
    """The curve of a run that ``main_spiral`` has trained; measures what is not measured yet.

    Raises:
        Failed: an evaluation failed, or it measured something of some checkpoints only.
    """
    games, trained = games_until(run), run.trained_config
    results = measure(run, config)
    points = _with_reference(_points(results, games), run.folder)
    names = {name for point in points for name in point.measures}
    if partial := sorted(name for name in names if any(name not in point.measures for point in points)):
        raise Failed(
            f"measure: {run.job.name}: only some checkpoints have {', '.join(partial[:3])}: games against a run's own "
            "past have no place in a curve; measure them of the last checkpoint (measure_last)"
        )
    closely = measure_last(run, config)
    last = {} if closely is None else _points(closely, games)[-1].measures
    digest = weights_digest(trained.actor_rollout_ref.model.path)
    return Curve(points, last, average_policy(results, RUN), State.read(run.folder).seconds, model=digest)


def _points(results: Mapping[str, Any], games: Callable[[int], int]) -> list[Point]:
    """The points of an evaluation, with each role's mean reward beside the shares of won games."""
    points = points_of(results, RUN, games)
    by_policy = {f"{RUN}/step_{point.step:06d}": point.measures for point in points}
    for row in results["results"]:
        if row["policy"] in by_policy and row["role"] is not None and "reward" in row:
            name = f"{row['game']}, player {row['role']}, {row['opponent']}: reward"
            by_policy[row["policy"]][name] = row["reward"]["value"]
    return points


def _with_reference(points: Sequence[Point], folder: Path) -> list[Point]:
    """The points with NashConv of a reference that moves, where validation had it; it begins as the policy."""
    found = {
        logged.step: float(value)
        for logged, _ in read_metrics(folder / METRICS)
        if (value := logged.metrics.get(OF_REFERENCE)) is not None
    }
    if found:
        found.setdefault(0, points[0].measures[NASH_CONV])
    return [
        replace(point, measures={**point.measures, REFERENCE: found[point.step]}) if point.step in found else point
        for point in points
    ]


def measure(run: Run, config: Mapping[str, Any]) -> dict[str, Any]:
    """Measure a run's checkpoints and the model that it began with; returns the evaluation's results.

    Raises:
        Failed: the evaluation failed, or took longer than its limit.
    """
    trained = run.trained_config
    prompt = "".join(f", {key}: {value}" for key, value in trained.prompt.items())
    start = f"{{name: {RUN}/step_000000, kind: model, path: '{trained.actor_rollout_ref.model.path}'{prompt}}}"
    policies = f"{{name: {RUN}, path: '{run.folder}'}},{start}"
    return _evaluation(run, policies, ["opponents=[]", *config["measure"]], config["limit"])


def measure_last(run: Run, config: Mapping[str, Any]) -> dict[str, Any] | None:
    """Measure the last checkpoint alone, more closely; None where the config does not ask for it."""
    if not config["measure_last"]:
        return None
    policies = f"{{name: {RUN}, path: '{run.folder}', step: {config['steps']}}}"
    return _evaluation(run, policies, config["measure_last"], config["limit"])


def _evaluation(run: Run, policies: str, overrides: Sequence[str], limit: float) -> dict[str, Any]:
    data = run.trained_config.data
    lengths = [f"data.{key}={data[key]}" for key in ("max_prompt_length", "max_response_length")]
    # the start, an entry beside the run, has no config to read them from
    chat = [f"+data.{_CHAT}.{key}={json.dumps(value)}" for key, value in (data.get(_CHAT) or {}).items()]
    settings = [f"policies=[{policies}]", *lengths, *chat, *map(str, overrides)]
    folder = run.folder.with_name(f"{run.folder.name}-measured-{_digest(settings)}")
    file = folder / "results.json"
    if not file.is_file():
        command = [sys.executable, "-m", "recipe.spiral.main_eval", *settings, f"eval_dir='{folder}'"]
        try:
            status = subprocess.run(command, timeout=limit).returncode
        except subprocess.TimeoutExpired as error:
            raise Failed(f"{folder}: the evaluation took more than {limit:.0f} s; start again to go on") from error
        if status != 0:
            raise Failed(f"{folder}: the evaluation ended with status {status}; its message stands above")
    results: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    return results


def games_until(run: Run) -> Callable[[int], int]:
    """A function from a step to the number of games that were trained on until its end."""
    config = run.trained_config
    if config.batch_unit == "games" and not OmegaConf.select(config, "branching.states"):
        return lambda step: step * int(config.data.train_batch_size)
    records = RecordFolder(run.folder / "games").read("train")
    counts = Counter(record.key.step for record in records if record.discarded is None)
    return lambda step: sum(count for played, count in counts.items() if played <= step)


def train_with_quick_loop(runs: Sequence[Run], config: Mapping[str, Any]) -> list[Curve]:
    """Train and measure with the quick loop what is not done yet.

    Raises:
        ValueError: the quick loop cannot do what a run's config says; the message names the setting.
        Failed: a process died.
    """
    arguments = {run.quick_folder: (run.job.name, run.job.arguments) for run in runs}
    try:
        return quick_runs.run_all(arguments, int(config["every"]))
    except BrokenProcessPool as error:
        raise Failed("a run's process died, perhaps for lack of memory; start again to go on") from error


def gather(
    runs: Sequence[Run], curves: Sequence[Curve], config: Mapping[str, Any], command: str, commits: Sequence[str]
) -> Result:
    """Put the result of runs together."""
    if not all(REFERENCE in point.measures for curve in curves for point in curve.points):
        curves = [replace(curve, points=[_without_reference(point) for point in curve.points]) for curve in curves]
    by_arm: dict[str, dict[str, Any]] = {}
    configs = {run.arm: run.config for run in runs}
    at_rest = {arm: measures_at_rest(of_arm) for arm, of_arm in configs.items()}
    moving = REFERENCE in curves[0].points[0].measures
    in_table = {arm: at_the_end(of_arm) if moving else {} for arm, of_arm in configs.items()}
    default = compose_run([])
    for run, curve in zip(runs, curves, strict=True):
        by_arm.setdefault(run.arm, {})[str(run.seed) if run.start is None else f"{run.start}, {run.seed}"] = {
            "points": [{"step": point.step, "games": point.games, **point.measures} for point in curve.points],
            "intervals": [curve.points[0].intervals, curve.points[-1].intervals],
            "last": curve.last,
            "average": curve.average,
            "trained_on": [share.id for share in parse_games(run.config.games)],
            "at_rest": at_rest[run.arm],
            "in_table": in_table[run.arm],
            "policy": curve.policy,
        }
    settings = {arm: differences(of_arm, default) for arm, of_arm in configs.items()}
    return Result(
        name=str(config["name"]),
        title=str(config["title"]),
        command=command,
        commit=", ".join(commits),
        seeds=tuple(config["seeds"]),
        games=sum(curve.points[-1].games for curve in curves),
        minutes=round(sum(curve.seconds for curve in curves) / 60, 1),
        settings={key: value for key, value in config.items() if key not in ("work", "output", "limit")},
        rows=[_row(run, curve, int(config["mean_over"])) for run, curve in zip(runs, curves, strict=True)],
        figures={"curves": by_arm, "settings": settings, "models": sorted({curve.model for curve in curves})},
    )


def _without_reference(point: Point) -> Point:
    """Where an arm has no reference that moves, none is compared: rows and plots have the same measures in all arms."""
    return replace(point, measures={name: value for name, value in point.measures.items() if name != REFERENCE})


def _row(run: Run, curve: Curve, mean_over: int) -> dict[str, Any]:
    last = curve.points[-1]
    recent = [point for point in curve.points if point.games > last.games - mean_over]
    means = {f"{name}, mean": fmean(point.measures[name] for point in recent) for name in last.measures}
    start: dict[str, Any] = {"arm": run.arm, "seed": run.seed}
    if run.start is not None:
        start["warm_start"] = run.start
    start |= {"games": last.games, "minutes": round(curve.seconds / 60, 1)}
    return {**start, **last.measures, **means, **curve.last}


def run(config: dict[str, Any], overrides: list[str]) -> Result:
    """Train and measure what is not done yet, and put the result together.

    Raises:
        ValueError: a setting is wrong; the message names it.
        Failed: a run or an evaluation failed.
    """
    quick = config["loop"] == QUICK
    runs = plan(config)
    curves = train_with_quick_loop(runs, config) if quick else train_with_verl(runs, config)
    command = command_line(MODULE, ["--config-name", str(config["name"]), *overrides])
    folders = [run.quick_folder if quick else run.folder for run in runs]
    return gather(runs, curves, config, command, commits_of(folders))


if __name__ == "__main__":
    run_experiment("learning", run)
