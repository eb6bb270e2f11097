"""Measures a start: the seconds from the launch to the first step of training.

    python benchmarks/startup.py [--repeats 3] [OVERRIDE ...]

It launches `python -m recipe.spiral.main_spiral +experiment=quickstart OVERRIDE ...` with one step and without a
validation. Nothing else may run meanwhile.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.runs import begin_of, quickstart, steps_of

#: Seconds until the first step, on two idle cores with warm files.
TARGET = 50.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=3, help="launches; the median counts (3)")
    given, overrides = parser.parse_known_args()
    found = []
    for number in range(given.repeats):
        with tempfile.TemporaryDirectory(prefix="startup-") as folder:
            begin, run_dir = time.time(), Path(folder) / "run"
            quickstart(run_dir, "trainer.total_training_steps=1", *overrides)
            found.append(begin_of(steps_of(run_dir)[0]) - begin)
            print(f"launch {number + 1}: first step after {found[-1]:.1f} s, its end after {time.time() - begin:.1f} s")
    print(f"first step after {median(found):.1f} s (target: {TARGET:.0f} s, two idle cores)")


if __name__ == "__main__":
    main()
