"""What one update trains, and in which order: its games and their turns (``account``), and its mini-batches (``deal``).

``account`` is called once, with what was played and what was launched. It asks nobody and changes nothing but the
records, which it tells why a turn or a game is left out.

verl orders all of a padded batch by length, so that padding gathers in some mini-batches. ``deal`` cuts the turns, in
the order of their games' keys, into M runs whose sizes differ by one at most, and shares out each run among the ranks,
so that what they compute together takes them equally long. Padding fills up what is missing.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import compress, islice
from typing import Any

import numpy as np
import torch
from verl.utils.seqlen_balancing import calculate_workload, log_seqlen_unbalance

from ..extensions import Chosen, Objective
from ..players.records import GameRecord
from ..rae import Baselines
from ..rollouts.channel import Played
from .credit import Filters
from .launched import Launch
from .rows import Rows


@dataclass(frozen=True)
class Step:
    """One update of the policy.

    Attributes:
        number: the training step.
        games: those that the update accounts for, and those that were discarded.
        rows: the turns of the games that count.
        baselines: b of each game, as it is before this update moves it.
        keys: the rows that are trained, in the order of their games' keys, or in that of the objective's units; one at
            least, as verl has no empty batches.
        chosen: what the objective trains on.
    """

    number: int
    games: Played = field(default_factory=Played)
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
        RuntimeError: the rows are not the trainable players' turns of these games.
    """
    rows = Rows(games.records, launches := [*launches])
    if turns is not None:
        games, keys = without_surplus(games, rows, keys, turns)
        rows = Rows(games.records, launches)
    rows.check_complete(keys)
    rows.leave_out(filters, baselines)
    if objective is None:
        chosen = None
        trained = [key for key, turn in zip(rows.keys, rows.turns, strict=True) if turn.left_out is None]
    else:
        chosen = objective.choose(rows)
        trained = [key for unit in chosen.keys for key in unit]
    return Step(number, games, rows, baselines, trained or rows.keys[:1], chosen)


def without_surplus(played: Played, rows: Rows, keys: Sequence[str], wanted: int) -> tuple[Played, list[str]]:
    """The fewest games that give so many rows, and the names of these; the other games are discarded as surplus.

    Args:
        rows: of all games.
        keys: of all rows, in any order; there are so many at least.
    """
    games = rows.games[rows.known_places(keys)]
    trained = int(np.bincount(games).cumsum().searchsorted(wanted)) + 1
    records, surplus = rows.records[:trained], rows.records[trained:]
    for record in surplus:
        record.discarded = "surplus"
    discarded = sorted([*played.discarded, *surplus], key=lambda record: record.key)
    return Played(records, discarded), [*compress(keys, games < trained)]


def rows_at_once(config: Any) -> int:
    """The number of rows, or of units of rows, that divides those that a rank has of each mini-batch: 1 where rows are
    packed by their tokens. ``config`` is ``actor_rollout_ref``."""
    sizes = []
    if not config.actor.use_dynamic_bsz:
        sizes += [config.actor.ppo_micro_batch_size_per_gpu, config.rollout.log_prob_micro_batch_size_per_gpu]
    if not config.ref.log_prob_use_dynamic_bsz:
        sizes.append(config.ref.log_prob_micro_batch_size_per_gpu)
    return math.lcm(*(int(size) for size in sizes if size))


def policy_ranks(workers: Any) -> int:
    """How many ranks get a part of a batch each: verl's data-parallel ranks of the policy. Its worker group remembers
    what they answered."""
    known, mesh = workers._dispatch_info, "actor"
    if mesh not in known:
        known[mesh] = workers._query_dispatch_info(mesh)
    return max(known[mesh]) + 1


def deal(
    lengths: Sequence[int], turns: int, mini_batches: int, ranks: int, together: int = 1
) -> tuple[list[list[int]], dict[str, float]]:
    """The rows of each rank, one mini-batch after the other. verl gives the ranks equal parts of a batch, in order.

    The numbers of turns in two mini-batches differ by one at most. So do those of two ranks within a mini-batch.

    Args:
        lengths: tokens of each row, of the turns in their order, and of padding after them. [rows: a multiple of
            ``mini_batches`` times ``ranks`` times ``together``]
        turns: how many of them are no padding.
        mini_batches: optimizer steps in an epoch.
        together: so many rows, one after the other, are a unit, and stay side by side.

    Returns:
        Numbers of rows; and verl's metrics of how equally tokens are shared out.
    """
    tokens = torch.tensor(lengths, dtype=torch.int64).view(-1, together).sum(-1)
    units, size = turns // together, len(tokens) // mini_batches
    work = np.zeros(len(tokens))
    work[:units] = calculate_workload(tokens[:units])
    padding = iter(range(units, len(tokens)))
    shares: list[list[int]] = [[] for _ in range(ranks)]
    for number in range(mini_batches):
        run = [*range(units * number // mini_batches, units * (number + 1) // mini_batches)]
        run += islice(padding, size - len(run))
        # The longest first, to the ranks in turn and back again. verl's own takes seconds for 100,000 rows.
        hands = np.array(run)[np.argsort(-work[run], kind="stable")].reshape(-1, ranks)
        hands[1::2] = hands[1::2, ::-1]
        for rank in range(ranks):
            shares[rank] += sorted(hands[:, rank if number % 2 == 0 else -1 - rank].tolist())
    shares = [[unit * together + i for unit in share for i in range(together)] for share in shares]
    metrics: dict[str, float] = log_seqlen_unbalance(list(lengths), shares, "global_seqlen")
    return shares, metrics
