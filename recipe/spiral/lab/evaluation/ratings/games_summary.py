"""Everything that the games of an evaluation show. Games are taken in one by one, so they need not fit into memory."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from ....players.records import GameRecord
from .elo import Ratings, caveat
from .game_results import GameResult
from .statistics import Result, Tabulation
from .transitivity import Transitivity, transitivity

#: The scope of ratings over all games together.
ALL = "all games"


@dataclass(frozen=True)
class Rated:
    """The ratings of a scope, which is ``ALL`` or a game's id. The note says where they do not measure strength."""

    scope: str
    ratings: Ratings
    transitivity: Transitivity
    note: str


@dataclass(frozen=True)
class Summary:
    """What an evaluation's tables are made of.

    Attributes:
        rated: over all games, if there are several, and for each game. There are none if only two players met.
        own_past: each snapshot's results against the one ``lag`` steps before.
    """

    results: Sequence[Result]
    rated: Sequence[Rated]
    own_past: Sequence[Result]
    lag: int


def summarise(
    records: Iterable[GameRecord],
    anchor: str | None = None,
    lag: int = 16,
    steps: Mapping[str, int] | None = None,
) -> Summary:
    """Count results, and rate players.

    Args:
        records: games of one policy against another.
        anchor: the player whose rating is 0. None, or games that it did not play: the mean of all is 0.
        lag: the distance to a snapshot's own past, in steps.
        steps: each snapshot's, by name.
    """
    table, past, steps = Tabulation(), Tabulation(), steps or {}
    results: list[GameResult] = []
    for record in records:
        table.add(record)
        first, second = map(steps.get, record.players)
        if first is not None and second is not None and abs(first - second) == lag:
            past.add(record, int(second > first))  # of the later snapshot, whichever of the two was "the policy"
        if result := GameResult.of(record):
            results.append(result)
    scopes = {game: [r for r in results if r.game == game] for game in sorted({r.game for r in results})}
    if len(scopes) > 1:
        scopes = {ALL: results, **scopes}
    # Of two players, the results say everything.
    rated = [_rate(scope, games, anchor) for scope, games in scopes.items() if len(_names(games)) > 2]
    return Summary(table.results(), rated, sorted(past.results(), key=lambda result: steps[result.policy]), lag)


def _names(results: Iterable[GameResult]) -> set[str]:
    return {name for result in results for name in result[:2]}


def _rate(scope: str, results: Sequence[GameResult], anchor: str | None) -> Rated:
    ratings = Ratings(results, anchor if anchor in _names(results) else None)
    return Rated(scope, ratings, transitivity(results, ratings), caveat({r.game for r in results}))
