"""Whether a response answers its question correctly. No response can hang or crash the caller.

math-verify judges math in processes of its own. If an answer uses up its processor time, or takes four times as long by
the clock, its process is killed and another one is started; the answer is wrong, with the reason "time-out". The limit
is processor time, so that a verdict does not depend on the machine's load. Crashes are counted separately.
"""

from __future__ import annotations

import importlib.util
import json
import os
import queue
import re
import select
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...play.prompts import last_box
from .letters import chosen
from .questions import Question

#: The reasons of verdicts. The last two are failures of the grader.
REASONS = ("right", "wrong", "no answer", "unreadable", "time-out", "crash")
FAILURES = ("time-out", "crash")

_WORKER = Path(__file__).with_name("worker.py")
#: Seconds that a process may take to start; imports are slow on a busy machine.
_START_SECONDS = 120.0
#: The limit by the clock, as a multiple of the limit of processor time.
_CLOCK = 4.0
_MEMORY_BYTES = 4 * 2**30
#: Longer answers, in characters, are not judged.
_LONGEST = 5000
_WHOLE = re.compile(r"[+-]?\d{1,18}")


@dataclass(frozen=True)
class Verdict:
    """The verdict on a response.

    Attributes:
        correct: whether the response is right.
        reason: one of ``REASONS``.
        answer: what was judged, the content of the box or a letter; None: there was no answer.
    """

    correct: bool
    reason: str
    answer: str | None = None


class Grader:
    """Judges answers in up to ``workers`` processes, which are started when they are first needed.

    Any number of threads may use it. Close it, or use it as a context manager.
    """

    def __init__(self, workers: int = 2, seconds: float = 5.0, command: Sequence[str] | None = None) -> None:
        """
        Args:
            workers: the largest number of processes.
            seconds: the processor time that one answer may take.
            command: what is started instead of the worker (for tests).

        Raises:
            ValueError: ``workers`` or ``seconds`` is not positive.
        """
        if workers < 1 or seconds <= 0:
            raise ValueError(f"grader: workers={workers}, seconds={seconds}: both must be above 0")
        self.seconds, self.workers = seconds, workers
        #: The number of verdicts by reason, with those of comparisons between answers.
        self.counts: Counter[str] = Counter()
        self._command = list(command) if command else [sys.executable, "-P", str(_WORKER)]
        self._lock = threading.Lock()
        self._closed = threading.Event()
        self._idle: queue.LifoQueue[_Process | None] = queue.LifoQueue()
        for _ in range(workers):
            self._idle.put(None)

    def grade(self, question: Question, response: str) -> Verdict:
        """The verdict on a response. Only the content of its last closed box counts.

        Raises:
            ImportError: math-verify is not installed.
            RuntimeError: the process of math-verify does not start.
        """
        box = last_box(response)
        if box is None or not box.strip():
            return self._count(Verdict(False, "no answer"))
        if question.kind == "choice":
            letter = chosen(response, question.choices)
            if letter is None:
                return self._count(Verdict(False, "unreadable", box.strip()))
            right = letter == question.answer
            return self._count(Verdict(right, "right" if right else "wrong", letter))
        reason = self.compare(question.answer, box.strip())
        return Verdict(reason == "right", reason, box.strip())

    def grade_all(self, pairs: Sequence[tuple[Question, str]]) -> list[Verdict]:
        """The verdicts on many responses, in their order."""
        with ThreadPoolExecutor(self.workers) as threads:
            return list(threads.map(lambda pair: self.grade(*pair), pairs))

    def compare(self, reference: str, answer: str) -> str:
        """Whether two answers are the same: "right", "wrong", "unreadable", "time-out" or "crash"."""
        reason = _at_a_glance(reference, answer) or self._ask(reference, answer)
        self._count(Verdict(reason == "right", reason))
        return reason

    def close(self) -> None:
        """End the idle processes. A busy process ends after its answer."""
        self._closed.set()
        while True:
            try:
                process = self._idle.get_nowait()
            except queue.Empty:
                return
            if process is not None:
                process.kill()

    def __enter__(self) -> Grader:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _count(self, verdict: Verdict) -> Verdict:
        with self._lock:
            self.counts[verdict.reason] += 1
        return verdict

    def _ask(self, reference: str, answer: str) -> str:
        if self._closed.is_set():
            raise RuntimeError("the grader is closed")
        process = self._idle.get()
        try:
            if process is None or not process.alive():
                process = _Process([*self._command, str(self.seconds), str(_MEMORY_BYTES)])
            reason = process.ask(reference, answer, self.seconds * _CLOCK)
            if reason in FAILURES and process.used_up:
                process = None
            return reason
        except BaseException:
            if process is not None:
                process.kill()
            process = None
            raise
        finally:
            if process is not None and self._closed.is_set():
                process.kill()
                process = None
            self._idle.put(process)


