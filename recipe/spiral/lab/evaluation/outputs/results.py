"""An evaluation's results as JSON; the other files and the text are made from the same summary.

``results.json``, version 1; what there is none of is null, shares are from 0 to 1, intervals 95%::

    version, lag
    manifest:  seed, randomness, policies, settings
    results:   [{policy, opponent, game, role (0, 1, or null: both), games, void,
                 win, draw, loss, invalid, opponent_invalid, turn_cap, prompt_too_long: {count, of, value, low, high},
                 reward, turns (a game): {value, error (standard), of},
                 response_tokens, truncated (per turn): {value, total, turns}}]
    own_past:  the same, of each snapshot against the one ``lag`` steps before
    ratings:   [{scope ("all games" or a game), note, anchor (null: the mean is 0),
                 players: [{name, elo, low, high, games, points}],
                 games: [{game, first_player: {elo, low, high}, draws, games}],
                 head_to_head: [{name, other, wins, draws, losses, games, score, low, high}],
                 transitivity: {cycles: [[a, b, c]], decided, triples, deviance, degrees, total,
                                unexplained, by_chance, p_value}}]
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ....storage.disk import write_whole
from ..matches.store import Manifest
from ..ratings.games_summary import Rated, Summary
from .sheets import summary_sheets, write_sheets
from .tables import report

VERSION = 1
RESULTS = "results"


def write_report(
    folder: Path,
    summary: Summary,
    manifest: Manifest,
    sections: Sequence[str] = (),
    more: Mapping[str, Any] | None = None,
) -> str:
    """Write ``results.json``, ``.csv`` and ``.txt``, and where there are ratings ``ratings.csv`` and
    ``head_to_head.csv``; returns the text. ``sections`` stand below its tables, and ``more`` are further fields of the
    JSON.
    """
    text = "\n\n".join([report(summary), *sections])
    write_whole(folder / f"{RESULTS}.json", to_json(summary, manifest, more))
    write_whole(folder / f"{RESULTS}.txt", text + "\n")
    write_sheets(folder, summary_sheets(summary))
    return text


def to_json(summary: Summary, manifest: Manifest, more: Mapping[str, Any] | None = None) -> str:
    """All of it, as this file's docstring says."""
    data = {
        "version": VERSION,
        "lag": summary.lag,
        "manifest": asdict(manifest),
        "results": list(map(asdict, summary.results)),
        "own_past": list(map(asdict, summary.own_past)),
        "ratings": [_rated(rated) for rated in summary.rated],
        **(more or {}),
    }
    return json.dumps(data, indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def _rated(rated: Rated) -> dict[str, Any]:
    ratings = rated.ratings
    return {
        "scope": rated.scope,
        "note": rated.note,
        "anchor": ratings.anchor,
        "players": list(map(asdict, ratings.players)),
        "games": list(map(asdict, ratings.games)),
        "head_to_head": list(map(asdict, ratings.head_to_head.values())),
        "transitivity": asdict(rated.transitivity),
    }
