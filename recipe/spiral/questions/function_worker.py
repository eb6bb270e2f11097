"""The process that calls a user's function: it reads its arguments, and writes what it returns.

A program of its own, started by ``scoring.FunctionScorer`` with the path of this file. One JSON value a line in both
directions; null asks nothing. It ends with its caller, also within a function that never returns: a thread looks who
its parent is, and a function that keeps every thread waiting uses up its processor time. Programs that the function has
started end with it. They and the function have an empty standard input.
"""

from __future__ import annotations

import importlib
import json
import os
import signal
import sys
import threading
import time
from contextlib import suppress
from typing import Any, TextIO

#: Seconds between two looks for the parent.
_LOOK = 1.0
#: The limit of processor time, as a multiple of the function's by the clock: all of its threads use it up together.
_PROCESSOR = 4.0 * (os.cpu_count() or 1)


def main(target: str, seconds: float) -> None:
    """Answer until the input ends."""
    # What a function prints or reads must not come between answers and questions.
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    questions = os.fdopen(os.dup(0), encoding="utf-8")
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    own = os.getpid()
    sys.path[0] = os.getcwd()  # not this file's folder
    try:
        module, _, name = target.partition(":")
        function = getattr(importlib.import_module(module), name)
    except Exception as error:
        _write(answers, {"failed": f"{type(error).__name__}: {error}"})
        return
    threading.Thread(target=_end_with, args=(os.getppid(),), daemon=True).start()
    signal.signal(signal.SIGPROF, signal.SIG_DFL)
    _write(answers, {"ready": True})
    for line in questions:
        arguments = json.loads(line)
        signal.setitimer(signal.ITIMER_PROF, _PROCESSOR * seconds)
        try:
            returned: Any = None if arguments is None else function(**arguments)
            said: dict[str, Any] = {"score": _number(returned)}
        except Exception as error:
            said = {"raised": f"{type(error).__name__}: {error}"[:500]}
        if os.getpid() != own:
            os._exit(0)  # a fork of the function's came back as well, and the answer is its parent's
        signal.setitimer(signal.ITIMER_PROF, 0)
        _write(answers, said)


def _number(returned: Any) -> Any:
    """What was returned, as JSON takes it: a number, or text that is none."""
    value: Any = returned.get("score") if isinstance(returned, dict) else returned
    if not isinstance(value, str | bytes):  # float() would read "0.5"
        with suppress(TypeError, ValueError):
            return float(value)  # numpy's and torch's are numbers, too
    return repr(value)[:100]


def _end_with(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(_LOOK)
    os.killpg(0, signal.SIGKILL)


def _write(answers: TextIO, message: dict[str, Any]) -> None:
    answers.write(json.dumps(message) + "\n")
    answers.flush()


if __name__ == "__main__":
    main(sys.argv[1], float(sys.argv[2]))
