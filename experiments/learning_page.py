"""The page of an experiment on learning: what was compared, what was measured, and what the figures do not show.

What all of these pages share is explained once, by ``docs/experiments/README.md`` (``experiments/pages.py``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby
from statistics import fmean
from typing import Any

from experiments.comparisons import MEAN, MEAN_OF_REFERENCE, differences, shared_policy
from experiments.failure_modes import ITSELF, OTHERS, failures
from experiments.result import Result, arms, runs
from experiments.targets import targets_table
from experiments.text import bullets, by_start, span, spread, table
from recipe.spiral.lab.evaluation.outputs.points import AT_ZERO, NASH_CONV

#: Rewards of the last policy against the policies measured before it, as the mean of both roles: the mean over all of
#: them, and the reward against the one that does best. These names are keys of result files.
OWN_PAST, WORST_PAST = "against its past", "against its past, least"
#: NashConv of a reference that moves, in result files.
REFERENCE = f"{NASH_CONV} of the reference"
#: NashConv of simple policies of one-round Kuhn poker, in chips (``tests/experiments/test_landmarks.py``).
LANDMARKS = {"uniform play": 11 / 12, "never folds: least": 2 / 3, "acts by card and seat only: least": 0.1383}
#: Experiments whose runs start from a pretrained model, not from a warm-started tiny one.
PRETRAINED = ("smollm2",)

#: The columns of the table of NashConv: key of the row, header.
_COLUMNS = {
    NASH_CONV: "at the end",
    MEAN: "mean",
    MEAN_OF_REFERENCE: "mean of the reference",
    WORST_PAST: "best of its past",
}
_NO_STRENGTH = "The shares of won games say nothing about strength at Kuhn poker ([why](README.md#tables))."
_SPIN = (
    "DPO trains only the pairs among a batch's turns; RAE trains all turns. The learning rate was chosen for RAE, and "
    "no setting of DPO's was searched."
)
_SPIN_AT_KUHN = (
    f"{_SPIN} A batch of 128 games has 128 starts with RAE, 16 with DPO, and 32 (each with three branches) with DPO on "
    "branches."
)
_MOVING = (
    "In a table: the same method with exact gradients and as many steps, at a step size of its own "
    "(`experiments/tabular_methods.py`)."
)
_MEAN = "At a constant learning rate the policy goes on moving around its mean. The result is the mean: the reference."
#: What the figures of an experiment do not show, where the tables alone would mislead.
_REMARKS: dict[str, Sequence[str]] = {
    "regularised": (
        "NashConv 0.667 is the least of a policy that never folds. Folds [disappear first](../tiny_model.md).",
    ),
    "moving_reference": (
        _MOVING,
        "The differences are of the better one, the policy or the reference, of each run.",
        "Learning rate, momentum and coefficient were chosen for the first arm, on warm starts 0 to 2; others may do "
        "better with their own. Warm start 4 had never been used: there the first arm's reference has 0.062, with "
        "baselines by observation 0.033.",
    ),
    "equilibrium": (_MOVING, _MEAN),
    "equilibrium_verl": (_MOVING, _MEAN, "The quick loop has [three seeds and four models](equilibrium.md)."),
    "kuhn_long": (
        "The target 0.056 was meant as the least NashConv of a policy that ignores the bets. That was wrong: such a "
        "policy must also know which of its turns it is. By card and seat alone the least is 0.138.",
    ),
    "baselines": (
        "A role's advantage in one-round Kuhn poker is small: between equilibrium policies player 0 loses 1/18 chip a "
        "game. A game with a larger advantage can give another result ([variance.md](variance.md)).",
    ),
    "spin_kuhn": (_SPIN_AT_KUHN,),
    "spin_kuhn_verl": (_SPIN_AT_KUHN, "The quick loop has [three seeds](spin_kuhn.md)."),
    "spin_tictactoe": (_SPIN,),
    "asynchronous": (
        "Here whole batches are as old as the arm says. In the asynchronous modes a part of the games is younger, and "
        "one game can have turns of several versions ([asynchronous.md](../asynchronous.md)).",
        "Old games cost more where a step moves the policy further than with this learning rate and clipping.",
    ),
    "smollm2": ("This shows that the model learns to answer with a legal action.",),
}


def body(result: Result) -> str:
    """The page between its head and its end."""
    parts = [
        _compared(result),
        "## Result",
        _measured(result),
        bullets([*_said(result), *_REMARKS.get(result.name, ())]),
    ]
    sections = {
        "One policy for all games": shared_policy(result),
        "Targets": targets_table(result),
        "Worst points of training": _worst(result),
    }
    for title, text in sections.items():
        if text:
            parts += [f"## {title}", text]
    return "\n\n".join(filter(None, parts))


def _said(result: Result) -> list[str]:
    """What is said of the tables of a result."""
    names = list(next(runs(result))[2]["points"][0])
    rewards = any(name.endswith(": reward") for name in names)
    poker = any(name.startswith("KuhnPoker") and name.endswith(": win") for name in names)
    return [
        differences(result)[0],
        *([_NO_STRENGTH] * (poker and not rewards and NASH_CONV not in names)),
        *([_past(result)] if OWN_PAST in result.rows[0] and NASH_CONV not in result.rows[0] else []),
        *([_at_zero(result)] if any(name.endswith(AT_ZERO) for name in result.rows[0]) else []),
    ]


def _worst(result: Result) -> str:
    """A table of what went wrong in games against others."""
    found = {arm: cells for (arm, against), cells in failures(result).items() if against == OTHERS}
    names = next(iter(found.values()), {})
    return table(["arm", *names], [[arm, *cells.values()] for arm, cells in found.items()]) if found else ""


def _compared(result: Result) -> str:
    settings = result.settings
    overrides, measured = (" ".join(map(str, settings[key])) for key in ("overrides", "measure"))
    quick = settings.get("loop") == "quick"
    trained = "[Quick loop](README.md#runs)" if quick else "`main_spiral`"
    how = f"{trained}, {settings['steps']} steps, measured every {settings['every']}"
    parts = [f"{how}{'' if quick else f' with `{measured}`'}. All arms: `{overrides}`."]
    if composed := _settings(result):
        parts.append(f"Settings at that time: `{composed}`.")
    if any(arms(result).values()):
        named = [f"{arm}: `{' '.join(map(str, more))}`" if more else arm for arm, more in arms(result).items()]
        parts.append(f"The arms, with further overrides:\n\n{bullets(named)}")
    return "\n\n".join(parts)


def _settings(result: Result) -> str:
    """The settings of the actor and the algorithm that differed from the defaults in the same way in all arms."""
    by_arm = list(result.figures.get("settings", {}).values())
    first: Mapping[str, Any] = by_arm[0] if by_arm else {}
    shared = [key for key, value in first.items() if all(key in arm and arm[key] == value for arm in by_arm)]
    of_verl = ("actor_rollout_ref.actor.", "actor_rollout_ref.rollout.temperature", "data.train_batch_size")
    shown = (*of_verl, "algorithm.rae", "fsp.", "games", "opponents", "embedded_model", "ref_update")
    return " ".join(f"{key}={_value(first[key])}" for key in shared if key.startswith(shown))


def _value(value: Any) -> str:
    return f"[{','.join(map(str, value))}]" if isinstance(value, list) else str(value)


def _measured(result: Result) -> str:
    measures = [key for key in result.rows[0] if key not in ("arm", "seed", "games", "minutes")]
    parts = []
    if NASH_CONV in measures:
        parts.append(_distances(result, [key for key in _COLUMNS if key in measures]))
    if any(key.endswith(": win") for key in measures):
        parts.append(_before_and_after(result))
    if not parts:
        lines = [[rows[0]["arm"], _games(rows), *_spreads(rows, measures)] for _, rows in _by_arm(result)]
        parts.append(table(["arm", "games", *measures], lines))
    return "\n\n".join(parts)


def _by_arm(result: Result) -> list[tuple[str, list[dict[str, Any]]]]:
    order = list(arms(result))
    rows = sorted(result.rows, key=lambda row: (order.index(row["arm"]), row["seed"]))
    return [(arm, list(of_arm)) for arm, of_arm in groupby(rows, key=lambda row: row["arm"])]


def _games(rows: Sequence[Mapping[str, Any]]) -> str:
    return span([row["games"] for row in rows])


def _spreads(rows: Sequence[Mapping[str, Any]], measures: Sequence[str]) -> list[str]:
    return [spread(by_start(rows, [row[measure] for row in rows])) for measure in measures]


def _distances(result: Result, measures: Sequence[str]) -> str:
    """How far from an equilibrium each arm ended."""
    lines, rests, compared, worst = [], _known(result, "at_rest"), differences(result)[1], failures(result)
    tables = _known(result, "in_table")
    failed: list[str] = []
    for arm, rows in _by_arm(result):
        averages = [list(run["average"].values()) for run in result.figures["curves"][arm].values()]
        cells = [spread(by_start(rows, [values[0] for values in averages])) if all(averages) else "-"]
        if rests:
            cells.append(f"{rests[arm][NASH_CONV]:.3f}" if rests[arm] else "-")
        if tables:
            cells += [f"{tables[arm][name]:.3f}" if tables[arm] else "-" for name in (NASH_CONV, REFERENCE)]
        if compared:
            cells.append(compared.get((arm, MEAN), "-"))
        failed = list(worst[arm, ITSELF])
        lines.append([arm, *_spreads(rows, measures), *cells, *worst[arm, ITSELF].values()])
    header = ["arm", *(_COLUMNS[measure] for measure in measures), "average policy", *["at rest"] * bool(rests)]
    header += ["in a table", "in a table: reference"] * bool(tables)
    header += [f"{'better ' * bool(tables)}mean, difference (p)"] * bool(compared)
    header += [f"worst: {name}" for name in failed]
    said = (
        f"[NashConv](README.md#tables) after {_games(result.rows)} games; means are over the last "
        f"{result.settings['mean_over']:,}:"
    )
    return f"{said}\n\n{table(header, lines)}"


def _known(result: Result, key: str) -> dict[str, dict[str, float]]:
    """What was computed without games, by arm: "at_rest" or "in_table"; empty where it is known of no arm."""
    known = {arm: next(iter(seeds.values())).get(key) or {} for arm, seeds in result.figures["curves"].items()}
    return known if any(known.values()) else {}


def _before_and_after(result: Result) -> str:
    """How games ended at the start and at the end, by arm, in the games that the arm trained on."""
    rests, compared = _known(result, "at_rest"), differences(result)[1]
    names = list(next(runs(result))[2]["points"][0])
    rewards = any(name.endswith(": reward") for name in names)
    lines = []
    for arm, seeds in result.figures["curves"].items():
        of_arm, rows = list(seeds.values()), [row for row in result.rows if row["arm"] == arm]
        for place in [name.removesuffix(": win") for name in names if name.endswith(": win")]:
            if place.split(",")[0] not in of_arm[0].get("trained_on", [place.split(",")[0]]):
                continue
            measures = [f"{place}: {outcome}" for outcome in ("win", "loss")]
            cells = [_change(rows, of_arm, measure, rests.get(arm, {}).get(measure)) for measure in measures]
            cells.append(f"{fmean(run['points'][-1][f'{place}: invalid'] for run in of_arm):.1%}")
            cells += [_change(rows, of_arm, f"{place}: reward", form=".3f")] if rewards else []
            cells += [compared.get((arm, place), "-")] if compared else []
            lines.append([arm, place.replace("player ", ""), *cells])
    only = {line[1].split(", ")[0] for line in lines}
    if len(only) == 1:
        lines = [[arm, place.split(", ", 1)[1], *cells] for arm, place, *cells in lines]
    where = "player, opponent" if len(only) == 1 else "game, player, opponent"
    header = ["arm", where, "won", "lost", "illegal", *["mean reward"] * rewards]
    header += ["difference (p)"] * bool(compared)
    rest = " (at rest)" if rests else ""
    said = f"[Shares](README.md#tables) at the start → after {_games(result.rows)} games{rest}:"
    return f"{said}\n\n{table(header, lines)}"


def _past(result: Result) -> str:
    arms = [f"{arm} {', '.join(_spreads(rows, [OWN_PAST, WORST_PAST]))}" for arm, rows in _by_arm(result)]
    return f"Mean reward against its past, and against the best of it: {'; '.join(arms)}."


def _at_zero(result: Result) -> str:
    arms = []
    for arm, rows in _by_arm(result):
        most = (
            max(share for row in rows for name, share in row.items() if name.endswith(f"{opponent}: loss{AT_ZERO}"))
            for opponent in ("random", "perfect")
        )
        arms.append(f"{arm} {' / '.join(f'{share:.1%}' for share in most)}")
    return f"At temperature 0, the most that a seed loses in a role, to random / perfect play: {'; '.join(arms)}."


def _change(
    rows: Sequence[Mapping[str, Any]],
    of_arm: Sequence[Mapping[str, Any]],
    name: str,
    rest: float | None = None,
    form: str = ".1%",
) -> str:
    """A measure at the first and at the last point of an arm's runs, which have these rows, the last one with its
    interval, and at rest."""
    starts, ends = ([run["points"][place][name] for run in of_arm] for place in (0, -1))
    if not any([*starts, *ends, rest]):
        return format(0, form)
    end, last = spread(by_start(rows, ends), form), of_arm[0].get("intervals", [{}])[-1]
    if len(of_arm) == 1 and name in last:
        end += f" [{', '.join(format(value, form) for value in last[name])}]"
    return f"{fmean(starts):{form}} → {end}{'' if rest is None else f' ({rest:{form}})'}"


#: The experiments that have this page.
EXPERIMENTS = (
    "kuhn",
    "kuhn_long",
    "first_games",
    "tictactoe",
    "tictactoe_lines",
    "tictactoe_long",
    "regularised",
    "moving_reference",
    "equilibrium",
    "equilibrium_verl",
    "baselines",
    "spin_kuhn",
    "spin_kuhn_verl",
    "spin_tictactoe",
    "asynchronous",
    "three_games",
    "smollm2",
)
