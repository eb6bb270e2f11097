"""The table in a browser: a page, its state as JSON, and the person's entries. Nothing comes from another machine, and
nobody gets in without the address (``local_server``)."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...players.player import Position
from ...processes.terminal import visible
from ..drawing import PAGE_FILES, Drawn, drawn
from ..local_server import LocalServer, guarded
from .playing import Move, Sitting, choices

if TYPE_CHECKING:
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import Response

_PAGE = Path(__file__).parent / "page"
#: How many actions the page is told of.
_LISTED = 200
#: What the page may load besides its scripts.
_POLICY = "style-src 'self'; connect-src 'self'; img-src data:"


def serve(sitting: Sitting, port: int) -> None:
    """Play in a browser until Ctrl-C; port 0 is a free one.

    Raises:
        OSError: the address cannot be listened on.
        ImportError: starlette or uvicorn is not installed.
        Exception: what ``Sitting.play`` raises.
    """
    server = LocalServer("--web", port)
    page = WebPage(sitting)
    program = server.uvicorn(application(page, server.token))

    async def run() -> None:
        games = asyncio.create_task(page.play())
        games.add_done_callback(lambda _: setattr(program, "should_exit", True))  # they end only by an error
        await program.serve(sockets=[server.socket])
        games.cancel()
        with suppress(asyncio.CancelledError):
            await games

    server.announce()
    asyncio.run(run())


class WebPage:
    """What the page shows; a ``Face``. The page asks for ``state`` again and again.

    Its ``phase`` is "yours", "theirs" or "over". Each question to the person has a number, and an entry names the one
    that it answers. At a game's end the question is which player the person wants to be in another one.
    """

    def __init__(self, sitting: Sitting) -> None:
        self.sitting = sitting
        self._question = 0
        self._begin()

    async def play(self) -> None:
        """One game after the other, as the page wants them. Raises what ``Sitting.play`` raises."""
        while True:
            finished = await self.sitting.play(self)
            print(f"{finished.headline} {finished.why}".rstrip(), finished.saved, flush=True)
            end = asdict(finished)
            moves = end["revealed"] or self.state["moves"]
            role = await self._entered(phase="over", table=finished.table, moves=moves, end=end)
            self.sitting.role = int(role == "1")
            self._begin()

    def _begin(self) -> None:
        self._entry: asyncio.Future[str] | None = None
        self.state: dict[str, Any] = {
            "game": self.sitting.game,
            "opponent": visible(self.sitting.opponent.name, 80, 1),
            "role": self.sitting.role,
            "phase": "theirs",
            "question": self._question,
            "table": None,
            **{"observation": "", "complaint": "", "legal": [], "moves": [], "end": None},
        }

    async def _entered(self, **state: Any) -> str:
        """Change what is shown, and wait for the person's entry."""
        self._question += 1
        self.state |= {**state, "question": self._question}
        self._entry = asyncio.get_running_loop().create_future()
        return await self._entry

    async def ask(self, position: Position, complaint: str) -> str:
        return await self._entered(
            phase="yours",
            table=drawn(position.game, self.sitting.role),
            observation=visible(position.observation),
            complaint=complaint,
            legal=list(choices(position.game)[:_LISTED]),
        )

    def moved(self, move: Move, table: Drawn | None) -> None:
        self.state |= {"moves": [*self.state["moves"], asdict(move)], "table": table}

    def enter(self, question: int, entry: str) -> bool:
        """Take an entry; False: it answers another question than the present one, or comes twice."""
        if question != self._question or self._entry is None or self._entry.done():
            return False
        self.state |= {"phase": "theirs", "complaint": "", "legal": []}
        self._entry.set_result(entry)
        return True


def application(page: WebPage, token: str) -> Starlette:
    """The server's application. Every path begins with ``token``."""
    from starlette.exceptions import HTTPException
    from starlette.responses import JSONResponse
    from starlette.routing import Mount, Route
    from starlette.staticfiles import StaticFiles

    async def state(request: Request) -> Response:
        return JSONResponse(page.state)

    async def enter(request: Request) -> Response:
        match await request.json():
            case {"question": int(question), "entry": str(entry)}:
                taken = page.enter(question, entry)
                return JSONResponse({"taken": taken}, 200 if taken else 409)
        raise HTTPException(400)

    routes = [
        Route("/state", state),
        Route("/enter", enter, methods=["POST"]),
        Mount("/drawing", StaticFiles(directory=PAGE_FILES[0].parent)),
        Mount("/", StaticFiles(directory=_PAGE, html=True)),
    ]
    return guarded(routes, token, _POLICY)
