"""The process that judges answers, by ``mathematics`` or by a function of the user's.

A program of its own, started by ``judges`` with the path of this file, so that nothing of the caller's process
(threads, CUDA, Ray, a ``__main__`` without a guard) comes along. It ends with its caller, also within code that never
returns: a thread looks who its parent is. Programs that a function has started end with it. It is asked through its
standard input, a ``multiprocessing.Pipe``; the function and its programs have an empty one.

The limits are the kernel's: SIGPROF's default action ends the process once an answer has used up its processor time, in
whatever code it is. An exception out of a signal handler would wait for long calls in C, and can be swallowed.
"""

from __future__ import annotations

import importlib
import logging
import os
import resource
import signal
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

#: The judge that is no function.
MATH = "math-verify"
#: The most memory for mathematics, in bytes.
_MEMORY = 4 * 2**30
#: Seconds between two looks for the parent.
_LOOK = 1.0


def main(judge: str, seconds: float) -> None:
    """Answer until the caller hangs up.

    Args:
        judge: ``MATH``, or "module:function".
        seconds: the processor time that one answer may take, of all threads together.
    """
    caller = Connection(os.dup(0))  # which programs that a function starts do not inherit
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    own = os.getpid()
    try:
        said_of = _math() if judge == MATH else _function(judge)
    except Exception as error:
        caller.send({"failed": f"{type(error).__name__}: {error}"})
        return
    threading.Thread(target=_end_with, args=(os.getppid(),), daemon=True).start()
    signal.signal(signal.SIGPROF, signal.SIG_DFL)
    caller.send({"ready": True})
    while True:
        try:
            asked = caller.recv()
        except (EOFError, OSError):
            return
        signal.setitimer(signal.ITIMER_PROF, seconds)
        try:
            said = {"said": None if asked is None else said_of(asked)}
        except Exception as error:
            said = {"raised": f"{type(error).__name__}: {error}"[:500]}
        if os.getpid() != own:
            os._exit(0)  # a fork of the function's came back as well, and the answer is its parent's
        signal.setitimer(signal.ITIMER_PROF, 0)
        caller.send(said)


def _math() -> Callable[[Any], bool | None]:
    """Whether the second of two answers is the same as the first; None: it cannot be read."""
    logging.disable(logging.CRITICAL)
    folder = str(Path(__file__).parent)
    sys.path.insert(0, folder)
    from mathematics import same  # type: ignore[import-not-found]

    sys.path.remove(folder)
    same("\\frac{1}{2}", "0.5")  # builds its parser, which takes a while
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, resource.RLIM_INFINITY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    return lambda answers: same(*answers)


def _function(name: str) -> Callable[[Any], Any]:
    """What a user's function returns: a number, or text that is none."""
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


if __name__ == "__main__":
    main(sys.argv[1], float(sys.argv[2]))
