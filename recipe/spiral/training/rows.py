"""The rows of verl's batch, each joined with the turn that it is."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import transfer_queue as tq
from verl.protocol import DataProto

from ..play.records import GameRecord, Turn
from ..play.seeds import GameKey
from .estimator import RowFacts
from .filters import REJECTED, Filters


class RowsLost(RuntimeError):
    """A game was reported, and not all of its learners' turns became rows."""


@dataclass(frozen=True)
class Row:
    """A learner's turn, and the game that it belongs to."""

    record: GameRecord
    turn: Turn

    @property
    def order(self) -> tuple[GameKey, int, int]:
        return self.record.key, self.turn.player, self.turn.turn

    @property
    def turns_remaining(self) -> int:
        """The player's own turns after this one."""
        return len(self.record.turns_of(self.turn.player)) - 1 - self.turn.turn


def fetch(batch: Any, records: Sequence[GameRecord]) -> list[Row | None]:
    """Which turn each row of the batch is, in its order; None for padding, which clones another row's fields."""
    turns = {row.order: row for record in records for row in (Row(record, turn) for turn in record.turns)}
    data = tq.kv_batch_get(keys=batch.keys, partition_id=batch.partition_id, select_fields=["extra_fields"])
    return [
        None if tag.get("is_padding") else turns[GameKey(**fields["key"]), fields["player"], fields["turn"]]
        for fields, tag in zip(list(data["extra_fields"]), batch.tags, strict=True)
    ]


def check_complete(rows: Iterable[Row | None], records: Iterable[GameRecord]) -> None:
    """That every learner's turn of these games has its row.

    A session that fails after its game was reported leaves none, and verl goes on with the others.

    Raises:
        RowsLost: a turn has none; the message names its game.
    """
    there = {row.order for row in rows if row is not None}
    for record in records:
        learned = [turn for turn in record.turns if turn.player in record.trainable]
        lost = [turn for turn in learned if Row(record, turn).order not in there]
        if lost:
            raise RowsLost(
                f"game {record.key} of {record.game}: {len(lost)} of its {len(learned)} turns never became rows of the "
                f"batch, the first: turn {lost[0].turn} of player {lost[0].player}; without them the game would be "
                "trained in part. A session failed after its game: verl logged why (verbose=true shows it); start the "
                "run again to go on from its last checkpoint"
            )


def leave_out(batch: Any, rows: Sequence[Row | None], filters: Filters) -> Any:
    """The batch without the turns that the filters name; their turns say why.

    One row stays at least, because verl has no empty batches; then there is no update.
    """
    for row in filter(None, rows):
        row.turn.left_out = filters.reason(row.record, row.turn)
    gone = [key for key, row in zip(batch.keys, rows, strict=True) if row is not None and row.turn.left_out is not None]
    return drop(batch, gone if len(gone) < len(batch) else batch.keys[1:])


def drop(batch: Any, gone: Sequence[str]) -> Any:
    """The batch without the rows of these keys, which leave the queue too."""
    if not gone:
        return batch
    tq.kv_clear(keys=list(gone), partition_id=batch.partition_id)
    names = set(gone)
    return batch.select_keys([key for key in batch.keys if key not in names])


def trained(row: Row | None) -> bool:
    """Whether a row counts in the mean over turns: as in verl's losses, one that was rejected does, as a zero."""
    return row is not None and row.turn.left_out in (None, REJECTED)


def note_advantages(rows: Sequence[Row | None], advantages: torch.Tensor, kept: torch.Tensor) -> None:
    """Write into the turns what they are trained with, or that they were rejected.

    Args:
        rows: in the batch's order.
        advantages: [num_rows]
        kept: whether any of a row's tokens is trained. [num_rows]
    """
    for row, advantage, any_token in zip(rows, advantages.tolist(), kept.tolist(), strict=True):
        if row is None or row.turn.left_out is not None:
            continue
        if any_token:
            row.turn.advantage = advantage
        else:
            row.turn.left_out = REJECTED


def facts(rows: Sequence[Row | None], gamma: float, scale: Callable[[GameRecord, int], float]) -> RowFacts:
    """What an estimator of ours needs of each row; all zero for padding, and no advantage for a row that is left out.

    Args:
        rows: in the batch's order; their records hold the baselines.
        gamma: discount over own turns.
        scale: what the outcomes of a player in a game are multiplied by.
    """
    outcomes, baselines, remaining, scales = [], [], [], []
    for row in rows:
        outcome = row.record.rewards[row.turn.player] if row else 0.0
        baseline = row.record.baselines[row.turn.player] if row else 0.0
        outcomes.append(outcome)
        baselines.append(baseline if trained(row) and baseline is not None else outcome)
        remaining.append(row.turns_remaining if row else 0)
        scales.append(scale(row.record, row.turn.player) if row else 1.0)
    return RowFacts(
        outcomes=torch.tensor(outcomes, dtype=torch.float32),
        baselines=torch.tensor(baselines, dtype=torch.float32),
        turns_remaining=torch.tensor(remaining),
        gamma=gamma,
        scale=torch.tensor(scales, dtype=torch.float32),
    )


def mean_advantages(batch: Any) -> tuple[torch.Tensor, torch.Tensor]:
    """Of each row, the mean advantage over the tokens that are trained, and whether there are any. [num_rows] each"""
    fields = ["advantages", "response_mask"]
    data = tq.kv_batch_get(keys=batch.keys, partition_id=batch.partition_id, select_fields=fields)
    tensors = DataProto(batch=data.to_padded_tensor()).batch
    mask = tensors["response_mask"].to(torch.float32)
    means: torch.Tensor = (tensors["advantages"] * mask).sum(-1) / mask.sum(-1).clamp(min=1)
    return means, mask.sum(-1) > 0
