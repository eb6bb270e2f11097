"""The command ``python -m benchmarks.gpu_check``: its options, its lines and its exit statuses."""

from __future__ import annotations

import argparse
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .stages import STAGES, Stage

if TYPE_CHECKING:
    from .results import Result, Results

ROOT = Path(__file__).resolve().parents[2]
#: Exit statuses.
OK, FAILED, REFUSED, UNFINISHED, INTERRUPTED = 0, 1, 2, 3, 130


def parser(stages: Sequence[Stage]) -> argparse.ArgumentParser:
    names = [stage.name for stage in stages]
    made = argparse.ArgumentParser(
        prog="gpu_check",
        description="Try this project on this machine's GPUs, in stages of some minutes. Everything comes into one "
        "folder with a page (gpu_report.md) and a JSON file, without keys and users' paths. The same call again keeps "
        "the stages that have passed and goes on with the others. Nothing is asked for over the network.",
        epilog="Exit status: 0 every stage passed or was skipped, 1 some failed, 2 refused, 3 none failed, but some "
        "were ended or not reached, 130 interrupted.",
    )
    option = made.add_argument
    option("--device", choices=("cuda", "cpu"), default="cuda", help="cpu: the same stages, with small sizes")
    option("--list", action="store_true", help="list the stages and their limits, and end")
    option("--stage", action="append", choices=names, metavar="NAME", help="run this one only; may be repeated")
    option("--from", dest="first", choices=names, metavar="NAME", help="run this one and all after it anew")
    option("--again", action="store_true", help="run also the stages that have passed")
    option("--limit", type=float, metavar="SECONDS", help="for each stage, instead of its own limit")
    option("--minutes", type=float, help="end after so long; the first stages show most in their time")
    option(
        "--side-by-side",
        action="store_true",
        help="run the stages that judge correctness beside each other, and after them, alone, those that measure speed",
    )
    option("--folder", type=Path, help="of the results; otherwise outputs/gpu_check, on a CPU outputs/cpu_check")
    return made


def main(arguments: Sequence[str] | None = None, stages: Sequence[Stage] = STAGES) -> int:
    """Check; returns the exit status."""
    begin, options = time.monotonic(), parser(stages).parse_args(arguments)
    if options.list:
        for stage in stages:
            print(f"{stage.name:<12}{stage.limits[options.device]:>6.0f} s  {stage.about}")
        return OK
    from .masking import Masker  # these need packages, which a look does without
    from .results import NotOurs, Results

    def interrupt(*_: Any) -> None:
        raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, interrupt)
    kind = "gpu" if options.device == "cuda" else "cpu"
    folder = (options.folder or ROOT / "outputs" / f"{kind}_check").expanduser().absolute()
    try:
        results = Results(folder, options.device, Masker.of_this_machine(folder, ROOT), stages)
        return check(results, chosen(results, options), options, begin)
    except NotOurs as error:
        print(f"gpu_check: {error}", file=sys.stderr)
        return REFUSED
    except KeyboardInterrupt:
        print("gpu_check: interrupted; the same call goes on", file=sys.stderr)
        return INTERRUPTED


def chosen(results: Results, options: argparse.Namespace) -> list[Stage]:
    """The stages to run. Of the others, those that have passed are kept."""
    if options.stage:
        return [stage for stage in results.stages if stage.name in options.stage]
    names = [stage.name for stage in results.stages]
    first = names.index(options.first) if options.first else 0 if options.again else len(names)
    passed = {result.name for result in results.all() if result.status == "passed"}
    return [stage for place, stage in enumerate(results.stages) if place >= first or stage.name not in passed]


def check(results: Results, stages: list[Stage], options: argparse.Namespace, begin: float) -> int:
    """Run stages and print a line for each; returns the exit status, in which those that are kept count too."""
    from .results import PAGE
    from .running import run

    print(f"results: {results.folder}", flush=True)
    for stage in stages:
        results.forget(stage.name)
    for kept in results.all():
        print(_row(kept, " (kept)"), flush=True)
    end = None if options.minutes is None else begin + 60 * options.minutes
    for group, most, until in _groups(results.device, stages, options.side_by_side, end):
        for result in run(group, results, options.limit, until, most):
            print(_row(result), flush=True)
        found = results.read(group[0].name) if group and group[0].vital else None
        if found and found.status != "passed":
            print(f"{found.name} {found.status}: nothing after it can work without it; it is not run", flush=True)
            break
    failed = [result.name for result in results.all() if result.status == "failed"]
    ended = [result.name for result in results.all() if result.status == "ended"]
    missing = [stage.name for stage in stages if results.read(stage.name) is None]
    print(f"{time.monotonic() - begin:.0f} s; the page: {results.folder / PAGE}", flush=True)
    if ended or missing:
        print(f"not finished: {', '.join([*ended, *missing])}; the same call goes on with them", flush=True)
    if failed:
        print(f"failed: {', '.join(failed)}. To ask for help, send the folder: keys and paths are masked in it.")
    return FAILED if failed else UNFINISHED if ended or missing else OK


def _groups(
    device: str, stages: list[Stage], side_by_side: bool, end: float | None
) -> Iterator[tuple[list[Stage], int, float | None]]:
    """The stages that run together, how many of them at a time, and when they must be over. Side by side, those that
    measure speed come last, and are left the time that they need."""
    from .running import lanes

    yield from (([stage], 1, end) for stage in stages if stage.vital)
    together, alone = [[s for s in stages if not s.vital and s.alone is speed] for speed in (False, True)]
    if not side_by_side:
        yield together, 1, end
    else:
        together.sort(key=lambda stage: stage.least[device], reverse=True)
        reserved = sum(stage.least[device] for stage in alone)
        yield together, lanes(), None if end is None else end - reserved
    yield from (([stage], 1, end) for stage in alone)


def _row(result: Result, more: str = "") -> str:
    return f"{result.name:<12}{result.status:<8}{result.seconds:>7.0f} s  {result.line}{more}"


if __name__ == "__main__":
    sys.exit(main())
