"""Who plays whom in a step: which games are self-play, and which the policy plays against somebody, in which role.

::

    matchmaker = Matchmaker(ratio=0.5, shares={"random": 0.1})
    assignments = matchmaker.assign([(key, game_id), ...], members)   # one per game, in their order
    matchmaker.state_dict(); matchmaker.load_state_dict(state)

``ratio`` of the games are played against ``members`` (past policies), each of the ``shares`` against that opponent, and
the rest are self-play. Nothing is left to a coin: every step has exactly its share of each, what does not come out even
is carried over to the next step, and so it is for each game id. Which of a game id's games they are is drawn from the
run's seed and says nothing about the game. Against each opponent the learner's roles alternate.

Games of one group (``GameKey.group``) are compared with each other, role by role: they have one opponent and one
learner. Where there are groups, shares are counted in groups.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from .seeds import GameKey, derive_seed

SELF = "self"
POOL = "pool"
Kind = Literal["self", "pool", "fixed"]


@dataclass(frozen=True)
class Assignment:
    """Who plays a game.

    Attributes:
        opponent: "self", a member's name, or a fixed opponent's.
        kind: which of these it is.
        learners: the players that the policy is, whose turns are trained: both, or one.
    """

    opponent: str
    kind: Kind
    learners: tuple[int, ...]


SELF_PLAY = Assignment(SELF, "self", (0, 1))


class Matchmaker:
    """Assigns opponents and roles, and keeps count over the run.

    Args:
        ratio: the share of games against the pool. While the pool is empty these are self-play, and nothing is owed.
        shares: the share of games against each fixed opponent.

    Raises:
        ValueError: a share is out of its range, or together they are more than 1.
    """

    def __init__(self, ratio: float = 0.0, shares: Mapping[str, float] | None = None) -> None: ...

    def assign(self, games: Sequence[tuple[GameKey, str]], members: Sequence[str]) -> list[Assignment]:
        """Who plays each of a step's games; may be called several times for a step that is launched in rounds.

        Args:
            games: (key, game id), in the order of keys.
            members: whom of the pool to play in this step (``Pool.choose``); all equally often, within one game.

        Raises:
            ValueError: a name is both a member's and a fixed opponent's, or games of one group differ in their id.
        """
        raise NotImplementedError
