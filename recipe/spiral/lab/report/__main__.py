"""A run, a sweep or an evaluation as pages, for a browser: python -m recipe.spiral.report FOLDER.

The pages need no server and no network. Open index.html in the report's folder, which can be moved and sent as a whole.
On a machine that you reach by SSH, --serve shows them in your own browser.
"""

from __future__ import annotations

import argparse
import threading
import time
from collections.abc import Sequence
from pathlib import Path

from ...processes.arguments import NAMED, Arguments, own_game, run_program, within
from ...processes.launch import is_in_use
from ...processes.run_log import duration
from ...processes.terminal import fail, note
from ...storage.disk import InUse, unwritable
from ..database import DamagedDatabase
from ..local_server import CannotListen, LocalServer
from .bundle import NoCharts
from .comparison import Comparison, runs_of
from .evaluation_games import is_evaluation
from .evaluation_results import with_results
from .run_report import REPORT, NoRun, RunReport, is_run
from .serving import serve


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; returns its exit status: 0, or 2 if there is nothing to show or it cannot be."""
    parser = _parser()
    options = parser.parse_args(arguments)
    parser.refuse_idle(options, port="serve", every="watch")
    try:
        return _run(options)
    except (NoRun, NoCharts, CannotListen, ImportError, OSError, DamagedDatabase, InUse) as error:
        return fail(error, 2)


def _parser() -> Arguments:
    parser = Arguments(
        prog="python -m recipe.spiral.report",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "run_dir", type=Path, nargs="+", help="the folder of a run, a sweep or an evaluation; several with --compare"
    )
    parser.add_argument("--out", type=Path, metavar="FOLDER", help="where the pages go; otherwise report/ in the run's")
    parser.add_argument("--watch", action="store_true", help="renew the pages until the run ends")
    parser.add_argument(
        "--every", type=within(float, 0.2, 86_400), default=10.0, metavar="SECONDS", help="between two looks (10)"
    )
    parser.add_argument("--serve", action="store_true", help="show the pages at an address of this machine")
    parser.add_argument(
        "--port", type=within(int, 0, 65_535), default=0, help="--serve: the port; otherwise a free one"
    )
    parser.add_argument("--compare", action="store_true", help="several runs on one page")
    parser.add_argument(
        "--evaluation",
        type=Path,
        action="append",
        default=[],
        metavar="FOLDER",
        help="an evaluation's folder to show as well; those of this run that are found are shown in any case",
    )
    parser.add_argument("--game", type=own_game, metavar="module:Class", action="append", default=[], help=NAMED)
    return parser


def _run(options: argparse.Namespace) -> int:
    first: Path = options.run_dir[0]
    single = len(options.run_dir) == 1 and not options.compare
    runs = [first] if single and is_evaluation(first) else runs_of(options.run_dir)
    several = options.compare or len(runs) != 1 or runs[0] != first
    if len(options.run_dir) > 1 and not options.compare:
        raise NoRun("several folders: --compare shows them on one page")
    if options.evaluation and (several or not is_run(first)):
        raise NoRun("--evaluation: is only for one run, whose report it is shown in")
    if options.game and several:
        raise NoRun("--game: is only for one run or evaluation: several on one page show no games")
    out: Path = options.out or (Path("comparison") if len(options.run_dir) > 1 else first / REPORT)
    if why := unwritable(out):
        raise NoRun(f"--out {out}: {why}")
    for place in options.evaluation:
        if not is_evaluation(place) and not with_results([place]):
            raise NoRun(f"--evaluation {place}: no evaluation is here")
    server = LocalServer("--serve", "127.0.0.1", options.port) if options.serve else None
    page: Comparison | RunReport
    page = Comparison(options.run_dir, out) if several else RunReport(first, out, options.evaluation, options.game)
    begun = time.monotonic()
    page.renew()
    for line in page.notes():
        note(line)
    print(f"{(out / 'index.html').absolute()} ({duration(time.monotonic() - begun)})", flush=True)
    if options.watch:
        watching = [*options.run_dir, *runs], options.every
        if server is None:
            _watch(page, *watching)
        else:
            threading.Thread(target=_watch_beside, args=(page, *watching), daemon=True).start()
    if server is not None:
        serve(page.reports(), server)
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


def _watch_beside(page: Comparison | RunReport, folders: Sequence[Path], every: float) -> None:
    """As ``_watch``, while pages are served, which goes on in any case."""
    try:
        _watch(page, folders, every)
    except (NoRun, OSError, DamagedDatabase, InUse) as error:
        note(f"the pages are not renewed any more: {error}")


if __name__ == "__main__":
    run_program(main)
