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
#: A run whose Ray takes SIGTERM's handler away when it is shut down, as Ray does, and needs a second for it.
DRIVER = """
import ctypes, subprocess, sys, time, types
from pathlib import Path
from recipe.spiral.running.launch import clean_run

def shutdown():
    ctypes.CDLL(None).signal(15, None)
    (run_dir / "cleaning").touch()
    time.sleep(1)

sys.modules["ray"] = types.SimpleNamespace(shutdown=shutdown)
run_dir = Path(sys.argv[1])
try:
    with clean_run(run_dir):
        child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"], start_new_session=True)
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


#: The entry point, which gets a signal in the middle of importing verl; such an import may end in any error.
PROGRAM = """
import os, signal, sys
from recipe.spiral import main_spiral

number, wrapped, *overrides = sys.argv[1:]

def import_verl():
    try:
        os.kill(os.getpid(), int(number))
        raise SystemExit("no signal came")
    except KeyboardInterrupt as error:
        if wrapped == "True":
            raise ImportError("initialization failed") from error
        raise

main_spiral._import_verl = import_verl
sys.argv[1:] = overrides
main_spiral.main()
"""


@pytest.mark.parametrize(
    ("number", "name", "wrapped"),
    [(signal.SIGINT, "Ctrl-C", False), (signal.SIGTERM, "SIGTERM", True), (signal.SIGHUP, "SIGHUP", False)],
)
def test_before_ray_starts_it_is_one_line(tmp_path: Path, number: int, name: str, wrapped: bool) -> None:
    command = [sys.executable, "-c", PROGRAM, str(int(number)), str(wrapped), "hardware=cpu", f"run_dir={tmp_path}/run"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.returncode == 130
    assert done.stderr == f"spiral: interrupted by {name} before anything was started\n"
