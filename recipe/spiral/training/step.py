"""What is known of one update: its games, and which of their turns each row of verl's batch is."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from ..players.records import GameRecord
from ..rae import Baselines
from ..rollouts.channel import Played
from ..spin.pairs import Pairs
from .launched import Launch
from .rows import Rows


@dataclass
class Step:
    """One update of the policy, from the sampling of its rows to its metrics.

    Attributes:
        launches: the games that it accounts for, as they were launched.
        games: those that the update trains on, and those that were discarded.
        rows: the turns that the update trains on.
        baselines: b of each game, as it is before this update moves it.
        pairs: what DPO trains on; None: another loss.
        alarms: what the guard says of this step, for people.
    """

    number: int
    launches: list[Launch] = field(default_factory=list)
    games: Played = field(default_factory=lambda: Played([], []))
    rows: Rows = field(default_factory=Rows)
    baselines: Baselines = field(default_factory=Baselines)
    pairs: Pairs | None = None
    alarms: list[str] = field(default_factory=list)

    @property
    def records(self) -> list[GameRecord]:
        """The games that the update trains on."""
        return self.games.records

    def trains(self, batch: Any) -> bool:
        """Whether there is a turn in the batch that is trained."""
        return any(turn.left_out is None for turn in self.rows.turns_of(batch) if turn is not None)
