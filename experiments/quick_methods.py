"""What only the experiments have: ways to an equilibrium that the trainer does not know.

A run names them by ``+quick.NAME=VALUE``. A falling coefficient is magnetic mirror descent's (Sokota et al. 2023),
regularised rewards are those of R-NaD (Perolat et al. 2022).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any

from omegaconf import OmegaConf

from recipe.spiral.players.records import GameRecord


@dataclass(frozen=True)
class Methods:
    """The methods of a run.

    Attributes:
        kl_end: the KL coefficient falls to this, by the same factor at each step; None: it stays.
        baseline: an outcome is compared with the mean of the "role", as RAE does, or with that of the "observation".
        regularise: KL is a "loss", or a part of both players' "rewards", with a reference that goes from one copy to
            the next in the first half of ``ref_update_freq`` steps.
    """

    kl_end: float | None = None
    baseline: str = "role"
    regularise: str = "loss"

    @classmethod
    def from_config(cls, config: Any) -> Methods:
        """Raises ValueError: an unknown name or value."""
        given: dict[str, Any] = dict(OmegaConf.select(config, "quick") or {})
        known = {"kl_end": (), "baseline": ("role", "observation"), "regularise": ("loss", "rewards")}
        for name, value in given.items():
            if name not in known or (known[name] and value not in known[name]):
                raise ValueError(f"quick.{name}={value}: must be one of {known}")
        return cls(**given)


def falling(start: float, end: float | None, done: float) -> float:
    """The coefficient of KL after this share of the steps, on its way to ``end``; None: it stays."""
    return start if end is None else start * (end / start) ** done


class ObservationBaselines:
    """Moving averages of what followed each observation: ``b <- decay * b + (1 - decay) * outcome``."""

    def __init__(self, decay: float) -> None:
        self.decay = decay
        self._values: defaultdict[Hashable, float] = defaultdict(float)
        self._moved: dict[Hashable, float] = {}

    def compare(self, observation: Hashable, outcome: float) -> float:
        """The outcome minus the baseline of this batch; the outcome counts for the next one."""
        before = self._values[observation]
        moved = self._moved.get(observation, before)
        self._moved[observation] = self.decay * moved + (1 - self.decay) * outcome
        return outcome - before

    def end_batch(self) -> None:
        """The next batch is compared with what this one has moved."""
        self._values.update(self._moved)
        self._moved.clear()


def regularised(record: GameRecord, ratios: Sequence[float], coefficient: float) -> list[float]:
    """What each turn's player gets from this turn on: the reward, less the coefficient times the log ratios of its own
    turns from here on, plus that of the other player's.

    Args:
        ratios: for each turn the log of policy / reference of its response.
    """
    rest, got = 0.0, []  # of player 0
    for turn, ratio in zip(reversed(record.turns), reversed(ratios), strict=True):
        rest += coefficient * (ratio if turn.player else -ratio)
        got.append(record.rewards[turn.player] + (-rest if turn.player else rest))
    return got[::-1]
