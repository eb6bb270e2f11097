"""The statistics of an evaluation's games, by match-up and role: rates with intervals, means with errors, counts.

Rates are per game. Games are independent of each other, so rates have intervals. Figures per turn have none, because
the turns of a game are alike. Void games are counted, but are in no rate.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field

from ...players.records import GameRecord
from ...training.metrics import wilson
from .davidson import Outcomes
from .matchups import GameId

_RATES = ("win", "draw", "loss", "invalid", "opponent_invalid", "turn_cap", "prompt_too_long")


@dataclass
class Rate:
    """A share of games: ``count`` of ``of``, from 0 to 1, and Wilson's 95% interval; None if there are no games."""

    count: int
    of: int
    value: float | None = field(init=False, default=None)
    low: float | None = field(init=False, default=None)
    high: float | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        if self.of:
            self.value, (self.low, self.high) = self.count / self.of, wilson(self.count, self.of)


@dataclass(frozen=True)
class Mean:
    """A mean over ``of`` games. ``error`` is its standard error, None for fewer than two games."""

    value: float | None
    error: float | None
    of: int

    @classmethod
    def over(cls, values: Counter[float]) -> Mean:
        """The mean of values, given how often each occurred. It does not depend on their order."""
        of = sum(values.values())
        if not of:
            return cls(None, None, 0)
        mean = math.fsum(value * count for value, count in values.items()) / of
        squares = math.fsum((value - mean) ** 2 * count for value, count in values.items())
        return cls(mean, math.sqrt(squares / (of - 1) / of) if of > 1 else None, of)


@dataclass
class PerTurn:
    """A total over ``turns`` turns."""

    value: float | None = field(init=False)
    total: int
    turns: int

    def __post_init__(self) -> None:
        self.value = self.total / self.turns if self.turns else None


@dataclass(frozen=True)
class Result:
    """A policy's results against an opponent in a game.

    Attributes:
        role: the policy's role, 0 or 1; None: both roles together.
        games: the number of games that count.
        void: the number of games that do not count, because a player or the game failed.
        win, draw, loss: by the rewards. They add up to the games.
        invalid, opponent_invalid: games that the policy or its opponent ended with an illegal turn, and lost.
        turn_cap: games that the turn cap ended; they are draws.
        prompt_too_long: games that ended because a model's prompt was longer than allowed; both players lost them.
        reward, turns: the policy's, in a game.
        response_tokens: of the policy's responses, over its turns that have tokens (a model's).
        truncated: the policy's responses that the length limit ended.
    """

    policy: str
    opponent: str
    game: str
    role: int | None
    games: int
    void: int
    win: Rate
    draw: Rate
    loss: Rate
    invalid: Rate
    opponent_invalid: Rate
    turn_cap: Rate
    prompt_too_long: Rate
    reward: Mean
    turns: Mean
    response_tokens: PerTurn
    truncated: PerTurn


@dataclass
class _Tally:
    """The counts of one match-up and role."""

    counts: Counter[str] = field(default_factory=Counter)
    rewards: Counter[float] = field(default_factory=Counter)
    turns: Counter[float] = field(default_factory=Counter)

    def add(self, record: GameRecord, seat: int) -> None:
        counts, own = self.counts, 0
        if record.discarded is not None:
            counts["void"] += 1
            return
        counts["games"] += 1
        counts[record.result(seat)] += 1
        counts["even"] += record.rewards[0] == record.rewards[1]
        counts[record.termination] += 1
        for turn in record.turns:
            mine = turn.player == seat
            if turn.verdict != "legal":  # which ends the game
                counts["invalid" if mine else "opponent_invalid"] += 1
            if mine:
                own += 1
                counts["truncated"] += turn.truncated
                if turn.tokens is not None:
                    counts["tokens"] += len(turn.tokens.response_ids)
                    counts["turns_with_tokens"] += 1
        counts["turns"] += own
        self.rewards[record.rewards[seat]] += 1
        self.turns[own] += 1

    def __add__(self, other: _Tally) -> _Tally:
        return _Tally(self.counts + other.counts, self.rewards + other.rewards, self.turns + other.turns)

    def result(self, policy: str, opponent: str, game: str, role: int | None) -> Result:
        counts, games = self.counts, self.counts["games"]
        return Result(
            policy,
            opponent,
            game,
            role,
            games,
            counts["void"],
            **{name: Rate(counts[name], games) for name in _RATES},
            reward=Mean.over(self.rewards),
            turns=Mean.over(self.turns),
            response_tokens=PerTurn(counts["tokens"], counts["turns_with_tokens"]),
            truncated=PerTurn(counts["truncated"], counts["turns"]),
        )


class Tabulation:
    """Takes in games one by one, and keeps only counts."""

    def __init__(self) -> None:
        self._tallies: dict[tuple[str, str, str], tuple[_Tally, _Tally]] = {}

    def add(self, game: GameId, record: GameRecord) -> None:
        tallies = self._tallies.setdefault(game[:3], (_Tally(), _Tally()))
        tallies[game.role].add(record, game.role)

    def results(self) -> list[Result]:
        """For each match-up, sorted: role 0, role 1, and both together, where each game has the same weight."""
        return [
            tally.result(*cell, role)
            for cell, (first, second) in sorted(self._tallies.items())
            for role, tally in ((0, first), (1, second), (None, first + second))
        ]

    def outcomes(self) -> Outcomes:
        """How games ended for player 0, by both players' names and the game. One that both lost is a draw here."""
        found: dict[tuple[str, str, str], tuple[int, int, int]] = {}
        for (policy, opponent, game), tallies in self._tallies.items():
            for names, tally, turned in (
                ((policy, opponent), tallies[0], False),
                ((opponent, policy), tallies[1], True),
            ):
                even, won, games = (tally.counts[name] for name in ("even", "win", "games"))
                ended = (games - even - won, even, won) if turned else (won, even, games - even - won)
                before = found.get((*names, game), (0, 0, 0))
                if games:
                    found[*names, game] = (before[0] + ended[0], before[1] + ended[1], before[2] + ended[2])
        return found
