"""A run's snapshots against the run's own past, ``lag`` steps before: does the policy still improve?

Table 3 of SPIRAL (arXiv 2506.24119) compares checkpoint t with checkpoint t-16.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import product

from ....players.records import GameRecord
from ..ratings.statistics import Result, Tabulation
from .matchups import MatchUp

#: The paper's lag, in steps.
LAG = 16


def own_past_match_ups(steps: Mapping[str, int], games: Iterable[str], lag: int = LAG) -> tuple[MatchUp, ...]:
    """Each snapshot against the one ``lag`` steps before, where there is one. ``steps`` are the snapshots', by name.

    Raises:
        ValueError: no two snapshots are so far apart.
    """
    pairs = [(later, earlier) for later, earlier in product(steps, steps) if steps[later] - steps[earlier] == lag]
    if not pairs:
        known = ", ".join(str(step) for step in sorted(set(steps.values())))
        raise ValueError(f"lag={lag}: no two snapshots are so many steps apart; there are those of steps {known}")
    pairs.sort(key=lambda pair: (steps[pair[0]], pair))
    return tuple(MatchUp(*pair, game) for pair, game in product(pairs, games))


class OwnPast:
    """Takes in games one by one, and counts those of a snapshot against the one ``lag`` steps before."""

    def __init__(self, lag: int, steps: Mapping[str, int]) -> None:
        self._lag, self._steps = lag, steps
        self._table = Tabulation()

    def add(self, record: GameRecord) -> None:
        """Count a game for the later snapshot's side, whichever of the two was "the policy"."""
        first, second = map(self._steps.get, record.players)
        if first is not None and second is not None and abs(first - second) == self._lag:
            self._table.add(record, int(second > first))

    def results(self) -> list[Result]:
        """By match-up and role, in the order of steps."""
        return sorted(self._table.results(), key=lambda result: self._steps[result.policy])
