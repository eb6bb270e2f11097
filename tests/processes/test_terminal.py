"""What a terminal shows: a command's own lines and a run's, made harmless, what goes on now, and how a command ends."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from pathlib import Path

import pytest

from recipe.spiral.processes import run_log
from recipe.spiral.processes.run_log import LOG, NOW, RUN_DIR, Follow, say_now
from recipe.spiral.processes.terminal import fail, visible

PROGRAM = "from recipe.spiral.processes.terminal import run_command; run_command(lambda: print({}))"


def test_nobody_who_reads_on_is_the_status_of_sigpipe() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    command = [sys.executable, "-c", PROGRAM.format("'line\\n' * 100_000")]
    try:
        done = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, text=True, timeout=120)
    finally:
        os.close(writer)
    assert (done.returncode, done.stderr) == (141, "")


def test_an_error_that_nobody_expected_ends_with_one_harmless_line() -> None:
    program = "from recipe.spiral.processes.terminal import run_command\ndef main(): {}['\x1b[31m']\nrun_command(main)"
    done = subprocess.run([sys.executable, "-c", program], stderr=subprocess.PIPE, text=True, timeout=120)
    assert done.returncode == 1 and "Traceback" in done.stderr and "\x1b" not in done.stderr
    assert done.stderr.splitlines()[-1].startswith("spiral: KeyError: ")


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a plain line", "a plain line"),
        ("two\nlines", "two\nlines"),
        ("dos\r\nlines", "dos\nlines"),
        ("\x1b[31mred\x1b[0m", "\\x1b[31mred\\x1b[0m"),
        ("over\rwritten", "over\\rwritten"),
        ("back\b\b\x7f", "back\\x08\\x08\\x7f"),
        ("\x9b2J", "\\x9b2J"),
        ("right\u202eto left\u2066\u200f", "right\\u202eto left\\u2066\\u200f"),
        ("zero\u200bwidth\ufeff", "zero\\u200bwidth\\ufeff"),
        ("tags\U000e0041\u034f\u115f\u3164", "tags\\U000e0041\\u034f\\u115f\\u3164"),
        ("selected\U000e0100 \u2764\ufe0f", "selected\\U000e0100 \u2764\ufe0f"),
        ("tab\tand\u00a0space", "tab and space"),
        ("\ud800 half a letter", "\\ud800 half a letter"),
        ("naïve 東京 🎲", "naïve 東京 🎲"),
    ],
)
def test_what_a_terminal_would_obey_is_written_out(text: str, shown: str) -> None:
    assert visible(text) == shown


def test_what_strangers_wrote_does_nothing_to_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    assert fail("it says\n\x1b]0;title\x07", 1) == 1
    assert capsys.readouterr() == ("", "spiral: it says \\x1b]0;title\\x07\n")


# -- a run -------------------------------------------------------------------------------------------------------------


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
