"""Who sits at a game's table: the policy, whom it plays, and which players' turns are trained.

A dataset's row is self-play or validation; with opponents, the trainer seats a step's games before they are launched.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from .records import SELF_PLAY


@dataclass(frozen=True)
class Seat:
    """The policy's opponent in a game.

    Attributes:
        opponent: its kind, as baselines and metrics know it: "self", "pool", or the name of an entry of ``opponents``.
        name: who it is: a pool's member; otherwise the same as ``opponent``.
        trainable: the players whose turns are trained: (0, 1) in self-play, else the policy's.
        model: whether it is a model that the run serves itself.
        slot: which of the opponents' engines holds it; None: it is an adapter on the policy's, or no model.
        allowance: of an opponent that is paid for, what this process may spend in this step, see ``spending``.
    """

    opponent: str = SELF_PLAY
    name: str = SELF_PLAY
    trainable: tuple[int, ...] = (0, 1)
    model: bool = False
    slot: int | None = None
    allowance: str = ""

    def swapped(self) -> Seat:
        """With the players changed over; self-play stays what it is."""
        return self if self.opponent == SELF_PLAY else replace(self, trainable=(1 - self.trainable[0],))

    def columns(self) -> dict[str, Any]:
        """The columns of a dataset's row."""
        return {
            "opponent": self.opponent,
            "opponent_name": self.name,
            "opponent_model": self.model,
            "slot": -1 if self.slot is None else self.slot,
            "allowance": self.allowance,
            "trainable": list(self.trainable),
            # How many sessions verl opens: one for each player whose turns are rows.
            "__rollout_n__": len(self.trainable),
        }

    @classmethod
    def from_row(cls, row: Mapping[str, Any]) -> Seat:
        trainable, slot = tuple(int(player) for player in row["trainable"]), int(row["slot"])
        name, model = str(row["opponent_name"]), bool(row["opponent_model"])
        return cls(str(row["opponent"]), name, trainable, model, None if slot < 0 else slot, row["allowance"])
