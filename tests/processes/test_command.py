"""Commands whose output nobody reads on."""

import os
import subprocess
import sys

import pytest

PROGRAM = "from recipe.spiral.processes.terminal import run_command; run_command(lambda: print('line\\n' * 100_000))"


def with_a_closed_pipe(*arguments: str) -> subprocess.CompletedProcess[str]:
    reader, writer = os.pipe()
    os.close(reader)
    try:
        command = [sys.executable, *arguments]
        return subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, text=True, timeout=120)
    finally:
        os.close(writer)


def test_a_closed_pipe_is_the_status_of_sigpipe() -> None:
    done = with_a_closed_pipe("-c", PROGRAM)
    assert (done.returncode, done.stderr) == (141, "")


@pytest.mark.parametrize(
    "command",
    [*((name, "--help") for name in ("audit", "export", "models", "play", "report")), ("main_spiral", "--cfg", "job")],
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
