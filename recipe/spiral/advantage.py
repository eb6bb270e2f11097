"""RAE, role-conditioned advantage estimation (SPIRAL, arXiv 2506.24119, section 3.2).

In a zero-sum game the two roles have different expected outcomes, and their mean over a game is always zero. So each
(game, role) has a baseline of its own, a moving average of that role's outcomes, and a turn's advantage is the outcome
less the baseline as it was before the batch: ``A = gamma^k (R - b)`` with k own turns still to come. Nothing is divided
by a standard deviation. Baselines move afterwards, by every game, in the order of the games' keys.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal

import torch

from .records import GameRecord


def rae_advantages(
    outcomes: torch.Tensor,
    baselines: torch.Tensor,
    turns_remaining: torch.Tensor,
    response_mask: torch.Tensor,
    gamma: float = 1.0,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Advantages and returns of turns, broadcast over their response tokens.

    Args:
        outcomes: R, the game's outcome for the player of each turn. [num_rows]
        baselines: b, that role's baseline before this batch. [num_rows]
        turns_remaining: the player's own turns after this one. [num_rows]
        response_mask: 1 on response tokens; all zero on padding rows. [num_rows, response_length]
        gamma: discount over own turns.

    Returns:
        Advantages and returns, both [num_rows, response_length], zero outside the mask.
    """
    discount = gamma ** turns_remaining.to(torch.float32)
    mask = response_mask.to(torch.float32)
    advantages = (discount * (outcomes - baselines)).unsqueeze(-1) * mask
    returns = (discount * outcomes).unsqueeze(-1) * mask
    return advantages, returns


class RoleBaselines:
    """The moving averages b[game, role].

    Args:
        decay: b <- decay * b + (1 - decay) * R.
        initial: where every baseline starts.
        update: one step per "game", or one per "batch" with the mean of its outcomes.
    """

    def __init__(self, decay: float = 0.95, initial: float = 0.0, update: Literal["game", "batch"] = "game") -> None:
        if not 0.0 <= decay <= 1.0:
            raise ValueError(f"algorithm.rae.decay={decay}: must be from 0 to 1")
        if update not in ("game", "batch"):
            raise ValueError(f"algorithm.rae.update={update!r}: must be 'game' or 'batch'")
        self.decay = decay
        self.initial = initial
        self.update_mode = update
        self._values: dict[tuple[str, int], float] = {}

    def get(self, game: str, role: int) -> float:
        return self._values.get((game, role), self.initial)

    def update(self, records: Iterable[GameRecord]) -> None:
        """Move the baselines by decided games, in the order of their keys; only learners' roles move.

        A game in which a player never moved counts like any other.
        """
        outcomes: dict[tuple[str, int], list[float]] = {}
        for record in sorted(records, key=lambda record: record.key):
            for role in record.learners:
                outcomes.setdefault((record.game, role), []).append(record.rewards[role])
        for (game, role), values in outcomes.items():
            steps = values if self.update_mode == "game" else [sum(values) / len(values)]
            value = self.get(game, role)
            for outcome in steps:
                value = self.decay * value + (1.0 - self.decay) * outcome
            self._values[game, role] = value

    def items(self) -> list[tuple[str, int, float]]:
        """(game, role, b), sorted."""
        return [(game, role, value) for (game, role), value in sorted(self._values.items())]

    def state_dict(self) -> dict[str, Any]:
        return {"values": [list(item) for item in self.items()]}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._values = {(game, int(role)): float(value) for game, role, value in state["values"]}
