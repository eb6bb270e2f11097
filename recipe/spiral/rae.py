"""RAE, role-conditioned advantage estimation (SPIRAL, arXiv 2506.24119, section 3.2).

In a zero-sum game the two roles have different expected outcomes, and their mean over a game is always zero. So each
(game, role) has a baseline of its own, a moving average of that role's outcomes, and a turn's advantage is the outcome
minus the baseline as it was before the batch: ``A = gamma^k (R - b)`` with k own turns still to come. Nothing is
divided by a standard deviation. Baselines move afterwards, by every game, in the order of the games' keys.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Literal

from .players.records import SELF_PLAY, GameRecord

if TYPE_CHECKING:  # a config is checked without it, which takes seconds to import
    import torch


def rae_advantages(
    outcomes: torch.Tensor,
    baselines: torch.Tensor,
    turns_remaining: torch.Tensor,
    response_mask: torch.Tensor,
    gamma: float = 1.0,
    scale: torch.Tensor | float = 1.0,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Advantages and returns of turns, broadcast over their response tokens.

    Args:
        outcomes: R, the game's outcome for the player of each turn. [num_rows]
        baselines: b, that role's baseline before this batch. [num_rows]
        turns_remaining: the player's own turns after this one. [num_rows]
        response_mask: 1 on response tokens; all zero on padding rows. [num_rows, response_length]
        gamma: discount over own turns.
        scale: what outcomes and baselines are multiplied by, one number or one per row. [num_rows]

    Returns:
        Advantages and returns, both [num_rows, response_length], zero outside the mask.
    """
    # in float32 it is 9e-7 off after 70 turns of gamma=0.999, and the audit takes 1e-6 for rounding
    factor = (scale * gamma ** turns_remaining.double()).float()
    mask = response_mask.float()
    advantages = (factor * (outcomes - baselines)).unsqueeze(-1) * mask
    returns = (factor * outcomes).unsqueeze(-1) * mask
    return advantages, returns


class Baselines:
    """The values b that outcomes are compared with. These have none, for estimators of verl's, which do without."""

    def of(self, record: GameRecord) -> tuple[float | None, float | None]:
        """b for players 0 and 1 of a game; None for a player who is not trained, or has no baseline."""
        b0, b1 = (self._of_role(record, role) if role in record.trainable else None for role in (0, 1))
        return b0, b1

    def scale(self, record: GameRecord, role: int) -> float:
        """What R - b of a player in a game is multiplied by."""
        return 1.0

    def _of_role(self, record: GameRecord, role: int) -> float | None:
        return None


class RoleBaselines(Baselines):
    """The moving averages b[game, role, kind of opponent].

    Args:
        decay: b <- decay * b + (1 - decay) * R.
        initial: where every baseline starts.
        update: one step per "game", or one per "batch" with the mean of its outcomes.
        enabled: without, every baseline is 0 and stays there.
        by_opponent: outcomes against a weak past self say nothing of self-play: each kind of opponent has baselines of
            its own. Otherwise there is one for (game, role), as in SPIRAL, whomever the policy plays.
    """

    def __init__(
        self,
        decay: float = 0.95,
        initial: float = 0.0,
        update: Literal["game", "batch"] = "game",
        enabled: bool = True,
        by_opponent: bool = True,
    ) -> None:
        self.decay = decay
        self.initial = initial if enabled else 0.0
        self.update_mode = update
        self.enabled = enabled
        self.by_opponent = by_opponent
        self._values: dict[tuple[str, int, str], float] = {}

    def get(self, game: str, role: int, opponent: str = SELF_PLAY) -> float:
        """b of a role against a kind of opponent."""
        return self._values.get((game, role, opponent if self.by_opponent else SELF_PLAY), self.initial)

    def _of_role(self, record: GameRecord, role: int) -> float:
        return self.get(record.game, role, record.opponent)

    def update(self, records: Iterable[GameRecord]) -> None:
        """Move the baselines of trainable players' roles, by all decided games, in the order of their keys."""
        if not self.enabled:
            return
        outcomes: dict[tuple[str, int, str], list[float]] = defaultdict(list)
        for record in sorted(records, key=attrgetter("key.order")):
            opponent = record.opponent if self.by_opponent else SELF_PLAY
            for role in record.trainable:
                outcomes[record.game, role, opponent].append(record.rewards[role])
        for place, values in outcomes.items():
            baseline = self.get(*place)
            for outcome in values if self.update_mode == "game" else [sum(values) / len(values)]:
                baseline = self.decay * baseline + (1.0 - self.decay) * outcome
            self._values[place] = baseline

    def state_dict(self) -> dict[str, Any]:
        """``values``: (game, role, kind of opponent, b), sorted."""
        return {"values": [[*place, value] for place, value in sorted(self._values.items())]}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._values = {(game, role, opponent): value for game, role, opponent, value in state["values"]}
