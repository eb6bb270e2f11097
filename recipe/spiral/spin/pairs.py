"""Pairs of responses to one prompt, of which one led to a better outcome: what DPO trains on.

Responses share a prompt where games start alike (``data.games_per_start``): the first turns do, and later ones where
the games went the same way. The same response may lead to several outcomes, because the game goes on after it; it has
the mean of them. The best response is chosen and the worst rejected; where they are equally good there is no pair.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import mean
from typing import Any

import torch
import transfer_queue as tq
from verl.trainer.ppo.core_algos import ADV_ESTIMATOR_REGISTRY

from ..players.records import GameRecord
from ..players.seeds import GameKey
from ..training.metrics import share_metrics
from ..training.rows import Rows
from .dpo import log_ratios, pair_sums
from .spin_settings import DPO, DpoSettings

#: Why a turn is left out that is in no pair.
UNPAIRED = "unpaired"


@dataclass
class Pairs:
    """A batch's pairs, and the prompts that gave none.

    Attributes:
        keys: (chosen row, rejected row) of each, in the order of their games.
        games: the game, or the data set, of each.
        ties: how many prompts had several responses and no best one, by game.
        alone: how many prompts had one response, by game.
        settings: how they are compared.
        records: the games of the batch.
        unpaired: the share of the turns that are in no pair.
    """

    keys: list[tuple[str, str]] = field(default_factory=list)
    games: list[str] = field(default_factory=list)
    ties: Counter[str] = field(default_factory=Counter)
    alone: Counter[str] = field(default_factory=Counter)
    settings: DpoSettings = field(default_factory=DpoSettings)
    records: list[GameRecord] = field(default_factory=list)
    unpaired: float = 0.0

    def mark(self, keys: Sequence[str]) -> None:
        """The next advantages are the marks of these rows: 1 for chosen, -1 for rejected, 0 for padding."""
        marks = {chosen: 1.0 for chosen, _ in self.keys} | {rejected: -1.0 for _, rejected in self.keys}
        of_rows = torch.tensor([marks.get(key, 0.0) for key in keys])

        def estimator(response_mask: torch.Tensor, **_: Any) -> tuple[torch.Tensor, torch.Tensor]:
            advantages = of_rows.unsqueeze(-1) * response_mask.to(torch.float32)
            return advantages, advantages

        ADV_ESTIMATOR_REGISTRY[DPO] = estimator

    def metrics(self, partition: str) -> dict[str, float]:
        """``pairs/{count,ties,alone}`` and ``pairs/{game}/...``; and the shares of games without branches, which begin
        from states that other games reached.

        accuracy, margin and rewards are means over a game's pairs, by the policy as it is before the update: 0 where it
        still is the reference. The rows of ``partition`` have log-probabilities by now.
        """
        whole = without_branches(self.records)
        metrics = share_metrics(whole)
        metrics |= {"games/branches": float(len(self.records) - len(whole)), "turns/left_out/unpaired": self.unpaired}
        counts = {"count": Counter(self.games), "ties": self.ties, "alone": self.alone}
        metrics |= {f"pairs/{name}": float(count.total()) for name, count in counts.items()}
        for game in sorted({*self.games, *self.ties, *self.alone}):
            metrics |= {f"pairs/{game}/{name}": float(count[game]) for name, count in counts.items()}
        if not self.keys:
            return metrics
        fields = ["old_log_probs", "ref_log_prob", "response_mask"]
        flat = [key for pair in self.keys for key in pair]
        data = tq.kv_batch_get(keys=flat, partition_id=partition, select_fields=fields).to_padded_tensor()
        ratios = log_ratios(data["old_log_probs"], data["ref_log_prob"], data["response_mask"], self.settings)
        chosen, rejected = ratios.view(-1, 2).unbind(-1)
        for game, count in sorted(counts["count"].items()):
            own = torch.tensor([other == game for other in self.games])
            sums = pair_sums(chosen[own], rejected[own], self.settings.beta)
            metrics |= {f"pairs/{game}/{name}": total / count for name, total in sums.items()}
        return metrics


class PairObjective:
    """``loss=dpo``: an ``extensions.Objective``."""

    together = 2

    def __init__(self, settings: DpoSettings) -> None:
        self._settings = settings
        self.batch_info = settings.batch_info

    def choose(self, rows: Rows) -> Pairs:
        """The pairs; turns that are in none are left out, and say so."""
        pairs = find_pairs(rows)
        paired, alone = {key for pair in pairs.keys for key in pair}, 0
        for key, turn in zip(rows.keys, rows.turns, strict=True):
            if key not in paired and turn.left_out is None:
                turn.left_out, alone = UNPAIRED, alone + 1
        return replace(pairs, settings=self._settings, records=rows.records, unpaired=alone / max(len(rows), 1))

    def line(self, metrics: Mapping[str, float]) -> str:
        """The pairs, the prompts that tied, and how many pairs the update found the right way."""
        counts = f"pairs {metrics['pairs/count']:.0f} (ties {metrics['pairs/ties']:.0f})"
        if not metrics["pairs/count"]:
            return f"{counts}, so that there was no update  "
        return f"{counts} accuracy {metrics['actor/dpo_accuracy']:.0%} margin {metrics['actor/dpo_margin']:+.3f}  "


def find_pairs(rows: Rows) -> Pairs:
    """The pairs among a batch's rows; rows that are left out are in none."""
    # the same players, so that a weaker opponent is no merit of a response
    prompts: dict[Any, dict[tuple[int, ...], list[int]]] = defaultdict(lambda: defaultdict(list))
    for place, (game, turn) in enumerate(zip(rows.games.tolist(), rows.turns, strict=True)):
        record = rows.records[game]
        if turn.left_out is None and turn.tokens is not None:
            prompt = record.key.start(), record.players, turn.player, tuple(turn.tokens.prompt_ids)
            prompts[prompt][tuple(turn.tokens.response_ids)].append(place)
    pairs = Pairs()
    for responses in prompts.values():
        # the exact mean: that of three times 0.1 is 0.1, so that equal scores tie however often they were given
        value = {alike[0]: mean(_outcome(rows, place) for place in alike) for alike in responses.values()}
        chosen, rejected = max(value, key=lambda place: value[place]), min(value, key=lambda place: value[place])
        game = rows.records[rows.games[chosen]].game
        if value[chosen] > value[rejected]:
            pairs.keys.append((rows.keys[chosen], rows.keys[rejected]))
            pairs.games.append(game)
        elif sum(map(len, responses.values())) > 1:
            pairs.ties[game] += 1
        else:
            pairs.alone[game] += 1
    return pairs


def without_branches(records: Iterable[GameRecord]) -> list[GameRecord]:
    """Of games that count, in the order of their keys, those that are no branches."""
    first: dict[GameKey, GameRecord] = {}
    for record in records:
        first.setdefault(record.key.first_try(), record)
    return [*first.values()]


def _outcome(rows: Rows, place: int) -> float:
    return rows.records[rows.games[place]].rewards[rows.players[place]]
