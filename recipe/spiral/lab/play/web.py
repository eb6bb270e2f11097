"""The table in a browser: a page, its state as JSON, and the person's entries. Nothing comes from another machine, and
nobody gets in without the address (``local_server``)."""

from __future__ import annotations

import asyncio
import socket
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...players.player import Position
from ...processes.terminal import visible
from ..drawing.drawn import PAGE_FILES, Drawn
from ..local_server import LocalServer, guarded, headers
from .playing import Finished, Move, choices, table_of
from .session import Session

if TYPE_CHECKING:
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import Response

_PAGE = Path(__file__).parent / "page"
#: Seconds for which a request for the next state waits.
_WAIT = 10.0
#: Seconds in which the page can still ask why the program ends.
_LAST = 1.0
#: How many actions get a button.
_BUTTONS = 120
_HEADERS = headers("style-src 'self'; connect-src 'self'; img-src data:")


def serve(session: Session, role: int, port: int) -> None:
    """Play in a browser until Ctrl-C. ``role`` is the person's in the first game; port 0 is a free one.

    Raises:
        ValueError: the address cannot be listened on.
        ImportError: starlette or uvicorn is not installed.
        Exception: what ``Session.play`` raises.
    """
    server = LocalServer("--web", port)
    page = WebPage(session, role)
    server.announce()
    asyncio.run(_run(server.uvicorn(application(page, server.token)), server.socket, page))


async def _run(server: Any, listening: socket.socket, page: WebPage) -> None:
    """The server and the games; when one of them ends, so does the other."""

    async def loads() -> None:  # ends only where the opponent cannot be loaded, by what was raised then
        await page.session.loaded()
        await asyncio.Event().wait()

    async def watch() -> None:  # the server's end would break off the page's request
        while not server.should_exit:
            await asyncio.sleep(0.2)

    def end(task: asyncio.Task[None]) -> None:
        error = None if task.cancelled() else task.exception()
        page.stop(visible(str(error), 300, 3) if error else "")
        loop.call_later(_LAST if error else 0, setattr, server, "should_exit", True)

    loop = asyncio.get_running_loop()
    page.session.load()
    tasks = [asyncio.create_task(work) for work in (page.play(), loads(), watch())]
    for task in tasks:
        task.add_done_callback(end)
    await server.serve(sockets=[listening])  # not in a task of its own, because Ctrl-C is raised here
    for task in tasks:
        if task.done():
            task.result()
        task.cancel()


