"""The page of an experiment on learning: what was compared, what was reached, and the curves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby
from statistics import fmean
from typing import Any

from experiments.failure_modes import failures
from experiments.paired import paired
from experiments.result import Result, arms
from experiments.shared_policy import shared_policy
from experiments.targets import aims
from experiments.text import half_width, span, spread, table
from recipe.spiral.evaluation.report.points import NASH_CONV, OUTCOMES

#: What the last policy gets of those before it, in rewards, as the mean of both roles: of all, and of the worst.
OWN_PAST, WORST_PAST = "against its past", "against its past, least"
#: Of what is measured where there is NashConv, what the table has.
_SHOWN = (NASH_CONV, f"{NASH_CONV}, mean", "NashConv as judged, mean", "illegal, mean", OWN_PAST, WORST_PAST)
#: The share of games ended by an illegal answer from which a run counts as collapsed.
COLLAPSED = 0.2

_SEEDS = "Over seeds: the mean, and its 95% interval by Student's t. All runs of an arm begin with the same model."
_REST = (
    "of the policy where what an action gains and the pull of KL to a start that plays uniformly weigh the same, "
    "computed from the game's tree (`experiments/regularised_equilibrium.py`): where training with that "
    "coefficient would come to rest, if it comes there."
)
_EXACT = (
    "NashConv is that of the policy given that its answers are legal, in chips. As judged: with the rewards that "
    "illegal answers end games with. Illegal: the share of games with itself that they end. Average policy: of the "
    "policies measured after the start."
)
_PAST = (
    "Against its past: what the last policy gets of those measured before it, in rewards, as the mean of both roles: "
    "of all of them, and of the one that does best against it. Below 0, something was forgotten."
)


def body(result: Result) -> str:
    """The page between its head and its end."""
    parts = [_compared(result), "## Result", _reached(result)]
    if shared := shared_policy(result):
        parts += ["## One policy for all games", shared]
    if differences := paired(result):
        parts += ["## Seed by seed", differences]
    if reached := aims(result):
        parts += ["## Aims", reached]
    if failed := failures(result):
        parts += ["## What went wrong on the way", failed]
    return "\n\n".join([*parts, "## Curves"])


def _compared(result: Result) -> str:
    compared = [[name, "`" + " ".join(map(str, more)) + "`" if more else ""] for name, more in arms(result).items()]
    trained, measured = (" ".join(map(str, result.settings[key])) for key in ("overrides", "measure"))
    if result.settings.get("loop") == "quick":
        by = (
            "by the quick loop (the trainer's games, prompts, baselines, pool and loss in plain torch, without Ray and "
        )
        by, measured = by + "vLLM: `experiments/quick.py`)", "the policy was read at all information sets"
    else:
        by, measured = "by `main_spiral`", f"a checkpoint was measured with `{measured}`"
    means = ""
    if NASH_CONV in result.rows[0]:
        means = f" Means are over what was measured in the last {result.settings['mean_over']:,} games."
    return (
        f"Trained with `{trained}`, {result.settings['steps']} steps, {by}; every {result.settings['every']} steps "
        f"{measured}.{means}\n\n{table(['arm', 'overrides'], compared)}"
    )


def _reached(result: Result) -> str:
    measures = [key for key in result.rows[0] if key not in ("arm", "seed", "games", "minutes")]
    if NASH_CONV in measures:
        return _distances(result, [key for key in _SHOWN if key in measures])
    if any(key.endswith(": win") for key in measures):
        return _before_and_after(result)
    lines = [[*_runs(rows), *_spreads(rows, measures)] for _, rows in _by_arm(result)]
    return "\n\n".join([table(["arm", "seeds", "games", *measures], lines), *[_SEEDS] * (len(result.seeds) > 1)])


def _by_arm(result: Result) -> list[tuple[str, list[dict[str, Any]]]]:
    order = list(arms(result))
    rows = sorted(result.rows, key=lambda row: (order.index(row["arm"]), row["seed"]))
    return [(arm, list(grouped)) for arm, grouped in groupby(rows, key=lambda row: row["arm"])]


def _runs(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    return [rows[0]["arm"], ", ".join(str(row["seed"]) for row in rows), span([row["games"] for row in rows])]


def _spreads(rows: Sequence[Mapping[str, Any]], measures: Sequence[str]) -> list[str]:
    return [spread([row[measure] for row in rows]) for measure in measures]


def _distances(result: Result, measures: Sequence[str]) -> str:
    """How far from an equilibrium each arm came."""
    lines, rests = [], _at_rest(result)
    for arm, rows in _by_arm(result):
        seeds = list(result.figures["curves"][arm].values())
        averages = [list(run["average"].values()) for run in seeds]
        cells = [spread([one[0] for one in averages]) if all(averages) else "-"]
        if rests:
            cells.append(f"{rests[arm][NASH_CONV]:.3f}" if rests[arm] else "-")
        lost = [[point["illegal"] > COLLAPSED for point in run["points"][1:]] for run in seeds]
        cells.append(f"{sum(map(any, lost))} of {len(lost)}, {sum(run[-1] for run in lost)} at the end")
        lines.append([*_runs(rows), *_spreads(rows, measures), *cells])
    header = ["arm", "seeds", "games", *measures, "average policy's NashConv"]
    header += [*(["NashConv at rest"] if rests else []), "collapsed"]
    notes = [_SEEDS] if len(result.seeds) > 1 else []
    notes.append(_EXACT)
    if rests:
        notes.append(f"NashConv at rest: {_REST}")
    notes.append(f"Collapsed: after the start an illegal answer ends more than {COLLAPSED:.0%} of the games.")
    if OWN_PAST in measures:
        notes.append(_PAST)
    return f"{table(header, lines)}\n\n{' '.join(notes)}"


def _at_rest(result: Result) -> dict[str, dict[str, float]]:
    """By arm what would be measured where its KL loss leads; empty where that is known of none."""
    found = {arm: next(iter(seeds.values())).get("at_rest") or {} for arm, seeds in result.figures["curves"].items()}
    return found if any(found.values()) else {}


def _before_and_after(result: Result) -> str:
    """How games ended at the start and at the end, by arm, with intervals over the seeds or those of single runs."""
    lines, rests = [], _at_rest(result)
    for arm, seeds in result.figures["curves"].items():
        runs = list(seeds.values())
        names = runs[0]["points"][0]
        for place in [name.removesuffix(": win") for name in names if name.endswith(": win")]:
            for end in (0, -1):
                shares = [_share(runs, end, f"{place}: {outcome}") for outcome in OUTCOMES]
                lines.append([arm, place, span([run["points"][end]["games"] for run in runs]), *shares])
            if rests and f"{place}: win" in rests[arm]:
                shares = [f"{rests[arm][f'{place}: {outcome}']:.1%}" for outcome in OUTCOMES]
                lines.append([arm, place, "at rest", *shares])
    header = ["arm", "game, role and opponent", "games", "won", "drawn", "lost", "ended by an illegal answer"]
    notes = []
    if len(result.seeds) > 1:
        notes.append(_SEEDS)
    if result.settings.get("loop") == "quick":
        notes.append("Computed from the policy's probabilities at all positions, not sampled.")
    elif len(result.seeds) == 1:
        notes.append("With 95% intervals (Wilson).")
    if rests:
        notes.append(f"At rest: computed, {_REST}")
    if OWN_PAST in result.rows[0]:
        notes.append(_PAST)
        for arm in arms(result):
            rows = [row for row in result.rows if row["arm"] == arm]
            all_of_it, least = (spread([row[name] for row in rows]) for name in (OWN_PAST, WORST_PAST))
            notes.append(f"{arm.capitalize()}: {all_of_it}, least {least}.")
    return f"{table(header, lines)}\n\n{' '.join(notes)}"


def _share(runs: Sequence[Mapping[str, Any]], end: int, name: str) -> str:
    """Of the first (0) or the last (-1) points of an arm's runs."""
    values = [run["points"][end][name] for run in runs]
    if len(values) > 1:
        return f"{fmean(values):.1%} ± {half_width(values):.1%}"
    if name not in runs[0]["intervals"][end]:
        return f"{values[0]:.1%}"
    low, high = runs[0]["intervals"][end][name]
    return f"{values[0]:.1%} [{low:.1%}, {high:.1%}]"


#: The experiments that have this page.
EXPERIMENTS = (
    "kuhn",
    "kuhn_long",
    "first_games",
    "first_games_tictactoe",
    "tictactoe",
    "tictactoe_lines",
    "regularised",
    "baselines",
    "pool",
    "three_games",
    "smollm2",
)
