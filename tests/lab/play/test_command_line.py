"""The command as people use it: through stdin, through a terminal, and with everything that goes wrong."""

from __future__ import annotations

import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from io import BytesIO, TextIOWrapper
from pathlib import Path

import pytest

from recipe.spiral.lab.play import __main__ as command_line
from recipe.spiral.lab.record_folder import RecordFolder
from recipe.spiral.players.records import GameRecord

ROOT = Path(__file__).resolve().parents[3]
COMMAND = [sys.executable, "-m", "recipe.spiral.play"]
#: Seconds; a model's start takes a few.
LIMIT = 120.0

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
        ("TicTacToe", "random", 0, "".join(f"{square}\n" for square in range(9)) * 3),
        ("TicTacToe", "perfect", 1, "".join(f"[{square}]\n" for square in range(9)) * 3),
        ("KuhnPoker", "random", 0, "bet\ncall\n"),
        ("PigDice", "random", 1, "roll\nroll\nhold\n" * 60),
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


# -- in a terminal -----------------------------------------------------------------------------------------------------


class InATerminal:
    """The command in a pseudo-terminal."""

    def __init__(self, *arguments: str) -> None:
        self.master, slave = pty.openpty()
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "TERM": "xterm", "OMP_NUM_THREADS": "1"}
        self.process = subprocess.Popen(
            [*COMMAND, *arguments], stdin=slave, stdout=slave, stderr=slave, env=environment, start_new_session=True
        )
        os.close(slave)
        self.output = ""
        self._looked = 0

    def until(self, pattern: str) -> re.Match[str]:
        """Wait until the pattern is in what was printed since the last one."""
        until = time.monotonic() + LIMIT
        while time.monotonic() < until:
            if match := re.search(pattern, self.output[self._looked :]):
                self._looked += match.end()
                return match
            if select.select([self.master], [], [], 0.2)[0]:
                try:
                    self.output += os.read(self.master, 65536).decode(errors="replace")
                except OSError:  # it has ended
                    break
        raise AssertionError(f"{pattern!r} was not printed: {self.output[-2000:]}")

    def enter(self, text: str) -> None:
        os.write(self.master, text.encode())

    def ended(self) -> int:
        return self.process.wait(LIMIT)

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        os.close(self.master)


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[Callable[..., InATerminal]]:
    opened: list[InATerminal] = []

    def start(*arguments: str) -> InATerminal:
        opened.append(InATerminal(*arguments, "--save", str(tmp_path / "played")))
        return opened[-1]

    yield start
    for one in opened:
        one.close()


@pytest.mark.e2e
def test_a_game_against_the_tiny_model_in_a_terminal(terminal: Callable[..., InATerminal], tmp_path: Path) -> None:
    """Whatever the model answers, the game comes to its end."""
    table = terminal("TicTacToe", "tiny", "--seed", "1")
    table.until("you are player 0, tiny is player 1")
    square = 0
    while table.until(r"your action> |Saved: ")[0] != "Saved: ":
        table.enter(f"{square}\n")
        square = (square + 1) % 9
    assert table.ended() == 0
    [record] = saved(tmp_path)
    assert record.players == ("human", "tiny")
    tokens = record.turns[1].tokens
    assert tokens is not None
    assert tokens.log_probs


def test_ctrl_c_at_the_prompt_is_one_line(terminal: Callable[..., InATerminal], tmp_path: Path) -> None:
    table = terminal("TicTacToe", "random")
    table.until("your action> ")
    time.sleep(1)  # a signal between the prompt and readline's wait for keys would be seen with the next key only
    table.process.send_signal(signal.SIGINT)
    table.until(r"\r\n?spiral: interrupted by Ctrl-C; a game that is not over is not saved")
    assert table.ended() == 130
    assert "Traceback" not in table.output
    assert saved(tmp_path) == []
