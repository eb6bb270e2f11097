"""An evaluation's results: ``results.json`` for programs and the report's pages, and what people are shown.

``results.json``, version 2; what there is none of is null, shares are from 0 to 1, intervals 95%::

    version
    manifest:  seed, randomness, policies, settings
    results:   [{policy, opponent, game, role (0, 1, or null: both), games, void,
                 win, draw, loss, invalid, opponent_invalid, turn_cap, prompt_too_long: {count, of, value, low, high},
                 reward, turns (a game): {value, error (standard), of},
                 response_tokens, truncated (per turn): {value, total, turns}}]
    ratings:   [{scope ("all games" or a game), note, anchor (null: the mean is 0),
                 players: [{name, elo, low, high, games, points}],
                 games: [{game, first_player: {elo, low, high}, draws, games}],
                 head_to_head: [{name, other, wins, draws, losses, games, score, low, high}]}]
    exploitability: [{policy, by, game, nash_conv, interval, gains, value, illegal (mean, largest), illegal_in_play,
                 nash_conv_as_judged}]
    optimality: [{policy, game, by, optimal: {share, interval}, lost_to_perfect: [as player 0, as player 1], illegal}]
    benchmarks: {policy: [{benchmark, questions, samples, avg, pass_at, maj, ...}]}
    notes:     [what was not played, and why]
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ...storage.disk import write_whole
from ..own_command import command
from .evaluation_folder import GAMES, Manifest
from .summary import summary

VERSION = 2
RESULTS = "results"


def write_results(folder: Path, manifest: Manifest, policies: Sequence[str], figures: Mapping[str, Any]) -> str:
    """Write ``results.json``; returns what people are shown of these policies."""
    data = {"version": VERSION, "manifest": vars(manifest), **figures}
    write_whole(folder / f"{RESULTS}.json", json.dumps(data, indent=1, ensure_ascii=False, allow_nan=False) + "\n")
    places = f"results: {folder / RESULTS}.json   games: {folder / GAMES}\nlook at it: {command('report', folder)}"
    return f"{summary(policies, figures)}\n\n{places}"
