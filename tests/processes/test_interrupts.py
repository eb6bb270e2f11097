"""A signal ends a command with one line and everything cleaned up; a second signal changes nothing."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
#: A run with a child that notes SIGTERM and goes on, so that cleaning up takes three seconds.
DRIVER = """
import subprocess, sys, time
from pathlib import Path
from recipe.spiral.processes.launch import clean_run

run_dir = Path(sys.argv[1])
stubborn = (
    "import signal, sys, time; from pathlib import Path;"
    "signal.signal(signal.SIGTERM, lambda *_: Path(sys.argv[1]).touch()); print(1, flush=True); time.sleep(60)"
)
try:
    with clean_run(run_dir):
        command = [sys.executable, "-c", stubborn, str(run_dir / "cleaning")]
        child = subprocess.Popen(command, stdout=subprocess.PIPE, start_new_session=True)
        child.stdout.readline()
        (run_dir / "started").write_text(str(child.pid))
        time.sleep(60)
except KeyboardInterrupt as error:
    (run_dir / "ended").write_text(str(error))
"""


def wait_for(file: Path) -> str:
    end = time.monotonic() + 60
    while not (file.exists() and (file.name == "cleaning" or file.read_text())):
        assert time.monotonic() < end
        time.sleep(0.01)
    return file.read_text()


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (signal.SIGTERM, signal.SIGTERM),
        (signal.SIGINT, signal.SIGTERM),
        (signal.SIGHUP, signal.SIGINT),
        (signal.SIGINT, signal.SIGHUP),
    ],
)
def test_a_second_signal_does_not_break_the_cleaning_off(
    tmp_path: Path, first: signal.Signals, second: signal.Signals
) -> None:
    driver = subprocess.Popen([sys.executable, "-c", DRIVER, str(tmp_path)], cwd=ROOT)
    try:
        child = int(wait_for(tmp_path / "started"))
        driver.send_signal(first)
        wait_for(tmp_path / "cleaning")
        time.sleep(0.1)
        for _ in range(3):
            driver.send_signal(second)
            time.sleep(0.1)
        assert driver.wait(60) == 0
        assert (tmp_path / "ended").read_text() == first.name
        with pytest.raises(ProcessLookupError):
            os.kill(child, 0)
    finally:
        driver.kill()
        driver.wait()


def test_two_signals_at_once_are_one_interrupt(tmp_path: Path) -> None:
    """The second comes while the first is on its way to the cleaning."""
    driver = subprocess.Popen([sys.executable, "-c", DRIVER, str(tmp_path)], cwd=ROOT)
    try:
        wait_for(tmp_path / "started")
        driver.send_signal(signal.SIGINT)
        driver.send_signal(signal.SIGHUP)
        assert driver.wait(60) == 0
        assert (tmp_path / "ended").exists()
    finally:
        driver.kill()
        driver.wait()


def test_what_is_ignored_stays_ignored(tmp_path: Path) -> None:
    """``nohup`` lets a run outlive its terminal."""
    driver = subprocess.Popen(["nohup", sys.executable, "-c", DRIVER, str(tmp_path)], cwd=ROOT, stdout=-3, stderr=-3)
    try:
        wait_for(tmp_path / "started")
        driver.send_signal(signal.SIGHUP)
        time.sleep(0.5)
        assert driver.poll() is None and not (tmp_path / "cleaning").exists()
        driver.send_signal(signal.SIGTERM)
        assert driver.wait(60) == 0
    finally:
        driver.kill()
        driver.wait()


#: An entry point, as a program, which gets a signal when it imports a module; the import swallows an exception.
PROGRAM = """
import os, runpy, signal, sys

name, program, number, *overrides = sys.argv[1:]

class Finder:
    def find_spec(self, full_name, path=None, target=None):
        if full_name == name:
            try:
                os.kill(os.getpid(), int(number))
            except BaseException:
                pass

sys.meta_path.insert(0, Finder())
sys.argv[1:] = overrides
runpy.run_module(f"recipe.spiral.{program}", run_name="__main__", alter_sys=True)
"""
NOTHING = "spiral: interrupted by {} before anything was started\n"
NUMBERS = {"Ctrl-C": signal.SIGINT, "SIGTERM": signal.SIGTERM, "SIGHUP": signal.SIGHUP}


@pytest.mark.parametrize(
    ("program", "module", "told", "number"),
    [
        ("main_spiral", "dotenv", NOTHING, "Ctrl-C"),
        ("main_spiral", "hydra", NOTHING, "SIGHUP"),
        ("main_spiral", "verl", NOTHING, "SIGTERM"),
        ("main_eval", "dotenv", NOTHING, "SIGTERM"),
        ("main_eval", "recipe.spiral.lab.evaluation.settings", NOTHING, "Ctrl-C"),
        ("main_eval", "recipe.spiral.lab.evaluation.evaluation", NOTHING, "Ctrl-C"),
        *(
            (program, "recipe.spiral.processes.arguments", NOTHING, "Ctrl-C")
            for program in ("audit", "export", "models", "play", "report")
        ),
    ],
)
def test_a_signal_in_an_import_ends_with_one_line(
    tmp_path: Path, program: str, module: str, told: str, number: str
) -> None:
    overrides = [f"run_dir={tmp_path}/run", "hardware=cpu"]
    if program == "main_eval":
        overrides = [f"eval_dir={tmp_path}/eval", "policies=[random]", "opponents=[perfect]", "games_per_role=1"]
    command = [sys.executable, "-c", PROGRAM, module, program, str(int(NUMBERS[number])), *overrides]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stderr) == (130, told.format(number))


def test_where_a_program_is_only_imported_it_takes_no_signal() -> None:
    code = "import signal, recipe.spiral.main_spiral; print(signal.getsignal(signal.SIGTERM) == signal.SIG_DFL)"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.stdout == "True\n"
