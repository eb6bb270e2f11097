"""A member of the pool, and how the policy fares against it: counts, a win rate that forgets, and an Elo rating."""

from __future__ import annotations

import itertools
import re
from collections.abc import Collection
from dataclasses import dataclass

from ..players.records import Result

#: Elo: where the policy and members from elsewhere begin, and what one game moves at most. The K of a slow rating:
#: a step has dozens of games, and the policy itself changes.
START_RATING = 1000.0
ELO_K = 8.0
#: What a game still counts when the member has played one more (that of AlphaStar's league): about 100 games count.
WIN_RATE_DECAY = 0.99
#: A win rate begins as if so many games had been drawn; so one game decides nothing, and no weight is ever 0.
PRIOR_GAMES = 1.0
_SCORES = {"win": 1.0, "draw": 0.5, "loss": 0.0}
_SNAPSHOT = re.compile(r"step_\d+")
#: Members of ours, opponents that are none, and what folders are called that are none.
_TAKEN = re.compile(r"base|step_\d+|self|random|perfect|policy|unfinished.*")


def snapshot_name(step: int) -> str:
    """The name of the policy after ``step``, ``step_000040``, and before the first, ``step_000000``."""
    return f"step_{step:06d}"


def snapshot_step(name: str) -> int | None:
    """The step of a snapshot's name; None for a name of another kind."""
    return int(name.removeprefix("step_")) if _SNAPSHOT.fullmatch(name) else None


def given_name(folder_name: str, taken: Collection[str]) -> str:
    """A name for a member that comes from elsewhere: its folder's, changed where it could mean another one."""
    name = re.sub(r"[^A-Za-z0-9._-]+", "_", folder_name).strip("._-") or "member"
    if _TAKEN.fullmatch(name):
        name = f"given-{name}"
    numbered = (f"{name}-{count}" for count in itertools.count(2))
    return next(unique for unique in itertools.chain([name], numbered) if unique not in taken)


@dataclass
class Member:
    """A past policy.

    Attributes:
        name: unique within the run, also among those that have left.
        step: of a snapshot, the step after which it was taken; of a member from elsewhere, that at which it joined.
        path: where a member from elsewhere comes from; None: this run made it.
        permanent: it never leaves to make room.
        rating: Elo.
        games, wins, draws, losses: of the policy against it.
        score, weight: the policy's points and the number of games, both decayed, from which the win rate follows.
        played: the step that trained the last game against it; -1: there was none.
    """

    name: str
    step: int
    path: str | None = None
    permanent: bool = False
    rating: float = START_RATING
    games: int = 0
    wins: int = 0
    draws: int = 0
    losses: int = 0
    score: float = 0.0
    weight: float = 0.0
    played: int = -1

    @property
    def win_rate(self) -> float:
        """The policy's share of the points (a draw is half a win) in its last games against it; 0.5 before any."""
        return (self.score + PRIOR_GAMES / 2) / (self.weight + PRIOR_GAMES)

    def record(self, result: Result, step: int, rating: float) -> float:
        """Take in a game with the policy's result and rating, which ``step`` trains; returns what that rating gains."""
        score = _SCORES[result]
        self.games += 1
        self.wins += result == "win"
        self.draws += result == "draw"
        self.losses += result == "loss"
        self.score = WIN_RATE_DECAY * self.score + score
        self.weight = WIN_RATE_DECAY * self.weight + 1.0
        self.played = max(self.played, step)
        expected = 1.0 / (1.0 + 10.0 ** ((self.rating - rating) / 400.0))
        gain = ELO_K * (score - expected)
        self.rating -= gain
        return gain
