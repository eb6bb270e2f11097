"""What is learned in training, measured at its checkpoints: ``python -m experiments.learning -cn kuhn``.

Each arm is trained with each seed by ``main_spiral``, one run after another; ``main_eval`` measures every checkpoint of
a run; the figures become a result file and its page. All three go on where they were stopped: a run from its latest
checkpoint, an evaluation with what it has not measured yet.
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
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

import hydra
from omegaconf import DictConfig, OmegaConf

from experiments.commits import commit, note, noted
from experiments.composed import compose_run, differences
from experiments.curve import Course
from experiments.learning_page import EXPERIMENTS
from experiments.regularised_equilibrium import measures_at_rest
from experiments.result import BadResult, Result, command_line
from experiments.targets import OF
from recipe.spiral.evaluation.report.points import average_policy, points_of
from recipe.spiral.serving.schedule import parse_games
from recipe.spiral.storage.record_folder import RecordFolder
from recipe.spiral.sweep import Job, State, Sweep

MODULE = "experiments.learning"
#: What a run is called in its evaluation.
RUN = "run"
#: Who trains: the trainer itself, or ``quick``.
QUICK = "quick"
LOOPS = ("verl", QUICK)


class Failed(RuntimeError):
    """A run or an evaluation did; the message says which, and where it says why."""


@dataclass(frozen=True)
class Run:
    """One arm with one seed.

    Attributes:
        arm: its name.
        job: how it is trained, and where.
        config: what the arm's settings make, with any seed.
    """

    arm: str
    seed: int
    job: Job
    config: DictConfig


def plan(config: Mapping[str, Any]) -> list[Run]:
    """The runs of an experiment, seed by seed, so that one seed of every arm is done first.

    Raises:
        ValueError: a setting is wrong; the message names it.
    """
    seeds, steps, every = config["seeds"], config["steps"], config["every"]
    if not seeds or len(set(seeds)) < len(seeds) or not all(type(seed) is int for seed in seeds):
        raise ValueError(f"seeds={seeds}: must be different whole numbers, at least one")
    if config["loop"] not in LOOPS:
        raise ValueError(f"loop={config['loop']!r}: must be one of {', '.join(LOOPS)}")
    if not config["arms"]:
        raise ValueError("arms: there are none")
    if not all(type(number) is int and number > 0 for number in (steps, every)) or steps % every:
        raise ValueError(f"steps={steps}, every={every}: must be whole numbers, and steps a multiple of every")
    _check_page(config)
    work = Path(config["work"]).absolute()
    told = {arm: _arguments(config, overrides) for arm, overrides in config["arms"].items()}
    composed = {arm: compose_run(arguments) for arm, arguments in told.items()}
    if config["loop"] == QUICK and len({str(one.games) for one in composed.values()}) > 1:
        raise ValueError("arms: with loop=quick all of them must play the same game, whose measures are compared")
    return [
        Run(arm, seed, _job(arm, seed, arguments, composed[arm], work), composed[arm])
        for seed in seeds
        for arm, arguments in told.items()
    ]


def _check_page(config: Mapping[str, Any]) -> None:
    """What only the page needs: nobody should train for hours to be told then."""
    if config["name"] not in EXPERIMENTS:
        raise ValueError(f"name={config['name']}: there is a page for {', '.join(EXPERIMENTS)} only (learning_page.py)")
    if not isinstance(config["mean_over"], int) or config["mean_over"] < 1:
        raise ValueError(f"mean_over={config['mean_over']}: must be a whole number of games, at least 1")
    for target in config["targets"]:
        limits = target.keys() & {"at_most", "at_least"}
        if len(limits) != 1 or target.keys() - limits != {"measure", "games", "of"} or target["of"] not in OF:
            of = f"{', '.join(OF[:-1])} or {OF[-1]}"
            raise ValueError(f"targets: {target}: must have measure, games, at_most or at_least, and of: {of}")


def _arguments(config: Mapping[str, Any], overrides: Sequence[str]) -> list[str]:
    """Of ``main_spiral``, for an arm with any seed."""
    return [
        *map(str, config["overrides"]),
        *map(str, overrides),
        f"trainer.total_training_steps={config['steps']}",
        f"trainer.save_freq={config['every']}",
        "trainer.max_actor_ckpt_to_keep=null",
        # Checkpoints are measured afterwards, and more closely.
        "trainer.test_freq=-1",
        "trainer.val_before_train=false",
    ]


def _job(arm: str, seed: int, arguments: Sequence[str], composed: DictConfig, work: Path) -> Job:
    # a preset's file may have changed since, so what the arguments make counts, not what they are
    settings = json.dumps(OmegaConf.to_container(composed, resolve=False), sort_keys=True, default=str)
    arguments = [*arguments, f"seed={seed}"]
    digest = _digest([*arguments, settings])
    folder = work / re.sub(r"[^\w.-]+", "_", arm) / f"seed-{seed}-{digest}"
    swept = {"arm": arm, "seed": str(seed)}
    return Job(f"{arm}, seed {seed}", folder, swept, (*arguments, f"run_dir='{folder}'"), digest)


def _digest(settings: Sequence[str]) -> str:
    """Of a folder's name: other settings are another folder, so that nothing of theirs is taken for one's own."""
    return hashlib.sha256("\0".join(settings).encode()).hexdigest()[:8]


def train(runs: Sequence[Run], work: Path) -> None:
    """Train what is not trained yet.

    Raises:
        Failed: a run did, or was stopped by its guard.
    """
    work.mkdir(parents=True, exist_ok=True)
    jobs = [one.job for one in runs]
    if all(_trained(job) for job in jobs):
        return
    command = [sys.executable, "-m", "recipe.spiral.main_spiral"]
    # when it starts, not before: hours may lie between two jobs, and each has the code of its start
    sweep = Sweep(jobs, work, 1, command, on_start=lambda job: note(job.folder, commit()))
    if sweep.run() != 0:
        gone = [name for name, state in sweep.states.items() if state.status != "ok"]
        raise Failed(f"{work}: not trained to the end: {', '.join(gone)}; see output.txt in their folders")


def _trained(job: Job) -> bool:
    state = State.read(job.folder)
    return state.status == "ok" and state.config == job.config


def measure(one: Run, config: Mapping[str, Any]) -> dict[str, Any]:
    """Measure a run's checkpoints, and the model that it began with; returns the evaluation's results.

    Raises:
        Failed: it failed, or ran into its limit.
    """
    run = trained(one)
    prompt = "".join(f", {key}: {value}" for key, value in run.prompt.items())
    start = f"{{name: {RUN}/step_000000, kind: model, path: '{run.actor_rollout_ref.model.path}'{prompt}}}"
    return _evaluation(one, f"{{{_of(one)}}},{start}", ["opponents=[]", *config["measure"]], config["limit"])


def measure_last(one: Run, config: Mapping[str, Any]) -> dict[str, Any] | None:
    """The same for its last checkpoint alone, more closely; None where nothing is to be measured so."""
    if not config["measure_last"]:
        return None
    return _evaluation(one, f"{{{_of(one)}, step: {config['steps']}}}", config["measure_last"], config["limit"])


def trained(one: Run) -> Any:
    """The config that a run was trained with."""
    return OmegaConf.load(one.job.folder / "config.yaml")


def _of(one: Run) -> str:
    return f"name: {RUN}, path: '{one.job.folder}'"


def _evaluation(one: Run, policies: str, overrides: Sequence[str], limit: float) -> dict[str, Any]:
    data = trained(one).data
    lengths = [f"data.{key}={data[key]}" for key in ("max_prompt_length", "max_response_length")]
    settings = [f"policies=[{policies}]", *lengths, *map(str, overrides)]
    folder = one.job.folder.with_name(f"{one.job.folder.name}-measured-{_digest(settings)}")
    file = folder / "results.json"
    if not file.is_file():
        command = [sys.executable, "-m", "recipe.spiral.main_eval", *settings, f"eval_dir='{folder}'"]
        try:
            status = subprocess.run(command, timeout=limit).returncode
        except subprocess.TimeoutExpired as error:
            raise Failed(f"{folder}: the evaluation was not done in {limit:.0f} s; start again to go on") from error
        if status != 0:
            raise Failed(f"{folder}: the evaluation ended with status {status}; what it said stands above")
    found: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    return found


def by_verl(runs: Sequence[Run], config: Mapping[str, Any]) -> list[Course]:
    """Train and measure with the real trainer and the real evaluation.

    Raises:
        Failed: a run or an evaluation did.
    """
    train(runs, Path(config["work"]))
    return [course(one, config) for one in runs]


def quickly(runs: Sequence[Run], config: Mapping[str, Any]) -> list[Course]:
    """The same by the quick loop.

    Raises:
        ValueError: it cannot do what a run's config says; the message names the setting.
        Failed: a process died.
    """
    from experiments.quick_runs import courses

    told = {quick_folder(one): (one.job.name, one.job.arguments) for one in runs}
    try:
        return courses(told, int(config["every"]))
    except BrokenProcessPool as error:
        raise Failed("a run's process died, for lack of memory perhaps; start again to go on") from error


def quick_folder(one: Run) -> Path:
    """Where the quick loop leaves a run."""
    return one.job.folder.with_name(f"{one.job.folder.name}-quick")


def course(one: Run, config: Mapping[str, Any]) -> Course:
    """Of a run that is trained by verl; what is not measured yet is.

    Raises:
        Failed: an evaluation did, or it measured what not every checkpoint has.
    """
    games = games_until(one)
    found, closely = measure(one, config), measure_last(one, config)
    points = points_of(found, RUN, games)
    names = {name for point in points for name in point.measures}
    if partial := sorted(name for name in names if any(name not in point.measures for point in points)):
        raise Failed(
            f"measure: {one.job.name}: of some checkpoints only there is {', '.join(partial[:3])}: games against a "
            "run's own past have no place in a curve; measure them of the last one (measure_last)"
        )
    last = {} if closely is None else points_of(closely, RUN, games)[-1].measures
    return Course(points, last, average_policy(found, RUN), State.read(one.job.folder).seconds)


def games_until(one: Run) -> Callable[[int], int]:
    """How many games were trained on until the end of a step."""
    config = trained(one)
    if config.batch_unit == "games":
        return lambda step: step * int(config.data.train_batch_size)
    records = RecordFolder(one.job.folder / "games").read("train")
    counts = Counter(record.key.step for record in records if record.discarded is None)
    return lambda step: sum(count for played, count in counts.items() if played <= step)


def gather(
    runs: Sequence[Run], courses: Sequence[Course], config: Mapping[str, Any], command: str, commits: Sequence[str]
) -> Result:
    """The result of runs."""
    curves: dict[str, dict[str, Any]] = {}
    rows = []
    configs = {one.arm: one.config for one in runs}
    at_rest = {arm: measures_at_rest(made) for arm, made in configs.items()}
    default = compose_run([])
    changed = {arm: differences(made, default) for arm, made in configs.items()}
    for one, run in zip(runs, courses, strict=True):
        points = [{"step": point.step, "games": point.games, **point.measures} for point in run.points]
        curves.setdefault(one.arm, {})[str(one.seed)] = {
            "points": points,
            "intervals": [run.points[0].intervals, run.points[-1].intervals],
            "last": run.last,
            "average": run.average,
            "trained_on": [share.id for share in parse_games(one.config.games)],
            "at_rest": at_rest[one.arm],
            "policy": run.policy,
        }
        rows.append(_row(one, run, int(config["mean_over"])))
    return Result(
        name=str(config["name"]),
        title=str(config["title"]),
        command=command,
        commit=", ".join(commits),
        seeds=tuple(config["seeds"]),
        games=sum(run.points[-1].games for run in courses),
        minutes=round(sum(run.seconds for run in courses) / 60, 1),
        settings={key: value for key, value in config.items() if key not in ("work", "output", "limit")},
        rows=rows,
        figures={"curves": curves, "settings": changed},
    )


def _row(one: Run, run: Course, mean_over: int) -> dict[str, Any]:
    last = run.points[-1]
    recent = [point for point in run.points if point.games > last.games - mean_over]
    means = {f"{name}, mean": fmean(point.measures[name] for point in recent) for name in last.measures}
    trained = {"arm": one.arm, "seed": one.seed, "games": last.games, "minutes": round(run.seconds / 60, 1)}
    return {**trained, **last.measures, **means, **run.last}


@hydra.main(config_path="config", config_name="learning", version_base=None)
def main(config: DictConfig) -> None:
    """The entry; ends with status 1 where a run or an evaluation failed, 2 for a bad config, 130 where interrupted."""
    from hydra.core.hydra_config import HydraConfig

    from . import pages

    settings: Any = OmegaConf.to_container(config, resolve=True, throw_on_missing=True)
    try:
        runs = plan(settings)
    except ValueError as error:
        print(f"{MODULE}: {error}", file=sys.stderr)
        sys.exit(2)
    name, overrides = HydraConfig.get().job.config_name, list(HydraConfig.get().overrides.task)
    quick = settings["loop"] == QUICK
    try:
        courses = quickly(runs, settings) if quick else by_verl(runs, settings)
        command = command_line(MODULE, ["--config-name", name, *overrides])
        folders = [quick_folder(one) if quick else one.job.folder for one in runs]
        result = gather(runs, courses, settings, command, noted(folders))
        files = pages.publish(result, settings, overrides)
    except BadResult as error:  # a ValueError, too, but no bad config
        sys.exit(f"{MODULE}: {error}")
    except ValueError as error:
        print(f"{MODULE}: {error}", file=sys.stderr)
        sys.exit(2)
    except Failed as error:
        sys.exit(str(error))
    except KeyboardInterrupt:
        print(f"{MODULE}: interrupted; the same command goes on with what is left", file=sys.stderr)
        sys.exit(130)
    for file in files:
        print(file)


if __name__ == "__main__":
    main()
