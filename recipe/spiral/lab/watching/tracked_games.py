"""What the trackers of ``trainer.logger`` get besides numbers.

Weights & Biases gets sample games and histograms of response lengths, TensorBoard the histograms. (Traces of single
requests are verl's ``actor_rollout_ref.rollout.trace``.)
"""

from __future__ import annotations

import importlib.util
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain, zip_longest
from typing import Any

from ...players.prompts import boxed
from ...players.records import GameRecord
from ...processes.terminal import visible

#: The most characters of a response or an observation in a table.
MOST_CHARACTERS = 4000
#: The trackers of verl's whose packages have their names.
_PACKAGES = ("wandb", "mlflow", "swanlab", "tensorboard", "clearml", "trackio")
COLUMNS = ("step", "game", "opponent", "role", "outcome", "ended by", "reward", "turns", "text", "record")


def log_lengths(trackers: Mapping[str, Any], split: str, step: int, records: Iterable[GameRecord]) -> None:
    """A histogram of the lengths of the policy's responses, in tokens, by game: ``{split}/{game}/response_lengths``.

    ``trackers`` are those of verl's ``Tracking``, by name.
    """
    lengths: defaultdict[str, list[int]] = defaultdict(list)
    for record in records:
        for turn in record.trainable_turns():
            if turn.tokens is not None:
                lengths[f"{split}/{record.game}/response_lengths"].append(len(turn.tokens.response_ids))
    if (wandb := trackers.get("wandb")) is not None and lengths:
        wandb.log({name: wandb.Histogram(values) for name, values in sorted(lengths.items())}, step=step)
    if (tensorboard := trackers.get("tensorboard")) is not None:
        import numpy as np

        for name, values in sorted(lengths.items()):
            tensorboard.writer.add_histogram(name, np.array(values), step)


def log_games(trackers: Mapping[str, Any], step: int, records: Sequence[GameRecord], most: int, file: str) -> None:
    """A table of so many of a validation's games, ``val/games``.

    In ``file`` the games lie, in the order of their keys; the column ``record`` names each one's line.
    """
    wandb = trackers.get("wandb")
    if wandb is None or most <= 0 or not records:
        return
    lines = {record.key: line for line, record in enumerate(sorted(records, key=lambda record: record.key), start=1)}
    rows = [_row(step, record, f"{file}:{lines[record.key]}") for record in samples(records, most)]
    wandb.log({"val/games": wandb.Table(columns=list(COLUMNS), data=rows)}, step=step)


def samples(records: Sequence[GameRecord], most: int) -> list[GameRecord]:
    """So many games that count, of every opponent, game and role in turn. Each validation has the same ones."""
    groups: defaultdict[tuple[str, str, tuple[int, ...]], list[GameRecord]] = defaultdict(list)
    for record in sorted(records, key=lambda record: record.key.index):
        if record.discarded is None:
            groups[record.opponent, record.game, record.trainable].append(record)
    in_turn = chain.from_iterable(zip_longest(*groups.values()))
    return [record for record in in_turn if record is not None][:most]


def _row(step: int, record: GameRecord, place: str) -> list[Any]:
    role = record.trainable[0] if record.trainable else 0
    outcome = (record.result(role), record.termination, record.rewards[role])
    return [step, record.game, record.opponent, role, *outcome, len(record.turns), text(record), place]


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


def check_trackers(trainer: Any) -> None:
    """See that the packages of ``trainer.logger`` are installed, which verl looks for when all workers run; ImportError
    says how to install one that is not."""
    named = [trainer.logger] if isinstance(trainer.logger, str) else trainer.logger or ()
    for name in named:
        if name in _PACKAGES and importlib.util.find_spec(name) is None:
            raise ImportError(f"trainer.logger: {name} is not installed: pip install {name}, or leave it out")
