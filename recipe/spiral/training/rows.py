"""The rows of verl's batch: which turn of which game each of them is, and the advantage that verl's estimator gives it.

A step may have a hundred thousand of them, so what is computed of rows is computed of columns.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from operator import attrgetter
from typing import Any

import numpy as np
import torch
import transfer_queue as tq

from ..players.records import GameRecord, Turn
from ..rae import Baselines, rae_advantages
from .credit import REJECTED, Filters
from .launched import Launch

#: The place of a row of padding.
PADDING = -1
#: ``estimator(token_level_rewards=..., response_mask=..., ...)``, as verl calls one; both [num_rows, response_length].
#: Returns advantages and returns of the same shape.
Estimator = Callable[..., tuple[torch.Tensor, torch.Tensor]]


class Rows:
    """The trainable players' turns of a step's games, in the order of the games' keys, then by player and turn. A row's
    place is its place in this order.

    verl names a row by its session and its number there, ``{session}_{number}``; a session has the turns of one player
    in all that counts of what was launched with it.

    Args:
        records: the games that count.
        launches: how they were launched.

    Attributes:
        records: in the order of their keys.
        turns: the turn that each row is. [num_rows]
        keys: verl's names of the rows. [num_rows]
        games: the place of its game in ``records``. [num_rows]
        players: who moved. [num_rows]
        remaining: that player's own turns after it. [num_rows]
    """

    def __init__(self, records: Iterable[GameRecord] = (), launches: Iterable[Launch] = ()) -> None:
        self.records = sorted(records, key=attrgetter("key.order"))
        launched = {launch.key: launch.sessions for launch in launches}
        self.turns: list[Turn] = []
        self.keys: list[str] = []
        columns: list[tuple[int, int, int]] = []
        counted: Counter[str] = Counter()
        for game, record in enumerate(self.records):
            for player, session in sorted(zip(record.trainable, launched[record.key.first_try()], strict=True)):
                own, first = record.turns_of(player), counted[session]
                counted[session] += len(own)
                self.turns += own
                self.keys += [f"{session}_{number}" for number in range(first, counted[session])]
                columns += [(game, player, remaining) for remaining in reversed(range(len(own)))]
        self.games, self.players, self.remaining = np.array(columns, np.int64).reshape(-1, 3).T
        self._places = {key: place for place, key in enumerate(self.keys)}

    def __len__(self) -> int:
        return len(self.turns)

    def places(self, keys: Sequence[str]) -> np.ndarray:
        """The places of rows by their keys; ``PADDING`` for those that are no turn. [len(keys)]"""
        return np.array([self._places.get(key, PADDING) for key in keys], np.int64)

    def known_places(self, keys: Sequence[str]) -> np.ndarray:
        """Those of rows before there is padding. RuntimeError: one is no turn. [len(keys)]"""
        places = self.places(keys)
        if strange := [keys[number] for number in np.flatnonzero(places == PADDING)]:
            raise RuntimeError(f"{len(strange)} rows of the batch are no turns of its games, the first: {strange[0]}")
        return places

    def check_complete(self, keys: Sequence[str]) -> None:
        """See that these are the keys of all rows, before there is padding.

        A session that fails after its game was reported leaves no rows, and verl goes on with the others.

        Raises:
            RuntimeError: a turn has no row, and the message names its game; or a row is no turn.
        """
        lost = np.flatnonzero(np.bincount(self.known_places(keys), minlength=len(self)) == 0)
        if not len(lost):
            return
        game = self.games[lost[0]]
        record, turn = self.records[game], self.turns[lost[0]]
        number, of = int((self.games[lost] == game).sum()), int((self.games == game).sum())
        raise RuntimeError(
            f"game {record.key} of {record.game}: {number} of its {of} turns never became rows of the batch, the "
            f"first: turn {turn.turn} of player {turn.player}; without them the game would be trained in part. A "
            "session failed after its game: verl logged why (ray_kwargs.ray_init.log_to_driver=true shows it)"
        )

    def leave_out(self, filters: Filters, baselines: Baselines) -> None:
        """Say of each turn that the filters name why it is left out."""
        if filters == Filters():
            return
        compared = [baselines.of(record) for record in self.records]
        for game, turn in zip(self.games.tolist(), self.turns, strict=True):
            turn.left_out = filters.reason(self.records[game], turn, compared[game][turn.player])

    def estimator(
        self, keys: Sequence[str], baselines: Baselines, gamma: float = 1.0, reward_scale: float = 1.0
    ) -> Estimator:
        """What gives verl the advantages of these rows, in their order: verl calls an estimator with rewards, mask and
        uids, which say neither game nor role nor what is padding.

        A row that is left out has no advantage, and padding is masked. R - b is multiplied by ``reward_scale``.
        Whatever the reward holds besides the outcome (a KL penalty) is added to the advantage as it is: the baseline is
        one of outcomes only.
        """
        places = self.places(keys)

        def in_batch(rows: np.ndarray, padding: float = 0.0) -> torch.Tensor:
            return torch.from_numpy(np.append(rows, padding)[places]).to(torch.float32)

        def of_rows(values: Sequence[tuple[float | None, ...]]) -> np.ndarray:
            """Each row's, of values for players 0 and 1 of each game; NaN for None."""
            of_players = np.array(values, dtype=np.float64).reshape(-1, 2)
            return of_players[self.games, self.players]

        rewards = of_rows([record.rewards for record in self.records])
        compared = of_rows([baselines.of(record) for record in self.records])
        without = np.isnan(compared) | ~np.fromiter(map(counts, self.turns), dtype=bool, count=len(self))
        compared[without] = rewards[without]
        scales = of_rows([(baselines.scale(record, 0), baselines.scale(record, 1)) for record in self.records])
        outcomes, baseline, remaining = in_batch(rewards), in_batch(compared), in_batch(self.remaining)
        scale = in_batch(scales * reward_scale, 1.0)

        def estimate(
            token_level_rewards: torch.Tensor, response_mask: torch.Tensor, **_: Any
        ) -> tuple[torch.Tensor, torch.Tensor]:
            advantages, returns = rae_advantages(outcomes, baseline, remaining, response_mask, gamma, scale)
            shaping = token_level_rewards.sum(-1) - outcomes
            shaping[shaping.abs() < 1e-6] = 0.0  # what is left of rounding is no shaping
            return advantages + shaping.unsqueeze(-1) * response_mask.to(torch.float32), returns

        return estimate

    def note_training(self, batch: Any, baselines: Baselines) -> None:
        """Write into the games what they were trained with: b, and each turn's A, or that verl rejected the turn.

        A turn's A is the mean over its tokens that are trained, whichever estimator made it.
        """
        fields = ["advantages", "response_mask"]
        data = tq.kv_batch_get(keys=batch.keys, partition_id=batch.partition_id, select_fields=fields)
        data = data.to_padded_tensor()
        mask = data["response_mask"].to(torch.float32)
        tokens = mask.sum(-1)
        advantages = (data["advantages"] * mask).sum(-1) / tokens.clamp(min=1)
        places = self.places(batch.keys).tolist()
        for place, advantage, trained in zip(places, advantages.tolist(), tokens.tolist(), strict=True):
            if place == PADDING or (turn := self.turns[place]).left_out is not None:
                continue
            if trained:
                turn.advantage = advantage
            else:
                turn.left_out = REJECTED
        for record in self.records:
            record.baselines = baselines.of(record)


def counts(turn: Turn) -> bool:
    """Whether a turn counts in the mean over turns: as in verl's losses, a rejected one does, as a zero."""
    return turn.left_out is None or turn.left_out == REJECTED


def keep(batch: Any, keys: Sequence[str]) -> Any:
    """verl's batch with these of its rows, in their order; the others leave the queue as well."""
    kept = {*keys}
    if gone := [key for key in batch.keys if key not in kept]:
        tq.kv_clear(keys=gone, partition_id=batch.partition_id)
    return batch.select_keys([*keys])
