"""The table's server: who may reach it, what it takes, and what it tells."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from recipe.spiral.lab.play.playing import Sitting
from recipe.spiral.lab.play.web import WebPage, application
from recipe.spiral.lab.record_folder import RecordFolder
from recipe.spiral.match import Rules
from recipe.spiral.players.prompts import boxed
from tests.made import Scripted

httpx = pytest.importorskip("httpx", reason="needs the extra cpu")
pytest.importorskip("starlette", reason="needs the extra web")

TOKEN = "the-token"
Client = Any


def visit(work: Callable[[Client], Awaitable[None]], folder: Path, *responses: str) -> None:
    """Let ``work`` ask a table whose opponent answers with these responses."""

    async def run() -> None:
        page = WebPage(Sitting("TicTacToe", Scripted(*responses), Rules(), 5, folder))
        playing = asyncio.create_task(page.play())
        transport = httpx.ASGITransport(application(page, TOKEN))
        async with httpx.AsyncClient(transport=transport, base_url=f"http://127.0.0.1:8000/{TOKEN}/") as client:
            await work(client)
        playing.cancel()

    asyncio.run(run())


async def until(client: Client, phase: str) -> dict[str, Any]:
    while (state := (await client.get("state")).json())["phase"] != phase:
        await asyncio.sleep(0.01)
    return state


async def enter(client: Client, entry: str, phase: str = "yours") -> None:
    """Once, although it is sent twice."""
    body = {"question": (await until(client, phase))["question"], "entry": entry}
    assert (await client.post("enter", json=body)).status_code == 200
    assert (await client.post("enter", json=body)).status_code == 409


WRONG = ("/", "/wrong/", "/wrong/state", "/page.js", "/the-token2/", "/the-toke", "/%74he-token%00/", "//the-token/")


@pytest.mark.parametrize("path", WRONG)
@pytest.mark.parametrize("method", ["GET", "POST"])
def test_a_wrong_token_is_refused(path: str, method: str, tmp_path: Path) -> None:
    async def work(client: Client) -> None:
        answer = await client.request(method, f"http://127.0.0.1:8000{path}")
        assert answer.status_code == 403
        assert TOKEN not in answer.text

    visit(work, tmp_path)


def test_a_game_with_a_slip_is_played_saved_and_another_begun(tmp_path: Path) -> None:
    async def work(client: Client) -> None:
        for entry in ("0", "0", "ten", "1", "2"):
            await enter(client, entry)
        end = await until(client, "over")
        assert end["end"]["headline"] == "You won."
        assert end["end"]["rewards"] == [1.0, -1.0]
        assert "human_step_000001" in end["end"]["saved"]
        assert [move["said"] for move in end["moves"]] == ["[0]", "[3]", "[1]", "[4]", "[2]"]
        await enter(client, "1", phase="over")
        state = await until(client, "yours")
        assert state["role"] == 1
        assert [move["name"] for move in state["moves"]] == ["scripted"]

    visit(work, tmp_path, boxed("[3]"), boxed("[4]"))
    [record] = RecordFolder(tmp_path / "games").read("human")
    assert record.rewards == (1.0, -1.0)
