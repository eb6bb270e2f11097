"""The plan of an evaluation: who plays whom in which game, in which role, and each game's key.

A game's key is a function of the seed and of the game's own place: raising the number of games or adding match-ups
changes no game that there was.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, product
from typing import Literal, NamedTuple

from ....players.records import GameRecord
from ....players.seeds import GameKey, derive_seed

SPLIT = "eval"
#: Which games have the same randomness: cards, dice, the opponent's draws, sampling seeds.
#: "shared": the games of all policies against the same opponent, in the same game, role and place (common random
#: numbers). Differences between policies are then more certain, but their results are not independent.
#: "own": no two games.
Randomness = Literal["shared", "own"]


@dataclass(frozen=True)
class MatchUp:
    """A policy against an opponent in a game; it plays both roles. The two may be the same."""

    policy: str
    opponent: str
    game: str


class GameId(NamedTuple):
    """Which of an evaluation's games this is. A void game and the game that is played instead have the same.

    ``role`` says which player the policy is, the record's only trainable one. ``place`` counts its games in this role.
    """

    policy: str
    opponent: str
    game: str
    role: int
    place: int

    @classmethod
    def of(cls, record: GameRecord) -> GameId:
        """A record's; ValueError: it has not one trainable player, the policy."""
        if len(record.trainable) != 1 or record.trainable[0] not in (0, 1):
            raise ValueError(f"game {record.key} has the trainable {record.trainable}: must be the policy's role alone")
        (role,) = record.trainable
        return cls(record.players[role], record.players[1 - role], record.game, role, record.key.index)


@dataclass(frozen=True)
class PlannedGame:
    """A game that is to be played."""

    id: GameId
    key: GameKey

    @property
    def players(self) -> tuple[str, str]:
        """The names of players 0 and 1."""
        pair = self.id.policy, self.id.opponent
        return pair if self.id.role == 0 else pair[::-1]


def game_key(seed: int, randomness: Randomness, game: GameId, retry: int = 0) -> GameKey:
    """The key of an evaluation's game. Where a run's games have the run's seed, it has a seed for its randomness."""
    same = [game.opponent, game.game, game.role]
    # As JSON, because names may hold any separator.
    parts = json.dumps(same if randomness == "shared" else [game.policy, *same])
    return GameKey(SPLIT, derive_seed("evaluation", seed, randomness, parts), 0, game.place, retry)


@dataclass(frozen=True)
class Plan:
    """All games of an evaluation, in the order of match-ups, roles and places.

    ``games_per_role`` is the number of a match-up's games with the policy as player 0, and with it as player 1.
    """

    match_ups: tuple[MatchUp, ...]
    games_per_role: int
    seed: int = 0
    randomness: Randomness = "shared"

    def __len__(self) -> int:
        return 2 * self.games_per_role * len(self.match_ups)

    def __iter__(self) -> Iterator[PlannedGame]:
        for match_up, role, place in product(self.match_ups, (0, 1), range(self.games_per_role)):
            game = GameId(match_up.policy, match_up.opponent, match_up.game, role, place)
            yield PlannedGame(game, game_key(self.seed, self.randomness, game))


def cross(policies: Iterable[str], opponents: Iterable[str], games: Iterable[str]) -> tuple[MatchUp, ...]:
    """Each policy against each opponent in each game; a policy that is also an opponent plays against itself, too."""
    return tuple(MatchUp(*names) for names in product(policies, opponents, games))


def round_robin(policies: Sequence[str], games: Sequence[str], anchors: Sequence[str] = ()) -> tuple[MatchUp, ...]:
    """Everybody against everybody else, once in each game: a match-up has both seatings already.

    Of two policies "the policy" is the one whose name sorts later (of a run's snapshots, the newer one). So one more
    policy changes none of the match-ups that there were. Anchors, players whose strength does not change from one
    evaluation to the next, are always opponents, and play each other, too.
    """
    ours, fixed = sorted(policies), sorted(set(anchors) - set(policies))
    pairs = [(later, earlier) for earlier, later in combinations(ours, 2)]
    pairs += product(ours, fixed)
    pairs += [(later, earlier) for earlier, later in combinations(fixed, 2)]
    return tuple(MatchUp(*pair, game) for pair, game in product(pairs, games))


def own_past(steps: Mapping[str, int], games: Iterable[str], lag: int) -> tuple[MatchUp, ...]:
    """Each snapshot of a run against the one ``lag`` steps before, where there is one: does the policy still improve?

    Table 3 of SPIRAL (arXiv 2506.24119) compares checkpoint t with checkpoint t-16. ``steps`` are the snapshots', by
    name.

    Raises:
        ValueError: no two snapshots are so far apart.
    """
    pairs = [(later, earlier) for later, earlier in product(steps, steps) if steps[later] - steps[earlier] == lag]
    if not pairs:
        known = ", ".join(str(step) for step in sorted(set(steps.values())))
        raise ValueError(f"lag={lag}: no two snapshots are so many steps apart; there are those of steps {known}")
    pairs.sort(key=lambda pair: (steps[pair[0]], pair))
    return tuple(MatchUp(*pair, game) for pair, game in product(pairs, games))
