"""What is known of one update: its games, and which turn of which game each row of verl's batch is."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from ..players.records import GameRecord
from ..rae import Baselines
from ..serving.channel import Played
from .pairs import Pairs
from .rows import Row


@dataclass
class Step:
    """One update of the policy, from the sampling of its rows to its metrics.

    Attributes:
        games: those that the update trains on, and those that were discarded.
        turns: the turn that each row is, by the row's key; verl's padding rows are not in it.
        baselines: b of each game, as it is before this update moves it.
        pairs: what DPO trains on; None: another loss.
        alarms: what the guard says of this step, for people.
    """

    number: int
    games: Played = field(default_factory=lambda: Played([], []))
    turns: dict[str, Row] = field(default_factory=dict)
    baselines: Baselines = field(default_factory=Baselines)
    pairs: Pairs | None = None
    alarms: list[str] = field(default_factory=list)

    @property
    def records(self) -> list[GameRecord]:
        """The games that the update trains on."""
        return self.games.records

    def rows(self, batch: Any) -> list[Row | None]:
        """The turn that each row of verl's batch is, in the batch's order; None for padding."""
        return [self.turns.get(key) for key in batch.keys]

    def trains(self, batch: Any) -> bool:
        """Whether there is a turn in the batch that is trained."""
        return any(row.turn.left_out is None for row in self.rows(batch) if row is not None)
