"""The page of the experiment with a handicap: what was written down before it, and what came of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from statistics import fmean
from typing import Any

from experiments.result import Result
from experiments.text import COLOURS, LEVEL, bullets, figure, half_width, holm, listing, p_text, p_value, spread, table
from recipe.spiral.lab.evaluation.outputs.points import NASH_CONV

#: A role's mean reward and the other statistics are shown without a handicap: c moves them by c.
EVEN = "0.0"
#: How many trainings from each warm start were written down.
PLANNED_SEEDS = 3
Row = dict[str, Any]


def body(result: Result) -> str:
    """The page between its head and its end."""
    sections = {
        "Written down before the first run": _plan(result),
        "Result": f"{_outcomes(result)}\n\n{_differences(result)}",
        "Baselines": _best(result),
        "What this does not show": bullets(_limits()),
    }
    return "\n\n".join([_question(result), *(f"## {title}\n\n{text}" for title, text in sections.items())])


def _question(result: Result) -> str:
    settings = result.settings
    return (
        "A handicap c is added to player 0's reward in [one-round Kuhn poker](../games.md) and taken from player 1's, "
        "however a game ends (`experiments/handicapped_kuhn.py`). The largest reward is 1. The game, its equilibria, "
        "the expected gradient and NashConv stay the same, so what differs is the baseline's doing. The baselines:\n\n"
        + bullets(
            [
                "**none**; **RAE**: a moving average for each role; **one mean**: one for both roles; **by "
                "observation**: one for each of the twelve prompts;",
                f"**GRPO per role**: the role's mean of the other games of {settings['group']} that start alike.",
            ]
        )
        + f"\n\nEach was trained from {len(settings['warm_starts'])} tiny models, of which the recipe ships the first, "
        f"with {_counted(len(settings['seeds']), 'seed')} each, for {settings['steps']} steps with the settings of "
        f"`{' '.join(settings['overrides'])}`. The loss is the "
        "[quick loop's](README.md#runs), but a step has one forward pass, and games are drawn from the probabilities "
        "of all answers; all illegal answers to a prompt count as one."
    )


def _plan(result: Result) -> str:
    settings = result.settings
    said = [
        f"The outcome: games until the running mean of NashConv, over the last {settings['mean_over']:,}, is at most "
        f"{settings['reach']:g}. A run that does not get there counts with all its games.",
        "The expectation: RAE saves games where its variance ratio is well below 1, so with c = 1, less with c = 0.5, "
        "and not with c = 0. Ratios to the variance without a baseline are computed by enumeration; "
        '"ratio, expected" is the shipped model\'s.',
        "The tests: seeds are repetitions within a warm start, which is a random effect, so Student's t is of the warm "
        "starts' means. Holm's correction is within each family.",
    ]
    if (seeds := len(settings["seeds"])) < PLANNED_SEEDS:
        said.append(f"{PLANNED_SEEDS} seeds were planned. The time was enough for {seeds}.")
    return bullets(said)


def _runs(result: Result, handicap: float, arm: str) -> list[int]:
    """The numbers of an arm's runs."""
    return [number for number, row in enumerate(result.rows) if (row["handicap"], row["arm"]) == (handicap, arm)]


def _by_start(result: Result, numbers: Sequence[int], value: Callable[[int], float]) -> list[float]:
    """The mean of a value of runs by warm start."""
    starts = sorted({result.rows[number]["warm_start"] for number in numbers})
    return [fmean(value(number) for number in numbers if result.rows[number]["warm_start"] == one) for one in starts]


def _arms(result: Result) -> list[tuple[float, str]]:
    return sorted({(row["handicap"], row["arm"]): None for row in result.rows}, key=lambda arm: arm[0])


def _steps(result: Result) -> list[str]:
    return list(result.figures["variances"][0])


def _outcomes(result: Result) -> str:
    lines = []
    for handicap, arm in _arms(result):
        numbers = _runs(result, handicap, arm)
        rows = [result.rows[number] for number in numbers]
        expected = result.settings["expected"].get(arm, {}).get(str(handicap), 1.0)
        lines.append(
            [
                f"{handicap:g}",
                arm,
                spread(_by_start(result, numbers, lambda number: result.rows[number]["games_until"]), ",.0f"),
                f"{sum(row['reached'] for row in rows)} of {len(rows)}",
                spread(_by_start(result, numbers, lambda number: result.rows[number][NASH_CONV])),
                f"{max(row['illegal'] for row in rows):.1%}",
                f"{expected:.2f}",
                *(_ratios(result, handicap, arm, numbers, step) for step in _steps(result)),
            ]
        )
    header = ["c", "baseline", "games", "got there", "NashConv at the end", "illegal, most", "ratio, expected"]
    header += ["ratio at the start", *(f"step {step}" for step in _steps(result)[1:])]
    return (
        f"{table(header, lines)}\n\n"
        f"Means over warm starts with 95% intervals over them. NashConv is the mean over the last "
        f"{result.settings['mean_over']:,} games. Ratios are those of the arm's own policies, from the least to the "
        f"largest of its runs."
    )


