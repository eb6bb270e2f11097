"""What people are shown of a run besides its metrics: sample games in Weights & Biases, and a table at its end."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import chain, zip_longest
from pathlib import Path
from typing import Any

from ...players.prompts import boxed
from ...players.records import GameRecord
from ...processes.run_log import LOG
from ...processes.terminal import visible
from ...storage.checkpoints import latest
from ...storage.run_files import METRICS, read_metrics
from ...training.metrics import SHARES, validated_roles, validation_metrics
from ..own_command import command
from ..record_folder import RecordFolder

#: The most characters of a response or an observation in a table of games.
MOST_CHARACTERS = 4000
COLUMNS = ("step", "game", "opponent", "role", "outcome", "ended by", "reward", "turns", "text", "record")
#: Exact measures that the summary has: a metric's name, what it is called, and how its values are written.
_EXACT = {"nash_conv": ("NashConv", ".3f"), "optimal": ("optimal moves", ".1%")}


def log_games(trackers: Mapping[str, Any], step: int, records: Sequence[GameRecord], most: int, file: str) -> None:
    """Give Weights & Biases a table of so many of a validation's games, ``val/games``: of every opponent, game and role
    in turn, and each time the same ones.

    ``trackers`` are those of verl's ``Tracking``, by name. In ``file`` the games lie, in the order of their keys; the
    column ``record`` names each one's line.
    """
    wandb = trackers.get("wandb")
    if wandb is None or most <= 0 or not records:
        return
    groups: defaultdict[tuple[str, str, tuple[int, ...]], list[tuple[int, GameRecord]]] = defaultdict(list)
    for line, record in enumerate(sorted(records, key=lambda record: record.key), start=1):
        if record.discarded is None:
            groups[record.opponent, record.game, record.trainable].append((line, record))
    in_turn = [each for each in chain.from_iterable(zip_longest(*groups.values())) if each is not None]
    rows = []
    for line, record in in_turn[:most]:
        role = record.trainable[0] if record.trainable else 0
        outcome = (record.result(role), record.termination, record.rewards[role], len(record.turns))
        rows.append([step, record.game, record.opponent, role, *outcome, text(record), f"{file}:{line}"])
    wandb.log({"val/games": wandb.Table(columns=list(COLUMNS), data=rows)}, step=step)


def text(record: GameRecord) -> str:
    """A game for people: what each player saw and answered, made harmless to look at."""
    lines = []
    for number, turn in enumerate(record.turns, start=1):
        taken = turn.verdict if turn.verdict != "legal" else boxed(turn.action or "")
        lines += [
            f"--- turn {number}: player {turn.player} ({record.players[turn.player]}) sees",
            visible(turn.observation, MOST_CHARACTERS),
            f"--- and answers: {visible(taken, MOST_CHARACTERS)}",
            visible(turn.response, MOST_CHARACTERS),
        ]
    rewards = ", ".join(f"player {player} {reward:+.2f}" for player, reward in enumerate(record.rewards))
    return "\n".join([*lines, f"--- {record.termination}: {rewards}"])


def summary(run_dir: Path, checkpoints: Path, game: str | None) -> list[str]:
    """A table of the first and the last validation by opponent, game and role, and of exact measures; the run's folders
    below it, and the commands to look at the run and to play ``game`` against it (None: it has none)."""
    folder = RecordFolder(run_dir / "games")
    lines = []
    if validated := folder.steps("val"):
        first, last = validated[0], validated[-1]
        before, after = (validation_metrics(list(folder.read_step("val", step))) for step in (first, last))
        header = "".join(f"{column:>18}" for column in SHARES)
        lines.append(f"validation at step {first} -> {last}")
        roles, exact = validated_roles(after), _exact(run_dir)
        width = max([24, *(len(role) - len("val-core/") + 2 for role in roles), *(len(name) + 2 for name in exact)])
        lines.append(f"{'game, role':<{width}}{header}{'reward':>18}{'games':>8}")
        for role in roles:
            cells = "".join(f"{_change(before, after, f'{role}/{column}', '.1%'):>18}" for column in SHARES)
            cells += f"{_change(before, after, f'{role}/reward', '+.2f'):>18}"
            lines.append(f"{role.removeprefix('val-core/'):<{width}}{cells}{after[f'{role}/games']:>8.0f}")
        lines += [f"{name:<{width}}{change:>18}" for name, change in exact.items()]
    lines += [f"games:        {folder.path}", f"log:          {run_dir / LOG}", f"checkpoints:  {checkpoints}"]
    if (run_dir / "tensorboard").is_dir():
        lines.append(f"tensorboard:  tensorboard --logdir {run_dir / 'tensorboard'}")
    if (run_dir / "wandb").is_dir():
        lines.append(f"wandb:        {run_dir / 'wandb'}")
    lines.append(f"look at it:   {command('report', run_dir)}")
    if game is not None and latest(checkpoints) is not None:
        lines.append(f"play it:      {command('play', game, run_dir)}")
    return lines


def _exact(run_dir: Path) -> dict[str, str]:
    """The exact measures that were taken, each with its first and its last value."""
    found: dict[str, list[float]] = {}
    for logged, _ in read_metrics(run_dir / METRICS):
        for name, value in logged.metrics.items():
            core, _, measure = name.rpartition("/")
            if value is not None and measure in _EXACT and core.count("/") == 1 and core.startswith("val-core/"):
                found.setdefault(name, []).append(value)
    rows = {}
    for name, values in sorted(found.items()):
        _, game, measure = name.split("/")
        said, form = _EXACT[measure]
        rows[f"{game}, {said}"] = f"{values[0]:{form}} -> {values[-1]:{form}}"
    return rows


def _change(before: dict[str, float], after: dict[str, float], name: str, form: str) -> str:
    earlier = format(before[name], form) if name in before else "-"
    return f"{earlier} -> {format(after[name], form)}"
