"""Commands whose output nobody reads on."""

import os
import subprocess
import sys

import pytest

PROGRAM = "from recipe.spiral.processes.terminal import run_command; run_command(lambda: print({}))"
LONG = PROGRAM.format("'line\\n' * 100_000")


def with_a_closed_pipe(*arguments: str) -> subprocess.CompletedProcess[str]:
    reader, writer = os.pipe()
    os.close(reader)
    try:
        command = [sys.executable, *arguments]
        return subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, text=True, timeout=120)
    finally:
        os.close(writer)


def test_a_closed_pipe_is_the_status_of_sigpipe() -> None:
    done = with_a_closed_pipe("-c", LONG)
    assert (done.returncode, done.stderr) == (141, "")


@pytest.mark.parametrize(
    "command",
    [
        *((name, "--help") for name in ("audit", "export", "models", "play", "report")),
        *(("main_spiral", *what) for what in (("--cfg", "job"), ("dry_run=true",))),
    ],
    ids=" ".join,
)
def test_no_command_shows_a_traceback(command: tuple[str, ...]) -> None:
    """argparse itself ignores it where Python does not buffer."""
    done = with_a_closed_pipe("-m", f"recipe.spiral.{command[0]}", *command[1:])
    assert done.returncode in (0, 141)
    assert done.stderr == ""


def test_an_error_that_nobody_expected_ends_with_one_harmless_line() -> None:
    program = "from recipe.spiral.processes.terminal import run_command\ndef main(): {}['\x1b[31m']\nrun_command(main)"
    done = subprocess.run([sys.executable, "-c", program], stderr=subprocess.PIPE, text=True, timeout=120)
    assert done.returncode == 1 and "Traceback" in done.stderr and "\x1b" not in done.stderr
    assert done.stderr.splitlines()[-1].startswith("spiral: KeyError: ")


@pytest.mark.parametrize("program", [PROGRAM.format("'line'"), LONG], ids=["short", "long"])
def test_what_cannot_be_written_ends_with_a_line(program: str) -> None:
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-c", program], stdout=full, stderr=subprocess.PIPE, text=True, timeout=120
        )
    assert done.returncode == 1
    line = "spiral: what it prints cannot be written: No space left on device; make room, or print elsewhere"
    assert done.stderr.splitlines()[-1] == line


def test_a_letter_that_the_terminals_encoding_lacks_ends_nothing() -> None:
    command = [sys.executable, "-c", PROGRAM.format(r"'\xfc'")]
    environment = os.environ | {"PYTHONIOENCODING": "ascii"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout) == (0, "\\xfc\n")
