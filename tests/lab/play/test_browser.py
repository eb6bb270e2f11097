"""Whole games in a real browser: by clicks, on a wide screen and on a phone, in light and dark."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from recipe.spiral.lab.local_server import LocalServer
from recipe.spiral.lab.play import web
from recipe.spiral.lab.play.playing import Sitting
from recipe.spiral.lab.record_folder import RecordFolder
from recipe.spiral.match import Rules
from recipe.spiral.players.player import Player, Position, RandomPlayer, Response

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = pytest.mark.e2e

#: What may be clicked: squares of a board, or buttons.
CHOICES = ".board button:visible, #actions button:visible"
Serve = Callable[..., str]


class Hostile(RandomPlayer):
    name = "<img src=x onerror=alert(1)>"

    async def respond(self, position: Position) -> Response:
        words = "</script><script>alert(2)</script><b>bold</b> \x1b[31m \u202eevil " + "x" * 1_000_000
        return Response(words + (await super().respond(position)).text)


@pytest.fixture
def serve(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Serve]:
    """Serves a table in a thread; returns its address."""
    begun, served = threading.Event(), list[tuple[LocalServer, Any]]()
    uvicorn = LocalServer.uvicorn

    def kept(server: LocalServer, application: Any) -> Any:
        served.append((server, uvicorn(server, application)))
        begun.set()
        return served[0][1]

    monkeypatch.setattr(LocalServer, "uvicorn", kept)
    threads: list[threading.Thread] = []

    def start(game: str, opponent: Player, role: int = 0) -> str:
        sitting = Sitting(game, opponent, Rules(), 1, tmp_path, role)
        threads.append(threading.Thread(target=web.serve, args=(sitting, 0)))
        threads[0].start()
        begun.wait()
        server = served[0][0]
        return f"http://127.0.0.1:{server.socket.getsockname()[1]}/{server.token}/"

    yield start
    served[0][1].should_exit = True
    threads[0].join()


def wait_for_turn(page: Page) -> bool:
    """Until it is the person's turn; False: the game is over."""
    page.locator("#status:text-is('Your move'), #end:visible").first.wait_for(timeout=120_000)
    return not page.locator("#end").is_visible()


def by_clicks(page: Page) -> None:
    while wait_for_turn(page):
        assert (page.locator("#actions button").count() == 0) == (page.locator(".board").count() > 0)
        moves = page.locator("#moves li")
        number = moves.count()
        page.locator(CHOICES).first.click()
        if page.locator(".board td.from").count():  # a piece, which then goes somewhere
            page.locator(CHOICES).first.click()
        moves.nth(number).wait_for()  # until then the page shows the turn before


@pytest.mark.parametrize(
    ("game", "role", "width", "scheme"),
    [
        ("TicTacToe", 0, 1280, "light"),
        ("KuhnPoker", 1, 390, "dark"),
        ("ConnectFour", 1, 390, "light"),
        ("Breakthrough-5", 0, 390, "dark"),
    ],
)
def test_a_game_is_played_to_its_end_by_clicks(
    game: str, role: int, width: int, scheme: str, serve: Serve, page: Page, tmp_path: Path
) -> None:
    address = serve(game, RandomPlayer(), role)
    page.set_viewport_size({"width": width, "height": 700})
    page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
    page.goto(address)
    wait_for_turn(page)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    cards = page.locator("#table .card-face")
    if game == "KuhnPoker":
        own, other = cards.nth(role), cards.nth(1 - role)
        assert own.inner_text() in ("J", "Q", "K") and other.get_attribute("aria-label") == "a hidden card"
    else:
        assert page.locator("#table .board td").count() in (9, 36, 49)
    by_clicks(page)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    [record] = RecordFolder(tmp_path / "games").read("human")
    if game == "KuhnPoker":
        assert {*cards.all_inner_texts()} < {"J", "Q", "K"} and cards.count() == 2, "all is shown at the end"
    elif game != "Breakthrough-5":
        squares = page.locator("#table .board td").all_inner_texts()
        assert page.locator("#table .board td.new").all_inner_texts()[-1:] in (["X"], ["O"]), "the last move"
        assert squares.count("X") + squares.count("O") == len(record.turns)
    assert (
        page.locator("#status").inner_text()
        == {"win": "You won.", "loss": "You lost.", "draw": "A draw."}[record.result(role)]
    )
    assert page.locator("#moves li").count() == len(record.turns)
    page.click("#swap")
    page.locator(f"#players:has-text('You are player {1 - role}')").wait_for()
    page.goto("about:blank")  # what a page asks of a server that has ended is an error


def test_hostile_words_stay_words(serve: Serve, page: Page) -> None:
    """The page fixture fails at a dialog, an error, or a request to elsewhere."""
    page.goto(serve("TicTacToe", Hostile()))
    wait_for_turn(page)
    page.locator(CHOICES).first.click()
    words = page.locator("#moves pre").first
    words.wait_for()
    text = words.inner_text()
    assert text.startswith("</script><script>alert(2)</script><b>bold</b> \\x1b[31m \\u202eevil xxx")
    assert "more characters" in text
    assert len(text) < 21_000
    assert page.locator("main img, main script, main b").count() == 0
    assert "<img src=x" in page.locator("#players").inner_text()
    page.goto("about:blank")
