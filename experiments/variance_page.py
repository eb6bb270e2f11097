"""The page of the experiment on the gradient's variance: every figure and every finding comes out of the result."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from experiments.plots import COLOURS, error_bars, figure
from experiments.result import Result
from experiments.text import interval, listing, table

Row = dict[str, Any]
#: How the page calls the schemes that it shows, in their order.
_SHOWN = {
    "rae": "RAE",
    "common": "one common mean",
    "role_mean": "role's true mean",
    "batch": "role's mean of the batch's other games",
    "group": "role's mean of the group's other games",
    "best": "best two constants",
}

_RATIO = "variance / variance with b = 0"
#: A mean score of more than this share says that the games do not show what the policy can do.
UNSEEN = 0.05


def body(result: Result) -> str:
    """The page between its head and its end."""
    parts = [_question(result), "## Result", _ratios(result), _findings(result), "## The games", _games(result)]
    parts += [
        "## A role's advantage from none to large",
        _handicap(result),
        "## What this does not say",
        _limits(result),
    ]
    return "\n\n".join(parts)


def _question(result: Result) -> str:
    settings = result.settings
    return (
        "Every player's turns are trained with A = R - b. A baseline b that does not depend on the game's actions "
        "leaves the gradient's mean alone and changes its variance only. How much, for b = 0, for one common mean, for "
        f"RAE (a moving average for each role, decay {settings['decay']:g}), and for GRPO's means of a group of games "
        "from one start?\n\n"
        "Games were played in self-play by the tiny model; the gradient of each player's log-probabilities was taken "
        "exactly, in all weights. The variance is the trace of the covariance of a batch's mean gradient, times the "
        "batch's number of games; the table has it as a ratio to b = 0, with a 95% bootstrap interval over groups of "
        f"{settings['group']} games. Below 1 is better. A batch with ratio 0.8 is worth one with b = 0 that has a "
        "quarter more games."
    )


def _ratios(result: Result) -> str:
    rows = [
        [
            row["game"],
            f"{row['advantage']:+.2f}",
            f"{row['won_by_role']:.1%}",
            f"{row['expected_rae']:.2f}",
            *(interval(row["ratios"][scheme]) for scheme in _SHOWN),
            ", ".join(f"{value:.2f}" for value in row["rae_by_seed"]),
        ]
        for row in _by_advantage(result)
    ]
    header = ["game", "player 0's mean outcome", "share of R² that is the role's", "RAE, expected", *_SHOWN.values()]
    return table([*header, "RAE, seed by seed"], rows)


def _findings(result: Result) -> str:
    rows, decay = _by_advantage(result), result.settings["decay"]
    cost, even = (1 - decay) / (1 + decay), math.sqrt((1 - decay) / 2)
    helps = [_told(row) for row in rows if row["ratios"]["rae"][2] < 1]
    harms = [_told(row) for row in rows if row["ratios"]["rae"][1] > 1]
    open_ = [_told(row) for row in rows if row["ratios"]["rae"][1] <= 1 <= row["ratios"]["rae"][2]]
    common = max(abs(row["ratios"]["common"][0] - 1) for row in rows)
    lines = [
        f"RAE lowers the variance, with the whole interval below 1, in {len(helps)} of {len(rows)} games: "
        f"{listing(helps)}.",
        f"It raises it, with the whole interval above 1, in {len(harms)}: {listing(harms)}.",
        f"These games and seeds do not tell in {len(open_)}: {listing(open_)}.",
        "A common mean does nothing in a zero-sum game, where the two outcomes cancel: its ratio is at most "
        f"{common:.3f} away from 1, and that only where illegal answers cost both players together more than 0.",
        "Why: of a role's outcomes, a baseline takes away the part that is the role's mean. If outcomes told nothing "
        'of the size of gradients, the ratio would be what the column "RAE, expected" has: 1 less the share of R² '
        f"that is the role's, times {1 + cost:.3f}. The factor is the price of a moving average, which is never quite "
        f"the mean: {cost:.1%} at decay {decay:g}, as if the mean were taken of {1 / cost:.0f} games. So with outcomes "
        f"of ±1 RAE begins to help at a mean outcome of ±{even:.2f}, that is {(1 + even) / 2:.1%} wins; below that, "
        "where what happens within a role is all the variance, it costs a little. The mean of the batch's other "
        f"{result.settings['batch'] - 1} games costs {1 / (result.settings['batch'] - 1):.1%} and needs no memory.",
        _groups(rows),
    ]
    illegal = [
        f"{row['illegal_variance']:.0%} in {row['game']} ({row['illegal_games']:.1%} of the games)"
        for row in rows
        if row["illegal_games"]
    ]
    if illegal:
        lines.append(
            f"Of the variance with b = 0, games that ended by an illegal answer make up {listing(illegal)}. An answer "
            "that the policy hardly ever gives has a long gradient, and no baseline shortens it: where their part is "
            "large, intervals are wide, and the measured ratio can be far from the expected one."
        )
    off = [
        f"{_told(row)}, expected {row['expected_rae']:.2f}, best {row['ratios']['best'][0]:.2f}"
        for row in rows
        if not row["ratios"]["rae"][1] <= row["expected_rae"] <= row["ratios"]["rae"][2]
    ]
    if off:
        lines.append(
            f"Outcomes do tell of the size of gradients, with the expected ratio outside the interval, in: "
            f"{'; '.join(off)}. There games with long gradients have other outcomes than those with short ones, "
            "and a role's mean, which counts every game alike, is not the constant that the variance asks for."
        )
    if unseen := [row["game"] for row in rows if max(map(abs, row["score_mean"])) > UNSEEN]:
        lines.append(
            f"Not to be relied on: {listing(unseen)}, where the mean score is not near 0 (below, last column). The "
            "policy has answers so rare that none came up, and their long gradients are missing from every figure."
        )
    return "\n".join(f"- {line}" for line in lines)


def _groups(rows: Sequence[Row]) -> str:
    def names(better: Callable[[Row], bool]) -> str:
        return listing([row["game"] for row in rows if better(row)])

    below = names(lambda row: row["ratios"]["group"][2] < row["ratios"]["rae"][1])
    above = names(lambda row: row["ratios"]["group"][1] > row["ratios"]["rae"][2])
    return (
        "Means of a group of games from one start need no moving average and also take away what the start decides "
        "(the cards), but a batch then holds fewer starts, and a mean of few games is noisy. Against RAE the intervals "
        f"lie wholly below in {below}, wholly above in {above}; elsewhere they overlap. The figures are for the other "
        "games' mean, which leaves the gradient's mean as it is; GRPO's own, with the game itself in the mean, shrinks "
        "gradient and spread alike."
    )


def _games(result: Result) -> str:
    def shares(values: Sequence[float]) -> str:
        return " / ".join(f"{value:.0%}" for value in values)

    rows = [
        [
            row["game"],
            "as it likes" if row["policy"] == "free" else f"legal, temperature {row['policy']:g}",
            f"{row['games']}",
            shares(row["wins"]),
            shares(row["random_wins"]),
            f"{row['legal']:.1%}",
            f"{row['signal']:.1%}",
            ", ".join(f"{value:+.3f}" for value in row["score_mean"]),
        ]
        for row in _by_advantage(result)
    ]
    header = ["game", "how it answers", "games", "player 0 wins / draws / loses", "the same at random", "legal turns"]
    return (
        table([*header, "|mean gradient|² / mean |gradient|²", "check: |mean score|² / mean |score|²"], rows)
        + "\n\nThe tiny model was made for "
        + listing(result.settings["model_games"])
        + ". In the other games it chooses among the legal answers only, by its probabilities at a temperature, and "
        "the gradient is that of this choice. The last column, for players 0 and 1, must be 0 up to chance: scores are "
        "gradients of the policy that played, whose mean is 0."
    )


def _handicap(result: Result) -> str:
    swept = result.figures["handicap"]
    game = result.settings["handicap_game"]
    rows = [
        [
            f"{step['handicap']:g}",
            f"{step['advantage']:+.2f}",
            f"{step['expected_rae']:.2f}",
            *(interval(step["ratios"][scheme]) for scheme in ("rae", "common", "group")),
        ]
        for step in swept
    ]
    first, last = (step["ratios"]["rae"][0] for step in (swept[0], swept[-1]))
    return (
        f"The games of {game} again, with a handicap c that is added to player 0's outcome and taken from player 1's, "
        "whatever they do. There is nothing in it to be learned; without baselines for roles it is noise.\n\n"
        + table(["c", "player 0's mean outcome", "RAE, expected", "RAE", "one common mean", "group"], rows)
        + f"\n\nFrom c = {swept[0]['handicap']:g} to {swept[-1]['handicap']:g} RAE's ratio goes from {first:.2f} to "
        f"{last:.2f}; one common mean stays at {_range(step['ratios']['common'][0] for step in swept)}."
    )


def _limits(result: Result) -> str:
    return "\n".join(
        f"- {line}"
        for line in (
            "It is one policy, a tiny model near random play, and the first gradient step on its own games: no "
            "clipping, no second epoch, gamma 1. A larger or a trained policy has other gradients, and its roles other "
            "advantages.",
            "It is the variance alone. That training without RAE collapses (SPIRAL, section 3.2) is neither shown nor "
            "refuted by it; how far less noise helps learning is a question for training runs.",
            "RAE's average has settled and the policy stands still; in training it starts at 0 and follows a policy "
            "that moves, so that it is a little worse. The role's true mean is taken from the same games, which makes "
            f"it look better by about one part in their number ({min(row['games'] for row in result.rows)} or more).",
            "A batch's mean is taken over games. Training takes it over turns, whose number varies.",
            f"Intervals come from resampled groups of games of all {len(result.seeds)} seeds; the seeds one by one, in "
            "the last column, show how much a third of the games can be off.",
        )
    )


def draw(result: Result) -> Any:
    """The games' ratios, least advantage first, and one game's over handicaps.

    Raises:
        PlotsMissing: there is nothing to draw with.
    """
    whole = figure(11, 4.6)
    left, right = whole.subplots(1, 2)
    rows = _by_advantage(result)
    for shift, scheme, colour in ((-0.12, "rae", COLOURS[0]), (0.12, "group", COLOURS[1])):
        middles, bars = _bars([row["ratios"][scheme] for row in rows])
        places = [place + shift for place in range(len(rows))]
        left.errorbar(middles, places, xerr=bars, fmt="o", color=colour, label=_SHOWN[scheme], capsize=2, markersize=4)
    expected = [row["expected_rae"] for row in rows]
    left.plot(expected, [place - 0.12 for place in range(len(rows))], "kx", label="RAE, expected from outcomes")
    left.set_yticks(range(len(rows)), [f"{row['game']} ({row['advantage']:+.2f})" for row in rows])
    left.invert_yaxis()
    left.axvline(1, color="0.7", linewidth=0.8)
    left.set(xlabel=_RATIO, title="games (player 0's mean outcome)", xlim=(0, None))
    swept = result.figures["handicap"]
    for scheme, colour in zip(("rae", "group", "common"), COLOURS, strict=False):
        advantages = [step["advantage"] for step in swept]
        middles, bars = _bars([step["ratios"][scheme] for step in swept])
        right.errorbar(advantages, middles, bars, fmt="o-", color=colour, label=_SHOWN[scheme], capsize=2, markersize=4)
    right.axhline(1, color="0.7", linewidth=0.8)
    right.set(
        xlabel="player 0's mean outcome",
        ylabel=_RATIO,
        ylim=(0, None),
        title=f"{result.settings['handicap_game']} with a handicap",
    )
    left.legend(fontsize="small", loc="upper center", bbox_to_anchor=(0.4, -0.13), ncols=3)
    right.legend(fontsize="small", loc="lower left")
    return whole


def _bars(values: Sequence[Sequence[float]]) -> tuple[list[float], list[list[float]]]:
    """Values, and their intervals' distances below and above."""
    return [value for value, _, _ in values], error_bars([(value, low, high) for value, low, high in values])


PLOTS: dict[str, Callable[[Result], Any]] = {"variance": draw}


def _by_advantage(result: Result) -> list[Row]:
    return sorted(result.rows, key=lambda row: abs(row["advantage"]))


def _told(row: Row) -> str:
    return f"{row['game']} {interval(row['ratios']['rae'])}"


def _range(values: Any) -> str:
    found = list(values)
    low, high = min(found), max(found)
    return f"{low:.2f}" if f"{low:.2f}" == f"{high:.2f}" else f"{low:.2f} to {high:.2f}"
