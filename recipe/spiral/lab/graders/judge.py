"""One process that calls a grading function, within a time limit: no answer and no function hangs or ends the caller.

What takes too long is killed, with the programs that it has started, and the next answer gets a new process. This file
is both sides: ``Judge`` asks, and ``main`` answers in a program of its own, so that nothing of the caller's process
(threads, CUDA, Ray, a ``__main__`` without a guard) comes along.
"""

from __future__ import annotations

import importlib
import json
import os
import resource
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from typing import Any

#: Why an answer was not judged, besides what the function raised.
TIME_OUT, CRASH = "time-out", "crash"
#: Seconds that a process may take to start; imports are slow on a busy machine.
_START_SECONDS = 120.0


class NotStarted(RuntimeError):
    """No process starts; the message has its reason."""


class Judge:
    """A process that calls one function, started when it is first needed. Any number of threads may ask, one after the
    other.

    Args:
        function: "module:function", which returns what JSON has, a number of numpy's or torch's, or a dict with such a
            value under "score", as verl's ``compute_score`` does.
        clock: the seconds that one call may take by the clock.
        processor: the seconds of processor time that one call may take, of all threads together; 0: any.
        memory: the most memory of the process, in bytes; 0: any.
    """

    def __init__(self, function: str, clock: float, processor: float = 0.0, memory: int = 0) -> None:
        self._function, self._clock = function, clock
        self._limits = [str(processor), str(memory)]
        self._free = threading.RLock()
        self._process: subprocess.Popen[bytes] | None = None

    def ask(self, **arguments: Any) -> tuple[Any, str | None]:
        """What the function returns for ``arguments``, and the problem: None, ``TIME_OUT``, ``CRASH`` or "raised: ...".
        Raises NotStarted: no process starts."""
        with self._free:
            self.start()
            answered = False
            try:
                self._pipe.send(arguments)
                if not self._pipe.poll(self._clock):
                    return None, TIME_OUT
                value, problem = json.loads(self._pipe.recv())
                answered = True
                return value, problem
            except (EOFError, OSError):
                return None, TIME_OUT if self.close() == -signal.SIGPROF else CRASH
            finally:
                if not answered:
                    self.close()

    def start(self) -> None:
        """Start the process, if there is none. Raises NotStarted."""
        with self._free:
            if self._process is not None and self._process.poll() is None:
                return
            self.close()
            self._pipe, theirs = Pipe()
            with theirs:
                self._process = subprocess.Popen(
                    [sys.executable, "-m", __name__, self._function, *self._limits, str(theirs.fileno())],
                    env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
                    pass_fds=[theirs.fileno()],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    # of its own: Ctrl-C at the terminal reaches only the caller, and what it starts ends with it
                    start_new_session=True,
                )
            try:
                problem = self._pipe.recv() if self._pipe.poll(_START_SECONDS) else "it is not ready"
            except (EOFError, OSError):
                problem = "it ended"
            if problem:
                self.close()
                raise NotStarted(f"the process of {self._function} did not start: {problem}")

    def close(self) -> int | None:
        """End the process with the programs of its session; returns its exit status."""
        with self._free:
            if self._process is None:
                return None
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            status = self._process.wait()
            self._pipe.close()
            self._process = None
            return status


def main(function: str, processor: float, memory: int, caller: Connection) -> None:
    """Answer until the caller hangs up.

    The limit of processor time is the kernel's: SIGPROF's default action ends the process in whatever code it is. An
    exception out of a signal handler would wait for long calls in C, and can be swallowed.
    """
    parent = os.getppid()
    try:
        module, _, name = function.partition(":")
        call = getattr(importlib.import_module(module), name)
    except Exception as error:
        caller.send(f"{type(error).__name__}: {error}")
        return
    threading.Thread(target=_end_with, args=(parent,), daemon=True).start()
    signal.signal(signal.SIGPROF, signal.SIG_DFL)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if memory:
        resource.setrlimit(resource.RLIMIT_AS, (memory, resource.RLIM_INFINITY))
    caller.send(None)
    with suppress(EOFError):
        while True:
            arguments = caller.recv()
            signal.setitimer(signal.ITIMER_PROF, processor)
            try:
                returned = call(**arguments)
                value = returned.get("score") if isinstance(returned, dict) else returned
                said = json.dumps([value, None], default=float)
            except Exception as error:
                said = json.dumps([None, f"raised: {type(error).__name__}: {error}"[:500]])
            signal.setitimer(signal.ITIMER_PROF, 0)
            caller.send(said)


def _end_with(parent: int) -> None:
    """End with the caller, also within a call that never returns."""
    while os.getppid() == parent:
        time.sleep(1.0)
    os.killpg(0, signal.SIGKILL)


if __name__ == "__main__":
    main(sys.argv[1], float(sys.argv[2]), int(sys.argv[3]), Connection(int(sys.argv[4])))
