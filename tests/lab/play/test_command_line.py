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
from recipe.spiral.lab.play.session import Session
from recipe.spiral.lab.play.table_terminal import Terminal
from recipe.spiral.players.records import GameRecord
from recipe.spiral.storage.record_folder import RecordFolder

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
        ("KuhnPoker-3", "perfect", 1, "call\ncheck\n" * 9),
        ("Nim", "perfect", 0, "".join(f"{pile} {count}\n" for pile in range(3) for count in (1, 2, 3)) * 9),
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


def test_the_commands_of_the_prompt(play: Play, tmp_path: Path) -> None:
    status, out, err = play("TicTacToe", "random", entries="/help\n/actions\n/board\n/responses\n/sit\n4\n/quit\n")
    assert (status, err) == (0, "")
    assert "costs\nnothing" in out
    assert "[0] [1] [2] [3] [4] [5] [6] [7] [8]" in out
    assert "What random writes is hidden." in out
    assert "/sit: unknown" in out
    assert "random: [" in out
    assert saved(tmp_path) == []


def test_games_one_after_the_other_change_the_roles(play: Play, tmp_path: Path) -> None:
    status, *_ = play("KuhnPoker", "random", "--games", "2", entries="bet\ncall\n" * 9)
    assert status == 0
    assert [record.players for record in saved(tmp_path)] == [("human", "random"), ("random", "human")]


def test_every_game_is_told_how_far_the_response_is(play: Play, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[Terminal] = []
    monkeypatch.setattr(Terminal, "progress", lambda self, tokens: told.append(self))
    load = Session.load

    def loading(self: Session, progress: Callable[[int], None]) -> None:
        monkeypatch.setattr(Terminal, "waits", lambda terminal: progress(1))
        load(self, progress)

    monkeypatch.setattr(Session, "load", loading)
    assert play("KuhnPoker", "random", "--games", "2", entries="bet\ncall\n" * 9)[0] == 0
    assert {terminal.table.role for terminal in told} == {0, 1}


def test_nothing_is_saved_if_it_is_not_wanted(play: Play, tmp_path: Path) -> None:
    status, out, _ = play("KuhnPoker", "random", "--no-save", entries="bet\ncall\n" * 3)
    assert status == 0
    assert "The game was not saved." in out
    assert not (tmp_path / "played").exists()


def test_a_folder_that_cannot_be_written_is_said_before_the_game(play: Play, tmp_path: Path) -> None:
    (tmp_path / "played").write_text("a file")
    status, out, said = play("KuhnPoker", "random", entries="bet\ncall\n" * 3)
    assert status == 2 and "played" in out + said


@pytest.mark.parametrize(
    ("arguments", "status", "line"),
    [
        (["TicTacTo"], 2, "unknown game 'TicTacTo'. Did you mean 'TicTacToe'?"),
        (["TicTacToe", "tinny"], 2, "did you mean tiny?"),
        (["TicTacToe", "/no/such/folder"], 2, "there is no such folder"),
        (["LiarsDice", "perfect"], 2, "has no perfect player"),
        (["TicTacToe", "random", "--games", "0"], 2, "--games: 0: must be a whole number from 1"),
        (["TicTacToe", "tiny", "--temperature", "-1"], 2, "--temperature: -1: must be a number from 0"),
        (["TicTacToe", "tiny", "--template", "chatt"], 2, "unknown; known templates"),
        (["TicTacToe", "random"], 1, "the input has ended before the game; it is not saved"),
        (["TicTacToe", "random", "--web", "--port", "99999"], 2, "--port: 99999: must be a whole number from 0"),
        (["TicTacToe", "random", "--port", "8000"], 2, "--port: is only for --web"),
        (["TicTacToe", "random", "--temperature", "1"], 2, "are for models; random has no weights"),
        (["TicTacToe", "tiny", "--base", "model"], 2, "--base model: is for LoRA adapters"),
        (["TicTacToe", "random", "--web", "--host", "203.0.113.7"], 2, "cannot listen there"),
    ],
)
def test_what_goes_wrong_is_one_line(arguments: list[str], status: int, line: str, play: Play) -> None:
    found, _, err = play(*arguments)
    assert found == status
    assert err.startswith("spiral: ")
    assert err.count("\n") == 1
    assert line in err


def test_a_broken_model_is_the_reason_rather_than_the_end_of_the_input(play: Play, tmp_path: Path) -> None:
    import shutil

    from recipe.spiral.lab.models import embedded

    tiny = embedded("tiny", ["TicTacToe", "KuhnPoker"], "chat")
    folder = shutil.copytree(tiny, tmp_path / "mine", ignore=shutil.ignore_patterns("manifest.json"))
    (folder / "tokenizer.json").write_text("{")
    status, _, err = play("TicTacToe", str(folder))
    assert status == 2
    assert "transformers reads no tokenizer there" in err
    assert err.count("\n") == 1


@pytest.mark.parametrize("closed", ["<&-", ">&-"])
def test_without_stdin_or_stdout_the_game_is_left_in_one_line(closed: str, tmp_path: Path) -> None:
    command = [*COMMAND, "TicTacToe", "random", "--save", str(tmp_path)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    shell = ["bash", "-c", f'"$@" {closed}', "bash", *command]
    ended = subprocess.run(shell, stderr=subprocess.PIPE, text=True, env=environment, timeout=LIMIT)
    assert ended.returncode == 1
    assert ended.stderr == "spiral: the input has ended before the game; it is not saved\n"


def test_a_port_in_use_is_one_line(play: Play) -> None:
    import socket

    with socket.create_server(("127.0.0.1", 0)) as other:
        status, _, err = play("TicTacToe", "random", "--web", "--port", str(other.getsockname()[1]))
    assert status == 2
    assert "Address already in use" in err
    assert err.count("\n") == 1


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


def test_the_end_of_the_input_is_one_line(terminal: Callable[..., InATerminal]) -> None:
    table = terminal("TicTacToe", "random")
    table.until("your action> ")
    table.enter("\x04")
    table.until("spiral: the input has ended before the game; it is not saved")
    assert table.ended() == 1


def test_letters_of_no_encoding_are_asked_again(terminal: Callable[..., InATerminal]) -> None:
    table = terminal("TicTacToe", "random")
    table.until("your action> ")
    os.write(table.master, b"\xff\xfe\xff\n")
    table.until("is no action of this game")
    table.until("your action> ")
    table.enter("/quit\n")
    assert table.ended() == 0