class _Process:
    """A process that judges answers; it is spoken to through two pipes."""

    def __init__(self, command: list[str]) -> None:
        if importlib.util.find_spec("math_verify") is None:
            raise ImportError("math-verify judges the answers of math benchmarks: pip install verl-spiral[math]")
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            # A session of its own, so that Ctrl-C at the terminal reaches only the caller.
            start_new_session=True,
            bufsize=0,
        )
        self._unread = b""
        #: Whether the process was killed.
        self.used_up = False
        try:
            line = self._read(_START_SECONDS)
        except BaseException:
            self.kill()
            raise
        if line is None or "ready" not in line:
            self.kill()
            why = (line or {}).get("failed") or f"exit status {self._process.returncode}"
            raise RuntimeError(f"math-verify's process did not start: {why}; try: {' '.join(command)}")

    def alive(self) -> bool:
        return not self.used_up and self._process.poll() is None

    def ask(self, reference: str, answer: str, clock: float) -> str:
        """The verdict's reason for an answer, given the right answer (``reference``), within ``clock`` seconds."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write((json.dumps([reference, answer]) + "\n").encode())
        except BrokenPipeError:
            self.kill()
            return "crash"
        line = self._read(clock)
        if line is None:
            ended = self._process.poll() is not None or self._ends_now()
            self.kill()
            return "time-out" if not ended or self._process.returncode == -signal.SIGPROF else "crash"
        if "crash" in line:
            return "crash"
        return {True: "right", False: "wrong", None: "unreadable"}[line["same"]]

    def kill(self) -> None:
        self.used_up = True
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()

    def _ends_now(self) -> bool:
        """Whether the process ended by itself. Its pipe closes a moment before its exit status is known."""
        if self._pipe_open:
            return False
        try:
            self._process.wait(5)
        except subprocess.TimeoutExpired:
            return False
        return True

    def _read(self, seconds: float) -> dict[str, Any] | None:
        """The next line; None: it did not come in time, or the process has ended."""
        assert self._process.stdout is not None
        self._pipe_open = True
        descriptor = self._process.stdout.fileno()
        poll = select.poll()  # select() takes no descriptors above 1023, which a process with Ray has
        poll.register(descriptor, select.POLLIN | select.POLLHUP)
        until = time.monotonic() + seconds
        while b"\n" not in self._unread:
            if not poll.poll(max(0.0, until - time.monotonic()) * 1000):
                return None
            if not (read := os.read(descriptor, 65536)):
                self._pipe_open = False
                return None
            self._unread += read
        line, self._unread = self._unread.split(b"\n", 1)
        message: dict[str, Any] = json.loads(line)
        return message


def _at_a_glance(reference: str, answer: str) -> str | None:
    """The verdict's reason where no computer algebra is needed: the same text, whole numbers; else None."""
    if reference.strip() == answer.strip():
        return "right"
    if len(answer) > _LONGEST:
        return "unreadable"
    if _WHOLE.fullmatch(reference.strip()) and _WHOLE.fullmatch(answer.strip()):
        return "right" if int(reference) == int(answer) else "wrong"
    return None
