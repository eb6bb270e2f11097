"""The statistics of an evaluation's games, by match-up and role, as rows of ``results.json``.

Rates are per game. Games are independent of each other, so rates have intervals. Figures per turn have none, because
the turns of a game are alike. Void games are counted, but are in no rate.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field

from ...players.records import GameRecord
from ...training.metrics import wilson
from .matches import GameId
from .ratings import Outcomes, Row

#: By the rewards; by who ended the game with an illegal turn; by what else ended it.
_RATES = ("win", "draw", "loss", "invalid", "opponent_invalid", "turn_cap", "prompt_too_long")


def rate(count: int, of: int) -> Row:
    """A share of games, and Wilson's 95% interval."""
    low, high = wilson(count, of) if of else (None, None)
    return {"count": count, "of": of, "value": count / of if of else None, "low": low, "high": high}


def mean(values: Counter[float]) -> Row:
    """The mean of values, given how often each occurred, and its standard error. It does not depend on their order."""
    of = sum(values.values())
    if not of:
        return {"value": None, "error": None, "of": 0}
    value = math.fsum(value * count for value, count in values.items()) / of
    squares = math.fsum((each - value) ** 2 * count for each, count in values.items())
    return {"value": value, "error": math.sqrt(squares / (of - 1) / of) if of > 1 else None, "of": of}


def per_turn(total: int, turns: int) -> Row:
    return {"value": total / turns if turns else None, "total": total, "turns": turns}


@dataclass
class _Tally:
    """The counts of one match-up and role."""

    counts: Counter[str] = field(default_factory=Counter)
    rewards: Counter[float] = field(default_factory=Counter)
    turns: Counter[float] = field(default_factory=Counter)

    def add(self, record: GameRecord, seat: int) -> None:
        counts, own = self.counts, record.turns_of(seat)
        if record.discarded is not None:
            counts["void"] += 1
            return
        counts.update(("games", record.result(seat), record.termination))
        counts["even"] += record.rewards[0] == record.rewards[1]
        for turn in record.turns:
            if turn.verdict != "legal":  # which ends the game
                counts["invalid" if turn.player == seat else "opponent_invalid"] += 1
        for turn in own:
            counts["truncated"] += turn.truncated
            if turn.tokens is not None:
                counts["tokens"] += len(turn.tokens.response_ids)
                counts["turns_with_tokens"] += 1
        counts["turns"] += len(own)
        self.rewards[record.rewards[seat]] += 1
        self.turns[len(own)] += 1

    def __add__(self, other: _Tally) -> _Tally:
        return _Tally(self.counts + other.counts, self.rewards + other.rewards, self.turns + other.turns)

    def row(self, policy: str, opponent: str, game: str, role: int | None) -> Row:
        counts, games = self.counts, self.counts["games"]
        of_whom = {"policy": policy, "opponent": opponent, "game": game, "role": role}
        return {
            **of_whom,
            "games": games,
            "void": counts["void"],
            **{name: rate(counts[name], games) for name in _RATES},
            "reward": mean(self.rewards),
            "turns": mean(self.turns),
            "response_tokens": per_turn(counts["tokens"], counts["turns_with_tokens"]),
            "truncated": per_turn(counts["truncated"], counts["turns"]),
        }


class Tabulation:
    """Takes in games one by one, and keeps only counts."""

    def __init__(self) -> None:
        self._tallies: dict[tuple[str, str, str], tuple[_Tally, _Tally]] = {}

    def add(self, game: GameId, record: GameRecord) -> None:
        tallies = self._tallies.setdefault(game[:3], (_Tally(), _Tally()))
        tallies[game.role].add(record, game.role)

    def results(self) -> list[Row]:
        """For each match-up, sorted: role 0, role 1, and both together, where each game has the same weight."""
        return [
            tally.row(*cell, role)
            for cell, (first, second) in sorted(self._tallies.items())
            for role, tally in ((0, first), (1, second), (None, first + second))
        ]

    def outcomes(self) -> Outcomes:
        """How games ended for player 0, by both players' names and the game. One that both lost is a draw here."""
        found: dict[tuple[str, str, str], tuple[int, int, int]] = {}
        for (policy, opponent, game), tallies in self._tallies.items():
            for role, names in enumerate(((policy, opponent), (opponent, policy))):
                even, won, games = (tallies[role].counts[name] for name in ("even", "win", "games"))
                wins, losses = (won, games - even - won) if role == 0 else (games - even - won, won)
                before = found.get((*names, game), (0, 0, 0))
                if games:
                    found[*names, game] = (before[0] + wins, before[1] + even, before[2] + losses)
        return found
