"""Whole games in a real browser: by clicks, on a wide screen and on a phone, in light and dark."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from recipe.spiral.lab.record_folder import RecordFolder
from recipe.spiral.players.records import GameRecord

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = pytest.mark.e2e

#: What may be clicked: squares of a board, or buttons.
CHOICES = ".board button:visible, #actions button:enabled"
ROOT = Path(__file__).resolve().parents[3]
#: The command with an opponent whose name and words are hostile.
HOSTILE = """
import recipe.spiral.lab.play.table_opponent as opponents
from recipe.spiral.players.player import Response
from recipe.spiral.players.player import RandomPlayer

class Hostile(RandomPlayer):
    name = "<img src=x onerror=alert(1)>"
    async def respond(self, position):
        action = await super().respond(position)
        words = "</script><script>alert(2)</script><b>bold</b> \\x1b[31m \\u202eevil " + "x" * 1_000_000
        return Response(words + action.text)

opponents.make_player = lambda kind: Hostile()
from recipe.spiral.lab.play.__main__ import main
import sys
sys.exit(main())
"""


class Table:
    """The command, and the address that it printed."""

    def __init__(self, arguments: list[str], program: list[str]) -> None:
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
        self.process = subprocess.Popen(
            [sys.executable, *program, *arguments, "--web", "--seed", "1"],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=environment,
        )
        assert self.process.stdout is not None
        self.printed = ""
        for line in self.process.stdout:
            self.printed += line
            if address := re.search(r"http://127\.0\.0\.1:\d+/\S+/", line):
                self.address = address[0]
                return
        raise AssertionError(self.printed)

    def end(self) -> tuple[int, str]:
        """Ctrl-C; its status, and what it printed."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)
        rest, _ = self.process.communicate(timeout=60)
        return self.process.returncode, self.printed + rest


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Callable[..., Table]]:
    tables: list[Table] = []

    def start(*arguments: str, program: list[str] | None = None) -> Table:
        program = program or ["-m", "recipe.spiral.play"]
        tables.append(Table([*arguments, "--save", str(tmp_path / "played")], program))
        return tables[-1]

    yield start
    for table in tables:
        if table.process.poll() is None:
            table.process.kill()
            table.process.wait()


def saved(tmp_path: Path) -> list[GameRecord]:
    return list(RecordFolder(tmp_path / "played" / "games").read("human"))


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
        ("TicTacToe", "0", 1280, "light"),
        ("KuhnPoker", "1", 390, "dark"),
        ("ConnectFour", "1", 390, "light"),
        ("Breakthrough-5", "0", 390, "dark"),
    ],
)
def test_a_game_is_played_to_its_end_by_clicks(
    game: str, role: str, width: int, scheme: str, serve: Callable[..., Table], page: Page, tmp_path: Path
) -> None:
    table = serve(game, "random", "--role", role)
    page.set_viewport_size({"width": width, "height": 700})
    page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
    page.goto(table.address)
    wait_for_turn(page)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    cards = page.locator("#table .card-face")
    if game == "KuhnPoker":
        own, other = cards.nth(int(role)), cards.nth(1 - int(role))
        assert own.inner_text() in ("J", "Q", "K") and other.get_attribute("aria-label") == "a hidden card"
    else:
        assert page.locator("#table .board td").count() in (9, 36, 49)
    by_clicks(page)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    [record] = saved(tmp_path)
    if game == "KuhnPoker":
        assert {*cards.all_inner_texts()} < {"J", "Q", "K"} and cards.count() == 2, "all is shown at the end"
    elif game != "Breakthrough-5":
        squares = page.locator("#table .board td").all_inner_texts()
        assert page.locator("#table .board td.new").all_inner_texts()[-1:] in (["X"], ["O"]), "the last move"
        assert squares.count("X") + squares.count("O") == len(record.turns)
    mine, others = (record.rewards[int(role)], record.rewards[1 - int(role)])
    headline = "You won." if mine > others else "You lost." if mine < others else "A draw."
    assert page.locator("#status").inner_text() == headline
    assert page.locator("#moves li").count() == len(record.turns)
    assert record.players[int(role)] == "human"
    page.goto("about:blank")  # what a page asks of a server that has ended is an error
    status, printed = table.end()
    assert status == 130
    assert "Traceback" not in printed


def test_hostile_words_stay_words(serve: Callable[..., Table], page: Page) -> None:
    """The page fixture fails at a dialog, an error, or a request to elsewhere."""
    table = serve("TicTacToe", "random", program=["-c", HOSTILE])
    page.goto(table.address)
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
