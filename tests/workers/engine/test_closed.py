"""Nobody reaches a run's engine by HTTP, whatever path vLLM's key leaves open."""

from __future__ import annotations

import asyncio
import importlib

import pytest

from recipe.spiral.workers.engine.vllm import Closed
from tests.workers.engine.test_vllm import args, server, verls  # noqa: F401

starlette = pytest.importorskip("starlette")


def test_every_path_but_that_of_its_health_is_refused() -> None:
    from starlette.applications import Starlette
    from starlette.responses import PlainTextResponse
    from starlette.routing import Route, WebSocketRoute
    from starlette.testclient import TestClient
    from starlette.websockets import WebSocket, WebSocketDisconnect

    async def answer(request: object) -> PlainTextResponse:
        return PlainTextResponse("the engine's")

    async def listen(socket: WebSocket) -> None:
        await socket.accept()

    paths = ("/invocations", "/v1/completions", "/health", "/metrics", "/tokenize")
    routes = [*(Route(path, answer, methods=["GET", "POST"]) for path in paths), WebSocketRoute("/v1/realtime", listen)]
    app = Starlette(routes=routes)
    app.add_middleware(Closed)
    client = TestClient(app)
    assert {path: client.post(path).status_code for path in paths} == {
        path: 200 if path in ("/health", "/metrics") else 403 for path in paths
    }
    with pytest.raises(WebSocketDisconnect), client.websocket_connect("/v1/realtime"):
        pass


def test_vllm_is_told_where_it_is(verls: list[dict[str, list[str]]]) -> None:  # noqa: F811
    from vllm.entrypoints.openai.cli_args import FrontendArgs

    assert "middleware" in FrontendArgs.__dataclass_fields__
    asyncio.run(server().run_server(args(middleware=["users.own"])))
    users, ours = verls[0]["middleware"]
    module, _, name = ours.rpartition(".")
    assert users == "users.own" and getattr(importlib.import_module(module), name) is Closed
