"""What the games of an evaluation come to, all of it: taken in one by one, so that games need not fit into memory."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from ...play.records import GameRecord
from ..play.own_past import LAG, OwnPast
from .game_results import HeadToHead, Meeting
from .ratings import NotConnected, Ratings
from .statistics import Result, Tabulation
from .transitivity import Transitivity, transitivity

#: The scope of what is computed over all games together.
ALL = "all games"


@dataclass(frozen=True)
class Rated:
    """The ratings of a scope: ``ALL``, or a game's id.

    Attributes:
        ratings, transitivity: None where there are none.
        note: why there are none.
    """

    scope: str
    head_to_head: HeadToHead
    ratings: Ratings | None
    transitivity: Transitivity | None
    note: str = ""


@dataclass(frozen=True)
class Summary:
    """Everything that tables are made of.

    Attributes:
        results: by match-up and role.
        rated: over all games, where there is more than one, and for each; none where only two players met.
        own_past: snapshots against those ``lag`` steps before.
        lag: in steps.
    """

    results: Sequence[Result]
    rated: Sequence[Rated]
    own_past: Sequence[Result]
    lag: int


def summarise(
    records: Iterable[GameRecord],
    anchor: str | None = None,
    lag: int = LAG,
    steps: Mapping[str, int] | None = None,
) -> Summary:
    """Count and rate.

    Args:
        records: of games of one policy against another.
        anchor: whose rating is 0; None, or in games that it did not play: the mean of all is.
        lag: how many steps back a snapshot's own past is.
        steps: each snapshot's, by name.
    """
    table, past = Tabulation(), OwnPast(lag, steps or {})
    played: list[Meeting] = []
    for record in records:
        table.add(record)
        past.add(record)
        if meeting := Meeting.of(record):
            played.append(meeting)
    games = sorted({meeting.game for meeting in played})
    scopes = {game: [meeting for meeting in played if meeting.game == game] for game in games}
    if len(games) > 1:
        scopes = {ALL: played, **scopes}
    # of two, the results say all that there is
    rated = [_rate(scope, those, anchor) for scope, those in scopes.items() if len(_names(those)) > 2]
    return Summary(table.results(), rated, past.results(), lag)


def _names(played: Iterable[Meeting]) -> set[str]:
    return {name for meeting in played for name in (meeting.first, meeting.second)}


def _rate(scope: str, played: Sequence[Meeting], anchor: str | None) -> Rated:
    try:
        ratings = Ratings(played, anchor if anchor in _names(played) else None)
    except NotConnected as error:
        return Rated(scope, HeadToHead(played), None, None, str(error))
    return Rated(scope, HeadToHead(played), ratings, transitivity(played, ratings))
