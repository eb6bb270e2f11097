"""How a command ends: with its status, and one line where something is wrong."""

from __future__ import annotations

import os
import subprocess
import sys

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
