"""The page of the experiment on the gradient's variance: every figure and every finding comes out of the result."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from experiments.result import Result
from experiments.text import COLOURS, LEVEL, WARM_START, bullets, figure, holm, interval, listing, table

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
#: If the mean score is a larger share than this, answers that the policy can give are missing from the games.
UNSEEN = 0.05


def body(result: Result) -> str:
    """The page between its head and its end."""
    sections = {
        "Result": f"{_ratios(result)}\n\n{bullets(_findings(result))}",
        "The games": _games(result),
        "A role's advantage from none to large": _handicap(result),
        "What this does not show": bullets(_limits(result)),
    }
    return "\n\n".join([_question(result), *(f"## {title}\n\n{text}" for title, text in sections.items())])


def _question(result: Result) -> str:
    settings = result.settings
    return (
        "SPIRAL trains every turn with the advantage A = R - b. A baseline b that does not depend on the game's "
        "actions leaves the mean of the gradient as it is and changes its variance. This experiment measures by how "
        f"much, for one common mean, for RAE (a moving average for each role, decay {settings['decay']:g}), and for "
        "means over a group of games from the same start, as in GRPO.\n\n"
        "The tiny model played games in self-play. The gradient of each player's log-probabilities was computed "
        "exactly, for all weights. The variance is the trace of the covariance of a batch's mean gradient, times the "
        "number of games in the batch. The table shows its ratio to the variance with b = 0, and a 95% bootstrap "
        f"interval over groups of {settings['group']} games. A ratio below 1 is better: a batch with ratio 0.8 is "
        "worth a batch with b = 0 that has a quarter more games."
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
    header = ["game", "player 0's mean outcome", "role's share of R²", "RAE, expected", *_SHOWN.values()]
    return table([*header, "RAE, seed by seed"], rows)


def _findings(result: Result) -> list[str]:
    rows, decay, others = _by_advantage(result), result.settings["decay"], result.settings["batch"] - 1
    cost, even = (1 - decay) / (1 + decay), math.sqrt((1 - decay) / 2)
    p_values = holm([_p_value(row["ratios"]["rae"]) for row in rows])
    shown = [row for row, p in zip(rows, p_values, strict=True) if p < LEVEL]
    lower = [_with_ratio(row) for row in shown if row["ratios"]["rae"][0] < 1]
    higher = [_with_ratio(row) for row in shown if row["ratios"]["rae"][0] > 1]
    open_ = [_with_ratio(row) for row in rows if row not in shown]
    common = max(abs(row["ratios"]["common"][0] - 1) for row in rows)
    return [
        f"RAE lowers the variance in {len(lower)} of {len(rows)} games: {listing(lower)}.",
        f"RAE raises the variance in {len(higher)} games: {listing(higher)}.",
        f"No change is shown in {len(open_)} games: {listing(open_)}.",
        f"A change is claimed where p is below {LEVEL} after Holm's correction for {len(rows)} games. The p-value "
        "follows from the interval, with the logarithm of the ratio taken as normal. The intervals are not corrected.",
        "One common mean changes nothing in a zero-sum game, because the two outcomes cancel. Its ratio is at most "
        f"{common:.3f} away from 1. The rest comes from illegal answers, which cost both players together more than 0.",
        "A role's baseline takes away the part of R² that is the role's mean. If outcomes were independent of the "
        'size of gradients, the ratio would be the one in the column "RAE, expected": 1 minus the role\'s share of R², '
        "times "
        f"{1 + cost:.3f}. The factor is the noise of the moving average: {cost:.1%} at decay {decay:g}, as for a mean "
        f"over {1 / cost:.0f} games. With outcomes of ±1, RAE therefore begins to help at a mean outcome of "
        f"±{even:.2f}, that is at {(1 + even) / 2:.1%} wins. The mean of the batch's other {others} games costs "
        f"{1 / others:.1%} and needs no memory.",
        _groups(rows),
        _illegal(rows),
        _unexpected(rows),
        _unseen(rows),
    ]


def _p_value(ratio: Sequence[float]) -> float:
    """The two-sided p-value that a ratio is 1, from its 95% interval; the ratio's logarithm is taken as normal."""
    from scipy.stats import norm

    value, low, high = map(math.log, ratio)
    if high == low:
        return float(value == 0)
    return float(2 * norm.sf(abs(value) / ((high - low) / (2 * norm.ppf(0.975)))))


def _illegal(rows: Sequence[Row]) -> str:
    shares = [
        f"{row['illegal_variance']:.0%} in {row['game']} ({row['illegal_games']:.1%} of the games)"
        for row in rows
        if row["illegal_games"]
    ]
    if not shares:
        return ""
    return (
        f"The games that an illegal answer ended make up this share of the variance with b = 0: {listing(shares)}. An "
        "answer that the policy rarely gives has a long gradient, and no baseline shortens it. Where this share is "
        "large, intervals are wide, and the measured ratio can be far from the expected ratio."
    )


def _unexpected(rows: Sequence[Row]) -> str:
    names = [
        f"{_with_ratio(row)}, expected {row['expected_rae']:.2f}, best {row['ratios']['best'][0]:.2f}"
        for row in rows
        if not row["ratios"]["rae"][1] <= row["expected_rae"] <= row["ratios"]["rae"][2]
    ]
    if not names:
        return ""
    return (
        f"The expected ratio lies outside the interval in: {'; '.join(names)}. In these games long gradients come with "
        "other outcomes than short ones. A role's mean counts every game alike, so it is not the constant with the "
        "least variance."
    )


