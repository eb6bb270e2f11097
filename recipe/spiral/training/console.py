"""The lines of a run for people: one for each step, and a summary at the end.

The trainer runs in a process in whose output verl, Ray and vLLM print as well. So it writes its lines into a
file of their own, ``train.log``, which the driver prints, and which stays when the terminal is closed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from ..extensions import Objective
from ..players.records import RESULTS
from ..processes.terminal import LOG, command, duration
from ..storage.checkpoints import latest
from ..storage.disk import LineFile
from ..storage.metrics_file import METRICS, read_metrics
from ..storage.record_folder import RecordFolder
from .metrics import SHARES, validated_roles, validation_metrics

#: The phases of a step that are shown: the word in the line, and verl's name.
_PHASES = {
    "play": "gen",
    "log-probs": "old_log_prob",
    "reference": "ref",
    "update": "update_actor",
    "sync": "update_weights",
}
#: Where the time goes: of the games to the engine, of the update to padding, of the step to neither.
_SPEED = {"engine": "perf/rollout/engine_share", "padding": "perf/update/padding", "overhead": "perf/overhead"}
#: Exact measures that the summary has: a metric's name, what it is called, and how its values are written.
_EXACT = {"nash_conv": ("NashConv", ".3f"), "optimal": ("optimal moves", ".1%")}

#: How the line begins from which on a run trains.
TRAINS = ("training for ", "going on after ")


class Console:
    """Appends lines to ``run_dir/train.log``, in the trainer's process."""

    def __init__(self, run_dir: Path, clock: Callable[[], float] = time.monotonic) -> None:
        self._log = LineFile(run_dir / LOG)
        self._clock = clock
        self._total: int | None = None
        #: What trains in place of the policy gradient.
        self.objective: Objective | None = None

    def say(self, line: str) -> None:
        self._log.append(line)

    def start(self, step: int, total: int) -> None:
        """Write the first line. ``step`` is that of the checkpoint that the run resumes from, 0 for a fresh run."""
        self._first, self._total, self._started = step, total, self._clock()
        if step >= total:
            self.say(f"no step is left: the run is at step {step}, and trainer.total_training_steps={total}")
        else:
            self.say(f"going on after step {step} of {total}" if step else f"training for {total} steps")

    def step(self, step: int, metrics: Mapping[str, float], seconds: Mapping[str, float]) -> None:
        """Write the line of a step."""
        assert self._total is not None, "start comes before the first step"
        elapsed = self._clock() - self._started
        left = elapsed / (step - self._first) * (self._total - step)
        phases = "  ".join(f"{label} {seconds[name]:.1f}" for label, name in _PHASES.items() if name in seconds)
        objective = "" if self.objective is None else self.objective.line(metrics)
        speed = "".join(f"{label} {metrics[name]:.0%}  " for label, name in _SPEED.items() if name in metrics)
        self.say(
            f"step {step:>{len(str(self._total))}}/{self._total}  {seconds['step']:.1f} s ({phases})  "
            f"{metrics['perf/games_per_second']:.3g} games/s  {speed}{self._games(metrics)}{objective}"
            f"invalid {metrics['turns/invalid']:.1%}  {self._lost(metrics)}"
            f"tokens {metrics['turns/response_tokens']:.1f}  entropy {metrics['turns/entropy']:.3f}  "
            f"grad {metrics.get('actor/grad_norm', float('nan')):.3f}  {self._pool(metrics)}ETA {duration(left)}"
        )

    @staticmethod
    def _games(metrics: Mapping[str, float]) -> str:
        """Player 0's wins/draws/losses in percent, for each game of the step."""
        wins = sorted(name for name in metrics if name.startswith("games/") and name.endswith("/p0/win"))
        roles = [name.removesuffix("/win") for name in wins]
        shares = ("/".join(f"{100 * metrics[f'{role}/{result}']:.0f}" for result in RESULTS) for role in roles)
        return "".join(f"{role.split('/')[1]} {share}  " for role, share in zip(roles, shares, strict=True))

    @staticmethod
    def _lost(metrics: Mapping[str, float]) -> str:
        """The share of the games that a prompt ended, and the number of those that were too old to be trained."""
        too_long, stale = metrics.get("games/prompt_too_long"), metrics.get("async/dropped")
        return (f"prompt too long {too_long:.1%}  " if too_long else "") + (f"stale {stale:.0f}  " if stale else "")

    @staticmethod
    def _pool(metrics: Mapping[str, float]) -> str:
        """The number of past selves in the pool, and the policy's win rate against those that played lately."""
        if "fsp/size" not in metrics:
            return ""
        shares = [metrics[name] for name in metrics if name.startswith("fsp/win/")]
        won = f" {sum(shares) / len(shares):.0%}" if shares else ""
        return f"pool {metrics['fsp/size']:.0f}{won}  "

    def validation(self, step: int, metrics: Mapping[str, float], more: Iterable[str] = ()) -> None:
        """Write a validation: a line for each opponent, game and role, one for each benchmark, and ``more`` lines."""
        for role in validated_roles(metrics):
            shares = "  ".join(f"{name} {metrics[f'{role}/{name}']:6.1%}" for name in SHARES)
            games = metrics[f"{role}/games"]
            reward = f"reward {metrics[f'{role}/reward']:+.2f}"
            name = role.removeprefix("val-core/")
            self.say(f"validation at step {step}: {name:<24} {shares}  {reward}  ({games:.0f} games)")
        for benchmark in sorted(name.removesuffix("/answers") for name in metrics if name.endswith("/answers")):
            shares = "  ".join(
                f"{kind} {metrics[name]:6.1%}"
                for name in metrics
                if name.startswith(f"{benchmark}/") and "@" in (kind := name.rsplit("/", 1)[1])
            )
            truncated, questions = metrics[f"{benchmark}/truncated"], metrics[f"{benchmark}/count"]
            shares += f"  truncated {truncated:6.1%}  ({questions:.0f} questions)"
            self.say(f"validation at step {step}: {benchmark.removeprefix('val-core/'):<24} {shares}")
        for line in more:
            self.say(f"validation at step {step}: {line}")

    def finish(self) -> None:
        """Write the last line; none if nothing was trained (``trainer.val_only``)."""
        if self._total is not None:
            self.say(f"trained to step {self._total} in {duration(self._clock() - self._started)}")


