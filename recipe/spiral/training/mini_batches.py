"""Which turn of a batch, or which pair of turns, goes into which mini-batch, and to which rank.

verl orders all of a padded batch by length, so that padding gathers in some mini-batches. Here the turns, in the order
of their games' keys, are cut into M runs whose sizes differ by one at most. verl's balancing then shares out each run
among the ranks, so that what they compute together takes them equally long, and padding fills up what is missing.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import islice
from typing import Any

import numpy as np
import torch
from verl.trainer.ppo import padding_utils
from verl.utils.seqlen_balancing import calculate_workload, get_seqlen_balanced_partitions, log_seqlen_unbalance

from ..spin.dpo import DPO
from .row_names import PADDING
from .rows import Rows

#: Tokens of a row of padding.
PADDING_LENGTH = 8


class FixedMiniBatches:
    """The policy's or the critic's workers, which cut a batch into M mini-batches, however many rows it has.

    verl would send a fixed number of rows a step, and so take more steps the longer the games. How many turns each
    mini-batch has, by which its loss is divided, the workers count (``workers.mini_batch_worker``).
    """

    def __init__(self, workers: Any, num_mini_batches: int) -> None:
        self._workers = workers
        self._num_mini_batches = num_mini_batches

    def __getattr__(self, name: str) -> Any:
        return getattr(self._workers, name)

    def update_actor(self, batch: Any) -> Any:
        return self._workers.update_actor(self._divided(batch))

    def train_mini_batch(self, batch: Any) -> Any:
        return self._workers.train_mini_batch(self._divided(batch))

    def _divided(self, batch: Any) -> Any:
        batch.extra_info["mini_batch_size"] = len(batch) // self._num_mini_batches
        return batch


def shorten_padding() -> None:
    """Let verl make short rows of padding, in this process. Its own have 128 tokens, which may be more than a turn."""
    padding_utils.SYNTHETIC_PADDING_SEQ_LEN = PADDING_LENGTH


def rows_at_once(config: Any) -> int:
    """The number of rows that divides a rank's rows of each mini-batch: 1 where rows are packed by their tokens.

    With DPO's loss rows are pairs, and it is twice that. ``config`` is ``actor_rollout_ref``.
    """
    sizes = []
    if not config.actor.use_dynamic_bsz:
        sizes += [config.actor.ppo_micro_batch_size_per_gpu, config.rollout.log_prob_micro_batch_size_per_gpu]
    if not config.ref.log_prob_use_dynamic_bsz:
        sizes.append(config.ref.log_prob_micro_batch_size_per_gpu)
    rows = 2 if config.actor.policy_loss.loss_mode == DPO else 1
    return rows * math.lcm(*(int(size) for size in sizes if size))


def ranks_of(workers: Any) -> int:
    """How many ranks get a part of a batch each: verl's data-parallel ranks of the policy. Its worker group remembers
    what they answered."""
    known, mesh = workers._dispatch_info, "actor"
    if mesh not in known:
        known[mesh] = workers._query_dispatch_info(mesh)
    return max(known[mesh]) + 1


def deal(
    batch: Any,
    rows: Rows,
    mini_batches: int,
    ranks: int,
    pairs: Sequence[tuple[str, str]] | None = None,
) -> dict[str, float]:
    """Put a padded batch into the order in which the ranks get its rows, and each rank its mini-batches.

    Args:
        batch: verl's, padded to a multiple of ``mini_batches`` times ``ranks``; verl gives the ranks equal parts of it,
            in order.
        rows: the turns that the batch's rows are; padding is none of them.
        mini_batches: optimizer steps in an epoch.
        pairs: the keys of rows that stay side by side, in their order, instead of single turns.

    Returns:
        verl's metrics of how equally tokens are shared out.
    """
    places = rows.places(batch.keys)
    in_order = places.argsort(kind="stable")
    real, padding = in_order[places[in_order] != PADDING].tolist(), np.flatnonzero(places == PADDING).tolist()
    together = 1
    if pairs:
        place = {batch.keys[i]: i for i in real}
        real, together = [place[key] for pair in pairs for key in pair], 2
    ordered = [*real, *padding]
    lengths = [int(batch.tags[i]["seq_len"]) for i in ordered]
    units = [sum(lengths[first : first + together]) for first in range(0, len(real), together)]
    shares = layout(units, len(batch) // together, mini_batches, ranks)
    shares = [[unit * together + i for unit in share for i in range(together)] for share in shares]
    rows.reorder(batch, np.array([ordered[i] for share in shares for i in share]))
    metrics: dict[str, float] = log_seqlen_unbalance(lengths, shares, "global_seqlen")
    return metrics


def layout(lengths: Sequence[int], rows: int, mini_batches: int, ranks: int) -> list[list[int]]:
    """The rows of each rank, one mini-batch after the other.

    The numbers of turns in two mini-batches differ by one at most. So do those of two ranks within a mini-batch and
    in the whole batch, unless rows go through the model in fixed numbers, which may take more padding.

    Args:
        lengths: tokens of the turns, in their order. [turns]
        rows: turns and padding; the indices from ``len(lengths)`` on are padding.
    """
    turns, size = len(lengths), rows // mini_batches
    padding = iter(range(turns, rows))
    work = calculate_workload(torch.tensor(lengths, dtype=torch.int64)).tolist() + [0] * (rows - turns)
    shares: list[list[int]] = [[] for _ in range(ranks)]
    spare = [0] * ranks  # rows of padding so far
    for number in range(mini_batches):
        run = list(range(turns * number // mini_batches, turns * (number + 1) // mini_batches))
        run += islice(padding, size - len(run))
        # Parts of equal size: rows of no work are the smallest, and verl shares out the smallest rows one to a part.
        parts = [[*range(size)]]
        if ranks > 1:
            parts = get_seqlen_balanced_partitions([work[i] for i in run], ranks, equal_size=True)
        cells = sorted(([run[i] for i in part] for part in parts), key=lambda cell: -sum(i >= turns for i in cell))
        for rank, cell in zip(sorted(range(ranks), key=spare.__getitem__), cells, strict=True):
            shares[rank] += cell
            spare[rank] += sum(i >= turns for i in cell)
    return shares
