"""Writes docs/scaling.md from docs/scaling.json."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from .figures import H100, QWEN3_4B, Figure
from .predict import ALIKE, FIXED, GAMES, GAMES_A_DEVICE, LONG_ONE_IN, LONG_TIMES
from .run import COLOCATE, SEPARATE, SYNC

Row = Mapping[str, Any]

HEAD = """# Scaling

This page is made from `docs/scaling.json` by `python -m benchmarks.scaling`. Do not edit it.

It predicts how fast a run of Qwen3-4B is on 8, 64 and 512 H100s in verl's three trainer modes, and what holds it up.
**The predictions are simulations.** Some of their inputs are measured on a CPU,
and the others are assumed:

| what | source |
| --- | --- |
| rollout worker, TransferQueue, driver | [measured](#what-was-measured) with {cores} cores |
| numbers of turns, lengths of observations | {games}, played by random players |
| the length of a response; a GPU's speed | **[assumed](#what-was-assumed)**, from data sheets and shares of them |
| what the modes do | this recipe's rules, with `num_warmup_batches=1`, `max_staleness=4`, `on_stale=wait` |

Simulated are games in processes of their own (`actor_rollout_ref.rollout.agent.num_workers`), which may ask any engine.
By default each engine's server plays a part of the games itself, which saves the asking.

So the order of the modes, and the part that holds a run up, say more than the numbers. `benchmarks/scaling/figures.py`
has the figures, for who knows better ones.
"""

MODES = """Idle is the share of the time in which no sequence runs in an engine, and in which the learner does not
train. Where both have the same devices (`sync`, `colocate_async`), one idles while the other works. Running is the
mean number of sequences in an engine that works.
"""

AGES = """A game's staleness is the number of policy versions between the one that is trained and the oldest one that
wrote one of its turns. These are the shares of the trained games.
"""

GAINS = """The table has the share of games per second that would be gained if a part took no time. The largest one
holds the run up. *Longest games* is no part: all games then have the mean number of turns and the mean length of a
response.
"""

BUSY = """These parts are one process, or eight, on any number of devices. This is the share of the time in which they
work. At 100% no other part can make the run faster.
"""

LONG = """In one game of {one_in:,} the players go on {times} times as long, on eight devices. `wait` and `drop` are
`asynchronous.on_stale`: the learner waits for games that would become too old, or drops them. It drops the long ones,
and learns nothing from them.
"""

CHECK = """Runs of the quick start's settings on a machine with {cores} cores were fitted: {steps} steps, of {batches}
games. With these costs, and with games drawn from theirs, other runs on that machine were simulated. Measured figures
are the median of the steps, without the first two. A share's error is the difference. The range of a
step's seconds shows how much other work on the machine disturbed the runs. In the simulation engine and learner never
wait for a core, nor for each other's memory; in the asynchronous modes these runs' processes do.
"""

ASSUMED = """| figure | value | source |
| --- | --- | --- |
"""

MISSING = """- No figure of a GPU is measured, and none of several machines.
- The network is one number. Nothing shares it, and nothing fails.
- A prompt is read anew at each turn: prefixes in the cache save nothing.
- `batch_requests=false`, with which each request asks verl's load balancer first, one process for all.
- A replica is one device. Tensor and sequence parallelism and LoRA are not simulated.
- The policy plays itself alone. There is no validation, and no checkpoint is written.
- All of the learner's ranks get as many tokens, and these always fit.
"""

ANEW = """```bash
python -m benchmarks.scaling measure
python -m benchmarks.scaling run outputs/scaling/small --games 32
python -m benchmarks.scaling run outputs/scaling/large --games 256 --steps 10
python -m benchmarks.scaling run outputs/scaling/sync --games 128
python -m benchmarks.scaling run outputs/scaling/colocate_async --games 128 \\
  --override trainer.v1.trainer_mode=colocate_async
python -m benchmarks.scaling run outputs/scaling/separate_async --games 128 \\
  --override trainer.v1.trainer_mode=separate_async
python -m benchmarks.scaling fit outputs/scaling/{small,large} \\
  --check outputs/scaling/{sync,colocate_async,separate_async}
python -m benchmarks.scaling predict
```

Each command renews its part of `docs/scaling.json`, and this page.
"""


def page(results: Mapping[str, Any]) -> str:
    """The whole page."""
    host, fit, predicted = results["host"], results["fit"], results["predicted"]
    parts = [
        HEAD.format(cores=host["cores"], games=" and ".join(GAMES)),
        "## As many games for each device\n",
        f"A step has {GAMES_A_DEVICE} games for each device. {_games(predicted)}\n",
        speeds(predicted["scaled"]),
        MODES,
        f"{_split(predicted)} {_faster(predicted['scaled'])}\n",
        "## What holds a run up\n",
        GAINS,
        bottlenecks([row for row in predicted["scaled"] if ALIKE in row["gains"]]),
        _missing(predicted["scaled"]),
        BUSY,
        processes(predicted["scaled"]),
        "## The same batch on more devices\n",
        f"A step has {FIXED} games, on any number of devices.\n",
        speeds(predicted["fixed"]),
        _paper(predicted["paper"]),
        "## How old games are\n",
        AGES,
        ages(predicted["scaled"]),
        "## Long games\n",
        LONG.format(one_in=LONG_ONE_IN, times=LONG_TIMES),
        long_games(predicted["long"]),
        "## Checked against runs\n",
        CHECK.format(cores=host["cores"], batches=" and ".join(map(str, fit["batches"])), steps=fit["steps"]),
        "\n".join(errors(one) for one in fit["compared"]),
        "## What was measured\n",
        measured(host, fit),
        "## What was assumed\n",
        ASSUMED + "\n".join(_assumed(figure) for table in (H100, QWEN3_4B) for figure in table.values()) + "\n",
        "## What is not in it\n",
        MISSING,
        "## Make it anew\n",
        ANEW,
    ]
    return "\n".join(parts)


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"


def speeds(rows: Sequence[Row]) -> str:
    head = ["devices", "mode", "step, s", "games/s", "turns/s", "tokens/s", "engine idle", "learner idle", "running"]
    return table(head, ([str(row["devices"]), row["mode"], *_speed(row["result"])] for row in rows))


def _speed(result: Row) -> list[str]:
    idle = [_percent(result["engine_idle"]), _percent(result["learner_idle"])]
    speed = [_number(result[name]) for name in ("games", "turns", "response_tokens")]
    return [f"{result['seconds']:.0f}", *speed, *idle, f"{result['running']:.0f}"]


def bottlenecks(rows: Sequence[Row]) -> str:
    parts = sorted({part for row in rows for part in row["gains"]}, key=lambda part: -_most(rows, part))
    shown = [part for part in parts if _most(rows, part) >= 0.005]
    return table(
        ["devices", "mode", "held up by", *shown],
        (
            [str(row["devices"]), row["mode"], f"**{max(row['gains'], key=row['gains'].get)}**"]
            + [f"{row['gains'][part]:+.0%}" for part in shown]
            for row in rows
        ),
    ) + (f"\nNothing is gained by: {', '.join(sorted(set(parts) - set(shown)))}.\n" if len(shown) < len(parts) else "")


def _missing(rows: Sequence[Row]) -> str:
    """Which runs were not simulated without their parts."""
    missing = [f"{row['mode']} on {row['devices']} devices" for row in rows if ALIKE not in row["gains"]]
    return f"Not simulated: {'; '.join(missing)}.\n" if missing else ""


def _most(rows: Sequence[Row], part: str) -> float:
    return max(float(row["gains"][part]) for row in rows)


def processes(rows: Sequence[Row]) -> str:
    names = [name for name in rows[0]["result"]["busy"] if any(row["result"]["busy"][name] for row in rows)]
    shares = ([_percent(row["result"]["busy"][name], 1) for name in names] for row in rows)
    return table(
        ["devices", "mode", *names],
        ([str(row["devices"]), row["mode"], *share] for row, share in zip(rows, shares, strict=True)),
    )


def ages(rows: Sequence[Row]) -> str:
    late = [row for row in rows if row["mode"] != SYNC]
    known = sorted({int(age) for row in late for age in row["result"]["staleness"]})
    return table(
        ["devices", "mode", *(f"{age}" for age in known)],
        ([str(row["devices"]), row["mode"], *_shares(row["result"]["staleness"], known)] for row in late),
    )


def _shares(staleness: Row, known: Sequence[int]) -> list[str]:
    by_age = {int(age): share for age, share in staleness.items()}
    return [_percent(by_age.get(age, 0.0), 1) for age in known]


def long_games(rows: Sequence[Row]) -> str:
    head = ["mode", "on_stale", "games/s", "step, s", "longest wait, s", "engine idle", "learner idle", "dropped"]
    return table(
        head,
        (
            [
                row["mode"],
                "" if row["mode"] == SYNC else row["on_stale"],
                _number(result["games"]),
                f"{result['seconds']:.0f}",
                f"{result['longest_wait']:.0f}",
                _percent(result["engine_idle"]),
                _percent(result["learner_idle"]),
                f"{result['dropped']} of {result['launched']:,}",
            ]
            for row in rows
            for result in [row["result"]]
        ),
    )


#: What a comparison shows, with its unit.
COMPARED = {
    "seconds": "a step, s",
    "play": "waiting for games, s",
    "learn": "learner, s",
    "update": "weight update, s",
    "rest": "driver, s",
    "games": "games/s",
    "turns": "turns/s",
    "response_tokens": "response tokens/s",
    "engine_idle": "engine idle, share",
    "learner_idle": "learner idle, share",
    "staleness": "staleness, mean",
}


def errors(one: Row) -> str:
    """A comparison, as a part of the page."""
    rows = []
    for name, shown in COMPARED.items():
        is_, was = one["predicted"][name], one["measured"][name]
        if was is None or (name == "staleness" and one["mode"] == SYNC):
            continue
        # a share's error is a difference, and of what is near to nothing there is none
        error = f"{is_ - was:+.2f}" if "idle" in name or name == "staleness" else f"{is_ / was - 1:+.0%}" if was else ""
        rows.append([shown, f"{was:.3g}", f"{is_:.3g}", error])
    text = f"**{one['mode']}, {one['batch']} games in a step** ({one['steps']} steps, which took from "
    text += f"{one['fastest']:.2g} to {one['slowest']:.2g} s"
    text += f"; their processes used {one['cpu']:.3g} s of CPU a step)\n\n" if one["cpu"] else ")\n\n"
    return text + table(["", "measured", "predicted", "error"], rows)


def measured(host: Row, fit: Row) -> str:
    driver = fit["driver"]
    parts = "; ".join(f"{name} {1e3 * seconds:.2f}" for name, seconds in host["worker_parts"].items())
    asking = {int(number): 1e3 * seconds for number, seconds in host["asking"].items()}
    together = ", ".join(f"of {number} at one moment {asking[number]:.2f}" for number in sorted(asking) if number > 1)
    rows = [
        [
            "a rollout worker, for a turn",
            f"{1e3 * host['worker_turn']:.2f} ms",
            f"CPU, ms: {parts}. That is asking for one response at a time; {together} each",
        ],
        ["TransferQueue, for a turn", f"{1e3 * host['queue_row']:.2f} ms", "CPU of its processes: put and read once"],
        ["TransferQueue, for a byte", f"{1e9 * host['queue_byte']:.2f} ns", f"{host['token_bytes']} bytes a token"],
        ["the driver, for a key in each look", f"{1e6 * host['driver_key']:.2f} µs", "CPU, with the controller's"],
        ["the driver, for a step", f"{1e3 * driver['driver_step']:.0f} ms", "CPU, fitted to the runs above"],
        ["the driver, for a turn of a step", f"{1e3 * driver['driver_row']:.2f} ms", "CPU, fitted to the runs above"],
    ]
    how = "`python -m benchmarks.scaling measure` and its part `fit` measure these.\n\n"
    return how + table(["what", "cost", "how"], rows)


def _assumed(figure: Figure) -> str:
    value = f"{figure.value:,.4g}" if figure.value < 1e6 else f"{figure.value:.3g}"
    return f"| {figure.name} | {value} {figure.unit}".rstrip() + f" | {figure.source} |"


def _games(predicted: Row) -> str:
    lengths = predicted["games"]
    return (
        f"A game has {lengths['turns']:.1f} turns on average, a prompt {lengths['prompt']:.0f} tokens and a response "
        f"{lengths['response']:.0f}."
    )


def _split(predicted: Row) -> str:
    share = predicted["engine_share"]
    return f"In `separate_async` engines have {share:.0%} of the devices, the best of 25%, 50% and 75% on eight."


def _faster(rows: Sequence[Row]) -> str:
    """How many times as many games the asynchronous modes play as sync does, on each number of devices."""
    games = {(row["devices"], row["mode"]): row["result"]["games"] for row in rows}
    times = [
        f"on {devices} devices {games[devices, COLOCATE] / alone:.1f} and {games[devices, SEPARATE] / alone:.1f}"
        for (devices, mode), alone in games.items()
        if mode == SYNC and {(devices, COLOCATE), (devices, SEPARATE)} <= games.keys()
    ]
    return f"Times as many games as in `sync`, in `colocate_async` and `separate_async`: {'; '.join(times)}."


def _paper(paper: Row) -> str:
    return (
        f"The paper reports {paper['reported']:.0f} s for a step of 128 turns on eight H100s, with a program of its "
        f"own that plays fewer games at a time. For as many games ({paper['batch']}) this page's figures give "
        f"{paper['seconds']:.0f} s in sync mode.\n"
    )


def _percent(share: float, digits: int = 0) -> str:
    return f"{share:.{digits}%}"


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
