"""Runs an experiment: ``python -m experiments NAME [--folder FOLDER] [OVERRIDE ...]``.

Each seed is a run of its own. The whole stack's runs follow one another and are resumed by ``main_spiral``; the quick
loop's runs take a core each, and one that was stopped begins anew. What is measured comes from their metrics.jsonl.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from omegaconf import OmegaConf

from recipe.spiral.storage.run_files import METRICS, read_metrics

CONFIGS = Path(__file__).with_name("config")
#: What trains, by the name of the loop.
PROGRAMS = {"stack": "recipe.spiral.main_spiral", "quick": "experiments.quick"}
#: The metric that says how many games a step has trained on.
GAMES = "games/count"


@dataclass(frozen=True)
class Run:
    """One seed, from one model.

    Attributes:
        seed: the seed.
        model: the seed of the tiny model's warm start; None: the model of the preset.
        folder: the run's folder.
    """

    seed: int
    model: int | None
    folder: Path

    @property
    def name(self) -> str:
        return f"seed {self.seed}" if self.model is None else f"model {self.model}, seed {self.seed}"


def plan(config: Mapping[str, Any], folder: Path) -> list[Run]:
    """The runs of an experiment. ``folder`` is where theirs lie."""
    return [
        Run(seed, model, folder / f"{'' if model is None else f'model-{model}-'}seed-{seed}")
        for seed in config["seeds"]
        for model in config.get("models", [None])
    ]


def command(run: Run, config: Mapping[str, Any], overrides: Sequence[str]) -> list[str]:
    """The command that trains a run."""
    words = [sys.executable, "-m", PROGRAMS[config["loop"]], *config["overrides"], f"seed={run.seed}"]
    if run.model is not None:
        words.append(f"actor_rollout_ref.model.path='{model_of(run.model)}'")
    validated = [f"trainer.test_freq={config['every']}", "trainer.val_before_train=true"]
    return [*words, *validated, *overrides, f"run_dir='{run.folder.absolute()}'"]


def model_of(seed: int) -> Path:
    """The tiny model whose warm start has this seed: the shipped one for 0, others are made once."""
    from recipe.spiral.lab.models import MADE_FOR, embedded
    from recipe.spiral.lab.models.tiny import Spec, make_tiny

    folder = Path("outputs/models") / f"tiny-{seed}"
    if seed and not folder.is_dir():
        make_tiny(Spec.of(MADE_FOR["tiny"], seed), folder)
    return folder.absolute() if seed else embedded("tiny")


def train(runs: Sequence[Run], config: Mapping[str, Any], overrides: Sequence[str]) -> list[str]:
    """Train what is not trained yet. Returns the names of the runs that failed."""
    quick = config["loop"] == "quick"
    if "first" in config:
        subprocess.run([sys.executable, "-m", *config["first"]], check=True)
    commands = [command(run, config, overrides) for run in runs]  # here, since this may make models
    # one thread: threads of so small a model only wait for each other
    environment = {**os.environ, "OMP_NUM_THREADS": "1"} if quick else None
    with ThreadPoolExecutor(len(os.sched_getaffinity(0)) if quick else 1) as pool:
        statuses = pool.map(lambda words: subprocess.run(words, env=environment).returncode, commands)
        return [run.name for run, status in zip(runs, statuses, strict=True) if status]


def curve(run: Run, metrics: Sequence[str]) -> list[dict[str, float]]:
    """By validation: the step, the games until then, and the metrics."""
    points: dict[int, dict[str, float]] = {}
    games = 0.0
    for logged, _ in read_metrics(run.folder / METRICS):
        games += logged.metrics.get(GAMES) or 0.0
        found = {name: value for name in metrics if (value := logged.metrics.get(name)) is not None}
        if found:
            points.setdefault(logged.step, {"step": logged.step, "games": games}).update(found)
    return [points[step] for step in sorted(points)]


def at_the_end(points: Sequence[Mapping[str, float]], metric: str, mean_over: int) -> float:
    """The mean of a metric over the last so many games; with 0 its last value."""
    measured = [point for point in points if metric in point]
    last = measured[-1]["games"]
    return fmean(point[metric] for point in measured if point["games"] > last - mean_over or point is measured[-1])


def interval(values: Sequence[float]) -> str:
    """A mean with its 95% interval by Student's t."""
    if len(values) == 1:
        return f"{values[0]:.3f}"
    from scipy.stats import t

    half = float(t.ppf(0.975, len(values) - 1)) * stdev(values) / len(values) ** 0.5
    return f"{fmean(values):.3f} ± {half:.3f}"


