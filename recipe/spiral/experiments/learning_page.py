"""The page of an experiment on learning: what was compared, what was reached, and the curves."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from statistics import fmean, stdev
from typing import Any

from ..evaluation.points import NASH_CONV, OUTCOMES
from .failure_modes import failures
from .result import Result
from .shared_policy import shared_policy
from .text import table

#: Two-sided 95% quantiles of Student's t by degrees of freedom; for more, the last one is a little too wide.
_T = {1: 12.706, 2: 4.303, 3: 3.182, 4: 2.776, 5: 2.571, 6: 2.447, 7: 2.365, 8: 2.306, 9: 2.262}
#: What a target is judged by: the last point, or the mean of those in the last games.
OF = ("last", "mean")
#: What the last policy gets of those before it, in rewards, as the mean of both roles: of all, and of the worst.
OWN_PAST, WORST_PAST = "against its past", "against its past, least"
#: Of what is measured where there is NashConv, what the table has.
_SHOWN = frozenset(
    (
        NASH_CONV,
        *(f"{name}, mean" for name in (NASH_CONV, "NashConv as judged", "illegal", "illegal, worst")),
        OWN_PAST,
        WORST_PAST,
    )
)
#: The share of games ended by an illegal answer from which a run counts as collapsed.
COLLAPSED = 0.2

_REST = (
    "of the policy where what an action gains and the pull of KL to a start that plays uniformly weigh the same, "
    "computed from the game's tree (`recipe/spiral/experiments/regularised_equilibrium.py`): where training with that "
    "coefficient leads."
)
_PAST = (
    "Against its past: what the last policy gets of those measured before it, in rewards, as the mean of both roles: "
    "of all of them, and of the one that does best against it. Below 0, something was forgotten."
)

Curve = list[dict[str, float]]


def body(result: Result) -> str:
    """The page between its head and its end."""
    parts = [_compared(result), "## Result", _reached(result)]
    if shared := shared_policy(result):
        parts += ["## One policy for all games", shared]
    if targets := _targets(result):
        parts += ["## Aims", targets]
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
        by, measured = by + "vLLM: `recipe/spiral/experiments/quick.py`)", "the policy was read at all information sets"
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
    exact = NASH_CONV in measures
    if not exact and any(key.endswith(": win") for key in measures):
        return _before_and_after(result)
    if exact:
        measures = [key for key in measures if key in _SHOWN]
    lines, rests = [], _at_rest(result)
    for arm, grouped in groupby(sorted(result.rows, key=lambda row: _order(result, row)), key=lambda row: row["arm"]):
        rows = list(grouped)
        seeds, games = ", ".join(str(row["seed"]) for row in rows), _range([row["games"] for row in rows])
        cells = [spread([row[measure] for row in rows]) for measure in measures]
        if exact:
            averages = [list(curve["average"].values()) for curve in result.figures["curves"][arm].values()]
            cells.append(spread([one[0] for one in averages]) if all(averages) else "-")
            if rests:
                cells.append(f"{rests[arm][NASH_CONV]:.3f}" if rests[arm] else "-")
            cells.append(f"{sum(row['illegal, mean'] > COLLAPSED for row in rows)} of {len(rows)}")
        lines.append([arm, seeds, games, *cells])
    header = ["arm", "seeds", "games", *measures]
    if exact:
        header += ["average policy's NashConv", *(["NashConv at rest"] if rests else []), "collapsed"]
    notes = []
    if len(result.seeds) > 1:
        notes.append("Over seeds: the mean, and its 95% interval by Student's t.")
    if rests:
        notes.append(f"NashConv at rest: {_REST}")
    if exact:
        notes.append(f"Collapsed: in the end an illegal answer ends more than {COLLAPSED:.0%} of the games.")
    if OWN_PAST in measures:
        notes.append(_PAST)
    return "\n\n".join([table(header, lines), " ".join(notes)]).strip()


def _range(numbers: Sequence[int]) -> str:
    low, high = min(numbers), max(numbers)
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"


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
                lines.append([arm, place, _range([run["points"][end]["games"] for run in runs]), *shares])
            if rests and f"{place}: win" in rests[arm]:
                shares = [f"{rests[arm][f'{place}: {outcome}']:.1%}" for outcome in OUTCOMES]
                lines.append([arm, place, "at rest", *shares])
    header = ["arm", "game, role and opponent", "games", "won", "drawn", "lost", "ended by an illegal answer"]
    notes = []
    if len(result.seeds) > 1:
        notes.append("Over seeds: the mean, and its 95% interval by Student's t. All begin with the same model.")
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
        return f"{fmean(values):.1%} ± {_half(values):.1%}"
    if name not in runs[0]["intervals"][end]:
        return f"{values[0]:.1%}"
    low, high = runs[0]["intervals"][end][name]
    return f"{values[0]:.1%} [{low:.1%}, {high:.1%}]"


def spread(values: Sequence[float]) -> str:
    """A value, or the mean of several with its interval."""
    if len(values) == 1:
        return f"{values[0]:.3f}"
    return f"{fmean(values):.3f} ± {_half(values):.3f}"


def _half(values: Sequence[float]) -> float:
    return _T.get(len(values) - 1, _T[9]) * stdev(values) / len(values) ** 0.5


def _targets(result: Result) -> str:
    """Every aim, by arm: what each seed came to."""
    lines = []
    for target in result.settings["targets"]:
        limit = f"at most {target['at_most']:g}" if "at_most" in target else f"at least {target['at_least']:g}"
        aim = [target["measure"], target["of"], f"{target['games']:,}", limit]
        for arm, grouped in groupby(curves(result), key=lambda one: one[0]):
            told = [_judged(curve, target, result.settings["mean_over"]) for _, _, curve in grouped]
            verdicts = Counter(verdict for _, verdict in told)
            alone = verdicts.total() == 1
            in_words = [
                verdict if alone else f"{verdict}: {n} of {verdicts.total()}" for verdict, n in verdicts.items()
            ]
            lines.append([*aim, arm, ", ".join(value for value, _ in told), ", ".join(in_words)])
    if not lines:
        return ""
    notes = ["Measured at the last point up to that many games."]
    if len(result.seeds) > 1:
        notes.append(f"One figure for each of the seeds {', '.join(map(str, result.seeds))}.")
    return f"{table(['measure', 'of', 'by games', 'aim', 'arm', 'measured', ''], lines)}\n\n{' '.join(notes)}"


def _judged(curve: Curve, target: Mapping[str, Any], mean_over: int) -> tuple[str, str]:
    """What one run came to of an aim, and what that is."""
    if target["measure"] not in curve[-1]:
        return "-", "was not measured"
    if (value := value_at(curve, target, mean_over)) is not None:
        return f"{value:.3f}", "reached" if reached(value, target) else "missed"
    so_far = _value_until(curve, target, curve[-1]["games"], mean_over)
    if reached(so_far, target):
        return f"{so_far:.3f} at {curve[-1]['games']:,}", "reached before"
    return "-", "not run so far"


def value_at(curve: Curve, target: Mapping[str, Any], mean_over: int) -> float | None:
    """What a run had come to by a target's number of games; None if it was not run that far.

    Args:
        curve: a run's points.
        mean_over: games of the running mean.
    """
    if curve[-1]["games"] < target["games"] - (curve[-1]["games"] - curve[-2]["games"] if len(curve) > 1 else 0):
        return None
    if curve[0]["games"] > target["games"]:
        return None
    return _value_until(curve, target, target["games"], mean_over)


def _value_until(curve: Curve, target: Mapping[str, Any], games: float, mean_over: int) -> float:
    until, name = [point for point in curve if point["games"] <= games], target["measure"]
    return until[-1][name] if target["of"] == "last" else running_mean(until, name, mean_over)[-1]


def reached(value: float, target: Mapping[str, Any]) -> bool:
    return value <= target["at_most"] if "at_most" in target else value >= target["at_least"]


def running_mean(curve: Curve, name: str, mean_over: int) -> list[float]:
    """At each point the mean of those in the ``mean_over`` games up to it."""
    return [
        fmean(one[name] for one in curve if point["games"] - mean_over < one["games"] <= point["games"])
        for point in curve
    ]


def curves(result: Result) -> Iterator[tuple[str, str, Curve]]:
    """Arm, seed and points of every run."""
    for arm, seeds in result.figures["curves"].items():
        for seed, found in seeds.items():
            yield arm, seed, found["points"]


def arms(result: Result) -> dict[str, list[str]]:
    """The arms' overrides, by name."""
    told: dict[str, list[str]] = result.settings["arms"]
    return told


def _order(result: Result, row: Mapping[str, Any]) -> tuple[int, int]:
    return list(arms(result)).index(row["arm"]), row["seed"]


#: The experiments that have this page.
EXPERIMENTS = (
    "kuhn",
    "kuhn_long",
    "first_games",
    "tictactoe",
    "tictactoe_lines",
    "regularised",
    "baselines",
    "pool",
    "three_games",
    "smollm2",
)
