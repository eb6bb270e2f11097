"""The page of an experiment on learning: what was compared, what was measured, and what the figures do not show."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any

from experiments.comparisons import seed_by_seed, shared_policy
from experiments.failure_modes import failures
from experiments.result import Result, arms, runs
from experiments.targets import targets_table
from experiments.text import WARM_START, bullets, span, spread, table
from recipe.spiral.lab.evaluation.outputs.points import NASH_CONV, OUTCOMES

#: Rewards of the last policy against the policies measured before it, as the mean of both roles: the mean over all of
#: them, and the reward against the one that does best. These names are keys of result files.
OWN_PAST, WORST_PAST = "against its past", "against its past, least"
#: The share of games ended by an illegal answer from which a run counts as collapsed.
COLLAPSED = 0.2
#: NashConv of simple policies of one-round Kuhn poker, in chips (``tests/experiments/test_landmarks.py``).
LANDMARKS = {"uniform play": 11 / 12, "never folds: least": 2 / 3, "acts by card and seat only: least": 0.1383}
#: Experiments whose runs start from a pretrained model, not from a warm-started tiny one.
PRETRAINED = ("smollm2",)

_BALANCE = (
    "At rest the gain of every action and the pull of the KL loss to a start that plays uniformly are in balance. This "
    "policy is computed from the game's tree (`experiments/regularised_equilibrium.py`). Training with this "
    "coefficient can end there, but need not get there."
)
#: The columns of the table of NashConv: key of the row, header.
_COLUMNS = {
    NASH_CONV: "NashConv at the end",
    f"{NASH_CONV}, mean": "NashConv, mean",
    "NashConv as judged, mean": "NashConv as judged, mean",
    "illegal, mean": "illegal, mean",
    OWN_PAST: "reward against earlier policies",
    WORST_PAST: "reward against the best of them",
}
_WIN_SHARES = (
    "The share of won games does not measure strength at Kuhn poker, where a game is won or lost by one chip or by "
    "two. Against random play, a policy that always bets and calls wins 75% of the games as player 0 and 62.5% as "
    "player 1, and its NashConv is 0.667; an equilibrium policy wins 44 to 53% and 47%."
)
_NO_STRENGTH = (
    "This result file has neither the mean reward (chips) nor NashConv at Kuhn poker, so this page claims nothing "
    "about strength at Kuhn poker. Both are measured when the experiment is run again."
)
_SPIN_AT_KUHN = (
    "A batch of 128 games has 128 starts with RAE, 16 starts of eight games each with DPO, and 32 starts with a "
    "game and three branches each with DPO on branches. DPO trains the pairs among a batch's turns and leaves out "
    "the others; RAE trains all turns. The learning rate is the one that was chosen for RAE, and no setting of "
    "DPO's was searched.",
)
#: What the figures of an experiment do not show, where the tables alone would mislead.
_REMARKS: dict[str, Sequence[str]] = {
    "pool": (
        "This comparison says nothing about pools, because every arm is saturated. The arms with a KL loss end near "
        "the NashConv at which the coefficient holds the policy. The arms without a KL loss end at 0.667, the least "
        "NashConv of a policy that never folds. No pool could show a difference at either place.",
    ),
    "regularised": (
        "NashConv 0.667 is the least NashConv of a policy that never folds. It is not that of a policy that ignores "
        "its cards: such a policy may still bet by its card. Against uniform play a call gains over a fold as an "
        "average over the cards, although a call with a jack always loses a chip more than a fold, so folds disappear "
        "first.",
    ),
    "kuhn_long": (
        "The target 0.056 was set as the least NashConv of a policy that ignores the bets. That was wrong. A policy "
        "that acts by its card and its seat only has a NashConv of at least 0.138. The least is 0.056 for a policy "
        "that also knows which of its own turns it is; as player 0 it can then tell that there was a bet.",
    ),
    "baselines": (
        "A role's advantage in one-round Kuhn poker is small: player 0 loses 1/18 chip a game between equilibrium "
        "policies. In a game with a larger advantage the result can differ ([variance.md](variance.md)).",
    ),
    "spin_kuhn": _SPIN_AT_KUHN,
    "spin_kuhn_verl": (
        *_SPIN_AT_KUHN,
        "There is one training run per arm. Another seed would give other figures; three seeds by the quick loop are "
        "on [their own page](spin_kuhn.md).",
    ),
    "spin_tictactoe": (
        "A batch of 128 games has 32 games with three branches each where DPO trains on branches. DPO trains the pairs "
        "among a batch's turns and leaves out the others; RAE trains all turns. The learning rate is the one that was "
        "chosen for RAE, and no setting of DPO's was searched.",
    ),
    "asynchronous": (
        "Whole batches are as old as the arm says. In the asynchronous modes a part of the games is younger, and a "
        "game may have turns of several versions ([asynchronous.md](../asynchronous.md)).",
        "A step moves the policy by the learning rate and the gradient clipping of this preset. Where a step moves it "
        "further, old games cost more.",
    ),
    "three_games": ("There is one training run per arm. Another seed would give other figures.",),
    "smollm2": (
        "There is one training run, and no measure of strength. What the page shows is that the model learns to answer "
        "with a legal action.",
    ),
}


def body(result: Result) -> str:
    """The page between its head and its end."""
    parts = [_compared(result), "## Result", _measured(result)]
    sections = {
        "What this does not show": bullets(_REMARKS.get(result.name, ())),
        "One policy for all games": shared_policy(result),
        "Seed by seed": seed_by_seed(result),
        "Targets": targets_table(result),
        "Failures during training": failures(result),
    }
    for title, text in sections.items():
        if text:
            parts += [f"## {title}", text]
    return "\n\n".join([*parts, "## Curves"])


def _compared(result: Result) -> str:
    settings = result.settings
    overrides, measured = (" ".join(map(str, settings[key])) for key in ("overrides", "measure"))
    every = f"Every {settings['every']} steps"
    if settings.get("loop") == "quick":
        how = (
            f"The quick loop trained every arm for {settings['steps']} steps: it has the trainer's games, prompts, "
            f"baselines, pool and loss in plain torch, without Ray and vLLM (`experiments/quick.py`). {every} the "
            "policy's probabilities were computed at all information sets."
        )
    else:
        how = (
            f"`main_spiral` trained every arm for {settings['steps']} steps. {every} a checkpoint was measured by "
            f"`main_eval` with `{measured}`."
        )
    names = [[name, f"`{' '.join(map(str, more))}`" if more else ""] for name, more in arms(result).items()]
    composed = _settings(result)
    return "\n\n".join(
        [
            f"{how} The overrides of all arms were `{overrides}`.",
            *([f"Presets change. In this run all arms had these settings: {composed}."] if composed else []),
            table(["arm", "further overrides"], names),
        ]
    )


def _settings(result: Result) -> str:
    """The settings of the actor and the algorithm that differed from the defaults in the same way in all arms."""
    by_arm = list(result.figures.get("settings", {}).values())
    first: Mapping[str, Any] = by_arm[0] if by_arm else {}
    shared = [key for key, value in first.items() if all(key in arm and arm[key] == value for arm in by_arm)]
    shown = ("actor_rollout_ref.actor.", "algorithm.rae", "fsp.", "games", "embedded_model", "data.train_batch_size")
    return ", ".join(f"`{key}={_value(first[key])}`" for key in shared if key.startswith(shown))


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
        lines = [[*_start_of_row(rows), *_spreads(rows, measures)] for _, rows in _by_arm(result)]
        parts.append(table(["arm", "seeds", "games", *measures], lines))
        parts.append(bullets(_intervals(result)))
    return "\n\n".join(parts)


def _by_arm(result: Result) -> list[tuple[str, list[dict[str, Any]]]]:
    order = list(arms(result))
    rows = sorted(result.rows, key=lambda row: (order.index(row["arm"]), row["seed"]))
    return [(arm, list(of_arm)) for arm, of_arm in groupby(rows, key=lambda row: row["arm"])]


def _start_of_row(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    return [rows[0]["arm"], ", ".join(str(row["seed"]) for row in rows), span([row["games"] for row in rows])]


def _spreads(rows: Sequence[Mapping[str, Any]], measures: Sequence[str]) -> list[str]:
    return [spread([row[measure] for row in rows]) for measure in measures]


def _intervals(result: Result) -> list[str]:
    """What the table's intervals are, and what they leave out."""
    if len(result.seeds) > 1:
        return [f"A ± B is the mean over the seeds and its 95% interval by Student's t. {WARM_START}"]
    if not any(interval for _, _, run in runs(result) for interval in run.get("intervals", [])):
        return ["There is one seed, so there are no intervals."]
    games_only = "The 95% intervals (Wilson) cover the randomness of the measured games only, not that of training."
    return [games_only if result.name in PRETRAINED else f"{games_only} {WARM_START}"]


