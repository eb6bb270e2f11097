"""vLLM's HTTP server, closed: a run reaches its engines through Ray, and vLLM's key guards only a part of the paths."""

from __future__ import annotations

from typing import Any

#: What says how the engine is, and nothing else.
OPEN = ("/health", "/metrics")


class Closed:
    """A part of the server (ASGI) before all others, which refuses every other path."""

    def __init__(self, app: Any) -> None:
        self._app = app

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http" and scope["path"] not in OPEN:
            start = {"type": "http.response.start", "status": 403, "headers": [(b"content-type", b"text/plain")]}
            await send(start)
            await send({"type": "http.response.body", "body": b"A run's engine is reached through Ray.\n"})
        elif scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008})
        else:
            await self._app(scope, receive, send)
