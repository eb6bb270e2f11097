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
from collections.abc import Sequence
from pathlib import Path

from .report import PAGE, ROOT, Report, row
from .stages import ENDED, FAILED, PASSED, STAGES, Stage

#: Exit statuses: every stage passed or was skipped; some failed; none failed, but some were ended or not begun.
OK, SOME_FAILED, UNFINISHED, INTERRUPTED = 0, 1, 3, 130
#: Stages that run side by side, and the cores that each should have. A fourth adds a minute to each start.
LANES, CORES = 3, 4


def main(arguments: Sequence[str] | None = None, stages: Sequence[Stage] = STAGES) -> int:
    """Check; returns the exit status, in which the results that are kept count too."""
    begin, options = time.monotonic(), _options(arguments, stages)
    kind = "gpu" if options.device == "cuda" else "cpu"
    folder = (options.folder or ROOT / "outputs" / f"{kind}_check").expanduser().absolute()
    report = Report(folder, options.device, stages)
    print(f"results: {folder}", flush=True)
    passed = {result.name for result in report.results() if result.status == PASSED}
    chosen = [stage for stage in stages if stage.name in (options.stage or {stage.name for stage in stages} - passed)]
    report.forget(chosen)
    for kept in report.results():
        print(row(kept), "(kept)", flush=True)
    lanes, end = 1, begin + 60 * options.minutes
    if options.side_by_side:
        lanes = max(2, min(LANES, len(os.sched_getaffinity(0)) // CORES))
        chosen.sort(key=lambda stage: (not stage.vital, stage.alone, -stage.least))
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        from .running import run  # it needs packages, which --help does without

        run(chosen, report, end, lanes)
    except KeyboardInterrupt:
        print("gpu_check: interrupted; the same call goes on", file=sys.stderr)
        return INTERRUPTED
    print(f"{time.monotonic() - begin:.0f} s; the page: {folder / PAGE}", flush=True)
    ended, failed = ([one.name for one in report.results() if one.status == status] for status in (ENDED, FAILED))
    if ended:
        print(f"not finished: {', '.join(ended)}; the same call goes on with them", flush=True)
    if failed:
        print(f"failed: {', '.join(failed)}. To ask for help, send the folder: keys and paths are masked in it.")
    return SOME_FAILED if failed else UNFINISHED if ended else OK


def _options(arguments: Sequence[str] | None, stages: Sequence[Stage]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="gpu_check",
        description="Try this project on this machine's GPUs, in stages of some minutes. Everything comes into one "
        "folder with a page (gpu_report.md) and a JSON file, without keys and users' paths. The same call again keeps "
        "the stages that have passed and goes on with the others. Nothing is asked for over the network.",
        epilog="Exit status: 0 every stage passed or was skipped, 1 some failed, 3 none failed, but some were ended or "
        "not begun, 130 interrupted.",
    )
    option, names = parser.add_argument, [stage.name for stage in stages]
    option("--device", choices=("cuda", "cpu"), default="cuda", help="cpu: the same stages, with small sizes")
    option("--stage", action="append", choices=names, help="run this one only, and anew; may be repeated")
    minutes = "end after so long; the first stages show most in their time"
    option("--minutes", type=float, default=float("inf"), help=minutes)
    option(
        "--side-by-side",
        action="store_true",
        help="run the stages that judge correctness beside each other, and after them, alone, those that measure speed",
    )
    option("--folder", type=Path, help="of the results; otherwise outputs/gpu_check, on a CPU outputs/cpu_check")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
