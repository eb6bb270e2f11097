"""Opponents in training: who was played, how the policy did against them over the run, and everybody's ratings."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from ...players.records import RESULTS, SELF_PLAY
from .game_index import Step

#: The run is cut into so many stretches of steps at most; the policy is one player in each.
STRETCHES = 12
#: The most games that ratings are computed from; of more, every n-th is taken.
RATED = 20_000
_NOBODY = (SELF_PLAY, "grader")


def pool(steps: Mapping[int, Step]) -> dict[str, Any] | None:
    """The opponents' page, from the training's steps; None if the policy only played itself, or answered questions."""
    counted = [step for step, facts in sorted(steps.items()) if any(row[2] not in _NOBODY for row in facts["results"])]
    if not counted:
        return None
    from ..evaluation.ratings.elo import caveat

    stretches = _stretches(sorted(steps))
    place = {step: number for number, stretch in enumerate(stretches) for step in stretch}
    kinds: dict[str, str] = {}
    cells: Counter[tuple[int, str, str, int, str]] = Counter()
    for step in counted:
        for _, kind, opponent, game, role, wins, draws, losses, _ in steps[step]["results"]:
            if opponent in _NOBODY:
                continue
            kinds[opponent] = kind
            for result, count in (("win", wins), ("draw", draws), ("loss", losses)):
                cells[place[step], opponent, game, role, result] += count
    opponents = sorted(kinds, key=lambda name: (kinds[name] != "pool", name))
    names = [_name(stretch) for stretch in stretches]
    games = sorted({key[2] for key in cells})

    def against(number: int, name: str) -> list[int]:
        return [sum(cells[number, name, game, role, result] for game in games for role in (0, 1)) for result in RESULTS]

    return {
        "stretches": names,
        "opponents": opponents,
        # [stretch][opponent] -> wins, draws, losses of the policy
        "results": [[against(number, name) for name in opponents] for number in range(len(stretches))],
        "caveat": caveat(games),
        **_ratings(cells, names),
    }


def _stretches(steps: Sequence[int]) -> list[list[int]]:
    size = -(-len(steps) // STRETCHES)
    return [list(steps[start : start + size]) for start in range(0, len(steps), size)]


def _name(stretch: Sequence[int]) -> str:
    return f"steps {stretch[0]}-{stretch[-1]}" if len(stretch) > 1 else f"step {stretch[0]}"


def _ratings(cells: Mapping[tuple[int, str, str, int, str], int], stretches: Sequence[str]) -> dict[str, Any]:
    """Elo ratings with 95% intervals of the opponents, and of the policy in each stretch of the run."""
    from ..evaluation.ratings.elo import Ratings
    from ..evaluation.ratings.game_results import GameResult

    turned = {"win": "loss", "draw": "draw", "loss": "win"}
    results = []
    every = -(-sum(cells.values()) // RATED)
    seen = 0
    for (number, opponent, game, role, result), count in cells.items():
        policy = f"policy, {stretches[number]}"
        first, second = (policy, opponent) if role == 0 else (opponent, policy)
        outcome: Any = result if role == 0 else turned[result]
        for _ in range(count):
            seen += 1
            if seen % every == 0:
                results.append(GameResult(first, second, game, outcome, (0, seen)))
    try:
        ratings = Ratings(results)
    except ValueError as error:
        return {"ratings": [], "note": str(error)}
    return {
        "ratings": [
            [rating.name, rating.elo, rating.low, rating.high, rating.games * every] for rating in ratings.players
        ],
        "note": "" if every == 1 else f"from every {every}th game",
    }
