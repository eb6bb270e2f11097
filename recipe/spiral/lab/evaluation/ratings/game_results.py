"""The results of single games, and who beats whom."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
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


@dataclass
class Pair:
    """A player's games against another player, as player 0 and as player 1 together.

    ``score`` is the share of the points, with its 95% interval, which is rather too wide if there are draws.
    """

    name: str
    other: str
    wins: int
    draws: int
    losses: int
    games: int = field(init=False)
    score: float = field(init=False)
    low: float = field(init=False)
    high: float = field(init=False)

    def __post_init__(self) -> None:
        self.games = self.wins + self.draws + self.losses
        self.score = self.points / self.games
        self.low, self.high = wilson(self.points, self.games)

    @property
    def points(self) -> float:
        """A draw is half a point."""
        return self.wins + self.draws / 2

    @property
    def ahead(self) -> int:
        """1 (-1) if the player won significantly more (fewer) than half of the games that are no draws, else 0."""
        if not self.wins + self.losses:
            return 0
        low, high = wilson(self.wins, self.wins + self.losses)
        return int(low > 0.5) - int(high < 0.5)


def head_to_head(games: Iterable[GameResult]) -> dict[tuple[str, str], Pair]:
    """Who beats whom: all pairs of players that met, each from both sides, sorted by their two names."""
    counts: Counter[tuple[str, str, Outcome]] = Counter()
    for game in games:
        if game.first != game.second:
            counts[game.first, game.second, game.outcome] += 1
            counts[game.second, game.first, _TURNED[game.outcome]] += 1
    return {
        (name, other): Pair(name, other, *(counts[name, other, outcome] for outcome in _TURNED))
        for name, other in sorted({(name, other) for name, other, _ in counts})
    }
