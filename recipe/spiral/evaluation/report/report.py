"""An evaluation's results as JSON, as CSV, and as tables for people; always in the same order.

``results.json``, version 1; what there is none of is null, shares are from 0 to 1, intervals 95%::

    version, lag
    manifest:  seed, chance, policies, settings
    results:   [{policy, opponent, game, role (0, 1, or null: both), games, void,
                 win, draw, loss, invalid, opponent_invalid, turn_cap: {count, of, value, low, high},
                 reward, turns (a game): {value, error (standard), of},
                 response_tokens, truncated (per turn): {total, turns, value}}]
    own_past:  the same, of each snapshot against the one ``lag`` steps before
    ratings:   [{scope ("all games" or a game), note, anchor (null: the mean is 0),
                 players: [{name, elo, low, high, games, points}],
                 games: [{game, first_player: {elo, low, high}, draws, games}],
                 head_to_head: [{name, other, wins, draws, losses, games, score, low, high}],
                 transitivity: {cycles: [[a, b, c]], decided, triples, deviance, degrees, total,
                                unexplained, by_chance, p_value}}]
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ...storage.disk import write_whole
from ..play.manifest import Manifest
from ..ratings.elo import Estimate, Ratings
from ..ratings.game_results import HeadToHead
from ..ratings.statistics import Mean, PerTurn, Rate, Result
from ..ratings.summary import Rated, Summary
from ..ratings.transitivity import Transitivity
from .tables import report

VERSION = 1
RESULTS = "results"
RATES = ("win", "draw", "loss", "invalid", "opponent_invalid", "turn_cap")
MEANS = ("reward", "turns")
PER_TURN = ("response_tokens", "truncated")


def write_report(
    folder: str | Path,
    summary: Summary,
    manifest: Manifest,
    sections: Sequence[str] = (),
    more: Mapping[str, Any] | None = None,
) -> str:
    """Write ``results.json``, ``.csv`` and ``.txt``, and where there are ratings ``ratings.csv`` and
    ``head_to_head.csv``.

    Args:
        sections: what else is told to people, below the tables.
        more: further fields of ``results.json``.

    Returns:
        The text.
    """
    folder = Path(folder)
    text = "\n\n".join([report(summary), *sections])
    write_whole(folder / f"{RESULTS}.json", to_json(summary, manifest, more))
    write_whole(folder / f"{RESULTS}.csv", results_csv(summary.results))
    write_whole(folder / f"{RESULTS}.txt", text + "\n")
    if summary.rated:
        write_whole(folder / "ratings.csv", ratings_csv(summary.rated))
        write_whole(folder / "head_to_head.csv", head_to_head_csv(summary.rated))
    return text


def to_json(summary: Summary, manifest: Manifest, more: Mapping[str, Any] | None = None) -> str:
    """All of it, as this file's docstring says."""
    data = {
        "version": VERSION,
        "lag": summary.lag,
        "manifest": {
            "seed": manifest.seed,
            "chance": manifest.chance,
            "policies": manifest.policies,
            "settings": manifest.settings,
        },
        "results": [_result(result) for result in summary.results],
        "own_past": [_result(result) for result in summary.own_past],
        "ratings": [_rated(rated) for rated in summary.rated],
        **(more or {}),
    }
    return json.dumps(data, indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def results_csv(results: Sequence[Result]) -> str:
    """A row for each match-up and role."""
    header = ["policy", "opponent", "game", "role", "games", "void"]
    for name in RATES:
        header += [f"{name}_count", name, f"{name}_low", f"{name}_high"]
    for name in MEANS:
        header += [name, f"{name}_error"]
    for name in PER_TURN:
        header += [name, f"{name}_total", f"{name}_turns"]
    rows = []
    for result in results:
        row: list[object] = [result.policy, result.opponent, result.game, _role(result), result.games, result.void]
        for name in RATES:
            rate: Rate = getattr(result, name)
            row += [rate.count, _cell(rate.value), *map(_cell, rate.interval or (None, None))]
        for name in MEANS:
            mean: Mean = getattr(result, name)
            row += [_cell(mean.value), _cell(mean.error)]
        for name in PER_TURN:
            share: PerTurn = getattr(result, name)
            row += [_cell(share.value), share.total, share.turns]
        rows.append(row)
    return _csv(header, rows)


def ratings_csv(rated: Sequence[Rated]) -> str:
    """A row for each scope and player, best first."""
    rows = [
        [each.scope, player.name, *map(_cell, _interval(player.elo)), player.games, player.points]
        for each in rated
        if each.ratings
        for player in each.ratings.players
    ]
    return _csv(["scope", "name", "elo", "elo_low", "elo_high", "games", "points"], rows)


def head_to_head_csv(rated: Sequence[Rated]) -> str:
    """A row for each scope and pair, from both sides."""
    rows = [
        [each.scope, pair.name, pair.other, pair.wins, pair.draws, pair.losses, _cell(pair.score)]
        + [_cell(bound) for bound in pair.interval]
        for each in rated
        for pair in each.head_to_head.pairs
    ]
    return _csv(["scope", "name", "other", "wins", "draws", "losses", "score", "score_low", "score_high"], rows)


def _csv(header: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerows([header, *rows])
    return out.getvalue()


def _cell(value: float | None) -> str:
    return "" if value is None else f"{value:.6g}"


def _role(result: Result) -> str:
    return "both" if result.role is None else str(result.role)


def _result(result: Result) -> dict[str, Any]:
    data: dict[str, Any] = {
        name: getattr(result, name) for name in ("policy", "opponent", "game", "role", "games", "void")
    }
    for name in RATES:
        rate: Rate = getattr(result, name)
        low, high = rate.interval or (None, None)
        data[name] = {"count": rate.count, "of": rate.of, "value": rate.value, "low": low, "high": high}
    for name in MEANS:
        mean: Mean = getattr(result, name)
        data[name] = {"value": mean.value, "error": mean.error, "of": mean.of}
    for name in PER_TURN:
        share: PerTurn = getattr(result, name)
        data[name] = {"total": share.total, "turns": share.turns, "value": share.value}
    return data


def _rated(rated: Rated) -> dict[str, Any]:
    return {
        "scope": rated.scope,
        "note": rated.note,
        **_ratings(rated.ratings),
        "head_to_head": _head_to_head(rated.head_to_head),
        "transitivity": _transitivity(rated.transitivity),
    }


def _ratings(ratings: Ratings | None) -> dict[str, Any]:
    if ratings is None:
        return {"anchor": None, "players": [], "games": []}
    return {
        "anchor": ratings.anchor,
        "players": [
            {"name": player.name, **_estimate(player.elo), "games": player.games, "points": player.points}
            for player in ratings.players
        ],
        "games": [
            {
                "game": terms.game,
                "first_player": _estimate(terms.first_player),
                "draws": terms.draws,
                "games": terms.games,
            }
            for terms in ratings.games
        ],
    }


def _head_to_head(matrix: HeadToHead) -> list[dict[str, Any]]:
    return [
        {
            "name": pair.name,
            "other": pair.other,
            "wins": pair.wins,
            "draws": pair.draws,
            "losses": pair.losses,
            "games": pair.games,
            "score": pair.score,
            "low": pair.interval[0],
            "high": pair.interval[1],
        }
        for pair in matrix.pairs
    ]


def _transitivity(found: Transitivity | None) -> dict[str, Any] | None:
    if found is None:
        return None
    return {
        "cycles": [list(cycle) for cycle in found.cycles],
        "decided": found.decided,
        "triples": found.triples,
        "deviance": found.deviance,
        "degrees": found.degrees,
        "total": found.total,
        "unexplained": found.unexplained,
        "by_chance": found.by_chance,
        "p_value": found.p_value,
    }


def _estimate(estimate: Estimate) -> dict[str, float]:
    return dict(zip(("elo", "low", "high"), _interval(estimate), strict=True))


def _interval(estimate: Estimate) -> tuple[float, float, float]:
    return estimate.value, estimate.low, estimate.high
