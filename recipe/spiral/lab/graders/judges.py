"""A process that judges answers, so that no answer and no function can hang or crash the caller.

One that takes too long is killed, and another is started for the next answer.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from multiprocessing import Pipe
from pathlib import Path
from typing import Any

import psutil

#: Seconds that a process may take to start; imports are slow on a busy machine.
_START_SECONDS = 120.0
WORKER = Path(__file__).with_name("judge_process.py")
TIME_OUT, CRASH = "time-out", "crash"


class NotStarted(RuntimeError):
    """No process starts; the message has its reason."""


class Judge:
    """A process of one judge, started when it is first needed. Any number of threads may ask, one after the other.

    Args:
        judge: see ``judge_process.main``.
        seconds: the processor time that one answer may take.
    """

    def __init__(self, judge: str, seconds: float) -> None:
        self._command = [sys.executable, "-P", str(WORKER), judge, str(seconds)]
        self._free = threading.Lock()
        self._process: _Process | None = None

    def ask(self, message: Any, clock: float) -> dict[str, Any]:
        """What the process says to ``message`` within ``clock`` seconds; or {"failed": TIME_OUT or CRASH}. Raises
        NotStarted: no process starts."""
        with self._free:
            if self._process is None or self._process.ended():
                self._end()
                self._process = _Process(self._command)
            try:
                said = self._process.ask(message, clock)
            except BaseException:
                self._end()
                raise
            if "failed" in said:
                self._end()
            return said

    def close(self) -> None:
        """End the process."""
        with self._free:
            self._end()

    def _end(self) -> None:
        if self._process is not None:
            self._process.kill()
        self._process = None


class _Process:
    def __init__(self, command: list[str]) -> None:
        self._pipe, theirs = Pipe()
        with theirs:
            self._process = subprocess.Popen(
                command,
                stdin=theirs.fileno(),
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                # A session of its own, so that Ctrl-C at the terminal reaches only the caller.
                start_new_session=True,
            )
        try:
            said = self._pipe.recv() if self._pipe.poll(_START_SECONDS) else {"failed": "it is not ready"}
        except (EOFError, OSError):
            said = {}
        if "ready" not in said:
            self.kill()
            why = said.get("failed") or f"exit status {self._process.returncode}"
            raise NotStarted(f"the grader's process did not start: {why}; try: {' '.join(command)}")

    def ended(self) -> bool:
        """Whether it has ended. Its number stays its own, and that of its group, until ``kill``."""
        return os.waitid(os.P_PID, self._process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None

    def ask(self, message: Any, clock: float) -> dict[str, Any]:
        try:
            self._pipe.send(message)
            if self._pipe.poll(clock):
                said: dict[str, Any] = self._pipe.recv()
                return said
        except (EOFError, OSError):
            # Its pipe closes a moment before its exit status is known.
            until = time.monotonic() + 5
            while not self.ended() and time.monotonic() < until:
                time.sleep(0.01)
        ended = self.ended()
        self.kill()
        return {"failed": TIME_OUT if not ended or self._process.returncode == -signal.SIGPROF else CRASH}

    def kill(self) -> None:
        """End it, with all that it has started."""
        with suppress(psutil.NoSuchProcess):
            for started in psutil.Process(self._process.pid).children(recursive=True):
                with suppress(psutil.NoSuchProcess):
                    started.kill()
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._pipe.close()
