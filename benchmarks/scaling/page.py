"""Writes docs/scaling.md from docs/scaling.json."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from typing import Any

from .figures import H100, QWEN3_4B, Figure
from .predict import ALIKE, FIXED, GAMES, GAMES_A_DEVICE, LONG_ONE_IN, LONG_TIMES
from .run import COLOCATE, SEPARATE, SYNC

Row = Mapping[str, Any]

HEAD = """# Scaling

For who plans a run: how fast Qwen3-4B would be on 8, 64 and 512 H100s in verl's three trainer modes, and what would
hold it up. **These are simulations** from costs that were [measured](#what-was-measured) on {cores} CPU cores, and
costs that were [assumed](#what-was-assumed), such as a GPU's speed and a response's length. The order of the modes says
more than the numbers. The games are {games}, with numbers of turns from random play.

The modes have `num_warmup_batches=1`, `max_staleness=4` and `on_stale=wait`. Games are in processes of their own
(`actor_rollout_ref.rollout.agent.num_workers`).
"""

MODES = """Idle is the share of the time in which no sequence runs in an engine, or the learner does not train. Running
is the mean number of sequences in an engine that works; staleness the mean of the trained games, in versions.
"""

GAINS = """How many more games per second there would be if a part took no time; the largest holds the run up.
*Longest games*: if all games had the mean number of turns and the mean length of a response. Below 5% each: the rest.
"""

LONG = """On eight devices, one game of {one_in:,} goes on {times} times as long. With `asynchronous.on_stale=wait` the
learner waits for games that would become too old; with `drop` it learns nothing from them.
"""

CHECK = """Runs of the quick start's settings on a machine with {cores} cores were fitted: {steps} steps, of {batches}
games. Other runs on that machine, with {batch} games a step, were then simulated. Each cell is measured → predicted. In
the simulation, unlike in these runs, engine and learner never wait for a core.
"""

MISSING = """- GPUs and several machines were not measured. The network is one number.
- Prompts are read anew at each turn: cached prefixes save nothing.
- Requests that ask verl's load balancer, tensor and sequence parallelism, LoRA, opponents,
  validation and checkpoints are left out.
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

Each command renews its part of `docs/scaling.json`, from which this page is made.
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
        busiest(predicted["scaled"]),
        "## The same batch on more devices\n",
        _fixed(predicted["fixed"]),
        _paper(predicted["paper"]),
        "## Long games\n",
        LONG.format(one_in=LONG_ONE_IN, times=LONG_TIMES),
        long_games(predicted["long"]),
        "## Checked against runs\n",
        CHECK.format(
            cores=host["cores"],
            batches=" and ".join(map(str, fit["batches"])),
            steps=fit["steps"],
            batch=" and ".join(sorted({str(one["batch"]) for one in fit["compared"]})),
        ),
        errors(fit["compared"]),
        "## What was measured\n",
        "CPU times:\n",
        measured(host, fit),
        "## What was assumed\n",
        "A GPU's figures are those of data sheets, Qwen3-4B's of its `config.json`, and epochs and lengths SPIRAL's "
        "(`benchmarks/scaling/figures.py`). These are guesses:\n",
        listed(map(_assumed, filter(_guessed, [*H100.values(), *QWEN3_4B.values()]))),
        "## What is not in it\n",
        MISSING,
        "## Make it anew\n",
        ANEW,
    ]
    return "\n".join(parts)


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Aligned text, the first two columns flush left."""
    lines = [[*head], *map(list, rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    texts = []
    for line in lines:
        cells = enumerate(zip(line, widths, strict=True))
        texts.append("  ".join(cell.ljust(size) if n < 2 else cell.rjust(size) for n, (cell, size) in cells).rstrip())
    return "\n".join(["```", *texts, "```", ""])


def listed(rows: Iterable[Sequence[str]]) -> str:
    return "\n".join(f"- {': '.join(row)}" for row in rows) + "\n"


def speeds(rows: Sequence[Row]) -> str:
    head = ["devices", "mode", "step, s", "games/s", "tokens/s", "engine idle", "learner idle", "running", "staleness"]
    return table(head, ([str(row["devices"]), row["mode"], *_speed(row["result"])] for row in rows))


def _speed(result: Row) -> list[str]:
    idle = [_percent(result["engine_idle"]), _percent(result["learner_idle"])]
    speed = [_number(result[name]) for name in ("games", "response_tokens")]
    age = sum(int(age) * share for age, share in result["staleness"].items())
    return [f"{result['seconds']:.0f}", *speed, *idle, f"{result['running']:.0f}", f"{age:.2f}"]


def bottlenecks(rows: Sequence[Row]) -> str:
    parts = sorted({part for row in rows for part in row["gains"]}, key=lambda part: -_most(rows, part))
    shown = [part for part in parts if _most(rows, part) >= 0.05]
    return table(
        ["devices", "mode", "held up by", *shown],
        (
            [str(row["devices"]), row["mode"], max(row["gains"], key=row["gains"].get)]
            + [f"{row['gains'][part]:+.0%}" for part in shown]
            for row in rows
        ),
    )


def _missing(rows: Sequence[Row]) -> str:
    """Which runs were not simulated without their parts."""
    missing = [f"{row['mode']} on {row['devices']} devices" for row in rows if ALIKE not in row["gains"]]
    return f"Not simulated: {'; '.join(missing)}.\n" if missing else ""


def _most(rows: Sequence[Row], part: str) -> float:
    return max(float(row["gains"][part]) for row in rows)


def busiest(rows: Sequence[Row]) -> str:
    """The share of the time in which the busiest of the parts works that no device more makes faster, by devices."""
    busy: dict[int, list[tuple[float, str]]] = {}
    for row in rows:
        busy.setdefault(row["devices"], []).extend((share, name) for name, share in row["result"]["busy"].items())
    shown = [f"{name} on {devices} devices ({_percent(share)})" for devices, (share, name) in _most_busy(busy)]
    return (
        "Rollout workers, TransferQueue and driver are one process, or eight, on any number of devices. The busiest "
        f"works for this share of the time, in the mode where it is most: {', '.join(shown)}.\n"
    )


def _most_busy(busy: Mapping[int, list[tuple[float, str]]]) -> list[tuple[int, tuple[float, str]]]:
    return [(devices, max(parts)) for devices, parts in busy.items()]


def long_games(rows: Sequence[Row]) -> str:
    head = ["mode", "on_stale", "games/s", "step, s", "longest wait, s", "dropped"]
    return table(
        head,
        (
            [
                row["mode"],
                "" if row["mode"] == SYNC else row["on_stale"],
                _number(result["games"]),
                f"{result['seconds']:.0f}",
                f"{result['longest_wait']:.0f}",
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
    "engine_idle": "engine idle, share",
    "learner_idle": "learner idle, share",
    "staleness": "staleness, mean",
}


def errors(compared: Sequence[Row]) -> str:
    """All comparisons, as a table."""
    rows = [
        [shown, *(f"{one['measured'][name] or 0:.3g} → {one['predicted'][name] or 0:.3g}" for one in compared)]
        for name, shown in COMPARED.items()
    ]
    return table(["", *(one["mode"] for one in compared)], rows)


def measured(host: Row, fit: Row) -> str:
    driver = fit["driver"]
    parts = "; ".join(f"{name} {1e3 * seconds:.2f}" for name, seconds in host["worker_parts"].items())
    rows = [
        ["a rollout worker, for a turn", f"{1e3 * host['worker_turn']:.2f} ms ({parts})"],
        ["TransferQueue, for a turn", f"{1e3 * host['queue_row']:.2f} ms"],
        ["TransferQueue, for a byte", f"{1e9 * host['queue_byte']:.2f} ns; a token has {host['token_bytes']}"],
        ["the driver, for a key in each look", f"{1e6 * host['driver_key']:.2f} µs"],
        ["the driver, for a step (fitted to runs)", f"{1e3 * driver['driver_step']:.0f} ms"],
        ["the driver, for a turn of a step (fitted to runs)", f"{1e3 * driver['driver_row']:.2f} ms"],
    ]
    return listed(rows)


def _guessed(figure: Figure) -> bool:
    return figure.source.startswith("assumed")


def _assumed(figure: Figure) -> list[str]:
    value = f"{figure.value:,.4g}" if figure.value < 1e6 else f"{figure.value:.3g}"
    return [figure.name, f"{value} {figure.unit}".rstrip()]


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


def _fixed(rows: Sequence[Row]) -> str:
    speeds = [
        f"{', '.join(_number(row['result']['games']) for row in of_size)} on {devices} devices"
        for devices, of_size in groupby(rows, key=lambda row: row["devices"])
    ]
    modes = ", ".join(dict.fromkeys(row["mode"] for row in rows))
    return f"With {FIXED} games in a step, games/s in {modes}: {'; '.join(speeds)}.\n"


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
