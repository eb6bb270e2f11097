"""Arms compared: each with the first arm, seed by seed; and one policy for several games with policies of one game."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import hypot, sqrt
from statistics import fmean
from typing import Any

from experiments.result import Result, arms, runs
from experiments.text import LEVEL, by_start, holm, listing, p_text, p_value, spread, table
from recipe.spiral.lab.evaluation.outputs.points import NASH_CONV

#: What is compared where NashConv was measured.
MEAN = f"{NASH_CONV}, mean"
MEAN_OF_REFERENCE = f"{NASH_CONV} of the reference, mean"
#: A policy for several games is to win at least this share of what a policy wins that learned one game alone.
TARGET = 0.9
ROLES = (0, 1)
Run = Mapping[str, Any]
#: A value with the lower and the upper end of its interval.
Estimate = tuple[float, float, float]

_SHARED = (
    "Shares of games won, as the mean of both roles, with 95% intervals of the measured games. Those of ratios are "
    "MOVER-R (Newcombe, Stat. Methods Med. Res. 25, 2016). The target is reached where the whole interval is at least "
    f"{TARGET:.0%}, missed where the whole interval is below it, and open otherwise. At Kuhn poker it is not judged, "
    "because won games do not measure strength there. A ratio says nothing where neither policy wins more than the "
    "start."
)


def differences(result: Result) -> tuple[str, dict[tuple[str, str], str]]:
    """The differences to the first arm with the same seed: what they show, and a cell for each arm and measure.

    Both are empty where there is nothing to compare. Measures are the mean of NashConv, or "game, role, opponent".
    """
    first, *others = arms(result)
    repetitions = {row.get("warm_start", row["seed"]) for row in result.rows}
    if not others or len(repetitions) < 2:
        return "", {}
    rows = {(row["arm"], row.get("warm_start"), row["seed"]): row for row in result.rows}
    pairs = {arm: [(row, rows[first, *place]) for (of, *place), row in rows.items() if of == arm] for arm in others}
    values = {
        (arm, name): by_start([run for run, _ in of_arm], [_scores(a)[name] - _scores(b)[name] for a, b in of_arm])
        for arm, of_arm in pairs.items()
        for name in _scores(result.rows[0])
    }
    if not values:
        return "", {}
    p_values = dict(zip(values, holm([p_value(of_cell) for of_cell in values.values()]), strict=True))
    shown = [
        arm if name in (MEAN, MEAN_OF_REFERENCE) else f"{arm} ({name})"
        for (arm, name), p in p_values.items()
        if p < LEVEL
    ]
    said = f"Differences from {first!r} with p below {LEVEL} among {len(values)}: {listing(shown)}."
    return said, {key: f"{spread(values[key])} ({p_text(p)})" for key, p in p_values.items()}


def _scores(row: Mapping[str, Any]) -> dict[str, float]:
    """The mean of NashConv, of the policy or the reference, whichever is better; otherwise, for each role, the mean
    reward or wins plus half of the draws."""
    if MEAN in row:
        return {MEAN: min(row[MEAN], row.get(MEAN_OF_REFERENCE, row[MEAN]))}
    places = [name.removesuffix(": win") for name in row if name.endswith(": win")]
    return {place: row.get(f"{place}: reward", row[f"{place}: win"] + row[f"{place}: draw"] / 2) for place in places}


def shared_policy(result: Result) -> str:
    """A table by game, opponent and seed of a policy for several games beside policies that learned one game each.

    Empty where no arm learned several games of which another arm learned one alone.
    """
    lines = [line for _, seed, run in runs(result) for line in _beside(result, seed, run)]
    if not lines:
        return ""
    header = ["game and opponent", "seed", "games", "start", "one policy for all", "policy for this game", "ratio"]
    return f"{table([*header, f'at least {TARGET:.0%}'], lines)}\n\n{_SHARED}"


def _beside(result: Result, seed: str, shared: Run) -> Iterator[list[str]]:
    """The rows of a run that learned several games, beside runs with the same seed that learned one of them."""
    games = shared.get("trained_on", [])
    for game in games if len(games) > 1 else []:
        for _, number, alone in runs(result):
            if alone.get("trained_on") != [game] or number != seed:
                continue
            for opponent in _opponents(shared, game):
                start, both, own = (
                    _wins(run, at, game, opponent) for run, at in ((shared, 0), (shared, -1), (alone, -1))
                )
                quotient = ratio(both, own)
                shares = [_in_percent(estimate) for estimate in (start, both, own, quotient)]
                yield [
                    f"{game}, {opponent}",
                    seed,
                    f"{alone['points'][-1]['games']:,}",
                    *shares,
                    _verdict(game, quotient),
                ]


def _opponents(run: Run, game: str) -> list[str]:
    start, end = f"{game}, player 0, ", ": win"
    return [name[len(start) : -len(end)] for name in run["points"][0] if name.startswith(start) and name.endswith(end)]


def _wins(run: Run, at: int, game: str, opponent: str) -> Estimate:
    """The share of games won at the first (0) or the last (-1) point, as the mean of both roles."""
    shares = []
    for name in (f"{game}, player {role}, {opponent}: win" for role in ROLES):
        value = run["points"][at][name]
        shares.append((value, *run["intervals"][at].get(name, (value, value))))
    return mean(shares)


def mean(shares: Sequence[Estimate]) -> Estimate:
    """The mean of independent estimates; the distances to each end of the interval add up by their squares."""
    value = fmean(share for share, _, _ in shares)
    below = hypot(*(share - low for share, low, _ in shares)) / len(shares)
    above = hypot(*(high - share for share, _, high in shares)) / len(shares)
    return value, value - below, value + above


def ratio(first: Estimate, second: Estimate) -> Estimate | None:
    """The ratio of two independent estimates, none of which is negative; None where the second one may be 0.

    Source: R. G. Newcombe, MOVER-R confidence intervals for ratios and products of two independently estimated
    quantities, Statistical Methods in Medical Research 25 (2016).
    """
    (a, a_low, a_high), (b, b_low, b_high) = first, second
    if b_low <= 0 or b_high == 2 * b:
        return None
    # rounding may leave a negative number where nothing is uncertain
    below = sqrt(max(0.0, (a * b) ** 2 - a_low * b_high * (2 * a - a_low) * (2 * b - b_high)))
    above = sqrt(max(0.0, (a * b) ** 2 - a_high * b_low * (2 * a - a_high) * (2 * b - b_low)))
    low, high = (a * b - below) / (b_high * (2 * b - b_high)), (a * b + above) / (b_low * (2 * b - b_low))
    return a / b, low, high


def _verdict(game: str, quotient: Estimate | None) -> str:
    if quotient is None:
        return "-"
    if game.startswith("KuhnPoker"):
        return "not judged"
    return "reached" if quotient[1] >= TARGET else "missed" if quotient[2] < TARGET else "open"


def _in_percent(estimate: Estimate | None) -> str:
    if estimate is None:
        return "-"
    value, low, high = estimate
    return f"{value:.1%}" if low == high else f"{value:.1%} [{low:.1%}, {high:.1%}]"