def _ratios(result: Result, handicap: float, arm: str, numbers: Sequence[int], step: str) -> str:
    return _between([result.figures["variances"][number][step][str(handicap)]["ratios"][arm] for number in numbers])


def effects(result: Result) -> Iterator[tuple[str, list[str], float, float]]:
    """The comparisons: family, cells of the table, the mean difference in games, and the corrected p-value."""
    for family, compared in result.settings["comparisons"].items():
        by_start = []
        for handicap, arm, other in compared:
            games = [
                {(row["warm_start"], row["seed"]): row["games_until"] for row in map(result.rows.__getitem__, numbers)}
                for numbers in (_runs(result, handicap, arm), _runs(result, handicap, other))
            ]
            starts = sorted({start for start, _ in games[0]})
            differences = {run: games[0][run] - games[1][run] for run in games[0]}
            by_start.append(
                [fmean(value for (start, _), value in differences.items() if start == one) for one in starts]
            )
        p_values = holm([p_value(means) for means in by_start])
        for (handicap, arm, other), means, p in zip(compared, by_start, p_values, strict=True):
            games_saved = f"{fmean(means):+,.0f} ± {half_width(means):,.0f}"
            cells = [family, f"{handicap:g}", f"{arm} - {other}", games_saved, p_text(p)]
            yield family, cells, fmean(means), p


def _differences(result: Result) -> str:
    lines = list(effects(result))
    header = ["family", "c", "difference", "games, mean ± 95% interval", "p after Holm's correction"]
    shown = [f"{cells[2]} with c = {cells[1]}" for _, cells, _, p in lines if p < LEVEL]
    return (
        f"{table(header, [cells for _, cells, _, _ in lines])}\n\n"
        f"Below 0: the first of the two needs fewer games. Shown (p below {LEVEL}): {listing(shown)}."
    )


def _best(result: Result) -> str:
    lines = []
    numbers = [number for number, row in enumerate(result.rows) if str(row["handicap"]) == EVEN]
    for step in _steps(result):
        found = [result.figures["variances"][number][step][EVEN] for number in numbers]
        roles = [_between([one[key][role] for one in found]) for role in (0, 1) for key in ("means", "best")]
        lines.append([step, *roles, _between([one["ratios"]["best"] / one["ratios"]["RAE"] for one in found])])
    header = [f"player {role}: {what}" for role in (0, 1) for what in ("mean reward", "b*")]
    return (
        "RAE's baselines settle at the roles' mean rewards. The constants with the least variance, b*, weigh rewards "
        "by the gradients' squared lengths. Here without a handicap, in all arms' policies; c moves both by c.\n\n"
        + table(["step", *header, "variance with b* / with RAE"], lines)
    )


def _between(values: Sequence[float]) -> str:
    low, high = (f"{of(values):.2f}" for of in (min, max))
    return low if low == high else f"{low} to {high}"


def _counted(number: int, what: str) -> str:
    return f"{number} {what}{'s' * (number > 1)}"


def _limits() -> list[str]:
    return [
        "With c = 1 roles differ by more than in most games ([variance.md](variance.md)): wins and losses of ±1 at 90% "
        "give a mean outcome of 0.8.",
        "GRPO and one mean were not trained with every c: a group's mean takes c away at once, and the roles' mean "
        "never sees it.",
        "With this preset's KL loss and learning rate every arm gets there soon, and the running mean alone takes half "
        "of those games. A lower variance may save games elsewhere.",
    ]


def plot(result: Result) -> Any:
    """NashConv over games by handicap: the mean over the runs of each arm."""
    handicaps = sorted({row["handicap"] for row in result.rows})
    steps = len(result.figures["curves"][0])
    games = [int(result.games / len(result.rows)) * place / (steps - 1) for place in range(steps)]
    names = list(dict.fromkeys(row["arm"] for row in result.rows))
    drawn = figure(4.2 * len(handicaps), 3.8)
    for axes, handicap in zip(drawn.subplots(1, len(handicaps), squeeze=False)[0], handicaps, strict=True):
        for arm, colour in zip(names, COLOURS, strict=False):
            if curves := [result.figures["curves"][number] for number in _runs(result, handicap, arm)]:
                axes.plot(games, [fmean(values) for values in zip(*curves, strict=True)], color=colour, label=arm)
        axes.axhline(result.settings["reach"], color="0.7", linewidth=0.8)
        axes.set_xlabel("games")
        axes.set_title(f"NashConv, c = {handicap:g}", fontsize=10)
        axes.set_ylim(bottom=0)
        axes.legend(fontsize=7)
    return drawn


PLOTS: dict[str, Callable[[Result], Any]] = {"handicap": plot}
