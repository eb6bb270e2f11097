"""Who plays whom in a step: which games are self-play, and which the policy plays against an opponent, in which role.

``ratio`` of the games are played against members of the pool, each of the ``shares`` against that opponent, and the
rest are self-play. Every step has its exact share of each, rounded to whole games. What the rounding took or gave is
made up for in the next steps. The same holds for each game id. Which games of an id are chosen is drawn from the run's
seed and says nothing about the game. Against each opponent the policy's roles alternate, game id by game id.

Games of one group (``GameKey.group``) are compared with each other, role by role: they have one opponent and one
trainable player. Where there are groups, shares and roles are counted in groups.
"""

from __future__ import annotations

import copy
import random
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from ..players.records import SELF_PLAY
from ..players.seats import PAST_SELF, Opponent, Seat
from ..players.seeds import GameKey, derive_seed


class Matchmaker:
    """Gives games their seats, and keeps count over the run.

    Args:
        ratio: the share of games against the pool. While the pool is empty these are self-play, and nothing is owed.
        shares: the share of games against each fixed opponent, from 0 to 1.

    Raises:
        ValueError: the shares are more than 1 together.
    """

    def __init__(self, ratio: float = 0.0, shares: Mapping[str, float] | None = None) -> None:
        fixed = dict(shares or {})
        if ratio + sum(fixed.values()) > 1 + 1e-9:
            settings = [f"fsp.ratio={ratio}", *(f"opponents: {name}: share={share}" for name, share in fixed.items())]
            raise ValueError(f"{', '.join(settings)}: must be at most 1 together")
        self._ratio = float(ratio)
        self._fixed = {name: float(share) for name, share in sorted(fixed.items()) if share}
        #: What each game id has had too little (or, below zero, too much) of each opponent's share, in groups.
        self._owed: dict[str, dict[str, float]] = {}
        #: How often the policy was player 0 and player 1, by game id and opponent.
        self._roles: dict[str, dict[str, list[int]]] = {}
        #: The step that is being launched, and how often each member is played in it.
        self._step = -1
        self._used: Counter[str] = Counter()

    def assign(
        self, games: Sequence[tuple[GameKey, str]], members: Sequence[str], step: int | None = None
    ) -> list[Seat]:
        """The seats of a step's games, (key, game id); may be called several times, as a step is launched in rounds.

        Args:
            games: in the order of keys.
            members: the pool's members of this step (``Pool.choose``); each is played equally often, within one game.
            step: the one that launches them; None: their keys', which in the asynchronous modes only number them.

        Raises:
            ValueError: a member is named like another opponent.
        """
        if both := sorted({*self._fixed, SELF_PLAY, PAST_SELF} & set(members)):
            raise ValueError(f"{both[0]!r} is a member of the pool, and another opponent, too: rename the member")
        if not games:
            return []
        first = games[0][0]
        step = first.step if step is None else step
        if step != self._step:
            self._step, self._used = step, Counter()
        draw = random.Random(derive_seed(first.split, first.run_seed, first.step, first.index, "matchmaking"))
        by_game: dict[str, list[GameKey]] = {}
        for start, game in {key.start(): game for key, game in games}.items():  # a group's games are of one id
            by_game.setdefault(game, []).append(start)
        counts = self._counts({game: len(keys) for game, keys in by_game.items()}, bool(members))
        seats: dict[GameKey, Seat] = {}
        order = draw.sample(list(members), len(members))  # who is first when all were played as often
        for game, keys in by_game.items():
            opponents = [name for name, count in counts[game].items() for _ in range(count)]
            for start, opponent in zip(draw.sample(keys, len(keys)), opponents, strict=True):
                seats[start] = self._seat(opponent, game, order)
        return [seats[key.start()] for key, _ in games]

    def _counts(self, games: Mapping[str, int], has_members: bool) -> dict[str, dict[str, int]]:
        """How many groups of each game id are played against whom.

        First how many in all, then how many of these in each game id. Both times they are given out one by one, each
        to the opponent that is owed the most.
        """
        pool = {PAST_SELF: self._ratio} if has_members and self._ratio else {}
        shares = {SELF_PLAY: max(0.0, 1.0 - sum([*pool.values(), *self._fixed.values()])), **pool, **self._fixed}
        for game, count in games.items():
            owed = self._owed.setdefault(game, {})
            for name in [name for name in owed if name not in shares and name != SELF_PLAY]:
                # of a pool that is empty, or of a share that is 0 now
                owed[SELF_PLAY] = owed.get(SELF_PLAY, 0.0) + owed.pop(name)
            for name, share in shares.items():
                owed[name] = owed.get(name, 0.0) + share * count
        in_all = {name: sum(owed.get(name, 0.0) for _, owed in sorted(self._owed.items())) for name in shares}
        left = dict.fromkeys(shares, 0)
        for _ in range(sum(games.values())):
            most = max(in_all, key=lambda name: (shares[name] > 0, in_all[name]))
            in_all[most] -= 1
            left[most] += 1
        counts = {game: dict.fromkeys(shares, 0) for game in games}
        rest = dict(games)
        for _ in range(sum(games.values())):
            game, name = max(
                ((game, name) for game in games if rest[game] for name in shares if left[name]),
                key=lambda cell: self._owed[cell[0]][cell[1]],
            )
            counts[game][name] += 1
            self._owed[game][name] -= 1
            rest[game] -= 1
            left[name] -= 1
        return counts

    def _seat(self, opponent: str, game: str, members: Sequence[str]) -> Seat:
        if opponent == SELF_PLAY:
            return Seat()
        name = opponent
        if opponent == PAST_SELF:
            # the one that was played least in this step; of equals, least in this game
            roles = self._roles.get(game, {})
            name = min(members, key=lambda member: (self._used[member], sum(roles.get(member, ()))))
            self._used[name] += 1
        return Seat(Opponent(opponent, name), (self._next_role(game, name),))

    def _next_role(self, game: str, opponent: str) -> int:
        """The role that the policy has had less often against an opponent; else in this game, against all."""
        roles = self._roles.setdefault(game, {})
        played = roles.setdefault(opponent, [0, 0])
        first, second = played if played[0] != played[1] else map(sum, zip(*roles.values(), strict=True))
        role = int(second < first)
        played[role] += 1
        return role

    def changed_over(self, game: str, opponent: str, role: int) -> None:
        """The policy was to be player ``role``, and the game that counts was played in the other one, after a draw."""
        played = self._roles[game].setdefault(opponent, [0, 0])
        played[role] -= 1
        played[1 - role] += 1

    def state_dict(self) -> dict[str, Any]:
        """All counts, as JSON takes them; shares are the config's."""
        counts = {"owed": self._owed, "roles": self._roles, "step": self._step, "used": dict(self._used)}
        return copy.deepcopy(counts)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a ``state_dict``; shares may be others than when it was made."""
        state = copy.deepcopy(dict(state))
        self._owed, self._roles = state["owed"], state["roles"]
        self._step, self._used = int(state["step"]), Counter(state["used"])
