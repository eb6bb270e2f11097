"""Who plays whom in which game, in which role, and each game's key.

A game's key is a function of the seed and of the game's own place: raising the number of games or adding match-ups
changes no game that there was.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from itertools import combinations, product
from typing import NamedTuple

from ...players.records import GameRecord
from ...players.seeds import GameKey, derive_seed
from .policies import Policy
from .settings import MatchUps, Randomness, Settings

SPLIT = "eval"


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

    @property
    def players(self) -> tuple[str, str]:
        """The names of players 0 and 1."""
        return (self.policy, self.opponent) if self.role == 0 else (self.opponent, self.policy)


@dataclass(frozen=True)
class Plan:
    """All games of an evaluation, in the order of match-ups, roles and places.

    Attributes:
        match_ups: those that are played.
        left_out: why others are not.
        games_per_role: the number of a match-up's games with the policy as player 0, and with it as player 1.
        randomness: which games have the same cards, dice, opponent's draws and sampling seeds. "shared": the games of
            all policies against the same opponent, in the same game, role and place (common random numbers).
            Differences between policies are then more certain, but their results are not independent. "own": no two.
    """

    match_ups: tuple[MatchUp, ...]
    left_out: tuple[str, ...] = ()
    games_per_role: int = 1
    seed: int = 0
    randomness: Randomness = Randomness.shared

    def __len__(self) -> int:
        return 2 * self.games_per_role * len(self.match_ups)

    def __iter__(self) -> Iterator[GameId]:
        for match_up, role, place in product(self.match_ups, (0, 1), range(self.games_per_role)):
            yield GameId(match_up.policy, match_up.opponent, match_up.game, role, place)

    def __contains__(self, game: GameId) -> bool:
        return game.place < self.games_per_role and game[:3] in self._names

    @cached_property
    def _names(self) -> frozenset[tuple[str, str, str]]:
        return frozenset((each.policy, each.opponent, each.game) for each in self.match_ups)

    def key(self, game: GameId, retry: int = 0) -> GameKey:
        """A game's key. Where a run's games have the run's seed, it has a seed for its randomness."""
        who = () if self.randomness is Randomness.shared else (game.policy,)
        seed = _seed(self.seed, self.randomness, *who, game.opponent, game.game, game.role)
        return GameKey(SPLIT, seed, 0, game.place, retry)


@cache
def _seed(seed: int, randomness: Randomness, *same: str | int) -> int:
    """Of all games for which these parts are the same; as JSON, because names may hold any separator."""
    return derive_seed("evaluation", seed, randomness, json.dumps(same))


def plan(policies: Sequence[Policy], opponents: Sequence[Policy], settings: Settings) -> Plan:
    """The match-ups of the kinds that ``settings.match_ups`` names, each once.

    Raises:
        ValueError: there is nothing to play, though match-ups are named.
    """
    games = tuple(dict.fromkeys(settings.games))
    names, others = [policy.name for policy in policies], [policy.name for policy in opponents]
    wanted: list[MatchUp] = []
    for kind in settings.match_ups:
        pairs = product(names, others) if kind is MatchUps.cross else _round_robin(names, others)
        wanted += [MatchUp(*pair, game) for pair, game in product(pairs, games)]
    known = {policy.name: policy for policy in (*policies, *opponents)}
    playable, left_out = [], []
    for match_up in dict.fromkeys(wanted):
        if reason := known[match_up.policy].unable(match_up.game) or known[match_up.opponent].unable(match_up.game):
            left_out.append(f"{match_up.policy} against {match_up.opponent} in {match_up.game}: {reason}")
        else:
            playable.append(match_up)
    if wanted and not playable:
        raise ValueError(f"games: nothing can be played: {left_out[0]}")
    return Plan(tuple(playable), tuple(left_out), settings.games_per_role, settings.seed, settings.randomness)


def _round_robin(policies: Sequence[str], opponents: Sequence[str]) -> list[tuple[str, str]]:
    """Everybody with everybody else once: a match-up has both seatings already.

    Of two policies "the policy" is the one whose name sorts later (of a run's snapshots, the newer one). So one more
    policy changes none of the match-ups that there were. Opponents are always opponents, and play each other, too.
    """
    ours, fixed = sorted(policies), sorted({*opponents} - {*policies})
    pairs = [(later, earlier) for earlier, later in combinations(ours, 2)]
    pairs += product(ours, fixed)
    return pairs + [(later, earlier) for earlier, later in combinations(fixed, 2)]
