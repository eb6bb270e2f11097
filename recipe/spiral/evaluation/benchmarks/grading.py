"""Whether a response answers its question rightly. Nothing that it says can hang or end the caller.

Math is judged by math-verify in processes of its own. An answer that uses up its processor time, or that takes four
times as long by the clock, costs its process, and another is started; that answer is wrong, with the reason "time-out".
Processor time, so that a verdict does not depend on what else a machine does. A crash is told apart and counted.
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

#: Why a verdict is what it is. The last two are the grader's failures, not the response's.
REASONS = ("right", "wrong", "no answer", "unreadable", "time-out", "crash")
FAILURES = ("time-out", "crash")

_WORKER = Path(__file__).with_name("worker.py")
#: Seconds that a process may take to start: imports, on a busy machine.
_START_SECONDS = 120.0
#: The clock's limit, as a multiple of the processor's.
_CLOCK = 4.0
_MEMORY_BYTES = 4 * 2**30
#: No answer is longer, in characters; what is, is not looked at.
_LONGEST = 5000
_WHOLE = re.compile(r"[+-]?\d{1,18}")


@dataclass(frozen=True)
class Verdict:
    """What a response is worth.

    Attributes:
        correct: whether it is right.
        reason: one of ``REASONS``.
        answer: what was judged: the box's content, or a letter; None: there was none.
    """

    correct: bool
    reason: str
    answer: str | None = None


class Grader:
    """Judges answers, from any number of threads; ``workers`` of them at once, in as many processes.

    Processes are started when they are first needed. Close it, or use it as a context manager.
    """

    def __init__(self, workers: int = 2, seconds: float = 5.0, command: Sequence[str] | None = None) -> None:
        """
        Args:
            workers: how many processes there are at most.
            seconds: the processor time that one answer may take.
            command: what is started instead of the worker, for tests.

        Raises:
            ValueError: a number is not positive.
        """
        if workers < 1 or seconds <= 0:
            raise ValueError(f"grader: workers={workers}, seconds={seconds}: both must be above 0")
        self.seconds, self.workers = seconds, workers
        #: How often each reason was given, comparisons between answers included.
        self.counts: Counter[str] = Counter()
        self._command = list(command) if command else [sys.executable, "-P", str(_WORKER)]
        self._lock = threading.Lock()
        self._closed = threading.Event()
        self._idle: queue.LifoQueue[_Process | None] = queue.LifoQueue()
        for _ in range(workers):
            self._idle.put(None)

    def grade(self, question: Question, response: str) -> Verdict:
        """The verdict on a response; only what stands in its last closed box counts.

        Raises:
            ImportError: math-verify is not installed.
            RuntimeError: its process does not start.
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
        """End the processes that are idle; one that is busy ends when it is done."""
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
    """A worker at the other end of two pipes."""

    def __init__(self, command: list[str]) -> None:
        if importlib.util.find_spec("math_verify") is None:
            raise ImportError("the answers of math benchmarks are judged by math-verify: pip install verl-spiral[math]")
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            # Its own session: a Ctrl-C at the terminal is the caller's, and no verdict.
            start_new_session=True,
            bufsize=0,
        )
        self._unread = b""
        #: Whether it is of no more use.
        self.used_up = False
        try:
            said = self._read(_START_SECONDS)
        except BaseException:
            self.kill()
            raise
        if said is None or "ready" not in said:
            self.kill()
            why = (said or {}).get("failed") or f"exit status {self._process.returncode}"
            raise RuntimeError(f"math-verify's process did not start: {why}; try: {' '.join(command)}")

    def alive(self) -> bool:
        return not self.used_up and self._process.poll() is None

    def ask(self, reference: str, answer: str, clock: float) -> str:
        """A verdict's reason; one of ``FAILURES`` where the process had to go.

        Args:
            reference: the right answer.
            answer: the one to judge.
            clock: seconds to wait.
        """
        assert self._process.stdin is not None
        try:
            self._process.stdin.write((json.dumps([reference, answer]) + "\n").encode())
        except BrokenPipeError:
            self.kill()
            return "crash"
        said = self._read(clock)
        if said is None:
            ended = self._process.poll() is not None or self._ends_now()
            self.kill()
            return "time-out" if not ended or self._process.returncode == -signal.SIGPROF else "crash"
        if "crash" in said:
            return "crash"
        return {True: "right", False: "wrong", None: "unreadable"}[said["same"]]

    def kill(self) -> None:
        self.used_up = True
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()

    def _ends_now(self) -> bool:
        """Whether it has ended of itself: its pipe closes a moment before its exit status is there."""
        if self._pipe_open:
            return False
        try:
            self._process.wait(5)
        except subprocess.TimeoutExpired:
            return False
        return True

    def _read(self, seconds: float) -> dict[str, Any] | None:
        """A line; None: there was none in time, or it will never come."""
        assert self._process.stdout is not None
        self._pipe_open = True
        descriptor = self._process.stdout.fileno()
        poll = select.poll()  # select cannot take descriptors above 1023, which a process with Ray has
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
        said: dict[str, Any] = json.loads(line)
        return said


def _at_a_glance(reference: str, answer: str) -> str | None:
    """What needs no computer algebra: the same text, and whole numbers."""
    if reference.strip() == answer.strip():
        return "right"
    if len(answer) > _LONGEST:
        return "unreadable"
    if _WHOLE.fullmatch(reference.strip()) and _WHOLE.fullmatch(answer.strip()):
        return "right" if int(reference) == int(answer) else "wrong"
    return None
