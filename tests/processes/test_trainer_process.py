"""The trainer in a process of its own: whoever started it hears how it ended, whatever it did."""

from __future__ import annotations

import json
import os
import resource
import shlex
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

pytest.importorskip("ray")
from recipe.spiral.checks import ConfigError
from recipe.spiral.processes.causes import CAUSE
from recipe.spiral.processes.terminal import LIBRARIES_LOG
from recipe.spiral.processes.trainer_process import TRAINER, TrainerEnded, TrainerProcess

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="on Linux only")
ROOT = Path(__file__).resolve().parents[2]

Train = Callable[[Callable[[bool], None]], None]
#: Whatever Ray says of it.
SLOW_RAY = "Ray did not start within the 30 seconds that it allows itself; start again when less runs here"


def ended(run_dir: Path, train: Train, aside: bool = True) -> str | None:
    """Why it says that the trainer has ended; None: its work was done."""
    try:
        TrainerProcess(train, run_dir, aside, plain_errors=(ConfigError,)).wait()
    except TrainerEnded as error:
        return str(error)
    return None


def test_it_ends_when_its_work_is_done_whatever_a_thread_still_does(tmp_path: Path) -> None:
    def train(ray_runs: Callable[[bool], None]) -> None:
        threading.Thread(target=time.sleep, args=(600,)).start()
        (tmp_path / "pid").write_text(str(os.getpid()))

    assert ended(tmp_path, train) is None
    assert int((tmp_path / "pid").read_text()) != os.getpid()


@pytest.mark.parametrize(
    ("error", "says", "traceback"),
    [
        (ValueError("too large"), "ValueError: too large", True),
        (SystemExit(3), "SystemExit: 3", True),
        (ConfigError("seed=x: must be a whole number"), "seed=x: must be a whole number", False),
        (Exception("The current node timed out during startup. This could happen ..."), SLOW_RAY, False),
        (TimeoutError("Timed out after 30 seconds while waiting for node to startup. Did not ..."), SLOW_RAY, False),
    ],
    ids=lambda value: type(value).__name__,
)
def test_an_error_is_said_in_a_line_and_shown(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], error: BaseException, says: str, traceback: bool
) -> None:
    def train(ray_runs: Callable[[bool], None]) -> None:
        ray_runs(True)
        raise error

    assert ended(tmp_path, train) == says
    assert ("Traceback" in capfd.readouterr().err) is traceback


def test_what_the_watchdog_wrote_counts(tmp_path: Path) -> None:
    def train(ray_runs: Callable[[bool], None]) -> None:
        (tmp_path / CAUSE).write_text("the vLLM server died (...)")
        os._exit(1)

    assert ended(tmp_path, train) == "the vLLM server died (...)"


def test_a_killed_one_is_named_with_what_killed_it(tmp_path: Path) -> None:
    said = ended(tmp_path, lambda ray_runs: os.kill(os.getpid(), signal.SIGKILL))
    assert said == "the trainer died (killed by SIGKILL); start the run again to go on from its last checkpoint"


