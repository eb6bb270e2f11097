"""A run as pages, for a browser: python -m recipe.spiral.report RUN_DIR.

The pages need no server and no network. Open index.html in the report's folder, which can be moved and sent as a whole.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from ...games import NAMED
from ...processes.launch import is_in_use
from ...processes.run_log import duration
from ...processes.terminal import fail, note, run_command
from ...storage.disk import unwritable
from .bundle import NoCharts
from .comparison import Comparison, runs_of
from .run_report import NoRun, RunReport

REPORT = "report"


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; returns its exit status: 0, 2 if there is nothing to show or it cannot be, 130 after Ctrl-C."""
    options = _parser().parse_args(arguments)
    try:
        return _run(options)
    except (NoRun, NoCharts, OSError) as error:
        return fail(error, 2)
    except KeyboardInterrupt:
        return 130


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m recipe.spiral.report",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("run_dir", type=Path, nargs="+", help="a run's folder, or a sweep's; several with --compare")
    parser.add_argument("--out", type=Path, metavar="FOLDER", help="where the pages go; otherwise report/ in the run's")
    parser.add_argument("--watch", action="store_true", help="renew the pages until the run ends")
    parser.add_argument("--every", type=float, default=10.0, metavar="SECONDS", help="between two looks (10)")
    parser.add_argument("--compare", action="store_true", help="several runs on one page")
    parser.add_argument(
        "--evaluation",
        type=Path,
        action="append",
        default=[],
        metavar="FOLDER",
        help="an evaluation's folder to show as well; those of this run that are found are shown in any case",
    )
    parser.add_argument("--game", metavar="module:Class", action="append", default=[], help=NAMED)
    return parser


def _run(options: argparse.Namespace) -> int:
    first: Path = options.run_dir[0]
    runs = runs_of(options.run_dir)
    several = options.compare or len(runs) != 1 or runs[0] != first
    if len(options.run_dir) > 1 and not options.compare:
        raise NoRun("several folders: --compare shows them on one page")
    out: Path = options.out or (Path("comparison") if len(options.run_dir) > 1 else first / REPORT)
    if why := unwritable(out):
        raise NoRun(f"--out {out}: {why}")
    page: Comparison | RunReport
    page = Comparison(options.run_dir, out) if several else RunReport(first, out, options.evaluation, options.game)
    begun = time.monotonic()
    page.renew(_progress())
    for line in page.notes():
        note(line)
    print(f"{(out / 'index.html').absolute()} ({duration(time.monotonic() - begun)})", flush=True)
    if options.watch:
        _watch(page, [*options.run_dir, *runs], max(0.2, options.every))
    return 0


def _watch(page: Comparison | RunReport, folders: Sequence[Path], every: float) -> None:
    """Renew until nobody is at work in any of the folders any more; after the last look there is nothing new."""
    print("watching; Ctrl-C ends this, and not the run", flush=True)
    trained = True
    while trained:
        trained = any(map(is_in_use, folders))
        if trained:
            time.sleep(every)
        if page.renew():
            print(f"renewed at {time.strftime('%H:%M:%S')}", flush=True)
    print("no process trains there (any more)", flush=True)


def _progress(interval: float = 2.0) -> Callable[[int, int], None]:
    """Says how far a long work is, every so many seconds."""
    last = time.monotonic()

    def say(done: int, of: int) -> None:
        nonlocal last
        if (now := time.monotonic()) - last >= interval:
            last = now
            print(f"report: read {done} of {of} steps", file=sys.stderr, flush=True)

    return say


if __name__ == "__main__":
    run_command(main)
