"""What a terminal is shown: nothing that it would obey."""

from __future__ import annotations

import asyncio

import pytest

from recipe.spiral.lab.play.playing import Table, play_game
from recipe.spiral.lab.play.table_terminal import Terminal
from recipe.spiral.match import Rules
from recipe.spiral.players.prompts import boxed
from tests.lab.play.faces import KEY
from tests.made import Scripted

HOSTILE = "\x1b]0;title\x07\x1b[2J\u202eevil\u2066 <script>alert(1)</script> " + "long " * 300_000


def shown(
    game: str, role: int, response: str, entries: list[str], monkeypatch: pytest.MonkeyPatch, responses: bool = True
) -> None:
    given = iter(entries)
    monkeypatch.setattr("builtins.input", lambda prompt: next(given))
    terminal = Terminal(Table(game, "scripted", role, Rules()), responses)
    terminal.over(asyncio.run(play_game(terminal.table, Scripted(response, "no box"), terminal, KEY)))


@pytest.mark.parametrize(
    ("game", "role", "action", "entries"), [("TicTacToe", 0, "[4]", ["0", "1"]), ("KuhnPoker", 1, "[bet]", ["call"])]
)
def test_hostile_words_do_nothing_to_a_terminal(
    game: str,
    role: int,
    action: str,
    entries: list[str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    shown(game, role, HOSTILE + boxed(action), entries, monkeypatch)
    out = capsys.readouterr().out
    assert all(character.isprintable() or character == "\n" for character in out)
    assert "\\x1b[2J\\u202eevil\\u2066 <script>" in out
    assert len(out) < 20_000
