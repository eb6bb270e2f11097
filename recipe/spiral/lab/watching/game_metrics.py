"""What is counted of a step's games besides the core's metrics: how old they are, and whether the policy still reasons.

Version v of the policy's weights is the policy after step v; step t trains a game of version t - 1 on-policy. A game's
staleness at step t is (t - 1) - v, with v the oldest version that wrote a part of one of the policy's turns: how long
an opponent took, or for how long the game waited in a queue, does not count.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from statistics import fmean

from ...players.prompts import place_of_box
from ...players.records import GameRecord
from ...training.metrics import role_metrics

#: Shares of games are shown for each staleness below this; the last one is of this and more.
MOST_SHOWN = 8


def oldest_version(record: GameRecord) -> int | None:
    """The oldest version that wrote a part of a trainable player's turn; None: no such player had a turn."""
    return min((first for first, _ in versions(record)), default=None)


def versions(record: GameRecord) -> list[tuple[int, int]]:
    """The first and the last version that wrote each of the trainable players' turns."""
    tokens = [turn.tokens for turn in record.trainable_turns() if turn.tokens is not None]
    return [written.weight_versions for written in tokens if written.weight_versions is not None]


def staleness(record: GameRecord, step: int) -> int:
    """A game's, at a step; 0 where the policy had no turn."""
    version = oldest_version(record)
    return 0 if version is None else step - 1 - version


def staleness_metrics(trained: Sequence[GameRecord], dropped: Sequence[GameRecord], step: int) -> dict[str, float]:
    """``async/...`` of a step.

    staleness/{mean,max}: of the trained games.
    staleness/{k}: the share of them with staleness k. versions_in_a_game: mean number of versions from a game's first
    to its last. dropped/{opponent}: games that were too old, by the kind of opponent.
    ``dropped/{game}/p{role}/...``: ``role_metrics`` of the dropped games.
    """
    ages = [staleness(record, step) for record in trained]
    counts = Counter(min(age, MOST_SHOWN) for age in ages)
    by_opponent = Counter(record.opponent for record in dropped)
    spans = [
        max(last for _, last in written) - min(first for first, _ in written) + 1 if written else 0
        for written in map(versions, trained)
    ]
    metrics = {
        "async/staleness/mean": fmean(ages or [0.0]),
        "async/staleness/max": float(max(ages, default=0)),
        "async/versions_in_a_game": fmean(spans or [0.0]),
    }
    metrics |= {f"async/staleness/{age}": counts[age] / max(len(ages), 1) for age in range(MOST_SHOWN + 1)}
    metrics |= {f"async/dropped/{opponent}": float(count) for opponent, count in sorted(by_opponent.items())}
    return metrics | role_metrics(dropped, "async/dropped")


def reasoning(response: str) -> str:
    """What a response says besides its answer: without its last box and without think tags, stripped."""
    if place := place_of_box(response):
        response = response[: place[0]] + response[place[2] + 1 :]
    return re.sub(r"</?think>", "", response).strip()


def reasoning_metrics(records: Iterable[GameRecord], shortest: int) -> dict[str, float]:
    """Shares of turns with fewer than ``shortest`` characters of reasoning.

    ``games/{game}/p{role}/short_reasoning`` for roles that had a turn, ``turns/short_reasoning`` over all of them.
    """
    short: dict[tuple[str, int], list[bool]] = defaultdict(list)
    for record in records:
        for turn in record.trainable_turns():
            if turn.tokens is not None:
                response = turn.response
                short[record.game, turn.player].append(len(response) < shortest or len(reasoning(response)) < shortest)
    shares = {f"games/{game}/p{role}/short_reasoning": fmean(turns) for (game, role), turns in sorted(short.items())}
    return {**shares, "turns/short_reasoning": fmean([turn for turns in short.values() for turn in turns] or [0.0])}
