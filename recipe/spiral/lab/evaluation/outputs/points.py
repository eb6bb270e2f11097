"""The measures of a run's checkpoints, taken from an evaluation's ``results.json``, by step and name."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Any

NASH_CONV = "NashConv"
#: The fields of ``results.json``'s exploitability that are among them, and their names there.
_EXPLOITABILITY = {"nash_conv": NASH_CONV, "nash_conv_as_judged": "NashConv as judged", "illegal_in_play": "illegal"}
WORST = "illegal, worst"
#: The outcomes of games for the policy; "invalid": it ended the game by an answer that was no legal action.
OUTCOMES = ("win", "draw", "loss", "invalid")
#: In the names of measures of the policy that always gives its likeliest legal answer.
AT_ZERO = " at temperature 0"


def measures_by_step(results: Mapping[str, Any], run: str) -> dict[int, dict[str, float]]:
    """The measures, by name, of each checkpoint of one run, ``<run>/step_<number>`` in ``results.json``, by step."""
    found: defaultdict[int, dict[str, float]] = defaultdict(dict)
    several = len({row["game"] for row in results["exploitability"]}) > 1
    for kind, step, row in rows_of(results, run):
        if kind == "exploitability":
            place = f"{row['game']}, " if several else ""
            found[step] |= {f"{place}{name}": value for name, value in measures_of(row).items()}
        elif kind == "optimality":
            found[step] |= {f"{row['game']}, optimal moves": row["all"]["share"], **row.get("results", {})}
        elif kind == "results":
            found[step] |= {f"{match_up(row)}: {outcome}": row[outcome]["value"] for outcome in OUTCOMES}
        else:
            rates = {"avg": row["avg"], "maj": row["maj"], **{f"pass@{k}": rate for k, rate in row["pass_at"].items()}}
            found[step] |= {f"{row['benchmark']}: {name}": rate["value"] for name, rate in rates.items()}
    return dict(sorted(found.items()))


def match_up(row: Mapping[str, Any]) -> str:
    """What the names of its measures begin with."""
    return f"{row['game']}, player {row['role']}, {row['opponent']}"


def rows_of(results: Mapping[str, Any], run: str) -> Iterator[tuple[str, int, Mapping[str, Any]]]:
    """What ``results.json`` has of one run's checkpoints: each row's kind, its checkpoint's step, and the row. Of games
    those of a single role."""
    tables = {kind: results[kind] for kind in ("exploitability", "optimality", "results")}
    scores = [{**score, "policy": policy} for policy, rows in results["benchmarks"].items() for score in rows]
    for kind, rows in {**tables, "benchmarks": scores}.items():
        for row in rows:
            name, _, number = row["policy"].rpartition("/step_")
            if name == run and number.isdigit() and row.get("role", 0) is not None:
                yield kind, int(number), row


def measures_of(exploitability: Mapping[str, Any]) -> dict[str, float]:
    """The measures in an ``Exploitability``, given as a dict."""
    taken = {name: float(exploitability[key]) for key, name in _EXPLOITABILITY.items()}
    return {**taken, WORST: float(exploitability["illegal"][1])}
