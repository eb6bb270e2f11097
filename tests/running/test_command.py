"""Commands whose output nobody reads on."""

import os
import subprocess
import sys

import pytest

PROGRAM = "from recipe.spiral.running.terminal import run_command; run_command(lambda: print('line\\n' * 100_000))"


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


@pytest.mark.parametrize("command", ("audit", "export", "models", "play", "report"))
def test_no_command_shows_a_traceback(command: str) -> None:
    """argparse itself ignores it where Python does not buffer."""
    done = with_a_closed_pipe("-m", f"recipe.spiral.{command}", "--help")
    assert done.returncode in (0, 141)
    assert done.stderr == ""
