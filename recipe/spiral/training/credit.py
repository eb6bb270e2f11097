"""What turns are credited with: the baseline that a game's outcome is compared with, and which turns are played and
counted but not trained, and why."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from statistics import fmean, stdev
from typing import Any

from ..players.records import GameRecord, Turn
from ..players.seeds import GameKey
from ..rae import Baselines

#: The values of ``algorithm.adv_estimator`` that have baselines.
RAE, GRPO = "rae", "grpo_role"

#: By verl's ``algorithm.rollout_correction.rollout_rs``, which masks all tokens of a turn. No filter of ours.
REJECTED = "rejected"
#: In the order in which they are looked for.
REASONS = ("truncated", "draw", "zero_advantage", REJECTED)


@dataclass(frozen=True)
class Filters:
    """Which turns are left out of the update; baselines move by their games all the same.

    Attributes:
        truncations: responses that the length limit ended, whose end nobody has seen.
        draws: all turns of games that ended in a draw, by the raw outcome.
        zero_advantages: turns whose R - b is 0, but for what is left of rounding: thirteen equal outcomes have another
            mean.
    """

    truncations: bool = False
    draws: bool = False
    zero_advantages: bool = False

    @classmethod
    def from_config(cls, config: Any) -> Filters:
        algorithm = config.algorithm
        return cls(config.rules.truncated == "mask", algorithm.filter_draws, algorithm.filter_zero_advantages)

    def reason(self, record: GameRecord, turn: Turn, baseline: float | None) -> str | None:
        """Why a trainable player's turn is left out; None if it is trained. ``baseline`` is b of the player,
        None where the estimator has none."""
        if self.truncations and turn.truncated:
            return "truncated"
        if self.draws and record.result(turn.player) == "draw":
            return "draw"
        if self.zero_advantages and baseline is not None and abs(record.rewards[turn.player] - baseline) < 1e-9:
            return "zero_advantage"
        return None


class GroupBaselines(Baselines):
    """GRPO's baselines (``grpo_role``): games that start from one state are a group, and a role's baseline is its mean
    outcome there.

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
        return fmean(self._outcomes[record.key.start(), role])

    def scale(self, record: GameRecord, role: int) -> float:
        outcomes = self._outcomes[record.key.start(), role]
        return 1.0 / (stdev(outcomes) + 1e-6) if self._by_deviation and len(outcomes) > 1 else 1.0


def baselines_of(algorithm: Any, moving: Baselines, records: Iterable[GameRecord]) -> Baselines:
    """What the outcomes of a batch are compared with, by the config's ``algorithm``: the ``moving`` baselines of RAE,
    as they are before the batch, or the means of the games' groups."""
    if algorithm.adv_estimator == RAE:
        return moving
    if algorithm.adv_estimator == GRPO:
        return GroupBaselines(records, algorithm.norm_adv_by_std_in_grpo)
    return Baselines()
