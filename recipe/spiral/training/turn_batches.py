"""Batches of turns: a step trains the fewest whole games, in the order of their keys, that give at least N rows.

How many rows a game gives is known when it is over, so a step's games are launched in rounds: as many as should do by
the mean so far, and where all of them are over and gave too few, more. How many is a function of counts alone, never of
what was over first, so that the same games are played and trained whatever the machine's pace.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from itertools import compress
from typing import Any

import numpy as np
from transfer_queue import KVBatchMeta

from ..rollouts.channel import Played
from .rows import Rows

#: Rows of a game before any was played: rather many, so that a run's first round is rather small.
_FIRST_GUESS = 8.0
#: The mean is over about so many games, the last ones.
_MEMORY = 128
#: So much more is launched than the mean asks for: four of five steps of 128 turns then need one round, and a tenth of
#: the games is surplus. Another round takes as long as a game, however few games it has.
_MARGIN = 1.1
#: So many rounds in a row without a row, and nothing will come.
_EMPTY_ROUNDS = 10
WITHOUT_TURNS = (
    "gave not one turn of the policy: its opponents fail, or err on their first move; look into their answers, or give "
    "them a smaller share"
)
#: In the message of verl's error about games without rows.
NO_ROWS = "no materializable trajectories"


@dataclass
class GameLength:
    """How many rows so many games gave, of those that were launched so far; older ones count for less."""

    games: float = 0.0
    rows: float = 0.0

    @property
    def mean(self) -> float:
        return self.rows / self.games if self.games else _FIRST_GUESS

    def games_for(self, missing: int) -> int:
        """How many games to launch where so many rows are missing; at least 1."""
        return max(1, math.ceil(_MARGIN * missing / max(self.mean, 1.0)))

    def add(self, games: int, rows: int) -> None:
        """Count a round."""
        kept = _MEMORY / (_MEMORY + games)
        self.games, self.rows = kept * self.games + games, kept * self.rows + rows

    def state_dict(self) -> dict[str, float]:
        return asdict(self)

    def load_state_dict(self, state: dict[str, float]) -> None:
        self.games, self.rows = state["games"], state["rows"]


class TurnBuffer:
    """verl's replay buffer; where it is asked for a batch of training games, it launches games for so many rows, and
    keeps their length up to date."""

    def __init__(self, buffer: Any, launch: Callable[[int], Any], length: GameLength) -> None:
        self._buffer = buffer
        self._launch = launch
        self._length = length

    def __getattr__(self, name: str) -> Any:
        return getattr(self._buffer, name)

    def sample(self, global_steps: int, partition_id: str, batch_size: int) -> tuple[KVBatchMeta, dict[str, float]]:
        """All rows of the step's games, ``batch_size`` or more, those of surplus games among them; and metrics."""
        if partition_id != "train":
            return self._buffer.sample(global_steps, partition_id, batch_size)
        keys: list[str] = []
        tags: list[dict[str, Any]] = []
        metrics: dict[str, float] = {}
        rounds = empty = 0
        while len(keys) < batch_size:
            games = self._length.games_for(batch_size - len(keys))
            self._launch(games)
            batch, more = self._sample_round(global_steps, partition_id, games)
            empty = 0 if len(batch) else empty + 1
            if empty == _EMPTY_ROUNDS:
                raise RuntimeError(f"{empty} rounds of games, the last of {games}, {WITHOUT_TURNS}")
            metrics |= {name: metrics.get(name, 0.0) + value for name, value in more.items()}
            self._length.add(games, len(batch))
            keys += batch.keys
            tags += batch.tags
            rounds += 1
        return KVBatchMeta(partition_id=partition_id, keys=keys, tags=tags), {**metrics, "games/rounds": float(rounds)}

    def _sample_round(self, global_steps: int, partition_id: str, games: int) -> tuple[KVBatchMeta, dict[str, float]]:
        """verl's batch of a round; an empty one where no game gave a row, which verl takes for an error.

        So it may be: an opponent that errs on the first move ends its game before the policy has moved. verl leaves
        such games in the queue, and would sample them again.
        """
        try:
            return self._buffer.sample(global_steps, partition_id, games)
        except RuntimeError as error:
            if NO_ROWS not in str(error) or self._buffer.failure_keys[partition_id]:
                raise
        self._buffer._clear_groups(partition_id, set(self._buffer.finished_keys[partition_id]))
        return KVBatchMeta(partition_id=partition_id, keys=[], tags=[]), {}


def without_surplus(played: Played, rows: Rows, keys: Sequence[str], wanted: int) -> tuple[Played, list[str]]:
    """The fewest games that give so many rows, and the names of these; the other games are discarded as surplus.

    Args:
        rows: of all games.
        keys: of all rows, in any order; there are so many at least.
    """
    games = rows.games[rows.check_known(keys)]
    trained = int(np.bincount(games).cumsum().searchsorted(wanted)) + 1
    records, surplus = rows.records[:trained], rows.records[trained:]
    for record in surplus:
        record.discarded = "surplus"
    discarded = sorted([*played.discarded, *surplus], key=lambda record: record.key)
    return Played(records, discarded), [*compress(keys, games < trained)]
