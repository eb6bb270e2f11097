"""A session of these tests that is interrupted while Ray and vLLM are up leaves nothing behind."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from recipe.spiral.processes.launch import _segments_of, end_processes, end_with_parent, remove_segments
from recipe.spiral.storage.checkpoints import latest

from .conftest import LIMIT, ROOT, Run, small

pytestmark = [pytest.mark.e2e, pytest.mark.full]
#: Seconds: a session that is interrupted by ``timeout`` in run_scripts/test.sh has 30.
PATIENCE = 120.0


class Session:
    """pytest in a process of its own, with a temporary folder of its own, and what was seen of its descendants."""

    def __init__(self, tests: str) -> None:
        self.temporary = Path(tempfile.mkdtemp(prefix="it-", dir="/tmp"))  # short, for the paths of Ray's sockets
        self.seen: set[psutil.Process] = set()
        self.segments: set[str] = set()
        with (self.temporary / "output.txt").open("w") as output:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", str(Path(__file__).with_name(tests))],
                cwd=ROOT,
                env={**os.environ, "TMPDIR": str(self.temporary)},
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=end_with_parent,
            )

    @property
    def output(self) -> str:
        return (self.temporary / "output.txt").read_text(errors="replace")

    def wait_for(self, title: str, seconds: float = LIMIT) -> None:
        """Wait until a descendant has this in its command line."""
        end = time.monotonic() + seconds
        while time.monotonic() < end and self.process.poll() is None:
            if any(title in " ".join(command) for command in self.look()):
                return
            time.sleep(0.5)
        pytest.fail(f"no process {title!r} (exit {self.process.poll()}):\n{self.output[-4000:]}")

    def look(self) -> list[list[str]]:
        """Note the descendants and their shared memory; returns their command lines."""
        commands = []
        for child in psutil.Process(self.process.pid).children(recursive=True):
            with suppress(psutil.Error):
                commands.append(child.cmdline())
                self.seen.add(child)
        self.segments |= _segments_of(self.seen)
        return commands

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        end_processes([process for process in self.seen if process.is_running()])
        remove_segments(self.segments)
        shutil.rmtree(self.temporary, ignore_errors=True)


@pytest.fixture
def sessions() -> Iterator[list[Session]]:
    started: list[Session] = []
    yield started
    for session in started:
        session.close()


@pytest.mark.parametrize(
    ("number", "to_all", "tests"),
    [
        pytest.param(signal.SIGINT, True, "test_train_resume.py", id="Ctrl-C, Ray in the run's processes"),
        pytest.param(signal.SIGTERM, False, "test_opponent_engine.py", id="SIGTERM, Ray in the session itself"),
    ],
)
def test_an_interrupted_session_leaves_nothing(
    sessions: list[Session], number: signal.Signals, to_all: bool, tests: str
) -> None:
    session = Session(tests)
    sessions.append(session)
    session.wait_for("ray::VLLMServer" if to_all else "ray::SlotServer")
    for _ in range(20):  # into the engines' start
        time.sleep(0.5)
        session.look()
    assert any("raylet" in command[0] for command in session.look() if command)
    (os.killpg if to_all else os.kill)(session.process.pid, number)
    began = time.monotonic()
    status = session.process.wait(PATIENCE)
    print(f"ended {time.monotonic() - began:.1f} s after {number.name}; {len(session.seen)} processes were seen")
    assert status == pytest.ExitCode.INTERRUPTED, session.output[-4000:]
    assert not [p for p in session.seen if p.is_running() and p.status() != psutil.STATUS_ZOMBIE]
    assert not [name for name in session.segments if Path("/dev/shm", name).exists()]
    assert not list(session.temporary.glob("spiral-*"))


def test_a_run_that_is_told_to_end_saves_a_checkpoint_first(tmp_path: Path, model: Path, runs: list[Run]) -> None:
    overrides = small(model, "trainer.total_training_steps=2000", "trainer.save_freq=1000", "trainer.test_freq=1000")
    run = Run(tmp_path / "run", *overrides)
    runs.append(run)
    run.wait_for(r"^step +2/2000 ")
    os.killpg(run.process.pid, signal.SIGTERM)  # as `timeout` does
    assert run.wait() == 130
    step = latest(tmp_path / "run" / "checkpoints")
    assert step is not None and 2 <= step < 1000
    assert run.last_line == f"spiral: interrupted by SIGTERM; start it again to go on from step {step}"
    again = Run(tmp_path / "run", *overrides)
    runs.append(again)
    again.wait_for(rf"^going on after step {step} of 2000")
    again.signal(signal.SIGTERM)  # no step of this start is done, and its checkpoint is the one that it came from
    again.wait()
