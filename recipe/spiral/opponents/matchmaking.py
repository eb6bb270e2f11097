"""Who plays a game: drawn from its key alone, so that no count is kept and a resumed run draws the same again.

Games of one group (``GameKey.group``) are compared with each other, role by role. So all of them have the opponent and
the role of the group's first game.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence

from ..players.records import SELF_PLAY
from ..players.seats import PAST_SELF, Opponent, Seat
from ..players.seeds import GameKey


def draw_seat(key: GameKey, shares: Mapping[str, float], members: Sequence[str], games_per_start: int = 1) -> Seat:
    """The seat of a game: its opponent is drawn by share, and the policy's role follows from the game's number.

    Args:
        key: the game's.
        shares: of all games: the pool's as ``PAST_SELF``, those of fixed opponents by name. What is left is self-play.
        members: the pool's members of this step, each as likely. While there are none, the pool's games are self-play.
        games_per_start: how many games a group has.
    """
    first = key.start()
    draw = random.Random(first.seed("seat"))
    left = max(0.0, 1.0 - sum(shares.values()))
    (kind,) = draw.choices([*shares, SELF_PLAY], [*shares.values(), left])
    if kind == SELF_PLAY or (kind == PAST_SELF and not members):
        return Seat()
    name = draw.choice(members) if kind == PAST_SELF else kind
    return Seat(Opponent(kind, name), (first.index // games_per_start % 2,))
