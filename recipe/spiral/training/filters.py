"""Turns that are played and counted but not trained, and why."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ..players.records import GameRecord, Turn

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