class WebPage:
    """What the page shows; a ``Face``. Each change has a number, and the page asks for what comes after its own."""

    def __init__(self, session: Session, role: int) -> None:
        self.session, self.role = session, role
        self.version = 0
        self._changed = asyncio.Event()
        self._wanted: asyncio.Queue[int] = asyncio.Queue()
        self._question = 0
        self._stopped = False
        self._begin()

    # -- the games -----------------------------------------------------------------------------------------------------

    async def play(self) -> None:
        """One game after the other, as the page wants them. Raises what ``Session.play`` raises."""
        while True:
            self._begin()
            game = asyncio.create_task(self.session.play(self, self.role))
            wanted = asyncio.create_task(self._wanted.get())
            await asyncio.wait([game, wanted], return_when=asyncio.FIRST_COMPLETED)
            if game.done():
                self._over(game.result())
            else:
                game.cancel()
                with suppress(asyncio.CancelledError):
                    await game
            self.role = await wanted

    def _begin(self) -> None:
        table = self.session.table(self.role)
        self._entries: asyncio.Queue[str] = asyncio.Queue()
        self.state: dict[str, Any] = {
            "game": table.game,
            "opponent": visible(table.opponent, 80, 1),
            "role": table.role,
            "note": self.session.opponent.note,
            "phase": "theirs",
            "question": self._question,
            "table": None,
            **{"observation": "", "complaint": "", "actions": [], "legal": [], "moves": [], "end": None},
            "responses": self.session.responses,
        }
        self._change()

    def _over(self, finished: Finished) -> None:
        rewards = finished.record.rewards
        self._change(
            phase="over",
            moves=[asdict(move) for move in finished.moves],
            end={
                **{name: getattr(finished, name) for name in ("headline", "why", "board", "table", "seen")},
                "rewards": [rewards[self.role], rewards[1 - self.role]],
                "saved": self.session.save(finished),
            },
        )
        print(f"{finished.headline} {finished.why}".rstrip(), self.state["end"]["saved"], flush=True)

    # -- a Face --------------------------------------------------------------------------------------------------------

    async def ask(self, position: Position, complaint: str) -> str:
        self._question += 1
        legal = choices(position.game)
        actions = position.game.actions if len(position.game.actions) <= 16 else legal
        self._change(
            phase="yours",
            question=self._question,
            table=table_of(position.game, self.role),
            observation=visible(position.observation),
            complaint=complaint,
            actions=list(actions[:_BUTTONS]),
            legal=list(legal),
        )
        return await self._entries.get()

    def waits(self) -> None:
        self._change(phase="theirs", complaint="", actions=[], legal=[])

    def moved(self, move: Move, table: Drawn | None) -> None:
        self._change(moves=[*self.state["moves"], asdict(move)], table=table)

    # -- the page's requests -------------------------------------------------------------------------------------------

    def _change(self, **parts: Any) -> None:
        self.state |= parts
        self.version += 1
        self._changed.set()
        self._changed = asyncio.Event()

    def stop(self, why: str = "") -> None:
        """Let nobody wait any more: the program ends. ``why`` is what went wrong, if something did."""
        if not self._stopped:  # the first that ends takes the others along
            self._stopped = True
            self._change(phase="ended", why=why)

    async def after(self, version: int) -> dict[str, Any]:
        """The state that comes after a version, or the same one after some seconds."""
        if version == self.version and not self._stopped:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._changed.wait(), _WAIT)
        return {"version": self.version, **self.state}

    def enter(self, question: int, entry: str) -> bool:
        """Take an entry; False: it answers another question than the present one."""
        if self.state["phase"] != "yours" or question != self._question:
            return False
        self._change(phase="theirs", complaint="")
        self._entries.put_nowait(entry)
        return True

    def again(self, role: int) -> None:
        """Begin another game; the present one is given up."""
        self._wanted.put_nowait(role)


def application(page: WebPage, token: str) -> Starlette:
    """The server's application. Every path begins with ``token``."""
    from starlette.exceptions import HTTPException
    from starlette.responses import JSONResponse
    from starlette.routing import Mount, Route
    from starlette.staticfiles import StaticFiles

    async def body(request: Request) -> Any:
        """A page of another site can send all but JSON unasked."""
        try:
            return await request.json() if request.headers.get("content-type") == "application/json" else None
        except (ValueError, RecursionError):
            return None

    async def state(request: Request) -> Response:
        known = request.query_params.get("after") == str(page.version)
        return JSONResponse(await page.after(page.version if known else -1))

    async def enter(request: Request) -> Response:
        match await body(request):
            case {"question": int(question), "entry": str(entry)}:
                taken = page.enter(question, entry)
                return JSONResponse({"taken": taken}, 200 if taken else 409)
        raise HTTPException(400)

    async def again(request: Request) -> Response:
        match await body(request):
            case {"role": int(role)} if str(role) in ("0", "1"):  # a truth value is an int
                page.again(role)
                return JSONResponse({"taken": True})
        raise HTTPException(400)

    routes = [Route("/state", state), *(Route(f"/{work.__name__}", work, methods=["POST"]) for work in (enter, again))]
    static = ("/drawing", PAGE_FILES[0].parent), ("/", _PAGE)
    mounts = [Mount(place, StaticFiles(directory=folder, html=True)) for place, folder in static]
    return guarded([*routes, *mounts], token, _HEADERS)
