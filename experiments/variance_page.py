"""The page of the experiment on the gradient's variance: every figure and every finding comes out of the result."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from experiments.result import Result
from experiments.text import COLOURS, LEVEL, bullets, figure, holm, interval, listing, table

Row = dict[str, Any]
#: The schemes of the table, and what plots call those that they show.
_COLUMNS = {"rae": "RAE", "batch": "batch", "group": "group"}
_LABELS = {"rae": "RAE", "common": "one common mean", "group": "role's mean of the group's other games"}

_RATIO = "variance / variance with b = 0"
#: If the mean score is a larger share than this, answers that the policy can give are missing from the games.
UNSEEN = 0.05


def body(result: Result) -> str:
    """The page between its head and its end."""
    sections = {
        "Result": f"{_ratios(result)}\n\n{bullets(_findings(result))}",
        "What this does not show": bullets(_limits(result)),
    }
    return "\n\n".join([_question(result), *(f"## {title}\n\n{text}" for title, text in sections.items())])


def _question(result: Result) -> str:
    settings = result.settings
    return (
        "SPIRAL trains every turn with the advantage A = R - b. A baseline b that does not depend on the game's "
        "actions changes only the variance of the gradient. This experiment measures by how much. The baselines:\n\n"
        + bullets(
            [
                f"**RAE**: a moving average for each role, decay {settings['decay']:g};",
                f"**batch**, **group**: the role's mean of the other games of a batch of {settings['batch']}, or of a "
                f"group of {settings['group']} games from one start as in GRPO (which counts the game itself, too).",
            ]
        )
        + "\n\nThe tiny model played itself. The variance is the trace of the covariance of a batch's mean gradient, "
        "times its games. The table has its ratio to the variance with b = 0 and a 95% bootstrap interval over "
        "groups of games. Lower is better: a batch with ratio 0.8 is worth one with b = 0 and a quarter more games."
    )


def _ratios(result: Result) -> str:
    rows = [
        [
            row["game"],
            f"{row['advantage']:+.2f}",
            f"{row['won_by_role']:.1%}",
            f"{row['expected_rae']:.2f}",
            *(interval(row["ratios"][scheme]) for scheme in _COLUMNS),
        ]
        for row in _by_advantage(result)
    ]
    header = ["game", "player 0's mean outcome", "role's share of R²", "RAE, expected", *_COLUMNS.values()]
    return table(header, rows)


def _findings(result: Result) -> list[str]:
    rows, decay = _by_advantage(result), result.settings["decay"]
    cost, even = (1 - decay) / (1 + decay), math.sqrt((1 - decay) / 2)
    p_values = holm([_p_value(row["ratios"]["rae"]) for row in rows])
    shown = [row for row, p in zip(rows, p_values, strict=True) if p < LEVEL]
    lower = [row["game"] for row in shown if row["ratios"]["rae"][0] < 1]
    higher = [row["game"] for row in shown if row["ratios"]["rae"][0] > 1]
    open_ = [row["game"] for row in rows if row not in shown]
    common = max(abs(row["ratios"]["common"][0] - 1) for row in rows)
    return [
        f"RAE lowers the variance in {len(lower)} of {len(rows)} games: {listing(lower)}.",
        f"RAE raises the variance in {len(higher)} games: {listing(higher)}.",
        f"No change is shown in {len(open_)} games: {listing(open_)} (p at least {LEVEL} after Holm's correction).",
        f"One common mean changes nothing, because the two outcomes cancel: its ratio is within {common:.3f} of 1.",
        '"RAE, expected" assumes that outcomes do not depend on the size of gradients: 1 minus the role\'s share of '
        f"R², times {1 + cost:.3f} for the noise of the moving average. With outcomes of ±1, RAE then helps from a "
        f"mean outcome of ±{even:.2f} on ({(1 + even) / 2:.1%} wins).",
        _groups(rows),
        _illegal(rows),
        _unexpected(result),
        _untrained(result),
        _unseen(rows),
        _handicap(result),
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
        f"Games that an illegal answer ended make up this share of the variance with b = 0: {listing(shares)}. Their "
        "gradients are long, and no baseline shortens them."
    )


def _unexpected(result: Result) -> str:
    """Where outcomes alone do not say what RAE does, beyond what chance does to the mean outcome."""
    apart: list[str] = []
    by_chance: list[str] = []
    for row in _by_advantage(result):
        (_, low, high), (least, most) = row["ratios"]["rae"], _expected_interval(row, result.settings)
        if not low <= row["expected_rae"] <= high:
            (apart if most < low or high < least else by_chance).append(f"{row['game']} ({row['expected_rae']:.2f})")
    said = []
    if apart:
        said.append(
            f"The expected ratio lies outside the interval in: {listing(apart)}. There, long gradients come with other "
            "outcomes than short ones."
        )
    if by_chance:
        said.append(
            f"Chance explains why it does in: {listing(by_chance)}. Its mean outcome is that of a few sampled deals. "
            "[handicap.md](handicap.md) has both ratios without chance."
        )
    return " ".join(said)


def _expected_interval(row: Row, settings: Mapping[str, Any]) -> tuple[float, float]:
    """The least and the largest expected ratio within the mean outcome's 95% interval, if a group's games end alike."""
    moving = (1 - settings["decay"]) / (1 + settings["decay"])
    # in units of the outcomes' root mean square, in which the role's share of R^2 is the square of the mean
    middle, half = math.sqrt(row["won_by_role"]), 1.96 / math.sqrt(row["games"] / settings["group"])
    least, most = ((1 + moving) * (1 - mean**2) for mean in (middle + half, max(0.0, middle - half)))
    return least, most


def _untrained(result: Result) -> str:
    names = [
        f"{row['game']} ({row['ratios']['rae'][0]:.2f})" for row in _by_advantage(result) if row["policy"] != "free"
    ]
    if not names:
        return ""
    return (
        f"In {listing(names)} the policy has learned nothing: it chooses among legal answers at a high temperature. "
        "These ratios do not say what RAE does in training."
    )


def _unseen(rows: Sequence[Row]) -> str:
    names = [row["game"] for row in rows if max(map(abs, row["score_mean"])) > UNSEEN]
    if not names:
        return ""
    return (
        f"Do not rely on {listing(names)}: the mean score is not near 0, so rare "
        "answers with long gradients are missing from the games."
    )


def _groups(rows: Sequence[Row]) -> str:
    def names(better: Callable[[Row], bool]) -> str:
        return listing([row["game"] for row in rows if better(row)])

    below = names(lambda row: row["ratios"]["group"][2] < row["ratios"]["rae"][1])
    above = names(lambda row: row["ratios"]["group"][1] > row["ratios"]["rae"][2])
    return (
        "A group's mean also takes away what the start (the cards) decides. But it is over few games, and the batch "
        f"has fewer starts. Its interval lies below RAE's in: {below}; above it in: {above}; elsewhere they overlap."
    )


def _handicap(result: Result) -> str:
    swept = result.figures["handicap"]
    ratios = [f"{step['ratios']['rae'][0]:.2f} with c = {step['handicap']:g}" for step in (swept[0], swept[-1])]
    return f"With a handicap of c in {result.settings['handicap_game']} RAE's ratio is {' and '.join(ratios)}."


def _limits(result: Result) -> list[str]:
    return [
        f"There is one policy, a tiny model made for {listing(result.settings['model_games'])}, and its first gradient "
        "step. The warm start is not in the intervals.",
        "This is the variance only, and says nothing of a collapse without RAE (SPIRAL, section 3.2).",
        "RAE's average has settled here. In training it starts at 0 and follows a policy that moves. A batch's mean is "
        "over games here, and over turns in training.",
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
        left.errorbar(middles, places, xerr=bars, fmt="o", color=colour, label=_LABELS[scheme], capsize=2, markersize=4)
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
        right.errorbar(
            advantages, middles, bars, fmt="o-", color=colour, label=_LABELS[scheme], capsize=2, markersize=4
        )
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