def _unseen(rows: Sequence[Row]) -> str:
    names = [row["game"] for row in rows if max(map(abs, row["score_mean"])) > UNSEEN]
    if not names:
        return ""
    return (
        f"Do not rely on {listing(names)}: the mean score is not near 0 (last column of the next table). The policy "
        "has answers so rare that none was sampled, and their long gradients are missing from every figure."
    )


def _groups(rows: Sequence[Row]) -> str:
    def names(better: Callable[[Row], bool]) -> str:
        return listing([row["game"] for row in rows if better(row)])

    below = names(lambda row: row["ratios"]["group"][2] < row["ratios"]["rae"][1])
    above = names(lambda row: row["ratios"]["group"][1] > row["ratios"]["rae"][2])
    return (
        "Means over a group of games from one start need no moving average, and they also take away what the start "
        "(the cards) decides. But a batch then has fewer starts, and a mean of few games is noisy. The group mean's "
        f"interval lies below RAE's in: {below}. It lies above RAE's in: {above}. In the other games the two intervals "
        "overlap. The figures are for the mean of the other games, which leaves the mean of the gradient as it is. "
        "GRPO's own mean includes the game itself, which shrinks gradient and spread alike."
    )


def _games(result: Result) -> str:
    def shares(values: Sequence[float]) -> str:
        return " / ".join(f"{value:.0%}" for value in values)

    rows = [
        [
            row["game"],
            "any text" if row["policy"] == "free" else f"legal, temperature {row['policy']:g}",
            f"{row['games']}",
            shares(row["wins"]),
            shares(row["random_wins"]),
            f"{row['legal']:.1%}",
            f"{row['signal']:.1%}",
            ", ".join(f"{value:+.3f}" for value in row["score_mean"]),
        ]
        for row in _by_advantage(result)
    ]
    header = ["game", "answers", "games", "player 0 wins / draws / loses", "the same at random", "legal turns"]
    return (
        table([*header, "|mean gradient|² / mean |gradient|²", "check: |mean score|² / mean |score|²"], rows)
        + f"\n\nThe tiny model was made for {listing(result.settings['model_games'])}. In the other games it chooses "
        "among the legal answers only, by its probabilities at a temperature, and the gradient is that of this choice. "
        "The last column, for players 0 and 1, must be 0 but for noise: scores are gradients of the policy that "
        "played, and their mean is 0."
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
        f"These are the games of {game} again. A handicap c is added to player 0's outcome and subtracted from player "
        "1's, whatever the players do. Nothing can be learned from it; without baselines for roles it is noise.\n\n"
        + table(["c", "player 0's mean outcome", "RAE, expected", "RAE", "one common mean", "group"], rows)
        + f"\n\nBetween c = {swept[0]['handicap']:g} and c = {swept[-1]['handicap']:g}, RAE's ratio falls from "
        f"{first:.2f} to {last:.2f}. The ratio of one common mean stays at "
        f"{_range(step['ratios']['common'][0] for step in swept)}."
    )


def _limits(result: Result) -> list[str]:
    return [
        WARM_START,
        "There is one policy, a tiny model near random play, and the first gradient step on its own games: no "
        "clipping, no second epoch, gamma 1. A larger or a trained policy has other gradients, and other advantages of "
        "its roles.",
        "This measures the variance only. It neither shows nor refutes that training without RAE collapses (SPIRAL, "
        "section 3.2). How far less noise helps learning needs training runs.",
        "Here RAE's average has settled and the policy does not change. In training the average starts at 0 and "
        "follows a policy that moves, so RAE is a little worse. The role's true mean comes from the same games, which "
        "lowers its ratio by about one part in the number of games "
        f"({min(row['games'] for row in result.rows)} or more).",
        "A batch's mean is over games here. Training takes the mean over turns, whose number varies.",
        f"The intervals come from resampled groups of games of all {len(result.seeds)} seeds. The last column of the "
        "first table shows each seed alone.",
    ]


def draw(result: Result) -> Any:
    """Left: the ratios of all games, least advantage first. Right: the ratios of one game over handicaps.

    Raises:
        PlotsMissing: matplotlib is not installed.
    """
    whole = figure(11, 4.6)
    left, right = whole.subplots(1, 2)
    rows = _by_advantage(result)
    for shift, scheme, colour in ((-0.12, "rae", COLOURS[0]), (0.12, "group", COLOURS[1])):
        middles, bars = _with_bars([row["ratios"][scheme] for row in rows])
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
        middles, bars = _with_bars([step["ratios"][scheme] for step in swept])
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


def _with_bars(values: Sequence[Sequence[float]]) -> tuple[list[float], list[list[float]]]:
    """Values, and the distances to the lower and the upper ends of their intervals."""
    below, above = ([abs(value[end] - value[0]) for value in values] for end in (1, 2))
    return [value for value, _, _ in values], [below, above]


PLOTS: dict[str, Callable[[Result], Any]] = {"variance": draw}


def _by_advantage(result: Result) -> list[Row]:
    return sorted(result.rows, key=lambda row: abs(row["advantage"]))


def _with_ratio(row: Row) -> str:
    return f"{row['game']} {interval(row['ratios']['rae'])}"


def _range(values: Iterable[float]) -> str:
    ends = sorted(f"{value:.2f}" for value in values)
    return ends[0] if ends[0] == ends[-1] else f"{ends[0]} to {ends[-1]}"
