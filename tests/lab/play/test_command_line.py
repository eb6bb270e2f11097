"""The command as people use it: through stdin, and with everything that goes wrong."""

from __future__ import annotations

import sys
from collections.abc import Callable
from io import BytesIO, TextIOWrapper
from pathlib import Path

import pytest

from recipe.spiral.lab.play import __main__ as command_line
from recipe.spiral.lab.record_folder import RecordFolder
from recipe.spiral.players.records import GameRecord

Play = Callable[..., tuple[int, str, str]]


@pytest.fixture
def play(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Play:
    """Runs the command in this process with an input; returns status, stdout and stderr."""

    def run(*arguments: str, entries: str = "") -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "stdin", TextIOWrapper(BytesIO(entries.encode()), encoding="utf-8"))
        try:
            status = command_line.main([*arguments, "--save", str(tmp_path / "played")])
        except SystemExit as exit_:  # argparse's
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
        ("KuhnPoker", "random", 0, "bet\ncall\n"),
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


@pytest.mark.parametrize(
    ("arguments", "status", "line"),
    [
        (["TicTacTo"], 2, "TicTacTo"),
        (["TicTacToe", "/no/such/folder"], 2, "MODEL=/no/such/folder"),
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
