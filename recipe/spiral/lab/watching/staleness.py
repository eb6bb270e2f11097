"""How old games are when they are trained, in versions of the policy's weights.

Version v is the policy after step v; step t trains a game of version t - 1 on-policy. A game's staleness at step t is
(t - 1) - v, with v the oldest version that wrote a part of one of the policy's turns: how long an opponent took, or
for how long the game waited in a queue, does not count.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from statistics import fmean

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
    metrics = {
        "async/staleness/mean": fmean(ages or [0.0]),
        "async/staleness/max": float(max(ages, default=0)),
        "async/versions_in_a_game": fmean([_versions(record) for record in trained] or [0.0]),
    }
    metrics |= {f"async/staleness/{age}": counts[age] / max(len(ages), 1) for age in range(MOST_SHOWN + 1)}
    metrics |= {f"async/dropped/{opponent}": float(count) for opponent, count in sorted(by_opponent.items())}
    return metrics | role_metrics(dropped, "async/dropped")


def _versions(record: GameRecord) -> int:
    """How many versions from the first that wrote one of the policy's turns to the last."""
    written = versions(record)
    return max(last for _, last in written) - min(first for first, _ in written) + 1 if written else 0
