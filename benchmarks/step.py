"""Shows where the time of a run's steps went: the share of each phase, and what is neither playing nor training.

    python benchmarks/step.py RUN_DIR [--from 3]

Read from the run's own timers (metrics.jsonl), each a median over the steps from `--from` on; the first ones warm up. A
share is of the step's seconds. Overhead is what is neither generation, forward, backward, nor the sync of weights; the
target is 5% at 256 games.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from statistics import median

#: verl's timers that a step is for, and those that hold others or lie between steps.
WORK = ("gen", "old_log_prob", "ref", "values", "update_critic", "update_actor", "update_weights")
NOT_PHASES = ("step", "testing")
PREFIX = "timing_s/"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run_dir", type=Path)
    parser.add_argument("--from", type=int, default=3, dest="first", help="the first step that counts (3)")
    given = parser.parse_args()
    lines = map(json.loads, (given.run_dir / "metrics.jsonl").read_text(encoding="utf-8").splitlines())
    steps = [line["metrics"] for line in lines if line["step"] >= given.first and line["metrics"].get(f"{PREFIX}step")]
    if not steps:
        parser.error(f"{given.run_dir}: no step from {given.first} on has metrics")
    names = [name.removeprefix(PREFIX) for name in steps[-1] if name.startswith(PREFIX)]
    seconds = {name: median(step.get(PREFIX + name) or 0.0 for step in steps) for name in names}
    other = [1 - sum(step.get(PREFIX + name) or 0.0 for name in WORK) / step[f"{PREFIX}step"] for step in steps]
    print(f"{len(steps)} steps of {seconds['step']:.2f} s, {median(step['games/count'] for step in steps):.0f} games")
    for name in sorted(set(names) - set(NOT_PHASES), key=lambda name: -seconds[name]):
        mark = "" if name in WORK else "  *"
        print(f"{name:<24}{seconds[name]:>9.3f} s{seconds[name] / seconds['step']:>8.1%}{mark}")
    print(f"overhead (*, and what no timer has): {median(other):.1%}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
