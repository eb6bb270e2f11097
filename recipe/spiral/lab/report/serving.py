"""A report for people on another machine, through SSH: its files and nothing else, from this machine's own address."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

from ..local_server import KINDS, LocalServer, guarded, headers
from .bundle import ASSETS, DATA, OF_RUN

if TYPE_CHECKING:
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import Response

_HEADERS = headers("style-src 'self' 'unsafe-inline'; img-src data: blob:")


def serve(reports: Sequence[Path], server: LocalServer) -> None:
    """Until Ctrl-C. ``reports`` are the folders of a report and of those that it leads to."""
    application = served(reports, server.token, server.hosts)
    server.announce()
    asyncio.run(server.uvicorn(application).serve(sockets=[server.socket]))


def served(reports: Sequence[Path], token: str, hosts: set[str]) -> Starlette:
    """The server's application. The reports lie to each other as on the disk, for links between them."""
    from starlette.responses import PlainTextResponse, RedirectResponse
    from starlette.responses import Response as Plain

    folders = [Path(os.path.abspath(report)) for report in reports]
    root = Path(os.path.commonpath(folders))
    first = (folders[0] / "index.html").relative_to(root)

    async def answer(request: Request, path: str) -> Response:
        if not path:
            return RedirectResponse(f"/{token}/{quote(str(first))}", headers=_HEADERS)
        file = root / path
        try:
            if any(_is_of(folder, file) for folder in folders):
                return Plain(file.read_bytes(), 200, _HEADERS, KINDS[file.suffix])
        except (OSError, ValueError):
            pass  # not there, or no name of a file
        return PlainTextResponse("There is no such page.\n", 404, _HEADERS)

    return guarded(answer, token, hosts, _HEADERS)


def _is_of(report: Path, file: Path) -> bool:
    """Whether a file is one that a report is made of."""
    if (
        not file.is_relative_to(report)
        or file.suffix not in KINDS
        or not file.resolve().is_relative_to(report.resolve())
    ):
        return False
    place, *inner = file.relative_to(report).parts
    return place in (ASSETS, DATA) if inner else file.stem in OF_RUN
