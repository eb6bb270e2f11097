"""A run's snapshots against the run's own past, ``lag`` steps before: does the policy still get better?

Table 3 of SPIRAL (arXiv 2506.24119) compares checkpoint t with checkpoint t-16.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from itertools import product

from ...play.records import GameRecord
from ..ratings.statistics import Result, Tabulation
from .matchups import MatchUp

#: Of the paper.
LAG = 16
_STEP = re.compile(r"step_(\d+)$")


def step_of(name: str) -> int | None:
    """The step in a snapshot's name ("step_000040", "global_step_40"); None: it is no snapshot's."""
    found = _STEP.search(name)
    return int(found.group(1)) if found else None


def steps_of(names: Iterable[str]) -> dict[str, int]:
    """The steps of those that are snapshots."""
    return {name: step for name in names if (step := step_of(name)) is not None}


def own_past_match_ups(steps: Mapping[str, int], games: Iterable[str], lag: int = LAG) -> tuple[MatchUp, ...]:
    """Each snapshot against the one ``lag`` steps before, where there is one.

    Args:
        steps: each snapshot's, by name.
        games: their ids.
        lag: in steps; at least 1.

    Raises:
        ValueError: no two snapshots are so far apart.
    """
    pairs = [(later, earlier) for later, earlier in product(steps, steps) if steps[later] - steps[earlier] == lag > 0]
    if not pairs:
        known = ", ".join(str(step) for step in sorted(set(steps.values())))
        raise ValueError(f"lag={lag}: no two snapshots are so many steps apart; there are those of steps {known}")
    pairs.sort(key=lambda pair: (steps[pair[0]], pair))
    return tuple(MatchUp(*pair, game) for pair, game in product(pairs, games))


class OwnPast:
    """Takes in games one by one, and counts those of a snapshot against the one ``lag`` steps before.

    Args:
        lag: in steps.
        steps: each snapshot's, by name; None: as the names say.
    """

    def __init__(self, lag: int = LAG, steps: Mapping[str, int] | None = None) -> None:
        self._lag, self._steps = lag, steps
        self._table = Tabulation()

    def add(self, record: GameRecord) -> None:
        """Count a game for the later one's side, whichever of them was "the policy"."""
        first, second = map(self._step, record.players)
        if first is not None and second is not None and abs(first - second) == self._lag:
            self._table.add(record, int(second > first))

    def _step(self, name: str) -> int | None:
        return step_of(name) if self._steps is None else self._steps.get(name)

    def results(self) -> list[Result]:
        """By match-up and role, in the order of steps."""
        return sorted(self._table.results(), key=lambda result: self._step(result.policy) or 0)


def own_past(records: Iterable[GameRecord], lag: int = LAG, steps: Mapping[str, int] | None = None) -> list[Result]:
    """The results of each snapshot against the one ``lag`` steps before; see ``OwnPast``."""
    table = OwnPast(lag, steps)
    for record in records:
        table.add(record)
    return table.results()
