"""Draws which of a run's processes use the cores, over some of its steps, while it is under way.

    python benchmarks/timeline.py RUN_DIR [--steps 2] [--out FILE]

docs/step.png is made with it, of the quick start on two idle cores. Gaps up to the number of cores are waiting.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections import Counter
from pathlib import Path
from statistics import fmean

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.processes import Watch
from experiments.text import figure
from recipe.spiral.lab.profile.tracing import CannotTrace, driver_of
from recipe.spiral.lab.run_progress import steps_done
from recipe.spiral.processes.arguments import Arguments, new_file, within
from recipe.spiral.processes.terminal import fail

#: Seconds between looks. The system counts CPU time in hundredths.
INTERVAL = 0.1
#: Of the processes that use most of the cores, so many have a colour of their own.
SHOWN = 7
REST = "others"


def look(run_dir: Path, steps: int) -> tuple[list[tuple[float, Counter[str]]], list[float]]:
    """The cores that each kind of process used between two looks, by the time of the second, and when steps ended; in
    seconds from the end of the step that is under way at the beginning.

    Raises:
        CannotTrace: no run is under way, or it ends before.
    """
    driver, first = driver_of(run_dir), steps_done(run_dir) + 1
    looks, ends = list[tuple[float, Counter[str]]](), list[float]()
    watch = Watch(driver.pid, interval=INTERVAL / 2)
    last, before, done = time.monotonic(), dict[int, float](), first - 1
    while done < first + steps:
        time.sleep(INTERVAL)
        if not driver.is_running():
            raise CannotTrace(f"{run_dir}: the run ended after step {done}")
        now, used, cpu = time.monotonic(), Counter[str](), dict[int, float]()
        for process in list(watch.processes.values()):
            cpu[process.pid] = process.cpu
            used[process.name] += (process.cpu - before.get(process.pid, process.cpu)) / (now - last)
        if done >= first:
            looks.append((now, used))
        if steps_done(run_dir) > done:
            done = steps_done(run_dir)
            ends.append(now)
        last, before = now, cpu
    watch.stop()
    return [(at - ends[0], used) for at, used in looks], [at - ends[0] for at in ends]


def draw(looks: list[tuple[float, Counter[str]]], ends: list[float], file: Path) -> None:
    """Cores in use over time, one process on the other; vertical lines are ends of steps."""
    shown = [name for name, _ in sum((used for _, used in looks), Counter[str]()).most_common(SHOWN)]
    rows = {name: [used[name] for _, used in looks] for name in shown}
    rows[REST] = [sum(cores for name, cores in used.items() if name not in shown) for _, used in looks]
    picture = figure(10, 3.6)
    axes = picture.subplots()
    axes.stackplot([at for at, _ in looks], *map(_smooth, rows.values()), labels=list(rows))
    for end in ends:
        axes.axvline(end, color="black", linewidth=0.8)
    axes.set(xlim=(0, ends[-1]), ylim=(0, len(os.sched_getaffinity(0))), xlabel="seconds", ylabel="cores in use")
    handles, labels = axes.get_legend_handles_labels()
    axes.legend(handles[::-1], labels[::-1], loc="center left", bbox_to_anchor=(1, 0.5), frameon=False)
    picture.savefig(file, dpi=120)


def _smooth(row: list[float]) -> list[float]:
    """Means of three looks: a hundredth of a second more or less is a tenth of a core in one."""
    return [fmean(row[max(place - 1, 0) : place + 2]) for place in range(len(row))]


def main() -> int:
    parser = Arguments(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run_dir", type=Path, help="the folder of a run that is under way")
    parser.add_argument("--steps", type=within(int, 1), default=2, help="how many steps (2)")
    parser.add_argument("--out", type=new_file, default=Path("step.png"), help="the picture (step.png)")
    options = parser.parse_args()
    try:
        draw(*look(options.run_dir, options.steps), options.out)
    except CannotTrace as error:
        return fail(error, 2)
    print(options.out)
    return 0


if __name__ == "__main__":
    sys.exit(main())
