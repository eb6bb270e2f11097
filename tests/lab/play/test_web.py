"""The table's server: who may reach it, what it takes, and what it tells."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from recipe.spiral.lab.play import web
from recipe.spiral.lab.play.seats_taken import Opponent
from recipe.spiral.lab.play.session import Session
from recipe.spiral.lab.play.web import WebPage, application
from recipe.spiral.players.prompts import boxed
from recipe.spiral.storage.record_folder import RecordFolder
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
    folder: Path | None = None,
) -> None:
    """Let ``work`` ask a table whose opponent answers with these responses."""
    opponent = Opponent("scripted", lambda progress: Scripted(*responses))

    async def run() -> None:
        page = WebPage(Session(game, opponent, 5, folder), role)
        page.session.load(page.progress)
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


def test_pages_load_nothing_from_elsewhere_and_say_so() -> None:
    async def work(client: Client, page: WebPage) -> None:
        files = [("", "text/html"), *((f"{name}.css", "text/css") for name in ("page", "drawing/table"))]
        files += [(f"{name}.js", "text/javascript") for name in ("page", "drawing/table", "drawing/dom")]
        for path, kind in files:
            answer = await client.get(path)
            assert answer.status_code == 200
            assert answer.headers["content-type"].startswith(kind)
            assert "http" not in answer.text.replace("http://www.w3.org/2000/svg", "")
            assert "default-src 'none'" in answer.headers["content-security-policy"]
            assert answer.headers["referrer-policy"] == "no-referrer"
        assert (await client.get("nothing")).status_code == 404
        assert (await client.get("../web.py")).status_code in (403, 404)
        assert (await client.get("..%2fweb.py")).status_code == 404

    visit(work)


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("enter", "no json"),
        ("enter", "[]"),
        ("enter", "[" * 3000),
        ("enter", "{}"),
        ("enter", '{"question": "1", "entry": "4"}'),
        ("enter", '{"question": 1, "entry": 4}'),
        ("again", '{"role": 2}'),
        ("again", '{"role": true}'),
        ("again", '{"role": 0.0}'),
    ],
)
def test_what_is_no_request_of_the_page_is_refused(path: str, body: str) -> None:
    async def work(client: Client, page: WebPage) -> None:
        await until(client, "yours")
        answer = await client.post(path, content=body, headers={"Content-Type": "application/json"})
        assert answer.status_code == 400
        assert (await until(client, "yours"))["complaint"] == ""

    visit(work)


def test_an_entry_of_any_length_is_answered() -> None:
    async def work(client: Client, page: WebPage) -> None:
        await enter(client, "x" * 100_000)
        assert "That has 100000 characters" in (await until(client, "yours"))["complaint"]
        assert (await client.post("nothing", json={})).status_code == 405

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


def test_a_game_with_half_a_letter_is_saved_in_a_folder_with_any_name(tmp_path: Path) -> None:
    """JSON can say what UTF-8 cannot, and so can a folder's name."""
    folder = tmp_path / os.fsdecode(b"m\xff")

    async def work(client: Client, page: WebPage) -> None:
        for entry in ("\ud800 \\boxed{0}", "1", "2"):
            await enter(client, entry)
        saved = (await until(client, "over"))["end"]["saved"]
        assert saved.startswith(f"Saved: {tmp_path}/m\\udcff/games/human_step_000001")

    visit(work, boxed("[3]"), boxed("[4]"), folder=folder)
    [record] = RecordFolder(folder / "games").read("human")
    assert record.turns[0].response == "? \\boxed{0}"


def test_a_game_that_cannot_be_written_is_shown_all_the_same(tmp_path: Path) -> None:
    async def work(client: Client, page: WebPage) -> None:
        for entry in ("0", "1"):
            await enter(client, entry)
        assert "The game could not be saved: " in (await until(client, "over"))["end"]["saved"]

    visit(work, boxed("[3]"), "half a letter: \ud800", folder=tmp_path)


def test_a_slip_is_explained_with_the_same_position() -> None:
    async def work(client: Client, page: WebPage) -> None:
        before = await enter(client, "ten")
        after = await until(client, "yours")
        assert "'ten' is no action of this game" in after["complaint"]
        assert after["observation"] == before["observation"]
        assert after["question"] == before["question"] + 1

    visit(work)


def test_a_state_that_never_was_is_followed_by_the_present_one() -> None:
    async def work(client: Client, page: WebPage) -> None:
        assert (await client.get(f"state?after={'9' * 5000}")).status_code == 200
        assert (await client.get("state?after=nothing")).status_code == 200

    visit(work)


def test_an_entry_counts_once() -> None:
    async def work(client: Client, page: WebPage) -> None:
        state = await enter(client, "0")
        await until(client, "yours")
        late = await client.post("enter", json={"question": state["question"], "entry": "1"})
        assert late.status_code == 409

    visit(work, boxed("[3]"), boxed("[4]"))


def test_nothing_that_is_hidden_is_sent_before_the_end() -> None:
    sent: list[str] = []

    async def work(client: Client, page: WebPage) -> None:
        state = await until(client, "yours")
        sent.append(json.dumps(state))
        await enter(client, "call")
        over = await until(client, "over")
        assert "SECRET" in over["moves"][0]["response"]
        assert "player 0 has" in over["end"]["board"]
        assert "Your card" in over["end"]["seen"]

    visit(work, "SECRET card " + boxed("[bet]"), game="KuhnPoker", role=1)
    assert "SECRET" not in sent[0]
    assert json.loads(sent[0])["table"]["now"]["cards"][0] is None
    assert json.loads(sent[0])["moves"] == [{"name": "scripted", "action": None, "response": "", "wrong": ""}]


def test_a_game_can_be_given_up_for_another() -> None:
    async def work(client: Client, page: WebPage) -> None:
        await enter(client, "0")
        await until(client, "yours")
        await client.post("again", json={"role": 0})
        while (state := await until(client, "yours"))["moves"]:
            await asyncio.sleep(0.01)
        assert state["legal"] == [f"[{square}]" for square in range(9)]

    visit(work, boxed("[3]"), boxed("[4]"))


def test_a_closed_page_is_said_once_and_the_game_goes_on(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(web, "_WAIT", 0.05)
    monkeypatch.setattr(web, "_CLOSED", 0.05)

    async def work(client: Client, page: WebPage) -> None:
        await until(client, "yours")
        server = SimpleNamespace(should_exit=False)
        watching = asyncio.create_task(page.watch(server))
        await asyncio.sleep(1)
        assert capsys.readouterr().out.count("The page was closed.") == 1
        await enter(client, "0")
        assert (await until(client, "yours"))["moves"][-1]["action"] == "[3]"
        server.should_exit = True
        await watching

    visit(work, boxed("[3]"), boxed("[4]"))
