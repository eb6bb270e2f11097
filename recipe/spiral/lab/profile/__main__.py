"""Records a step of a run that is under way, for a browser: ``python -m recipe.spiral.profile RUN_DIR``.

Open https://ui.perfetto.dev (or chrome://tracing) and drop the file there: a row for each thread of each process, with
what it did; gaps are waiting. The run goes on as it was.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from ...processes.arguments import Arguments, new_file, run_program, within
from ...processes.terminal import fail
from ...storage.disk import unwritable
from .tracing import RATE, CannotTrace, trace_step

#: CPU seconds from which on a process has a line.
SHOWN = 0.02


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; returns its exit status: 0, or 2 if the run cannot be traced."""
    parser = Arguments(
        prog="python -m recipe.spiral.profile",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("run_dir", type=Path, help="the folder of a run that is under way")
    parser.add_argument("--step", type=within(int, 1), help="which step; otherwise the next whole one")
    parser.add_argument(
        "--rate",
        type=within(int, 1, 1_000),
        default=RATE,
        help=f"samples per second ({RATE}); more slow a small machine down",
    )
    parser.add_argument(
        "--out", type=new_file, metavar="FILE", help="the trace; otherwise trace.json in the run's folder"
    )
    options = parser.parse_args(arguments)
    try:
        file = options.out or options.run_dir / "trace.json"
        if why := unwritable(file.parent):
            raise CannotTrace(f"{file}: {why}; give another --out")
        traced = trace_step(options.run_dir, file, options.step, options.rate)
    except (CannotTrace, OSError) as error:
        return fail(error, 2)
    print(f"step {traced.step} took {traced.seconds:.1f} s; CPU seconds of its processes:")
    for name, seconds in traced.cpu:
        if seconds >= SHOWN:
            print(f"  {name:<28}{seconds:>8.2f}")
    print(f"trace: {file}; open it at https://ui.perfetto.dev")
    return 0


if __name__ == "__main__":
    run_program(main)
