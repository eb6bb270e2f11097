"""The command ``python -m benchmarks.gpu_check``: its options, its lines and its exit statuses."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from .stages import STAGES, Stage

if TYPE_CHECKING:
    from .results import Result, Results

ROOT = Path(__file__).resolve().parents[2]
#: Exit statuses.
OK, FAILED, REFUSED, UNFINISHED, INTERRUPTED = 0, 1, 2, 3, 130


class Arguments(argparse.ArgumentParser):
    """argparse's, with an error in one line. The recipe's own needs packages, which a look does without."""

    def error(self, message: str) -> NoReturn:
        self.exit(_fail(f"{message}; --help shows all options", REFUSED))


def parser(stages: Sequence[Stage]) -> argparse.ArgumentParser:
    names = [stage.name for stage in stages]
    made = Arguments(
        prog="gpu_check",
        description="Try this project on this machine's GPUs, in stages of some minutes. Everything comes into one "
        "folder with a page (gpu_report.md) and a JSON file, without keys and users' paths. The same call again keeps "
        "the stages that have passed and goes on with the others. Nothing is asked for over the network.",
        epilog="Exit status: 0 every stage passed or was skipped, 1 some failed, 2 refused, 3 none failed, but some "
        "were ended or not reached, 130 interrupted.",
    )
    made.add_argument(
        "--device", choices=("cuda", "cpu"), default="cuda", help="cpu: the same stages, with small sizes"
    )
    made.add_argument("--list", action="store_true", help="list the stages and their limits, and end")
    made.add_argument(
        "--stage", action="append", choices=names, metavar="NAME", help="run this one only; may be repeated"
    )
    made.add_argument("--from", dest="first", choices=names, metavar="NAME", help="run this one and all after it anew")
    made.add_argument("--again", action="store_true", help="run also the stages that have passed")
    made.add_argument("--limit", type=_positive, metavar="SECONDS", help="for each stage, instead of its own limit")
    made.add_argument("--minutes", type=_positive, help="end after so long; the first stages show most in their time")
    made.add_argument(
        "--side-by-side",
        action="store_true",
        help="run the stages that judge correctness beside each other, and after them, alone, those that measure "
        "speed; where --minutes are too few for both, these are not begun",
    )
    made.add_argument(
        "--folder", type=Path, help="of the results; otherwise outputs/gpu_check, on a CPU outputs/cpu_check"
    )
    return made


def _positive(text: str) -> float:
    with suppress(ValueError):
        if 0 < (number := float(text)) < float("inf"):
            return number
    raise argparse.ArgumentTypeError(f"{text}: must be a number of more than 0")


def main(arguments: Sequence[str] | None = None, stages: Sequence[Stage] = STAGES) -> int:
    """Check; returns the exit status."""
    begin, options = time.monotonic(), parser(stages).parse_args(arguments)
    if options.list:
        for stage in stages:
            print(f"{stage.name:<12}{stage.limits[options.device]:>6.0f} s  {stage.about}")
        return OK
    if options.stage and options.first:
        return _fail("--stage and --from: give one of them", REFUSED)
    # they need psutil, which only the project's environment may have
    from recipe.spiral.processes.interrupts import interrupted_by
    from recipe.spiral.processes.launch import clean_run
    from recipe.spiral.storage.disk import InUse

    from .masking import Masker
    from .results import NotOurs, OtherDevice, Results, check_ours

    kind = "gpu" if options.device == "cuda" else "cpu"
    folder = (options.folder or ROOT / "outputs" / f"{kind}_check").expanduser().absolute()
    try:
        check_ours(folder)
        with clean_run(folder):
            if options.again and not options.stage and not options.first:
                for file in (folder / "stages").glob("*.json"):
                    file.unlink()
            results = Results(folder, options.device, Masker.of_this_machine(folder, ROOT), stages)
            results.clear_work()
            try:
                return check(results, chosen(results, options), options, begin)
            finally:
                results.clear_work()
    except (InUse, NotOurs, OtherDevice) as error:
        return _fail(error, REFUSED)
    except KeyboardInterrupt as error:
        return _fail(f"interrupted by {interrupted_by(error)}; the same call goes on", INTERRUPTED)
    except OSError as error:
        return _fail(f"{folder}: {error}", FAILED)


def chosen(results: Results, options: argparse.Namespace) -> list[Stage]:
    """The stages to run. Of the others, those that have passed are kept."""
    if options.stage:
        return [stage for stage in results.stages if stage.name in options.stage]
    names = [stage.name for stage in results.stages]
    first = names.index(options.first) if options.first else len(names)
    passed = {result.name for result in results.all() if result.status == "passed"}
    return [stage for place, stage in enumerate(results.stages) if place >= first or stage.name not in passed]


def check(results: Results, stages: list[Stage], options: argparse.Namespace, begin: float) -> int:
    """Run stages and print a line for each; returns the exit status, in which those that are kept count too.

    Raises:
        OSError: the folder cannot be written to.
    """
    from .inside import TO_ITS_END
    from .results import PAGE
    from .running import run

    print(f"results: {results.folder}", flush=True)
    for stage in stages:
        results.forget(stage.name)
    results.report()
    for kept in results.all():
        print(_row(kept, " (kept)"), flush=True)
    end = None if options.minutes is None else begin + 60 * options.minutes
    for group, most, until in _groups(results, stages, options.side_by_side, end):
        with closing(run(group, results, options.limit, until, most)) as over:
            for result in over:
                print(_row(result), flush=True)
        found = results.read(group[0].name) if group and group[0].vital else None
        if found and found.status in ("failed", "ended") and found.exit != TO_ITS_END:
            print(f"{found.name} {found.status}: nothing after it can work without it; it is not run", flush=True)
            break
    failed = [result.name for result in results.all() if result.status == "failed"]
    ended = [result.name for result in results.all() if result.status == "ended"]
    missing = [stage.name for stage in stages if results.read(stage.name) is None]
    print(f"{time.monotonic() - begin:.0f} s; the page: {results.folder / PAGE}", flush=True)
    if ended or missing:
        print(f"not finished: {', '.join([*ended, *missing])}; the same call goes on with them", flush=True)
    if failed:
        print(
            f"failed: {', '.join(failed)}. To ask for help, send the folder: keys and paths are masked in it.",
            flush=True,
        )
    return FAILED if failed else UNFINISHED if ended or missing else OK


def _groups(
    results: Results, stages: list[Stage], side_by_side: bool, end: float | None
) -> Iterator[tuple[list[Stage], int, float | None]]:
    """The stages that run together, how many of them at a time, and when they must be over; each group is asked for
    when the one before it is over. Those that measure speed are left the time that they need, where there is enough."""
    from .running import AFTER, PATIENCE, lanes, left

    def least(stage: Stage) -> float:
        return stage.least[results.device]

    yield from (([stage], 1, end) for stage in stages if stage.vital)
    together, alone = [[s for s in stages if not s.vital and s.alone is speed] for speed in (False, True)]
    most, until = (lanes() if side_by_side else 1), end
    if side_by_side:
        together.sort(key=least, reverse=True)
    if side_by_side and together and alone and end is not None:
        until = end - sum(map(least, alone)) - 2 * (PATIENCE + AFTER)  # twice, as they may end a little late
        if left(until) < least(together[0]):
            until, names = end, ", ".join(stage.name for stage in alone)
            print(f"no time is left for {names} after {together[0].name}: the other stages get all of it", flush=True)
    yield together, most, until
    yield from (([stage], 1, end) for stage in alone)
    # what found no time, where measuring speed took less than its least
    missed = {result.name for result in results.all() if result.status == "ended" and not result.limit}
    yield [stage for stage in together if stage.name in missed and least(stage) <= left(end)], most, end


def _row(result: Result, more: str = "") -> str:
    return f"{result.name:<12}{result.status:<8}{result.seconds:>7.0f} s  {result.line}{more}"


def _fail(why: object, status: int) -> int:
    print(f"gpu_check: {why}", file=sys.stderr, flush=True)
    return status


if __name__ == "__main__":
    sys.exit(main())
