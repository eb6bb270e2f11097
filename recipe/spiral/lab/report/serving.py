"""A report for people on another machine, through SSH: its folder and nothing else, from this machine's own address."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING

from ..local_server import LocalServer, guarded, headers

if TYPE_CHECKING:
    from starlette.applications import Starlette

_HEADERS = headers("style-src 'self' 'unsafe-inline'; img-src data: blob:")


def serve(report: Path, server: LocalServer) -> None:
    """Until Ctrl-C."""
    application = served(report, server.token)
    server.announce()
    asyncio.run(server.uvicorn(application).serve(sockets=[server.socket]))


def served(report: Path, token: str) -> Starlette:
    """The server's application: the report's folder. Links that lead out of it are not followed."""
    from starlette.routing import Mount
    from starlette.staticfiles import StaticFiles

    return guarded([Mount("/", StaticFiles(directory=report, html=True))], token, _HEADERS)
