"""The plan of an evaluation: who plays whom in which game, in which role, and each game's key.

A game's key is a function of the seed and of the game's own place: raising the number of games or adding match-ups
changes no game that there was.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations, product
from typing import Literal, NamedTuple, get_args

from ...games import resolve
from ...play.records import GameRecord
from ...play.seeds import GameKey, derive_seed

SPLIT = "eval"
#: Which games have the same chance: cards, dice, the opponent's draws, sampling seeds.
#: "shared": for all policies, those against the same opponent in the same game, role and place (common random numbers):
#: differences between policies are surer, but their results are not independent. "own": no two games.
Chance = Literal["shared", "own"]


@dataclass(frozen=True, order=True)
class MatchUp:
    """A policy against an opponent in a game; it plays both roles. The two may be the same.

    Attributes:
        policy, opponent: names.
        game: the game's id.
    """

    policy: str
    opponent: str
    game: str

    def __post_init__(self) -> None:
        for name in (self.policy, self.opponent):
            if not name or not name.isprintable() or name != name.strip():
                raise ValueError(f"{name!r} is no name of a policy: give printable characters, no space at the ends")


class GameId(NamedTuple):
    """Which of an evaluation's games this is; of its tries, if it had to be played again, the same."""

    policy: str
    opponent: str
    game: str
    role: int
    place: int

    @classmethod
    def of(cls, record: GameRecord) -> GameId:
        """A record's.

        Raises:
            ValueError: it is no game of one policy against another: it must have one learner, the policy.
        """
        if len(record.trainable) != 1 or record.trainable[0] not in (0, 1):
            raise ValueError(f"game {record.key} has the trainable {record.trainable}: must be the policy's role alone")
        (role,) = record.trainable
        return cls(record.players[role], record.players[1 - role], record.game, role, record.key.index)


@dataclass(frozen=True)
class PlannedGame:
    """A game that is to be played.

    Attributes:
        match_up: who plays whom in what.
        role: which player the policy is: the record's only learner.
        key: the game's.
    """

    match_up: MatchUp
    role: int
    key: GameKey

    @property
    def players(self) -> tuple[str, str]:
        """The names of players 0 and 1."""
        policy, opponent = self.match_up.policy, self.match_up.opponent
        return (policy, opponent) if self.role == 0 else (opponent, policy)

    @property
    def id(self) -> GameId:
        return GameId(self.match_up.policy, self.match_up.opponent, self.match_up.game, self.role, self.key.index)


def game_key(seed: int, chance: Chance, match_up: MatchUp, role: int, index: int, retry: int = 0) -> GameKey:
    """The key of a match-up's game: what gives it its chance stands where a run's games have the run's seed.

    Args:
        seed: the evaluation's.
        chance: which games have the same.
        match_up: who plays whom in what.
        role: the policy's.
        index: counted in this role.
        retry: how often the game was void.
    """
    same = [match_up.opponent, match_up.game, role]
    # as JSON: names may hold any separator
    parts = json.dumps(same if chance == "shared" else [match_up.policy, *same])
    return GameKey(SPLIT, derive_seed("evaluation", seed, chance, parts), 0, index, retry)


@dataclass(frozen=True)
class Plan:
    """All games of an evaluation, in the order of match-ups, roles and places.

    Attributes:
        match_ups: games may be given by their aliases.
        games_per_role: of each match-up, so many with the policy as player 0, and as many with it as player 1.
        seed: the evaluation's.
        chance: which games have the same.

    Raises:
        UnknownGame: a match-up's.
        ValueError: a match-up is there twice, or a setting is out of its range.
    """

    match_ups: tuple[MatchUp, ...]
    games_per_role: int
    seed: int = 0
    chance: Chance = "shared"

    def __post_init__(self) -> None:
        named = tuple(MatchUp(one.policy, one.opponent, resolve(one.game)) for one in self.match_ups)
        if len(set(named)) < len(named):
            twice = next(one for one in named if named.count(one) > 1)
            raise ValueError(f"{twice.policy} against {twice.opponent} in {twice.game} is planned twice")
        if isinstance(self.games_per_role, bool) or not isinstance(self.games_per_role, int) or self.games_per_role < 1:
            raise ValueError(f"games_per_role={self.games_per_role}: must be a whole number from 1 up")
        if self.chance not in get_args(Chance):
            raise ValueError(f"chance={self.chance!r}: must be one of {', '.join(get_args(Chance))}")
        object.__setattr__(self, "match_ups", named)

    def __len__(self) -> int:
        return 2 * self.games_per_role * len(self.match_ups)

    def __iter__(self) -> Iterator[PlannedGame]:
        for match_up, role, index in product(self.match_ups, (0, 1), range(self.games_per_role)):
            yield PlannedGame(match_up, role, game_key(self.seed, self.chance, match_up, role, index))

    @property
    def names(self) -> list[str]:
        """Everybody who plays, sorted."""
        return sorted({name for one in self.match_ups for name in (one.policy, one.opponent)})


def cross(policies: Iterable[str], opponents: Iterable[str], games: Iterable[str]) -> tuple[MatchUp, ...]:
    """Each policy against each opponent in each game; a policy that is an opponent, too, against itself as well."""
    return tuple(MatchUp(*each) for each in product(policies, opponents, games))


def round_robin(
    policies: Sequence[str], games: Sequence[str], anchors: Sequence[str] = (), itself: bool = False
) -> tuple[MatchUp, ...]:
    """Everybody against everybody else, once in each game: a match-up has both seatings already.

    Of two policies the one whose name sorts later is "the policy" (of a run's snapshots, the newer one), so that
    somebody more changes nothing among those that there were. Anchors are always opponents, and meet each other too.

    Args:
        policies: names.
        games: their ids.
        anchors: names of those whose strength does not change from one evaluation to the next.
        itself: whether everybody plays against itself, too: what is left is the role's advantage.
    """
    fixed = sorted(set(anchors) - set(policies))
    ours = sorted(policies)
    if twice := sorted({name for name in ours if ours.count(name) > 1}):
        raise ValueError(f"policies: {', '.join(twice)} is named twice")
    pairs = [(later, earlier) for earlier, later in combinations(ours, 2)]
    pairs += list(product(ours, fixed))
    pairs += [(later, earlier) for earlier, later in combinations(fixed, 2)]
    if itself:
        pairs += [(name, name) for name in [*ours, *fixed]]
    return tuple(MatchUp(*pair, game) for pair, game in product(pairs, games))
