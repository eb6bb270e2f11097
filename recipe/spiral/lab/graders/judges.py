"""Processes that judge answers, so that no answer and no function can hang or crash the caller.

One that takes too long is killed, and another is started when it is needed.
"""

from __future__ import annotations

import os
import queue
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


class Judges:
    """Up to so many processes of one judge, started when they are first needed. Any number of threads may ask.

    Args:
        workers: the largest number of processes.
        judge: see ``worker.main``.
        seconds: the processor time that one answer may take.
    """

    def __init__(self, workers: int, judge: str, seconds: float) -> None:
        self._command = [sys.executable, "-P", str(WORKER), judge, str(seconds)]
        self._closed = threading.Event()
        self._idle: queue.LifoQueue[_Process | None] = queue.LifoQueue()
        for _ in range(workers):
            self._idle.put(None)

    def ask(self, message: Any, clock: float) -> dict[str, Any]:
        """What a process says to ``message`` within ``clock`` seconds; or {"failed": TIME_OUT or CRASH}.

        Raises:
            NotStarted: no process starts.
            RuntimeError: they were closed.
        """
        if self._closed.is_set():
            raise RuntimeError("the grader is closed")
        process = self._idle.get()
        try:
            if process is not None and process.ended():
                process.kill()
            if process is None or process.killed:
                process = _Process(self._command)
            return process.ask(message, clock)
        except BaseException:
            if process is not None:
                process.kill()
            raise
        finally:
            if process is not None and self._closed.is_set():
                process.kill()
            self._idle.put(None if process is None or process.killed else process)

    def close(self) -> None:
        """End the idle processes. A busy process ends after its answer."""
        self._closed.set()
        with suppress(queue.Empty):
            while True:
                if (process := self._idle.get_nowait()) is not None:
                    process.kill()


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
        self.killed = False
        try:
            said = self._said(_START_SECONDS) or {"failed": f"not ready after {_START_SECONDS:.0f} s"}
        except (EOFError, OSError):
            said = {}
        except BaseException:
            self.kill()
            raise
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
            if (said := self._said(clock)) is not None:
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
        """End it, with all that it has started, which may be what never returns.

        What it started in another session is missed if it has ended by itself.
        """
        if self.killed:
            return
        self.killed = True
        with suppress(psutil.NoSuchProcess):
            for started in psutil.Process(self._process.pid).children(recursive=True):
                with suppress(psutil.NoSuchProcess):
                    started.kill()
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._pipe.close()

    def _said(self, seconds: float) -> dict[str, Any] | None:
        """What it says next; None: nothing, in this time. Raises EOFError, OSError: it has ended."""
        return self._pipe.recv() if self._pipe.poll(seconds) else None
