"""The rows of verl's batch, each joined with the turn that it is."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
import transfer_queue as tq

from ..players.records import GameRecord, Turn
from ..players.seeds import GameKey
from ..rae import Baselines
from .estimator import RowFacts
from .filters import REJECTED, Filters


class RowsLost(RuntimeError):
    """A game was reported, and not all of its trainable players' turns became rows."""


@dataclass(frozen=True)
class Row:
    """A trainable player's turn, and the game that it belongs to."""

    record: GameRecord
    turn: Turn

    @cached_property
    def order(self) -> tuple[str | int, ...]:
        """What rows are sorted and looked up by: the game's key, then player and turn. Plain values compare fast."""
        return (*self.record.key.order, self.turn.player, self.turn.turn)

    @property
    def turns_remaining(self) -> int:
        """The player's own turns after this one."""
        return self.record.turns_of(self.turn.player)[-1].turn - self.turn.turn


def join(batch: Any, records: Sequence[GameRecord]) -> dict[str, Row]:
    """The turn that each row of a sampled batch is, by the row's key. The batch has no padding yet: padding clones the
    fields of another row."""
    turns = {row.order: row for record in records for row in (Row(record, turn) for turn in record.turns)}
    data = tq.kv_batch_get(keys=batch.keys, partition_id=batch.partition_id, select_fields=["extra_fields"])
    return {
        key: turns[(*GameKey(**fields["key"]).order, fields["player"], fields["turn"])]
        for key, fields in zip(batch.keys, list(data["extra_fields"]), strict=True)
    }


def check_complete(rows: Iterable[Row], records: Iterable[GameRecord]) -> None:
    """See that every trainable player's turn of these games has its row.

    A session that fails after its game was reported leaves none, and verl goes on with the others.

    Raises:
        RowsLost: a turn has none; the message names its game.
    """
    present = {row.order for row in rows}
    for record in records:
        trainable = record.trainable_turns()
        lost = [turn for turn in trainable if Row(record, turn).order not in present]
        if lost:
            raise RowsLost(
                f"game {record.key} of {record.game}: {len(lost)} of its {len(trainable)} turns never became rows of "
                f"the batch, the first: turn {lost[0].turn} of player {lost[0].player}; without them the game would be "
                "trained in part. A session failed after its game: verl logged why (verbose=true shows it); start the "
                "run again to go on from its last checkpoint"
            )


def in_order(batch: Any, turns: Mapping[str, Row]) -> Any:
    """The batch in the order of its games' keys, whatever came first."""
    batch.reorder(sorted(range(len(batch)), key=lambda row: turns[batch.keys[row]].order))
    return batch


def leave_out(batch: Any, turns: Mapping[str, Row], filters: Filters, baselines: Baselines) -> Any:
    """The batch without the turns that the filters name; their turns say why.

    One row stays at least, because verl has no empty batches; then there is no update.
    """
    for row in turns.values():
        row.turn.left_out = filters.reason(row.record, row.turn, baselines.of(row.record)[row.turn.player])
    gone = [key for key in batch.keys if turns[key].turn.left_out is not None]
    return drop(batch, gone if len(gone) < len(batch) else batch.keys[1:])


def drop(batch: Any, gone: Collection[str]) -> Any:
    """The batch without the rows of these keys, which leave the queue as well."""
    if not gone:
        return batch
    tq.kv_clear(keys=list(gone), partition_id=batch.partition_id)
    names = set(gone)
    return batch.select_keys([key for key in batch.keys if key not in names])


def counts(row: Row) -> bool:
    """Whether a row counts in the mean over turns: as in verl's losses, a rejected row does, as a zero."""
    return row.turn.left_out in (None, REJECTED)


def facts(rows: Sequence[Row | None], baselines: Baselines, gamma: float, reward_scale: float) -> RowFacts:
    """What an estimator of ours needs of each row; all zero for padding (None), and no advantage for a row that is left
    out. R - b is multiplied by ``reward_scale``."""
    outcomes, compared, remaining, scales = [], [], [], []
    for row in rows:
        player = row.turn.player if row else 0
        outcome = row.record.rewards[player] if row else 0.0
        baseline = baselines.of(row.record)[player] if row else None
        outcomes.append(outcome)
        compared.append(baseline if row is not None and counts(row) and baseline is not None else outcome)
        remaining.append(row.turns_remaining if row else 0)
        scales.append(reward_scale * baselines.scale(row.record, player) if row else 1.0)
    return RowFacts(
        outcomes=torch.tensor(outcomes, dtype=torch.float32),
        baselines=torch.tensor(compared, dtype=torch.float32),
        turns_remaining=torch.tensor(remaining),
        gamma=gamma,
        scale=torch.tensor(scales, dtype=torch.float32),
    )


def note_training(batch: Any, rows: Sequence[Row | None], records: Iterable[GameRecord], baselines: Baselines) -> None:
    """Write into the games what they were trained with: b, and each turn's A, or that verl rejected the turn.

    A turn's A is the mean over its tokens that are trained, whichever estimator made it. ``rows`` are those of the
    batch, in its order; None for padding.
    """
    fields = ["advantages", "response_mask"]
    data = tq.kv_batch_get(keys=batch.keys, partition_id=batch.partition_id, select_fields=fields).to_padded_tensor()
    mask = data["response_mask"].to(torch.float32)
    advantages = (data["advantages"] * mask).sum(-1) / mask.sum(-1).clamp(min=1)
    for row, advantage, tokens in zip(rows, advantages.tolist(), mask.sum(-1).tolist(), strict=True):
        if row is None or row.turn.left_out is not None:
            continue
        if tokens:
            row.turn.advantage = advantage
        else:
            row.turn.left_out = REJECTED
    for record in records:
        record.baselines = baselines.of(record)
