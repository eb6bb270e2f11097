"""The process that runs math-verify: it reads pairs of answers, and writes for each pair whether they are the same.

A program of its own, started by ``grading.Grader`` with the path of this file, so that nothing of the caller's process
(threads, CUDA, Ray, a ``__main__`` without a guard) comes along. One JSON object a line in both directions.

The limits are the kernel's: SIGPROF's default action ends the process once an answer has used up its processor time, in
whatever code it is, and also when nobody is left to kill it. math-verify's own limits are switched off: they raise an
exception out of a signal handler, which fails outside the main thread, waits for long calls in C, and can be swallowed.
"""

from __future__ import annotations

import json
import os
import re
import resource
import signal
import sys
from typing import Any, TextIO

#: 4.5e33, as Minerva writes its answers, which LaTeX would read as a product with Euler's number.
_SCIENTIFIC = re.compile(r"(?<![\w.\\])(\d+(?:\.\d+)?)[eE]([+-]?\d+)(?![\w.])")


def main(seconds: float, memory_bytes: int) -> None:
    """Answer until the input ends."""
    # What a library prints must not come between the answers.
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    try:
        judge = _Judge()
    except ImportError as error:
        _write(answers, {"failed": str(error)})
        return
    resource.setrlimit(resource.RLIMIT_AS, (memory_bytes, resource.RLIM_INFINITY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    signal.signal(signal.SIGPROF, signal.SIG_DFL)
    _write(answers, {"ready": True})
    for line in sys.stdin:
        reference, answer = json.loads(line)
        signal.setitimer(signal.ITIMER_PROF, seconds)
        try:
            verdict: dict[str, Any] = {"same": judge.same(reference, answer)}
        except (Exception, RecursionError, MemoryError) as error:
            verdict = {"crash": type(error).__name__}
        signal.setitimer(signal.ITIMER_PROF, 0)
        _write(answers, verdict)


class _Judge:
    def __init__(self) -> None:
        import logging

        from math_verify import ExprExtractionConfig, LatexExtractionConfig, parse, verify

        logging.disable(logging.CRITICAL)
        self._parse, self._verify = parse, verify
        self._forms = [LatexExtractionConfig(boxed_match_priority=0), ExprExtractionConfig()]
        self.same("\\frac{1}{2}", "0.5")  # builds its parsers, which takes a while

    def same(self, reference: str, answer: str) -> bool | None:
        """Whether two answers are the same; None: math-verify cannot read the second."""
        expected, given = self._read(reference), self._read(answer)
        if not given:
            return None
        # A set against a relation, (3,oo) against x>3, and not only the other way round.
        return bool(
            self._verify(expected, given, allow_set_relation_comp=True, timeout_seconds=None, raise_on_error=True)
        )

    def _read(self, answer: str) -> list[Any]:
        # math-verify reads a percentage by its plain sign only.
        answer = answer.replace("\\%", "%")
        answer = _SCIENTIFIC.sub(r"\1\\times 10^{\2}", answer)
        read: list[Any] = []
        # A percentage is an expression between dollar signs only, other answers in a box only.
        for around in ("\\boxed{%s}", "$%s$"):
            read = self._parse(around % answer, self._forms, parsing_timeout=None, raise_on_error=True) or read
            if any(not isinstance(form, str) for form in read):
                break
        return read


def _write(answers: TextIO, message: dict[str, Any]) -> None:
    answers.write(json.dumps(message) + "\n")
    answers.flush()


if __name__ == "__main__":
    main(float(sys.argv[1]), int(sys.argv[2]))
