"""Who sits at a game's table: the policy, whom it plays against, and which players' turns are trained.

A row of the dataset is self-play or validation. In training the league gives a step's games their seats when they are
launched.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from .records import SELF_PLAY, GameRecord

#: The kind of every member of the pool.
PAST_SELF = "pool"
#: The name of the initial model, as a member of the pool or as an entry of ``opponents``.
BASE = "base"


@dataclass(frozen=True)
class Opponent:
    """Whom the policy plays against.

    Attributes:
        kind: the group in baselines and metrics: "self", "pool", or the name of an entry of ``opponents``.
        name: of a member of the pool; otherwise the same as ``kind``.
    """

    kind: str = SELF_PLAY
    name: str = SELF_PLAY

    @classmethod
    def of(cls, record: GameRecord) -> Opponent:
        """The opponent in a game that was played."""
        if len(record.trainable) != 1:
            return cls()
        return cls(record.opponent, record.players[1 - record.trainable[0]])


@dataclass(frozen=True)
class Seat:
    """The policy's side of a game.

    Attributes:
        opponent: whom it plays against.
        trainable: the players whose turns are trained: (0, 1) in self-play, else the policy's.
        model: whether the opponent is a model that the run serves itself.
        slot: which of the opponents' engines serves it; None: it is an adapter on the policy's, or no model.
    """

    opponent: Opponent = Opponent()
    trainable: tuple[int, ...] = (0, 1)
    model: bool = False
    slot: int | None = None

    def columns(self) -> dict[str, Any]:
        """The columns of a dataset's row. Of few columns a step's games are launched sooner."""
        other = {"opponent": self.opponent.kind, "name": self.opponent.name}
        seat = {**vars(self), **other, "trainable": list(self.trainable)}
        # How many sessions verl opens: one for each player whose turns are rows.
        return {"seat": seat, "__rollout_n__": len(self.trainable)}

    @classmethod
    def from_row(cls, row: Mapping[str, Any]) -> Seat:
        """From a row's columns."""
        seat = row["seat"]
        opponent = Opponent(seat["opponent"], seat["name"])
        return cls(opponent, tuple(seat["trainable"]), seat["model"], seat["slot"])
