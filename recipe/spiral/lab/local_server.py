"""A server for one person, on this machine: what ``play --web`` and ``report --serve`` have in common.

Who has the address gets in: it holds a random token, and every path without it is refused (403). No page of another
site knows the token, so requests may call this machine by any name.
"""

from __future__ import annotations

import secrets
import socket
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ..extras import install

if TYPE_CHECKING:
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.routing import BaseRoute


class LocalServer:
    """Listens at once on this machine's own address, on a free port if that is 0.

    Args:
        option: of the command, for its errors.

    Raises:
        OSError: the address cannot be listened on.
        ImportError: starlette or uvicorn is not installed.
    """

    def __init__(self, option: str, port: int) -> None:
        try:
            import starlette  # noqa: F401
            import uvicorn  # noqa: F401
        except ImportError as error:
            raise ImportError(f"{option} needs starlette and uvicorn: {install('web')}") from error
        self.socket = socket.create_server(("127.0.0.1", port))
        self.token = secrets.token_urlsafe(16)

    def announce(self) -> None:
        """Print the address, and how it is reached from elsewhere."""
        port = self.socket.getsockname()[1]
        print(f"Open http://127.0.0.1:{port}/{self.token}/ in a browser. Ctrl-C ends it.", flush=True)
        tunnel = f"ssh -N -L {port}:127.0.0.1:{port} {socket.gethostname()}"
        print(f"If this is a machine that you reach by SSH, first on your own: {tunnel}", flush=True)

    def uvicorn(self, application: Starlette) -> Any:
        """uvicorn's server, for ``serve(sockets=[self.socket])``; Ctrl-C ends it."""
        import uvicorn

        quiet: dict[str, Any] = {"log_level": "critical", "access_log": False, "server_header": False}
        return uvicorn.Server(uvicorn.Config(application, timeout_graceful_shutdown=1, lifespan="off", **quiet))


def guarded(routes: Sequence[BaseRoute], token: str, policy: str) -> Starlette:
    """An application with these routes behind the token. ``policy`` says what a page may load besides its scripts, as a
    Content-Security-Policy does; all else it may not."""
    from starlette.applications import Starlette
    from starlette.middleware import Middleware
    from starlette.middleware.base import BaseHTTPMiddleware
    from starlette.responses import PlainTextResponse
    from starlette.routing import Mount

    headers: Mapping[str, str] = {
        "Content-Security-Policy": f"default-src 'none'; script-src 'self'; {policy}; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
        "Referrer-Policy": "no-referrer",
        "X-Content-Type-Options": "nosniff",
        "Cache-Control": "no-store",
    }

    async def guard(request: Request, call_next: Callable[[Request], Awaitable[Response]]) -> Response:
        given = request.scope["path"].removeprefix("/").partition("/")[0]
        response: Response
        if secrets.compare_digest(given.encode(), token.encode()):
            response = await call_next(request)
        else:
            response = PlainTextResponse("Wrong token: open the whole address that the program printed.\n", 403)
        response.headers.update(headers)
        return response

    mounted = [Mount(f"/{token}", routes=routes)]
    return Starlette(routes=mounted, middleware=[Middleware(BaseHTTPMiddleware, dispatch=guard)])
