"""Shows where the time of a run's steps went: the share of each phase, and what is neither playing nor training.

    python benchmarks/step.py RUN_DIR [--from 3] [--json FILE]

Read from the run's own timers (metrics.jsonl), each a median over the steps from `--from` on; the first ones warm up. A
share is of the step's seconds. Overhead is what is neither generation, forward, backward, nor the sync of weights.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from statistics import median

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from benchmarks.options import run_folder  # noqa: E402
from recipe.spiral.processes.arguments import Arguments, new_file, within  # noqa: E402
from recipe.spiral.storage.metrics_file import METRICS, read_metrics  # noqa: E402
from recipe.spiral.training.speed import FORWARD_AND_BACKWARD, PLAY, SYNC  # noqa: E402

#: The largest share of overhead, at 256 games a step.
TARGET = 0.05
#: Timers of verl's that hold others, or lie between steps.
NOT_PHASES = ("step", "testing")
PREFIX = "timing_s/"


def main() -> int:
    parser = Arguments(description=__doc__.split("\n\n")[0])
    parser.add_argument("run_dir", type=run_folder, help="a run's folder")
    parser.add_argument("--from", type=within(int, 1), default=3, dest="first", help="the first step that counts (3)")
    parser.add_argument("--json", type=new_file, help="a file for the figures")
    arguments = parser.parse_args()
    steps = [
        line.metrics
        for line, _ in read_metrics(arguments.run_dir / METRICS)
        if line.step >= arguments.first and line.metrics.get(f"{PREFIX}step")
    ]
    if not steps:
        parser.error(f"{arguments.run_dir}: no step from {arguments.first} on has metrics")
    names = [name.removeprefix(PREFIX) for name in steps[-1] if name.startswith(PREFIX)]
    seconds = {name: median(step.get(PREFIX + name) or 0.0 for step in steps) for name in names}
    known = (PLAY, *FORWARD_AND_BACKWARD, SYNC)
    other = [
        1 - sum(step.get(PREFIX + name) or 0.0 for name in known) / (step[f"{PREFIX}step"] or 1.0) for step in steps
    ]
    games = median(step["games/count"] or 0.0 for step in steps)
    print(f"{len(steps)} steps of {seconds['step']:.2f} s, {games:.0f} games")
    for name in sorted(set(names) - set(NOT_PHASES), key=lambda name: -seconds[name]):
        print(
            f"{name:<24}{seconds[name]:>9.3f} s{seconds[name] / seconds['step']:>8.1%}{'' if name in known else '  *'}"
        )
    print(f"overhead (*, and what no timer has): {median(other):.1%} (target: {TARGET:.0%} at 256 games)")
    if arguments.json:
        figures = {"target": TARGET, "steps": len(steps), "seconds": seconds, "overhead": other}
        arguments.json.write_text(json.dumps(figures, indent=2) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
