"""What ratings see of a game, who was player 0 and 1 and how it ended; and who beats whom, counted from that."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Literal, NamedTuple

from ...play.intervals import wilson
from ...play.records import GameRecord
from .statistics import Rate

Outcome = Literal["win", "draw", "loss"]


class Meeting(NamedTuple):
    """A game.

    Attributes:
        first, second: the names of players 0 and 1.
        game: the game's id.
        outcome: for player 0.
        chance: games that share it are not independent of each other.
    """

    first: str
    second: str
    game: str
    outcome: Outcome
    chance: tuple[int, int]

    @classmethod
    def of(cls, record: GameRecord) -> Meeting | None:
        """A record's; None: the game does not count."""
        if record.discarded is not None:
            return None
        first, second = record.players
        return cls(first, second, record.game, record.result(0), (record.key.run_seed, record.key.index))


def meetings(records: Iterable[GameRecord]) -> Iterator[Meeting]:
    """Of the games that count."""
    for record in records:
        if meeting := Meeting.of(record):
            yield meeting


@dataclass(frozen=True)
class Pair:
    """One player's games against another, both seatings together; an evaluation plans as many of each."""

    name: str
    other: str
    wins: int
    draws: int
    losses: int

    @property
    def games(self) -> int:
        return self.wins + self.draws + self.losses

    @property
    def score(self) -> float:
        """The share of the points, a draw being half of one."""
        return (self.wins + self.draws / 2) / self.games

    @property
    def interval(self) -> tuple[float, float]:
        """Of the score; too wide rather than too narrow where there are draws."""
        return wilson(self.wins + self.draws / 2, self.games)

    @property
    def win(self) -> Rate:
        return Rate(self.wins, self.games)

    @property
    def ahead(self) -> int:
        """1, -1: it wins more (fewer) of the games that somebody won than it loses, beyond chance; 0: undecided."""
        if not self.wins + self.losses:
            return 0
        low, high = wilson(self.wins, self.wins + self.losses)
        return int(low > 0.5) - int(high < 0.5)


class HeadToHead:
    """Who beats whom: the matrix of all pairs that met.

    Args:
        games: those that count; a player's against itself are left out.
    """

    def __init__(self, games: Iterable[Meeting]) -> None:
        counts: Counter[tuple[str, str, Outcome]] = Counter()
        turned: dict[Outcome, Outcome] = {"win": "loss", "draw": "draw", "loss": "win"}
        for meeting in games:
            if meeting.first != meeting.second:
                counts[meeting.first, meeting.second, meeting.outcome] += 1
                counts[meeting.second, meeting.first, turned[meeting.outcome]] += 1
        self._pairs = {
            (name, other): Pair(name, other, *(counts[name, other, outcome] for outcome in ("win", "draw", "loss")))
            for name, other in sorted({(name, other) for name, other, _ in counts})
        }
        #: Everybody who met somebody, sorted.
        self.names = sorted({name for name, _ in self._pairs})

    def pair(self, name: str, other: str) -> Pair | None:
        """One against the other; None: they never met."""
        return self._pairs.get((name, other))

    @property
    def pairs(self) -> list[Pair]:
        """All of them, each from both sides, sorted by names."""
        return list(self._pairs.values())


@dataclass(frozen=True)
class Cycles:
    """Among three players who all met: does whoever beats the one who beats a third beat the third as well?

    Attributes:
        found: (a, b, c): a is ahead of b, b of c, and c of a.
        decided: triples in which all three pairs are decided (``Pair.ahead``): only there chance makes few cycles.
        triples: in which all three pairs met.
    """

    found: tuple[tuple[str, str, str], ...]
    decided: int
    triples: int

    @property
    def rate(self) -> Rate:
        return Rate(len(self.found), self.decided)


def cycles(matrix: HeadToHead, names: Sequence[str] | None = None) -> Cycles:
    """The cycles among ``names`` (all players), each begun with the name that sorts first."""
    found, decided, triples = [], 0, 0
    ahead = {(pair.name, pair.other): pair.ahead for pair in matrix.pairs}
    for a, b, c in combinations(sorted(matrix.names if names is None else names), 3):
        if (a, b) in ahead and (b, c) in ahead and (a, c) in ahead:
            triples += 1
            signs = (ahead[a, b], ahead[b, c], ahead[c, a])
            decided += 0 not in signs
            if abs(sum(signs)) == 3:
                found.append((a, b, c) if signs[0] == 1 else (a, c, b))
    return Cycles(tuple(found), decided, triples)
