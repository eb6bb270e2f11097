"""An evaluation's results as aligned text; percentages have their 95% intervals, and the number of games."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..ratings.elo import Estimate, Rating, Ratings
from ..ratings.game_results import Pair
from ..ratings.games_summary import Rated, Summary
from ..ratings.statistics import Mean, PerTurn, Rate, Result
from ..ratings.transitivity import Transitivity

#: Stands for a figure that does not exist.
NONE = "-"
_HEADER = (
    *("policy", "opponent", "game", "role", "win", "draw", "loss", "games", "void", "invalid", "opponent's"),
    *("reward", "turns", "tokens/turn", "truncated/turn"),
)


def report(summary: Summary) -> str:
    """All tables of an evaluation."""
    parts = [f"Results: percent of the games [95% interval], means ± standard error\n{results_table(summary.results)}"]
    if summary.own_past:
        parts.append(f"Against the run's own past, {summary.lag} steps before\n{results_table(summary.own_past)}")
    parts += [_rated(rated) for rated in summary.rated]
    return "\n\n".join(parts)


def results_table(results: Sequence[Result]) -> str:
    """A line for each match-up and role."""
    rows = [
        (
            result.policy,
            result.opponent,
            result.game,
            "both" if result.role is None else str(result.role),
            *(percent(rate) for rate in (result.win, result.draw, result.loss)),
            f"n={result.games}",
            str(result.void),
            percent(result.invalid),
            percent(result.opponent_invalid),
            _mean(result.reward),
            _mean(result.turns),
            _per_turn(result.response_tokens),
            _per_turn(result.truncated, share=True),
        )
        for result in results
    ]
    return aligned([_HEADER, *rows], left=4)


def ratings_table(ratings: Ratings) -> str:
    """The players' ratings, best first, and how much it is worth to play first in each game."""
    anchor = "the mean of all" if ratings.anchor is None else ratings.anchor
    players = [(player.name, elo(player), f"{player.points:g} of {player.games}") for player in ratings.players]
    games = [
        (terms.game, elo(terms.first_player), f"{100 * terms.draws:.1f}", f"n={terms.games}") for terms in ratings.games
    ]
    return "\n\n".join(
        [
            aligned([("name", f"Elo ({anchor} = 0)", "points"), *players], left=1),
            aligned([("game", "Elo of playing first", "draws of equals", "games"), *games], left=1),
        ]
    )


def head_to_head_table(pairs: Mapping[tuple[str, str], Pair], names: Sequence[str]) -> str:
    """The score of each row's player against each column's; a draw is half a win."""

    def cell(pair: Pair | None) -> str:
        return NONE if pair is None else f"{_share(pair.score, pair.low, pair.high)} n={pair.games}"

    rows = [(name, *(cell(pairs.get((name, other))) for other in names)) for name in names]
    return aligned([("", *names), *rows], left=1)


def transitivity_lines(transitivity: Transitivity) -> str:
    """Cycles, and how much of the games' results the ratings do not explain."""
    cycles, decided, triples = transitivity.cycles, transitivity.decided, transitivity.triples
    lines = [f"cycles: {len(cycles)} of {decided} decided triples ({triples} triples met)"]
    lines += [f"  {a} beats {b}, {b} beats {c}, {c} beats {a}" for a, b, c in cycles]
    unexplained, by_chance = transitivity.unexplained, transitivity.by_chance
    if unexplained is not None and by_chance is not None and transitivity.p_value is not None:
        lines.append(
            f"of what pairs' own log-odds explain, ratings do not explain {unexplained:.1%} "
            f"(by chance {by_chance:.1%}; p={transitivity.p_value:.2g})"
        )
    return "\n".join(lines)


def _rated(rated: Rated) -> str:
    ratings, scope = rated.ratings, rated.scope
    matrix = head_to_head_table(ratings.head_to_head, [player.name for player in ratings.players])
    return (
        f"Ratings: {scope}\n{ratings_table(ratings)}\n"
        + (f"{rated.note}\n" if rated.note else "")
        + f"\nHead to head: {scope}\n{matrix}\n\n{transitivity_lines(rated.transitivity)}"
    )


def percent(rate: Rate) -> str:
    """``56.2 [51.1, 61.2]``; the number of games has a column of its own."""
    return NONE if rate.value is None else _share(rate.value, rate.low, rate.high)


def _share(*value_and_limits: Any) -> str:
    return "{:.1f} [{:.1f}, {:.1f}]".format(*(100 * number for number in value_and_limits))


def elo(estimate: Estimate | Rating) -> str:
    """``120 [95, 145]``."""
    return f"{round(estimate.elo)} [{round(estimate.low)}, {round(estimate.high)}]"


def _mean(mean: Mean) -> str:
    if mean.value is None:
        return NONE
    return f"{mean.value:.2f}" + ("" if mean.error is None else f" ± {mean.error:.2f}")


def _per_turn(figure: PerTurn, share: bool = False) -> str:
    """With the number of turns; a share in percent."""
    if figure.value is None:
        return NONE
    return f"{100 * figure.value if share else figure.value:.1f} n={figure.turns}"


def aligned(rows: Sequence[Sequence[str]], left: int = 0) -> str:
    """Columns side by side, the first ``left`` of them flush left, with a line below the header."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = [
        "  ".join(
            cell.ljust(width) if place < left else cell.rjust(width)
            for place, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]
    return "\n".join([lines[0], "-" * max(map(len, lines)), *lines[1:]])
