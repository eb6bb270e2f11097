"""The results of single games, and who beats whom."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, NamedTuple

from ....players.intervals import wilson
from ....players.records import GameRecord

Outcome = Literal["win", "draw", "loss"]
_TURNED: dict[Outcome, Outcome] = {"win": "loss", "draw": "draw", "loss": "win"}


class GameResult(NamedTuple):
    """Who played a game, and how it ended.

    Attributes:
        first, second: the names of players 0 and 1.
        game: the game's id.
        outcome: the outcome for player 0.
        cluster: games with the same value share their randomness (deals, dice), so they are not independent.
    """

    first: str
    second: str
    game: str
    outcome: Outcome
    cluster: tuple[int, int]

    @classmethod
    def of(cls, record: GameRecord) -> GameResult | None:
        """The result of a recorded game; None if the game was discarded. One that both players lost is a draw here."""
        if record.discarded is not None:
            return None
        outcome: Outcome = "draw" if record.rewards[0] == record.rewards[1] else record.result(0)
        return cls(*record.players, record.game, outcome, (record.key.run_seed, record.key.index))


@dataclass(frozen=True)
class Pair:
    """A player's games against another player, as player 0 and as player 1 together."""

    name: str
    other: str
    wins: int
    draws: int
    losses: int

    @property
    def games(self) -> int:
        return self.wins + self.draws + self.losses

    @property
    def points(self) -> float:
        """A draw is half a point."""
        return self.wins + self.draws / 2

    @property
    def score(self) -> float:
        """The share of the points."""
        return self.points / self.games

    @property
    def interval(self) -> tuple[float, float]:
        """The 95% interval of the score. If there are draws it is rather too wide."""
        return wilson(self.points, self.games)

    @property
    def ahead(self) -> int:
        """1 (-1) if the player won significantly more (fewer) than half of the games that are no draws, else 0."""
        if not self.wins + self.losses:
            return 0
        low, high = wilson(self.wins, self.wins + self.losses)
        return int(low > 0.5) - int(high < 0.5)


class HeadToHead:
    """Who beats whom: the results of all pairs of players that met. A player's games against itself are left out.

    Attributes:
        names: all players that met another, sorted.
        pairs: all pairs, each from both sides, sorted by names.
    """

    def __init__(self, games: Iterable[GameResult]) -> None:
        counts: Counter[tuple[str, str, Outcome]] = Counter()
        for game in games:
            if game.first != game.second:
                counts[game.first, game.second, game.outcome] += 1
                counts[game.second, game.first, _TURNED[game.outcome]] += 1
        self._pairs = {
            (name, other): Pair(name, other, *(counts[name, other, outcome] for outcome in _TURNED))
            for name, other in sorted({(name, other) for name, other, _ in counts})
        }
        self.names = sorted({name for name, _ in self._pairs})
        self.pairs = list(self._pairs.values())

    def pair(self, name: str, other: str) -> Pair | None:
        """The games of one player against another; None if they never met."""
        return self._pairs.get((name, other))