def summary(run_dir: Path, checkpoints: Path, game: str | None) -> str:
    """A table of the first and the last validation by opponent, game and role, and of exact measures; the run's folders
    below it, and the commands to look at the run and to play ``game`` against it (None: it has none)."""
    folder = RecordFolder(run_dir / "games")
    lines = []
    if folder.steps("val"):
        (first, before), (last, after) = first_and_last(folder)
        header = "".join(f"{column:>18}" for column in SHARES)
        lines.append(f"validation at step {first} -> {last}")
        roles, exact = validated_roles(after), _exact(run_dir)
        width = max([24, *(len(role) - len("val-core/") + 2 for role in roles), *(len(name) + 2 for name, _ in exact)])
        lines.append(f"{'game, role':<{width}}{header}{'reward':>18}{'games':>8}")
        for role in roles:
            cells = "".join(f"{_change(before, after, f'{role}/{column}', '.1%'):>18}" for column in SHARES)
            cells += f"{_change(before, after, f'{role}/reward', '+.2f'):>18}"
            lines.append(f"{role.removeprefix('val-core/'):<{width}}{cells}{after[f'{role}/games']:>8.0f}")
        lines += [f"{name:<{width}}{change:>18}" for name, change in exact]
    lines += [f"games:        {folder.path}", f"log:          {run_dir / LOG}", f"checkpoints:  {checkpoints}"]
    if (run_dir / "tensorboard").is_dir():
        lines.append(f"tensorboard:  tensorboard --logdir {run_dir / 'tensorboard'}")
    if (run_dir / "wandb").is_dir():
        lines.append(f"wandb:        {run_dir / 'wandb'}")
    lines.append(f"look at it:   {command('report', run_dir)}")
    if game is not None and latest(checkpoints) is not None:
        lines.append(f"play it:      {command('play', game, run_dir)}")
    return "\n".join(lines)


def _exact(run_dir: Path) -> list[tuple[str, str]]:
    """The exact measures that were taken, each with its first and its last value."""
    found: dict[str, list[float]] = {}
    for logged, _ in read_metrics(run_dir / METRICS) if (run_dir / METRICS).is_file() else ():
        for name, value in logged.metrics.items():
            core, _, measure = name.rpartition("/")
            if value is not None and measure in _EXACT and core.count("/") == 1 and core.startswith("val-core/"):
                found.setdefault(name, []).append(value)
    rows = []
    for name, values in sorted(found.items()):
        _, game, measure = name.split("/")
        said, form = _EXACT[measure]
        rows.append((f"{game}, {said}", f"{values[0]:{form}} -> {values[-1]:{form}}"))
    return rows


def first_and_last(folder: RecordFolder) -> list[tuple[int, dict[str, float]]]:
    """The steps and metrics of the first and the last validation, which may be the same; [] if there was none."""
    steps = folder.steps("val")
    return [(step, validation_metrics(list(folder.read_step("val", step)))) for step in (*steps[:1], *steps[-1:])]


def _change(before: dict[str, float], after: dict[str, float], name: str, form: str) -> str:
    earlier = format(before[name], form) if name in before else "-"
    return f"{earlier} -> {format(after[name], form)}"
