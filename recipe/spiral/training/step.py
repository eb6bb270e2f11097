"""What is known of one update: its games, and which of their turns each row of verl's batch is.

``account`` makes it once, of what was played and what was launched. It asks nobody and changes nothing but the records,
which it tells why a turn or a game is left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from ..extensions import Chosen, Objective
from ..players.records import GameRecord
from ..rae import Baselines
from ..rollouts.channel import Played
from .filters import Filters
from .launched import Launch
from .rows import Rows
from .turn_batches import without_surplus


@dataclass(frozen=True)
class Step:
    """One update of the policy.

    Attributes:
        number: the training step.
        games: those that the update accounts for, and those that were discarded.
        rows: the turns of the games that count.
        baselines: b of each game, as it is before this update moves it.
        keys: the rows that are trained, in the order of their games' keys; one at least, as verl has no empty batches.
        chosen: what the objective trains on.
    """

    number: int
    games: Played = field(default_factory=lambda: Played([], []))
    rows: Rows = field(default_factory=Rows)
    baselines: Baselines = field(default_factory=Baselines)
    keys: Sequence[str] = ()
    chosen: Chosen | None = None

    @property
    def records(self) -> list[GameRecord]:
        """The games that the update trains on."""
        return self.games.records

    @property
    def trains(self) -> bool:
        """Whether a turn of the batch is trained."""
        return any(turn.left_out is None for turn in self.rows.turns)


def account(
    number: int,
    games: Played,
    launches: Iterable[Launch],
    keys: Sequence[str],
    baselines: Baselines,
    filters: Filters,
    turns: int | None = None,
    objective: Objective | None = None,
) -> Step:
    """What step ``number`` trains.

    Args:
        games: what was played for it.
        launches: how it was launched.
        keys: verl's names of the rows that were sampled, in any order.
        filters: turns that are not trained.
        turns: the fewest games that give so many turns are trained; None: all.
        objective: what trains in place of the policy gradient.

    Raises:
        RowsLost: the rows are not the trainable players' turns of these games.
    """
    rows = Rows(games.records, launches := [*launches])
    if turns is not None:
        games, keys = without_surplus(games, rows, keys, turns)
        rows = Rows(games.records, launches)
    rows.check_complete(keys)
    rows.leave_out(filters, baselines)
    chosen = None if objective is None else objective.choose(rows)
    trained = [key for key, turn in zip(rows.keys, rows.turns, strict=True) if turn.left_out is None]
    return Step(number, games, rows, baselines, trained or rows.keys[:1], chosen)
