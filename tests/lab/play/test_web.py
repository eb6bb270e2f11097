"""The table's server: who may reach it, what it takes, and what it tells."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from recipe.spiral.lab.play.seats_taken import Opponent
from recipe.spiral.lab.play.session import Session
from recipe.spiral.lab.play.web import WebPage, application
from recipe.spiral.lab.record_folder import RecordFolder
from recipe.spiral.players.prompts import boxed
from tests.made import Scripted

httpx = pytest.importorskip("httpx", reason="needs the extra cpu")
pytest.importorskip("starlette", reason="needs the extra web")

TOKEN = "the-token"
Client = Any


def visit(
    work: Callable[[Client, WebPage], Awaitable[None]],
    *responses: str,
    game: str = "TicTacToe",
    role: int = 0,
    folder: Path = Path("/nowhere"),
) -> None:
    """Let ``work`` ask a table whose opponent answers with these responses."""
    opponent = Opponent("scripted", lambda: Scripted(*responses))

    async def run() -> None:
        page = WebPage(Session(game, opponent, 5, folder), role)
        page.session.load()
        playing = asyncio.create_task(page.play())
        transport = httpx.ASGITransport(application(page, TOKEN))
        async with httpx.AsyncClient(transport=transport, base_url=f"http://127.0.0.1:8000/{TOKEN}/") as client:
            await work(client, page)
        playing.cancel()

    asyncio.run(run())


async def until(client: Client, phase: str) -> dict[str, Any]:
    version = -1
    while True:
        state = (await client.get(f"state?after={version}")).json()
        if state["phase"] == phase:
            return state
        version = state["version"]


async def enter(client: Client, entry: str) -> dict[str, Any]:
    state = await until(client, "yours")
    body = json.dumps({"question": state["question"], "entry": entry})
    answer = await client.post("enter", content=body, headers={"Content-Type": "application/json"})
    assert answer.status_code == 200
    return state


WRONG = ("/", "/wrong/", "/wrong/state", "/page.js", "/the-token2/", "/the-toke", "/%74he-token%00/", "//the-token/")


@pytest.mark.parametrize("path", WRONG)
@pytest.mark.parametrize("method", ["GET", "POST"])
def test_a_wrong_token_is_refused(path: str, method: str) -> None:
    async def work(client: Client, page: WebPage) -> None:
        answer = await client.request(method, f"http://127.0.0.1:8000{path}")
        assert answer.status_code == 403
        assert TOKEN not in answer.text

    visit(work)


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("enter", '{"question": 1, "entry": 4}'),
        ("again", '{"role": 2}'),
    ],
)
def test_what_is_no_request_of_the_page_is_refused(path: str, body: str) -> None:
    async def work(client: Client, page: WebPage) -> None:
        await until(client, "yours")
        answer = await client.post(path, content=body, headers={"Content-Type": "application/json"})
        assert answer.status_code == 400
        assert (await until(client, "yours"))["complaint"] == ""

    visit(work)


def test_a_form_of_another_site_is_refused() -> None:
    """A browser sends such a body without asking, JSON only after it was allowed to."""

    async def work(client: Client, page: WebPage) -> None:
        state = await until(client, "yours")
        body = json.dumps({"question": state["question"], "entry": "4"})
        assert (await client.post("enter", content=body, headers={"Content-Type": "text/plain"})).status_code == 400

    visit(work)


def test_a_game_with_a_slip_is_played_saved_and_another_begun(tmp_path: Path) -> None:
    async def work(client: Client, page: WebPage) -> None:
        for entry in ("0", "0", "ten", "1", "2"):
            await enter(client, entry)
        end = await until(client, "over")
        assert end["end"]["headline"] == "You won."
        assert end["end"]["rewards"] == [1.0, -1.0]
        assert "human_step_000001" in end["end"]["saved"]
        assert [move["action"] for move in end["moves"]] == ["[0]", "[3]", "[1]", "[4]", "[2]"]
        await client.post("again", json={"role": 1})
        state = await until(client, "yours")
        assert state["role"] == 1
        assert [move["name"] for move in state["moves"]] == ["scripted"]

    visit(work, boxed("[3]"), boxed("[4]"), folder=tmp_path)
    [record] = RecordFolder(tmp_path / "games").read("human")
    assert record.rewards == (1.0, -1.0)