def results(runs: Sequence[Run], config: Mapping[str, Any]) -> dict[str, Any]:
    """The figures of an experiment: by metric before, after and every run; and all curves.

    Where there are several models, the repetitions of the interval are the models, each with the mean of its seeds.
    """
    curves = {run.name: curve(run, list(config["metrics"])) for run in runs}
    figures = {}
    for metric, label in config["metrics"].items():
        ends = [at_the_end(curves[run.name], metric, config.get("mean_over", 0)) for run in runs]
        starts = [next((point[metric] for point in curves[run.name] if metric in point), None) for run in runs]
        known = [start for start in starts if start is not None]
        repeated: dict[Any, list[float]] = {}
        for run, end in zip(runs, ends, strict=True):
            repeated.setdefault(run.seed if run.model is None else run.model, []).append(end)
        after = interval([fmean(values) for values in repeated.values()])
        figures[label] = {"before": fmean(known), "after": after, "runs": ends}
    games = sum(points[-1]["games"] for points in curves.values())
    return {"title": config["title"], "games": int(games), "figures": figures, "curves": curves}


def table(found: Mapping[str, Any]) -> str:
    rows = [["metric", "before", "after", "each run"]]
    for label, of in found["figures"].items():
        rows.append([label, f"{of['before']:.3f}", of["after"], ", ".join(f"{end:.3f}" for end in of["runs"])])
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    return "\n".join("  ".join([*map(str.ljust, row, widths), row[3]]) for row in rows)


def draw(found: Mapping[str, Any], metrics: Mapping[str, str], file: Path) -> None:
    """A panel for each metric, over the games that were trained on. A thin line is a run, a thick one their mean."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(5.2 * len(metrics), 3.8), layout="constrained")
    for axes, (metric, label) in zip(figure.subplots(1, len(metrics), squeeze=False)[0], metrics.items(), strict=True):
        curves = [[point for point in points if metric in point] for points in found["curves"].values()]
        for points in curves:
            axes.plot([point["games"] for point in points], [point[metric] for point in points], alpha=0.4, linewidth=1)
        shared = [*zip(*curves, strict=False)]
        games = [fmean(point["games"] for point in points) for points in shared]
        axes.plot(games, [fmean(point[metric] for point in points) for points in shared], color="black", linewidth=2)
        axes.set(title=label, xlabel="games", ylim=(0, None))
    figure.savefig(file, dpi=110, metadata={"Software": None})


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m experiments", description=__doc__)
    names = sorted(file.stem for file in CONFIGS.glob("*.yaml"))
    parser.add_argument("name", choices=names)
    parser.add_argument("overrides", nargs="*", help="of main_spiral; take another --folder with them")
    parser.add_argument("--folder", type=Path, help="of the runs and the results (default: outputs/experiments/NAME)")
    parser.add_argument("--seeds", help="in place of the experiment's: 0,1,2")
    given = parser.parse_intermixed_args()
    config: Any = OmegaConf.to_container(OmegaConf.load(CONFIGS / f"{given.name}.yaml"))
    config["seeds"] = [int(seed) for seed in given.seeds.split(",")] if given.seeds else config["seeds"]
    folder = given.folder or Path("outputs/experiments") / given.name
    runs = plan(config, folder)
    if failed := train(runs, config, given.overrides):
        print(f"not trained to the end: {', '.join(failed)}; start again to go on", file=sys.stderr)
        return 1
    found = results(runs, config)
    (folder / "results.json").write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    draw(found, config["metrics"], folder / "curves.png")
    print(f"{found['title']}: {found['games']:,} games\n\n{table(found)}\n\n{folder / 'results.json'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
