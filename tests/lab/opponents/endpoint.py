"""An OpenAI-compatible endpoint for tests, as badly behaved as it is told to be, and players behind it."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from recipe.spiral.games import make
from recipe.spiral.lab.opponents.api_player import ApiPlayer
from recipe.spiral.lab.opponents.api_settings import ApiSettings
from recipe.spiral.players.player import Position, Response
from recipe.spiral.players.seeds import GameKey

KEY = "sk-secret-0123456789abcdef"
#: What the endpoint does with one request.
Behaviour = Callable[[BaseHTTPRequestHandler], None]


def completion(content: object = "I take it. \\boxed{[4]}", finish: object = "stop", **more: object) -> dict[str, Any]:
    """A chat completion's body, with 100 tokens read and 20 written."""
    choice = {"index": 0, "message": {"role": "assistant", "content": content}, "finish_reason": finish}
    usage = {"prompt_tokens": 100, "completion_tokens": 20, "total_tokens": 120}
    return {"id": "1", "object": "chat.completion", "created": 1, "choices": [choice], "usage": usage, **more}


def send(status: int, body: bytes, length: int | None = None, **headers: str) -> Behaviour:
    """Answer with a body; ``length`` is what the header says of it, if not the truth."""

    def behave(request: BaseHTTPRequestHandler) -> None:
        request.send_response(status)
        for name, value in {"content_type": "application/json", **headers}.items():
            request.send_header(name.replace("_", "-"), value)
        request.send_header("Content-Length", str(len(body) if length is None else length))
        request.end_headers()
        request.wfile.write(body)
        request.close_connection = length is not None

    return behave


def good(body: dict[str, Any] | None = None, after: float = 0.0) -> Behaviour:
    answer = send(200, json.dumps(completion() if body is None else body).encode())

    def behave(request: BaseHTTPRequestHandler) -> None:
        time.sleep(after)
        answer(request)

    return behave


def error(status: int, message: str = "it failed", **headers: str) -> Behaviour:
    return send(status, json.dumps({"error": {"message": message, "type": "x"}}).encode(), **headers)


def drip(pieces: int, pause: float, piece: bytes = b"x") -> Behaviour:
    """A body without end, or nearly, in small pieces."""

    def behave(request: BaseHTTPRequestHandler) -> None:
        request.send_response(200)
        request.send_header("Content-Type", "application/json")
        request.end_headers()
        request.close_connection = True
        for _ in range(pieces):
            request.wfile.write(piece)
            request.wfile.flush()
            time.sleep(pause)

    return behave


class Endpoint:
    """Answers its requests by ``behaviours`` in turn, the last of them for ever.

    Attributes:
        requests: what was asked: the bodies.
        headers: and the headers.
        most: how many requests were open at a time, at most.
        redirected: requests that followed a redirect.
    """

    def __init__(self, *behaviours: Behaviour) -> None:
        self.behaviours = [*behaviours]
        self.requests: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.open = self.most = self.redirected = 0
        self._lock = threading.Lock()
        endpoint = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                endpoint._answer(self)

            def do_GET(self) -> None:  # where a redirect leads
                endpoint.redirected += 1
                good()(self)

            def log_message(self, format: str, *args: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}/v1"

    def _answer(self, request: BaseHTTPRequestHandler) -> None:
        body = json.loads(request.rfile.read(int(request.headers["Content-Length"])))
        with self._lock:
            self.open += 1
            self.most = max(self.most, self.open)
            behave = self.behaviours[min(len(self.requests), len(self.behaviours) - 1)]
            self.requests.append(body)
            self.headers.append({name.lower(): value for name, value in request.headers.items()})
        try:
            behave(request)
        except OSError:  # whoever asked has gone
            request.close_connection = True
        finally:
            with self._lock:
                self.open -= 1

    @contextmanager
    def serving(self) -> Iterator[Endpoint]:
        thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        thread.start()
        try:
            yield self
        finally:
            self._server.shutdown()
            thread.join(timeout=5)
            self._server.socket.close()


#: Starts an endpoint.
Serve = Callable[..., Endpoint]


def settings(url: str, **more: Any) -> ApiSettings:
    quick = {"timeout": 2.0, "total_timeout": 4.0, "retries": 0, "api_key_env": "SOME_KEY"}
    return ApiSettings.from_mapping({"model": "some/model", "base_url": url, **quick, **more})


def player(endpoint: Endpoint, **more: Any) -> ApiPlayer:
    return ApiPlayer(settings(endpoint.url, **more))


def position(index: int = 0, turn: int = 0) -> Position:
    game = make("TicTacToe", 0)
    return Position(GameKey("train", 3, 1, index), game, 0, turn, game.observation(0))


#: Of all players here: connections cannot change theirs.
LOOP = asyncio.new_event_loop()


def respond(who: ApiPlayer, where: Position | None = None) -> Response:
    return LOOP.run_until_complete(who.respond(where or position()))
