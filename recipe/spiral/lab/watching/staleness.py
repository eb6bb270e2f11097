"""How old games are when they are trained, in versions of the policy's weights, and which games are lost to age.

Version v is the policy after step v; step t trains a game of version t - 1 on-policy. A game's staleness at step t is
(t - 1) - v, with v the oldest version that wrote a part of one of the policy's turns: how long an opponent took, or
for how long the game waited in a queue, does not count.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Sequence
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


class Bias:
    """How the trained games differ from all that were played to their end, over the last steps."""

    def __init__(self, window: int = 20) -> None:
        #: Of each step, games by kind: those that were trained, and the others.
        self._steps: deque[tuple[Counter[_Kind], Counter[_Kind]]] = deque(maxlen=window)

    def add(self, trained: Iterable[GameRecord], dropped: Iterable[GameRecord]) -> dict[str, float]:
        """Take in a step's games.

        Returns:
            ``async/bias/outcomes``: the total variation distance between the shares of (game, opponent, trained
            players, result) among the trained games and among all, from 0 (none) to 1. ``async/bias/turns``: mean
            turns of the trained games divided by that of all.
        """
        self._steps.append((Counter(map(_kind, trained)), Counter(map(_kind, dropped))))
        columns = zip(*self._steps, strict=True)
        kept, lost = ([kind for games in column for kind in games.elements()] for column in columns)
        if not kept:
            return {"async/bias/outcomes": 0.0, "async/bias/turns": 1.0}
        played = kept + lost
        distance = _total_variation(Counter(kind[:-1] for kind in kept), Counter(kind[:-1] for kind in played))
        turns = fmean(kind[-1] for kind in kept) / max(fmean(kind[-1] for kind in played), 1e-9)
        return {"async/bias/outcomes": distance, "async/bias/turns": turns}


#: Game, kind of opponent, trained players, player 0's result, number of turns.
_Kind = tuple[str, str, tuple[int, ...], str, int]


def _kind(record: GameRecord) -> _Kind:
    return record.game, record.opponent, record.trainable, record.result(0), len(record.turns)


def _total_variation(first: Counter[tuple[object, ...]], second: Counter[tuple[object, ...]]) -> float:
    """Half of the sum of the differences between the shares of two counts, of which none is empty."""
    of_first, of_second = first.total(), second.total()
    return sum(abs(first[kind] / of_first - second[kind] / of_second) for kind in first | second) / 2
