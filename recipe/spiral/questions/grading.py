"""Whether a response answers its question correctly. No response can hang or crash the caller.

math-verify judges math in processes of its own. If an answer uses up its processor time, or takes four times as long by
the clock, its process is killed and another one is started; the answer is wrong, with the reason "time-out". The limit
is processor time, so that a verdict does not depend on the machine's load. Crashes are counted separately.
"""

from __future__ import annotations

import importlib.util
import re
import sys
import threading
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from ..extras import install
from ..players.prompts import last_box
from .judges import CRASH, TIME_OUT, Judges
from .letters import chosen
from .question import Question

#: The reasons of verdicts. The last two are failures of the grader.
REASONS = ("right", "wrong", "no answer", "unreadable", TIME_OUT, CRASH)
FAILURES = (TIME_OUT, CRASH)

_WORKER = Path(__file__).with_name("math_worker.py")
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
        program = list(command) if command else [sys.executable, "-P", str(_WORKER)]
        self._judges = Judges(workers, [*program, str(seconds), str(_MEMORY_BYTES)])
        self._lock = threading.Lock()

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
        self._judges.close()

    def __enter__(self) -> Grader:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _count(self, verdict: Verdict) -> Verdict:
        with self._lock:
            self.counts[verdict.reason] += 1
        return verdict

    def _ask(self, reference: str, answer: str) -> str:
        if importlib.util.find_spec("math_verify") is None:
            raise ImportError(f"math-verify judges the answers of math benchmarks: {install('math')}")
        said = self._judges.ask([reference, answer], self.seconds * _CLOCK)
        if "failed" in said:
            return str(said["failed"])
        return CRASH if "crash" in said else {True: "right", False: "wrong", None: "unreadable"}[said["same"]]


def _at_a_glance(reference: str, answer: str) -> str | None:
    """The verdict's reason where no computer algebra is needed: the same text, whole numbers; else None."""
    if reference.strip() == answer.strip():
        return "right"
    if len(answer) > _LONGEST:
        return "unreadable"
    if _WHOLE.fullmatch(reference.strip()) and _WHOLE.fullmatch(answer.strip()):
        return "right" if int(reference) == int(answer) else "wrong"
    return None