def _distances(result: Result, measures: Sequence[str]) -> str:
    """How far from an equilibrium each arm ended."""
    lines, rests = [], _at_rest(result)
    for arm, rows in _by_arm(result):
        seeds = list(result.figures["curves"][arm].values())
        averages = [list(run["average"].values()) for run in seeds]
        cells = [spread([values[0] for values in averages]) if all(averages) else "-"]
        if rests:
            cells.append(f"{rests[arm][NASH_CONV]:.3f}" if rests[arm] else "-")
        collapsed = [[point["illegal"] > COLLAPSED for point in run["points"][1:]] for run in seeds]
        cells.append(f"{sum(map(any, collapsed))} of {len(collapsed)}, {sum(run[-1] for run in collapsed)} at the end")
        lines.append([*_start_of_row(rows), *_spreads(rows, measures), *cells])
    header = ["arm", "seeds", "games", *(_COLUMNS[measure] for measure in measures), "NashConv of the average policy"]
    header += [*(["NashConv at rest"] if rests else []), "collapsed seeds"]
    known = ", ".join(f"{value:.3f} ({name})" for name, value in LANDMARKS.items())
    notes = [
        "NashConv is what both players together gain by best responses, in chips. It is computed for the policy given "
        "that its answers are legal. It is 0 at an equilibrium. For comparison, NashConv of policies of one-round Kuhn "
        f"poker: {known}.",
        '"As judged" also counts the rewards with which illegal answers end games.',
        '"Illegal" is the share of games against itself that an illegal answer ends.',
        f"Means are over the policies measured in the last {result.settings['mean_over']:,} games.",
        "The average policy is the average of the policies measured after the start.",
        *([_BALANCE] if rests else []),
        f"A seed has collapsed where, after the start, an illegal answer ends more than {COLLAPSED:.0%} of the games.",
        *([_past_note()] if OWN_PAST in measures else []),
        *_intervals(result),
    ]
    return f"{table(header, lines)}\n\n{bullets(notes)}"


