"""A run or an evaluation as pages, for a browser: python -m recipe.spiral.report FOLDER.

The pages need no server and no network. Open index.html in the report's folder, which can be moved and sent as a whole.
On a machine that you reach by SSH, --serve shows them in your own browser. Runs are compared in TensorBoard or in
Weights & Biases.
"""

from __future__ import annotations

import argparse
import asyncio
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ...processes.run_log import duration
from ...processes.terminal import fail, note
from ...storage.disk import is_in_use
from ..local_server import LocalServer, guarded
from ..own_command import NAMED, Arguments, own_game, run_program, within
from .run_report import REPORT, RunReport

if TYPE_CHECKING:
    from starlette.applications import Starlette

#: Seconds between two looks at a run that goes on.
EVERY = 10.0
#: What a page may load besides its scripts.
_POLICY = "style-src 'self' 'unsafe-inline'; img-src data: blob:"


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; returns its exit status: 0, or 2 if there is nothing to show or it cannot be."""
    options = _parser().parse_args(arguments)
    try:
        _make(options.folder, options.out or options.folder / REPORT, options)
    except (ValueError, ImportError, OSError) as error:
        return fail(error, 2)
    return 0


def _parser() -> Arguments:
    parser = Arguments(
        prog="python -m recipe.spiral.report",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("folder", type=Path, help="of a run or of an evaluation")
    parser.add_argument("--out", type=Path, metavar="FOLDER", help="where the pages go; otherwise report/ in the run's")
    parser.add_argument("--watch", action="store_true", help="renew the pages until the run ends")
    parser.add_argument(
        "--serve",
        action="store_true",
        help="show the pages at an address of this machine; they are renewed",
    )
    parser.add_argument(
        "--port", type=within(int, 0, 65_535), default=0, help="--serve: the port; otherwise a free one"
    )
    parser.add_argument("--game", type=own_game, metavar="module:Class", action="append", default=[], help=NAMED)
    return parser


def _make(run: Path, out: Path, options: argparse.Namespace) -> None:
    server = LocalServer("--serve", options.port) if options.serve else None
    report = RunReport(run, out, options.game)
    begun = time.monotonic()
    report.renew()
    for line in report.notes():
        note(line)
    print(f"{(out / 'index.html').absolute()} ({duration(time.monotonic() - begun)})", flush=True)
    if server is not None:
        threading.Thread(target=_watch, args=(report, run), daemon=True).start()
        server.announce()
        asyncio.run(server.uvicorn(served(out, server.token)).serve(sockets=[server.socket]))
    elif options.watch:
        _watch(report, run)


def served(report: Path, token: str) -> Starlette:
    """A server's application: the report's folder and nothing else. Links that lead out of it are not followed."""
    from starlette.routing import Mount
    from starlette.staticfiles import StaticFiles

    return guarded([Mount("/", StaticFiles(directory=report, html=True))], token, _POLICY)


def _watch(report: RunReport, run: Path) -> None:
    """Renew until nobody is at work in the folder any more; after the last look there is nothing new."""
    print("watching; Ctrl-C ends this, and not the run", flush=True)
    trained = True
    while trained:
        trained = is_in_use(run)
        if trained:
            time.sleep(EVERY)
        if report.renew():
            print(f"renewed at {time.strftime('%H:%M:%S')}", flush=True)
    print("no process trains there (any more)", flush=True)


if __name__ == "__main__":
    run_program(main)
