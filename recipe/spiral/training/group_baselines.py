"""GRPO's baselines, for games that start from one state: ``algorithm.adv_estimator=grpo_role``."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from statistics import fmean, stdev

from ..players.records import GameRecord
from ..players.seeds import GameKey
from ..rae import Baselines


class GroupBaselines(Baselines):
    """GRPO's baselines: games that start from one state are a group, and a role's baseline is its mean outcome there.

    Both players of one game have outcomes R and -R, whose mean is always 0; so a player is compared with the same
    player of the group's other games.

    Args:
        records: the games of a batch; their keys name their groups.
        by_deviation: divide advantages by the group's standard deviation (the sample's, as verl's GRPO does).
    """

    def __init__(self, records: Iterable[GameRecord], by_deviation: bool = False) -> None:
        self._by_deviation = by_deviation
        self._outcomes: dict[tuple[GameKey, int], list[float]] = defaultdict(list)
        for record in records:
            for role in record.trainable:
                self._outcomes[record.key.start(), role].append(record.rewards[role])

    def _of_role(self, record: GameRecord, role: int) -> float:
        return fmean(self._group(record, role))

    def scale(self, record: GameRecord, role: int) -> float:
        outcomes = self._group(record, role)
        return 1.0 / (stdev(outcomes) + 1e-6) if self._by_deviation and len(outcomes) > 1 else 1.0

    def _group(self, record: GameRecord, role: int) -> list[float]:
        return self._outcomes[record.key.start(), role]
