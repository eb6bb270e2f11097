"""Tries this project on a machine's GPUs, part by part: ``python -m benchmarks.gpu_check``, run_scripts/gpu_check.sh.

Each part is a stage: a program of its own with a limit of time. Its checks and figures come into one folder, with a
page for people and a JSON file, without keys and users' paths. The same stages run on a CPU (``--device cpu``), with
smaller sizes. That is how they are tested, so that on a GPU only the device is new.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from .report import PAGE, ROOT, Report, Result
from .stages import ENDED, FAILED, PASSED, STAGES, Stage

#: Exit statuses: every stage passed or was skipped; some failed; none failed, but some were ended or not reached.
OK, SOME_FAILED, UNFINISHED, INTERRUPTED = 0, 1, 3, 130
#: Stages that run side by side, and the cores that each should have. A fourth adds a minute to each start.
LANES, CORES = 3, 4


def main(arguments: Sequence[str] | None = None, stages: Sequence[Stage] = STAGES) -> int:
    """Check; returns the exit status."""
    begin = time.monotonic()
    parser = argparse.ArgumentParser(
        prog="gpu_check",
        description="Try this project on this machine's GPUs, in stages of some minutes. Everything comes into one "
        "folder with a page (gpu_report.md) and a JSON file, without keys and users' paths. The same call again keeps "
        "the stages that have passed and goes on with the others. Nothing is asked for over the network.",
        epilog="Exit status: 0 every stage passed or was skipped, 1 some failed, 3 none failed, but some were ended or "
        "not reached, 130 interrupted.",
    )
    option, names = parser.add_argument, [stage.name for stage in stages]
    option("--device", choices=("cuda", "cpu"), default="cuda", help="cpu: the same stages, with small sizes")
    option("--stage", action="append", choices=names, help="run this one only, and anew; may be repeated")
    option("--minutes", type=float, help="end after so long; the first stages show most in their time")
    option(
        "--side-by-side",
        action="store_true",
        help="run the stages that judge correctness beside each other, and after them, alone, those that measure speed",
    )
    option("--folder", type=Path, help="of the results; otherwise outputs/gpu_check, on a CPU outputs/cpu_check")
    options = parser.parse_args(arguments)
    kind = "gpu" if options.device == "cuda" else "cpu"
    folder = (options.folder or ROOT / "outputs" / f"{kind}_check").expanduser().absolute()

    def interrupt(*_: Any) -> None:
        raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, interrupt)
    try:
        return check(Report(folder, options.device, stages), options, begin)
    except KeyboardInterrupt:
        print("gpu_check: interrupted; the same call goes on", file=sys.stderr)
        return INTERRUPTED


def check(report: Report, options: argparse.Namespace, begin: float) -> int:
    """Run stages and print a line for each; returns the exit status, in which those that are kept count too."""
    from .running import run  # it needs packages, which --help does without

    print(f"results: {report.folder}", flush=True)
    passed = {result.name for result in report.results() if result.status == PASSED}
    asked = options.stage or [stage.name for stage in report.stages if stage.name not in passed]
    chosen = [stage for stage in report.stages if stage.name in asked]
    for stage in chosen:
        report.forget(stage.name)
    for kept in report.results():
        print(_row(kept, " (kept)"), flush=True)
    end = None if options.minutes is None else begin + 60 * options.minutes
    for group, most, until in _groups(chosen, options.side_by_side, end):
        for result in run(group, report, until, most):
            print(_row(result), flush=True)
        found = report.read(group[0].name) if group and group[0].vital else None
        if found and found.status != PASSED:
            print(f"{found.name} {found.status}: nothing after it can work without it; it is not run", flush=True)
            break
    failed = [result.name for result in report.results() if result.status == FAILED]
    open_ = [result.name for result in report.results() if result.status == ENDED]
    open_ += [stage.name for stage in chosen if report.read(stage.name) is None]
    print(f"{time.monotonic() - begin:.0f} s; the page: {report.folder / PAGE}", flush=True)
    if open_:
        print(f"not finished: {', '.join(open_)}; the same call goes on with them", flush=True)
    if failed:
        print(f"failed: {', '.join(failed)}. To ask for help, send the folder: keys and paths are masked in it.")
    return SOME_FAILED if failed else UNFINISHED if open_ else OK


def _groups(
    stages: list[Stage], side_by_side: bool, end: float | None
) -> Iterator[tuple[list[Stage], int, float | None]]:
    """The stages that run together, how many of them at a time, and when they must be over. Side by side, those that
    measure speed come last, and are left the time that they need."""
    yield from (([stage], 1, end) for stage in stages if stage.vital)
    together, alone = [[s for s in stages if not s.vital and s.alone is speed] for speed in (False, True)]
    if not side_by_side:
        yield together, 1, end
    else:
        lanes = max(2, min(LANES, len(os.sched_getaffinity(0)) // CORES))
        reserved = sum(stage.least for stage in alone)
        together.sort(key=lambda stage: stage.least, reverse=True)
        yield together, lanes, None if end is None else end - reserved
    yield from (([stage], 1, end) for stage in alone)


def _row(result: Result, more: str = "") -> str:
    return f"{result.name:<12}{result.status:<8}{result.seconds:>7.0f} s  {result.line}{more}"


if __name__ == "__main__":
    sys.exit(main())
