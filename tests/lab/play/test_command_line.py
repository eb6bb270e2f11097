"""The command as people use it: through stdin, with everything that goes wrong, and with hostile words."""

from __future__ import annotations

import sys
from collections.abc import Callable
from io import BytesIO, TextIOWrapper
from pathlib import Path

import pytest

from recipe.spiral.lab.play import __main__ as command_line
from recipe.spiral.lab.play import table_opponent
from recipe.spiral.lab.record_folder import RecordFolder
from recipe.spiral.players.prompts import boxed
from recipe.spiral.players.records import GameRecord
from tests.made import Scripted

Play = Callable[..., tuple[int, str, str]]
HOSTILE = "\x1b]0;title\x07\x1b[2J\u202eevil\u2066 <script>alert(1)</script> " + "long " * 300_000


@pytest.fixture
def play(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Play:
    """Runs the command in this process with an input; returns status, stdout and stderr."""

    def run(*arguments: str, entries: str = "") -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "stdin", TextIOWrapper(BytesIO(entries.encode()), encoding="utf-8"))
        try:
            status = command_line.main([*arguments, "--save", str(tmp_path / "played")])
        except SystemExit as exit_:  # argparse's, or the person's
            status = int(exit_.code or 0)
        out, err = capsys.readouterr()
        return status, out, err

    return run


def saved(tmp_path: Path) -> list[GameRecord]:
    return list(RecordFolder(tmp_path / "played" / "games").read("human"))


@pytest.mark.parametrize(
    ("game", "opponent", "role", "entries"),
    [
        ("TicTacToe", "perfect", 1, "".join(f"[{square}]\n" for square in range(9)) * 3),
        ("KuhnPoker", "random", 0, "\nbet\ncall\n"),
        ("ConnectFour", "alphabeta", 0, "".join(f"column {column}\n" for column in range(7)) * 12),
    ],
)
def test_a_game_from_stdin_is_played_to_its_end_and_saved(
    game: str, opponent: str, role: int, entries: str, play: Play, tmp_path: Path
) -> None:
    """Entries that are not legal at the moment are among them."""
    status, out, err = play(game, opponent, "--role", str(role), "--seed", "3", entries=entries)
    assert (status, err) == (0, "")
    [record] = saved(tmp_path)
    assert record.game == game
    assert record.termination == "rules"
    assert record.players[role] == "human"
    mine, others = record.rewards[role], record.rewards[1 - role]
    won = "You won." if mine > others else "You lost." if mine < others else "A draw."
    assert f"\n{won} Rewards: you {mine:+g}, {record.players[1 - role]} {others:+g}." in out
    assert f"Saved: {tmp_path}/played/games/human_step_000001" in out


def test_who_leaves_a_game_does_not_save_it(play: Play, tmp_path: Path) -> None:
    status, _, err = play("TicTacToe", "random", entries="4\n/quit\n")
    assert (status, err, saved(tmp_path)) == (0, "", [])


@pytest.mark.parametrize(
    ("arguments", "status", "line"),
    [
        (["TicTacTo"], 2, "TicTacTo"),
        (["TicTacToe", "/no/such/folder"], 2, "/no/such/folder"),
        (["LiarsDice", "perfect"], 2, "LiarsDice"),
        (["TicTacToe", "tiny", "--template", "chatt"], 2, "chatt"),
        (["TicTacToe", "random"], 1, "not saved"),
        (["TicTacToe", "random", "--temperature", "1"], 2, "--temperature"),
    ],
)
def test_what_goes_wrong_is_one_line(arguments: list[str], status: int, line: str, play: Play) -> None:
    found, _, err = play(*arguments)
    assert found == status
    assert err.startswith("spiral: ")
    assert err.count("\n") == 1
    assert line in err


@pytest.mark.parametrize("hidden", [False, True])
@pytest.mark.parametrize(
    ("game", "role", "action", "entries"), [("TicTacToe", 0, "[4]", "0\n1\n"), ("KuhnPoker", 1, "[bet]", "call\n")]
)
def test_hostile_words_do_nothing_to_a_terminal(
    game: str, role: int, action: str, entries: str, hidden: bool, play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    opponent = Scripted(HOSTILE + boxed(action), "no box")
    monkeypatch.setattr(table_opponent, "make_player", lambda kind: opponent)
    options = ["--role", str(role), *["--hide-responses"] * hidden]
    status, out, _ = play(game, "random", *options, entries=entries)
    assert status == 0
    assert all(character.isprintable() or character == "\n" for character in out)
    assert ("\\x1b[2J\\u202eevil\\u2066 <script>" in out) != hidden
    assert len(out) < 20_000
