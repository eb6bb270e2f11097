"""The process that judges answers, by math-verify or by a function of the user's: JSON lines in, JSON lines out.

A program of its own, started by ``judges`` with the path of this file, so that nothing of the caller's process
(threads, CUDA, Ray, a ``__main__`` without a guard) comes along. It ends with its caller, also within code that never
returns: a thread looks who its parent is. Programs that a function has started end with it. They and the function have
an empty standard input.

The limits are the kernel's: SIGPROF's default action ends the process once an answer has used up its processor time, in
whatever code it is. math-verify's own limits are switched off: they raise an exception out of a signal handler, which
fails outside the main thread, waits for long calls in C, and can be swallowed.
"""

from __future__ import annotations

import importlib
import json
import logging
import os
import re
import resource
import signal
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, TextIO

#: The judge that is no function.
MATH = "math-verify"
#: The most memory for math-verify, in bytes.
_MEMORY = 4 * 2**30
#: Seconds between two looks for the parent.
_LOOK = 1.0
#: 4.5e33, as Minerva writes its answers, which LaTeX would read as a product with Euler's number.
_SCIENTIFIC = re.compile(r"(?<![\w.\\])(\d+(?:\.\d+)?)[eE]([+-]?\d+)(?![\w.])")


def main(judge: str, seconds: float) -> None:
    """Answer until the input ends.

    Args:
        judge: ``MATH``, or "module:function".
        seconds: the processor time that one answer may take, of all threads together.
    """
    # What a judge prints or reads must not come between answers and questions.
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    questions = os.fdopen(os.dup(0), encoding="utf-8")
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    own = os.getpid()
    try:
        said_of = _math_verify() if judge == MATH else _function(judge)
    except Exception as error:
        _write(answers, {"failed": f"{type(error).__name__}: {error}"})
        return
    threading.Thread(target=_end_with, args=(os.getppid(),), daemon=True).start()
    signal.signal(signal.SIGPROF, signal.SIG_DFL)
    _write(answers, {"ready": True})
    for line in questions:
        asked = json.loads(line)
        signal.setitimer(signal.ITIMER_PROF, seconds)
        try:
            said = {"said": None if asked is None else said_of(asked)}
        except Exception as error:
            said = {"raised": f"{type(error).__name__}: {error}"[:500]}
        if os.getpid() != own:
            os._exit(0)  # a fork of the function's came back as well, and the answer is its parent's
        signal.setitimer(signal.ITIMER_PROF, 0)
        _write(answers, said)


def _math_verify() -> Callable[[Any], bool | None]:
    """Whether the second of two answers is the same as the first; None: math-verify cannot read the second."""
    from math_verify import ExprExtractionConfig, LatexExtractionConfig, parse, verify

    logging.disable(logging.CRITICAL)
    forms = [LatexExtractionConfig(boxed_match_priority=0), ExprExtractionConfig()]

    def read(answer: str) -> list[Any]:
        # math-verify reads a percentage by its plain sign only.
        answer = _SCIENTIFIC.sub(r"\1\\times 10^{\2}", answer.replace("\\%", "%"))
        found: list[Any] = []
        # A percentage is an expression between dollar signs only, other answers in a box only.
        for around in ("\\boxed{%s}", "$%s$"):
            found = parse(around % answer, forms, parsing_timeout=None, raise_on_error=True) or found
            if any(not isinstance(form, str) for form in found):
                break
        return found

    def same(answers: tuple[str, str]) -> bool | None:
        expected, given = map(read, answers)
        if not given:
            return None
        # A set against a relation, (3,oo) against x>3, and not only the other way round.
        return bool(verify(expected, given, allow_set_relation_comp=True, timeout_seconds=None, raise_on_error=True))

    same(("\\frac{1}{2}", "0.5"))  # builds its parsers, which takes a while
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, resource.RLIM_INFINITY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    return same


def _function(name: str) -> Callable[[Any], Any]:
    """What a user's function returns, as JSON takes it: a number, or text that is none."""
    sys.path.insert(0, os.getcwd())
    module, _, attribute = name.partition(":")
    function = getattr(importlib.import_module(module), attribute)

    def call(arguments: dict[str, Any]) -> Any:
        returned = function(**arguments)
        value: Any = returned.get("score") if isinstance(returned, dict) else returned
        if not isinstance(value, str | bytes):  # float() would read "0.5"
            with suppress(TypeError, ValueError):
                return float(value)  # numpy's and torch's are numbers, too
        return repr(value)[:100]

    return call


def _end_with(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(_LOOK)
    os.killpg(0, signal.SIGKILL)


def _write(answers: TextIO, message: dict[str, Any]) -> None:
    answers.write(json.dumps(message) + "\n")
    answers.flush()


if __name__ == "__main__":
    main(sys.argv[1], float(sys.argv[2]))
