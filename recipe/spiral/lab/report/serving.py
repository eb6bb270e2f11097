"""A report for people on another machine, through SSH: its folder and nothing else, from this machine's own address."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

from ..local_server import LocalServer, guarded, headers

if TYPE_CHECKING:
    from starlette.applications import Starlette

_HEADERS = headers("style-src 'self' 'unsafe-inline'; img-src data: blob:")


def serve(reports: Sequence[Path], server: LocalServer) -> None:
    """Until Ctrl-C. ``reports`` are the folders of a report and of those that it leads to."""
    application = served(reports, server.token)
    server.announce()
    asyncio.run(server.uvicorn(application).serve(sockets=[server.socket]))


def served(reports: Sequence[Path], token: str) -> Starlette:
    """The server's application. The reports lie to each other as on the disk, for links between them."""
    from starlette.responses import RedirectResponse
    from starlette.routing import Mount, Route
    from starlette.staticfiles import StaticFiles

    class Files(StaticFiles):
        async def check_config(self) -> None:
            """A run's report may be made later, and then it is there."""

    folders = [Path(os.path.abspath(report)) for report in reports]
    root = Path(os.path.commonpath(folders))
    first = RedirectResponse(f"/{token}/{quote(str((folders[0] / 'index.html').relative_to(root)))}")
    mounts = [
        Mount(f"/{'/'.join(folder.relative_to(root).parts)}", Files(directory=folder, html=True, check_dir=False))
        for folder in sorted(folders, reverse=True)  # what lies in another one first
    ]
    return guarded([Route("/", lambda request: first), *mounts], token, _HEADERS)