def _past_note() -> str:
    return (
        "The reward against earlier policies is the mean reward of the last policy against the policies measured "
        "before it, in both roles: the mean over all of them, and the reward against the one that does best. Below 0, "
        "the last policy loses to an earlier one."
    )


def _at_rest(result: Result) -> dict[str, dict[str, float]]:
    """What would be measured at rest under the KL loss, by arm; empty where it is known of no arm."""
    rests = {arm: next(iter(seeds.values())).get("at_rest") or {} for arm, seeds in result.figures["curves"].items()}
    return rests if any(rests.values()) else {}


def _before_and_after(result: Result) -> str:
    """How games ended at the start and at the end, by arm, with intervals over the seeds or those of single runs."""
    rests = _at_rest(result)
    names = list(next(runs(result))[2]["points"][0])
    rewards = any(name.endswith(": reward") for name in names)
    lines = []
    for arm, seeds in result.figures["curves"].items():
        of_arm = list(seeds.values())
        for place in [name.removesuffix(": win") for name in names if name.endswith(": win")]:
            for end in (0, -1):
                games = span([run["points"][end]["games"] for run in of_arm])
                shares = [_share(of_arm, end, f"{place}: {outcome}") for outcome in OUTCOMES]
                means = [spread([run["points"][end][f"{place}: reward"] for run in of_arm])] if rewards else []
                lines.append([arm, place, games, *shares, *means])
            if rests and f"{place}: win" in rests[arm]:
                shares = [f"{rests[arm][f'{place}: {outcome}']:.1%}" for outcome in OUTCOMES]
                lines.append([arm, place, "at rest", *shares, *["-"] * rewards])
    header = ["arm", "game, role and opponent", "games", "won", "drawn", "lost", "ended by an illegal answer"]
    header += ["mean reward"] * rewards
    poker = any(name.startswith("KuhnPoker") for name in names)
    notes = [
        "The rows of an arm show the start and the end of training.",
        *(["The shares are computed from the policy's probabilities at all positions."] * _quick(result)),
        *(["A mean reward of 1 is the largest stake, which is two chips in one-round Kuhn poker."] * rewards),
        *([_WIN_SHARES] * poker),
        *([_NO_STRENGTH] * (poker and not rewards and NASH_CONV not in names)),
        *([_BALANCE] if rests else []),
        *([_past_note(), *_past(result)] if OWN_PAST in result.rows[0] else []),
        *_intervals(result),
    ]
    return f"{table(header, lines)}\n\n{bullets(notes)}"


def _past(result: Result) -> list[str]:
    return [
        f'Arm "{arm}": {spread([row[OWN_PAST] for row in rows])} over all earlier policies, '
        f"{spread([row[WORST_PAST] for row in rows])} against the best of them."
        for arm, rows in _by_arm(result)
    ]


def _quick(result: Result) -> bool:
    return bool(result.settings.get("loop") == "quick")


def _share(of_arm: Sequence[Mapping[str, Any]], end: int, name: str) -> str:
    """A share of games at the first (0) or the last (-1) point of an arm's runs."""
    values = [run["points"][end][name] for run in of_arm]
    if len(values) > 1:
        return spread(values, ".1%")
    if name not in of_arm[0]["intervals"][end]:
        return f"{values[0]:.1%}"
    low, high = of_arm[0]["intervals"][end][name]
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
    "spin_kuhn",
    "spin_kuhn_verl",
    "spin_tictactoe",
    "pool",
    "asynchronous",
    "three_games",
    "smollm2",
)