def test_libraries_print_into_a_file_and_errors_only_when_ray_runs(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    def train(ray_runs: Callable[[bool], None]) -> None:
        os.write(1, b"ray init kwargs\n")
        os.write(2, b"no shared memory\n")
        ray_runs(True)
        os.write(1, b"a line\n")
        os.write(2, b"a warning\n")

    assert ended(tmp_path, train) is None
    assert (tmp_path / LIBRARIES_LOG).read_text().splitlines() == ["ray init kwargs", "a line", "a warning"]
    shown = capfd.readouterr()
    assert (shown.out, shown.err) == ("", "no shared memory\n")
    assert ended(tmp_path, train, aside=False) is None
    assert capfd.readouterr() == ("ray init kwargs\na line\n", "no shared memory\na warning\n")


def test_signals_are_the_parents_and_sigterm_ends_it(tmp_path: Path) -> None:
    def train(ray_runs: Callable[[bool], None]) -> None:
        signal.signal(signal.SIGTERM, lambda *_: None)  # as Ray does when it starts
        ray_runs(True)
        for number in (signal.SIGINT, signal.SIGHUP):  # a terminal sends these to everybody
            os.kill(os.getpid(), number)
        (tmp_path / "went on").touch()
        os.kill(os.getpid(), signal.SIGTERM)

    said = ended(tmp_path, train)
    assert said is not None and "killed by SIGTERM" in said
    assert (tmp_path / "went on").exists()


def test_rays_own_end_on_sigterm_is_no_failure(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Until Ray runs, its handler turns the parent's SIGTERM into this."""

    def train(ray_runs: Callable[[bool], None]) -> None:
        raise SystemExit(int(signal.SIGTERM))

    assert "the trainer died" in (ended(tmp_path, train) or "")
    assert not (tmp_path / CAUSE).exists() and capfd.readouterr().err == ""


def test_the_cause_comes_where_the_disk_is_full(tmp_path: Path) -> None:
    def train(ray_runs: Callable[[bool], None]) -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY))
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        raise ValueError("too large")

    assert ended(tmp_path, train) == "ValueError: too large"


def test_a_text_that_is_not_unicode_is_shown_as_far_as_it_goes(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    def train(ray_runs: Callable[[bool], None]) -> None:
        raise ValueError(json.loads('"\\ud83d"'))

    assert (ended(tmp_path, train) or "").startswith("ValueError: ")
    assert "ValueError: \\ud83d" in capfd.readouterr().err


#: Starts one that fails, or does not, and prints what is said of it.
STARTS = """
import os, signal, sys, time
from pathlib import Path
from recipe.spiral.processes.trainer_process import TrainerEnded, TrainerProcess

run_dir, how = Path(sys.argv[1]), sys.argv[2]

def train(ray_runs):
    ray_runs(True)
    if how == "wait":
        time.sleep(600)
    if how == "fail":
        raise ValueError("too large")

try:
    TrainerProcess(train, run_dir, True).wait()
    said = "done"
except TrainerEnded as error:
    said = str(error)
(run_dir / "said").write_text(said)
"""


@pytest.mark.parametrize(("how", "said"), [("end", "done"), ("fail", "ValueError: too large")])
@pytest.mark.parametrize("closed", ["", ">&-", "2>&-", ">&- 2>&-", "<&-"])
def test_what_was_closed_before_changes_nothing(tmp_path: Path, how: str, said: str, closed: str) -> None:
    command = f"{shlex.join([sys.executable, '-c', STARTS, str(tmp_path), how])} {closed}"
    subprocess.run(["bash", "-c", command], cwd=ROOT, timeout=60, check=True)
    assert (tmp_path / "said").read_text() == said


def test_a_failure_is_one_where_the_ends_of_processes_are_ignored(tmp_path: Path) -> None:
    command = f"trap '' CHLD; exec {shlex.join([sys.executable, '-c', STARTS, str(tmp_path), 'fail'])}"
    subprocess.run(["bash", "-c", command], cwd=ROOT, timeout=60, check=True)
    assert (tmp_path / "said").read_text() == "ValueError: too large"


def test_it_ends_with_who_started_it(tmp_path: Path) -> None:
    started = subprocess.Popen([sys.executable, "-c", STARTS, str(tmp_path), "wait"], cwd=ROOT)
    trainer = None
    try:
        end = time.monotonic() + 60
        while trainer is None and time.monotonic() < end:
            children = psutil.Process(started.pid).children()
            trainer = next((child for child in children if child.cmdline()[:1] == [TRAINER]), None)
            time.sleep(0.02)
        assert trainer is not None
        started.kill()
        started.wait()
        trainer.wait(30)
    finally:
        started.kill()
        if trainer is not None and trainer.is_running():
            trainer.kill()
