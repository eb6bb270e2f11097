"""What it costs that one policy learns several games: its wins beside those of policies that learned one each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import hypot, sqrt
from statistics import fmean
from typing import Any

from experiments.result import Result
from experiments.text import table

Run = Mapping[str, Any]
#: Value, low, high.
Estimate = tuple[float, float, float]
ROLES = (0, 1)
#: What a policy for several games is to win of a game, at least, relative to one that learned it alone.
AIM = 0.9

_NOTE = (
    "Games won, as the mean of both roles. Games of it: of the policy of its own; the one for all has about as many, "
    "as games are drawn by weight. The 95% intervals are of the games that were measured; what another training would "
    "come to is not in them. Those of ratios are MOVER-R (Newcombe, Stat. Methods Med. Res. 25, 2016), which takes two "
    "shares as independent; here both were measured with the same cards and the same opponent's draws."
)


def shared_policy(result: Result) -> str:
    """A table by game, opponent and seed: wins as the mean of both roles. Empty where no arm's games are others' alone.

    Where the result has intervals of the shares of games, the table has them of their mean and of the ratio.
    """
    lines = [line for seed, run in _runs(result) for line in _beside(result, seed, run)]
    if not lines:
        return ""
    header = [
        "game and opponent",
        "seed",
        "games of it",
        "start",
        "one policy for all",
        "one of its own",
        "ratio",
        f"at least {AIM:.0%}",
    ]
    return f"{table(header, lines)}\n\n{_NOTE}"


def _runs(result: Result) -> Iterator[tuple[str, Run]]:
    for seeds in result.figures["curves"].values():
        yield from seeds.items()


def _beside(result: Result, seed: str, shared: Run) -> Iterator[list[str]]:
    """A run that learned several games, beside those that learned one of them, with the same seed."""
    games = shared.get("trained_on", [])
    for game in games if len(games) > 1 else []:
        for number, alone in _runs(result):
            if alone.get("trained_on") != [game] or number != seed:
                continue
            for opponent in _opponents(shared, game):
                start, both, own = (
                    _wins(run, at, game, opponent) for run, at in ((shared, 0), (shared, -1), (alone, -1))
                )
                told = [_told(start), _told(both), _told(own), _told(ratio(both, own))]
                yield [f"{game}, {opponent}", seed, f"{alone['points'][-1]['games']:,}", *told, _verdict(both, own)]


def _opponents(run: Run, game: str) -> list[str]:
    start, end = f"{game}, player 0, ", ": win"
    return [name[len(start) : -len(end)] for name in run["points"][0] if name.startswith(start) and name.endswith(end)]


def _wins(run: Run, at: int, game: str, opponent: str) -> Estimate:
    """At the first (0) or the last (-1) point."""
    names = [f"{game}, player {role}, {opponent}: win" for role in ROLES]
    found = []
    for name in names:
        value = run["points"][at][name]
        found.append((value, *run["intervals"][at].get(name, (value, value))))
    return mean(found)


def mean(shares: Sequence[Estimate]) -> Estimate:
    """Of independent estimates: low and high are as far off as theirs are together, each way by itself."""
    value = fmean(share for share, _, _ in shares)
    below = hypot(*(share - low for share, low, _ in shares)) / len(shares)
    above = hypot(*(high - share for share, _, high in shares)) / len(shares)
    return value, value - below, value + above


def ratio(first: Estimate, second: Estimate) -> Estimate | None:
    """Of two independent estimates, none of which is negative; None where the second one may be 0.

    Source: R. G. Newcombe, MOVER-R confidence intervals for ratios and products of two independently estimated
    quantities, Statistical Methods in Medical Research 25 (2016).
    """
    (a, a_low, a_high), (b, b_low, b_high) = first, second
    if b_low <= 0 or b_high == 2 * b:
        return None
    # rounding may leave less than 0 where nothing is uncertain
    below = sqrt(max(0.0, (a * b) ** 2 - a_low * b_high * (2 * a - a_low) * (2 * b - b_high)))
    above = sqrt(max(0.0, (a * b) ** 2 - a_high * b_low * (2 * a - a_high) * (2 * b - b_low)))
    low, high = (a * b - below) / (b_high * (2 * b - b_high)), (a * b + above) / (b_low * (2 * b - b_low))
    return a / b, low, high


def _verdict(first: Estimate, second: Estimate) -> str:
    if ratio(first, second) is None:
        return "-"
    return "reached" if first[0] >= AIM * second[0] else "missed"


def _told(estimate: Estimate | None) -> str:
    if estimate is None:
        return "-"
    value, low, high = estimate
    return f"{value:.1%}" if low == high else f"{value:.1%} [{low:.1%}, {high:.1%}]"
