"""A run's lines are shown as they come, and what goes on now below them."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from recipe.spiral.processes import run_log
from recipe.spiral.processes.follow import Follow
from recipe.spiral.processes.run_log import LOG, NOW, RUN_DIR, say_now


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_new_whole_lines_are_shown_harmless(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / LOG).write_text("of an earlier run\n")
    following = Follow(tmp_path, interval=60)
    with following, (tmp_path / LOG).open("a") as log:
        log.write("step 1/2  8.5 s\nit says \x1b[2J\nhalf")
        log.flush()
        following._print_new()
        assert capsys.readouterr().out == "step 1/2  8.5 s\nit says \\x1b[2J\n"
        log.write(" a line\n")
    assert capsys.readouterr().out == "half a line\n" and following.trains and following.step_seconds == 8.5


def test_a_terminal_has_one_line_of_what_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdout", out := Terminal())
    monkeypatch.setenv("COLUMNS", "40")
    following = Follow(tmp_path)
    (tmp_path / LOG).write_text("training for 64 steps\n")
    following._print_new()
    following._print_now("play\n87 of 128 games")
    following._print_now("play\n88 of 128 games with a very long end")
    shown = out.getvalue().split("\r")
    assert shown[2] == "step 1/64: play 87 of 128 games, 0s\x1b[K"
    assert len(shown[3].removesuffix("\x1b[K")) == 39


def test_processes_of_a_run_say_what_they_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_log, "_said", "")
    monkeypatch.delenv(RUN_DIR, raising=False)
    say_now("play", "1 of 2 games")
    monkeypatch.setenv(RUN_DIR, str(tmp_path))
    say_now("play", "1 of 2 games")
    say_now("play", "2 of 2 games")  # at once: left out
    assert (tmp_path / NOW).read_text() == "play\n1 of 2 games"
    say_now("update", "1 of 4")
    assert (tmp_path / NOW).read_text() == "update\n1 of 4"
