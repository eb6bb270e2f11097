"""Shows where the time of a run's steps went: the share of each phase, and what is neither playing nor training.

    python benchmarks/step.py RUN_DIR [--from 3]

Read from the run's own timers (metrics.jsonl), each a median over the steps from `--from` on; the first ones warm up. A
share is of the step's seconds. Overhead is what is neither generation, forward, backward, nor the sync of weights; the
target is 5% at 256 games.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from statistics import median

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.runs import seconds_of, steps_of

#: verl's timers that a step is for, and those that hold others or lie between steps.
WORK = ("gen", "old_log_prob", "ref", "values", "update_critic", "update_actor", "update_weights")
NOT_PHASES = ("step", "testing")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run_dir", type=Path)
    parser.add_argument("--from", type=int, default=3, dest="first", help="the first step that counts (3)")
    given = parser.parse_args()
    steps = [step for step in steps_of(given.run_dir) if step.step >= given.first]
    if not steps:
        parser.error(f"{given.run_dir}: no step from {given.first} on has metrics")
    timers = [seconds_of(step) for step in steps]
    seconds = {name: median(step.get(name, 0.0) for step in timers) for name in timers[-1]}
    other = [1 - sum(step.get(name, 0.0) for name in WORK) / step["step"] for step in timers]
    games = median(step.metrics["games/count"] or 0.0 for step in steps)
    print(f"{len(steps)} steps of {seconds['step']:.2f} s, {games:.0f} games")
    for name in sorted(seconds.keys() - NOT_PHASES, key=lambda name: -seconds[name]):
        mark = "" if name in WORK else "  *"
        print(f"{name:<24}{seconds[name]:>9.3f} s{seconds[name] / seconds['step']:>8.1%}{mark}")
    print(f"overhead (*, and what no timer has): {median(other):.1%}")


if __name__ == "__main__":
    main()
