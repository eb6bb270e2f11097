"""What all commands have in common: a mistake, or a signal, or a place where nothing can be written is one line."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import patch

import psutil
import pytest

from recipe.spiral.lab import own_command
from recipe.spiral.lab.own_command import Arguments, within
from recipe.spiral.lab.play.__main__ import main as play


def refused(parser: Arguments, arguments: Sequence[str], capsys: pytest.CaptureFixture[str]) -> str:
    with pytest.raises(SystemExit) as end:
        parser.refuse_idle(parser.parse_args(arguments), port="serve")
    assert end.value.code == 2
    [line] = capsys.readouterr().err.splitlines()
    return line


@pytest.fixture
def parser() -> Arguments:
    made = Arguments()
    made.add_argument("--port", type=within(int, 0, 65_535), default=0)
    made.add_argument("--serve", action="store_true")
    return made


def test_a_mistake_is_one_line(parser: Arguments, capsys: pytest.CaptureFixture[str]) -> None:
    assert refused(parser, ["--ports"], capsys).startswith("spiral: unrecognized arguments: --ports; --help shows")
    assert refused(parser, ["--serve", "--port", "x"], capsys).startswith(
        "spiral: argument --port: x: must be a whole number from 0 to 65535;"
    )


def test_a_signal_is_one_line() -> None:
    program = """
import os, signal
from recipe.spiral.lab.own_command import run_program

run_program(lambda: os.kill(os.getpid(), signal.SIGTERM), "; nothing was written")
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (130, "spiral: interrupted by SIGTERM; nothing was written\n")


def test_no_child_outlives_a_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[psutil.Process] = []
    this = SimpleNamespace(children=lambda recursive: started)
    known = SimpleNamespace(Process=lambda: this, wait_procs=psutil.wait_procs, Error=psutil.Error)
    with own_command.clean_run(tmp_path / "made", "eval_dir"):
        started.append(psutil.Popen(["sleep", "60"]))
        monkeypatch.setattr(own_command, "psutil", known)
    assert not started[0].is_running()


def test_where_nothing_can_be_written_play_says_so_before_its_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["main"])
    file = tmp_path / "file"
    file.write_text("")
    with patch.dict(os.environ):
        try:
            status: object = play(["TicTacToe", "random", "--save", str(file / "in it" / "folder")])
        except SystemExit as end:  # an option's own type refuses it
            status = end.code
        assert status == 2
    assert str(file) in capsys.readouterr().err
    assert os.listdir(tmp_path) == ["file"]
