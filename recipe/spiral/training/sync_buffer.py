"""verl's replay buffer in sync mode: how often it looks for finished games, and when it launches more.

A batch of turns (``batch_unit=turns``) is the fewest whole games that have so many. How many rows a game gives is known
when it is over, so such games are launched by the mean so far, and more where they gave too few.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from typing import Any

from transfer_queue import KVBatchMeta
from verl.trainer.ppo.v1.replay_buffer import ReplayBuffer

from ..processes.run_log import say_now
from .launched import TRAIN

#: A look is followed by a pause of so many times its length, which is not longer than verl's own.
PAUSE, VERLS_PAUSE = 5.0, 2.0
#: Seconds between two looks that take no time.
LEAST_PAUSE = 0.05
#: Rows of a game before any was played: rather many, so that a run's first round is rather small.
_FIRST_GUESS = 8.0
#: The mean is over about so many games, the last ones.
_MEMORY = 128
#: So much more is launched than the mean asks for: four of five steps of 128 turns then need one round, and a tenth of
#: the games is surplus. Another round takes as long as a game, however few games it has.
_MARGIN = 1.1
#: So many rounds in a row without a row, or so many games for each turn of a batch, and nothing will come.
TURNLESS = 10
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


class RestingBuffer(ReplayBuffer):
    """verl's replay buffer, which rests between two looks the longer, the longer a look takes. verl builds it for
    ``trainer.v1.sampler.custom_sampler``, in sync mode.

    verl reads the tags of all rows at each look, from a process that also takes the rows of games that end. With a
    thousand rows a look takes some 4 ms, with a hundred thousand half a second.

    Attributes:
        length: of games; the trainer's.
    """

    length: GameLength

    def _sync_metadata_from_transfer_queue(self) -> None:
        begin = time.perf_counter()
        super()._sync_metadata_from_transfer_queue()
        self.poll_interval = max(LEAST_PAUSE, min(PAUSE * (time.perf_counter() - begin), VERLS_PAUSE))

    def _wait_for_next_poll(self, partition_id: str, last_debug_time: float) -> float:
        done = len(self.finished_keys[partition_id]) + len(self.failure_keys[partition_id])
        games = done + len(self.pending_keys[partition_id]) + len(self.running_keys[partition_id])
        say_now("play" if partition_id == TRAIN else "validation", f"{done} of {games} games")
        return float(super()._wait_for_next_poll(partition_id, last_debug_time))


class TurnBuffer(RestingBuffer):
    """That of batches of turns in sync mode, which launches games in rounds: where all of a round are over and gave too
    few rows, more. How many is a function of counts alone, never of what was over first, so that the same games are
    played and trained whatever the machine's pace."""

    def sample(self, global_steps: int, partition_id: str, batch_size: int) -> tuple[KVBatchMeta, dict[str, float]]:
        """All rows of the step's games, ``batch_size`` or more, those of surplus games among them; and metrics."""
        if partition_id != TRAIN:
            return super().sample(global_steps, partition_id, batch_size)
        keys: list[str] = []
        tags: list[dict[str, Any]] = []
        rounds = empty = 0
        while len(keys) < batch_size:
            games = self.length.games_for(batch_size - len(keys))
            self.refill_fn(games)
            batch = self._sample_round(global_steps, games)
            rounds, empty = rounds + 1, 0 if len(batch) else empty + 1
            if empty == TURNLESS:
                raise RuntimeError(f"{empty} rounds of games, the last of {games}, {WITHOUT_TURNS}")
            self.length.add(games, len(batch))
            keys += batch.keys
            tags += batch.tags
        return KVBatchMeta(partition_id=TRAIN, keys=keys, tags=tags), {"games/rounds": float(rounds)}

    def _sample_round(self, global_steps: int, games: int) -> KVBatchMeta:
        """verl's batch of a round; an empty one where no game gave a row, which verl takes for an error.

        So it may be: an opponent that errs on the first move ends its game before the policy has moved. verl leaves
        such games in the queue, and would sample them again.
        """
        try:
            return super().sample(global_steps, TRAIN, games)[0]
        except RuntimeError as error:
            if NO_ROWS not in str(error) or self.failure_keys[TRAIN]:
                raise
        self._clear_groups(TRAIN, set(self.finished_keys[TRAIN]))
        return KVBatchMeta(partition_id=TRAIN, keys=[], tags=[])
