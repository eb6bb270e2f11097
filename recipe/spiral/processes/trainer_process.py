"""The process that starts Ray: a copy of the one that starts the run, with all that was imported there.

The one that starts the run has no Ray and no trainer in it, and can end both at any moment. With
``runtime=fast`` the trainer is here, too, and not in an actor, which would import the same once more.
"""

from __future__ import annotations

import io
import os
import signal
import sys
import tempfile
import threading
from collections.abc import Callable
from contextlib import suppress
from multiprocessing import get_context
from pathlib import Path
from typing import TextIO

from setproctitle import setproctitle

from .causes import CAUSE, cause_of, says_all
from .interrupts import END_SIGNALS
from .launch import end_with_parent
from .terminal import LIBRARIES_LOG, show_traceback

STDOUT, STDERR = 1, 2
#: What ``ps`` shows, in the form of Ray's titles: until Ray runs, and from then on where the trainer is here.
TITLE, TRAINER = "spiral::ray", "spiral::trainer"
#: Seconds in which Ray may end politely.
PATIENCE = 60.0


class TrainerEnded(RuntimeError):
    """The trainer has ended before its work was done. The message says why; a traceback has been printed."""


class TrainerProcess:
    """Calls a function in a copy of this process, which ends at the latest when this process does.

    Args:
        train: the function. It is given another one, to call as soon as Ray runs: with whether the trainer is here.
        run_dir: the run's folder, where the cause of a failure is written.
        aside: whether what is printed there goes into ``LIBRARIES_LOG``; of stderr what the trainer itself writes.
        plain_errors: errors whose message says everything, so that no traceback is printed.
    """

    def __init__(
        self,
        train: Callable[[Callable[[bool], None]], None],
        run_dir: Path,
        aside: bool,
        plain_errors: tuple[type[Exception], ...] = (),
    ) -> None:
        self._train = train
        self._plain_errors = plain_errors
        self._cause = run_dir / CAUSE
        self._log = run_dir / LIBRARIES_LOG if aside else None
        self._parent = os.getpid()
        # also through a pipe: the disk may be full
        self._told, self._tell = get_context("fork").Pipe(duplex=False)
        self._process = get_context("fork").Process(target=self._run, name="trainer")
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # where it is ignored, nobody learns how a process ended
        blocked = signal.pthread_sigmask(signal.SIG_BLOCK, END_SIGNALS)
        try:
            self._process.start()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
        self._tell.close()

    def wait(self, seconds: float | None = None) -> None:
        """Wait for its end, but no longer than this. Raises: TrainerEnded: it failed."""
        self._process.join(seconds)
        status = self._process.exitcode
        if status == 0 or self._process.is_alive():
            return
        if cause := self._cause_told():
            raise TrainerEnded(cause)
        how = f"killed by {signal.Signals(-status).name}" if status is not None and status < 0 else f"status {status}"
        raise TrainerEnded(f"the trainer died ({how}); start the run again to go on from its last checkpoint")

    def _cause_told(self) -> str:
        """What the watchdog wrote comes first: the trainer may have met the dead worker as well."""
        with suppress(OSError):
            if cause := self._cause.read_text(encoding="utf-8", errors="replace"):
                return cause
        with suppress(EOFError, OSError):
            if self._told.poll():  # not to wait: Ray's processes might have the other end
                return str(self._told.recv())
        return ""

    # -- in the copy ---------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        status = 1
        try:
            end_with_parent()
            os.setsid()  # a terminal and `timeout` send signals to a whole group, where Ray would end at once
            _leave_signals_to_the_parent()
            # Ray's own handler of SIGTERM exits, also out of what cannot be left
            sys.unraisablehook = lambda left: left.exc_type is SystemExit or sys.__unraisablehook__(left)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, END_SIGNALS)
            tempfile.tempdir = None  # the parent has asked for it already
            if os.getppid() == self._parent:
                setproctitle(TITLE)
                status = self._call()
            _shut_ray_down()
            for stream in filter(None, (sys.stdout, sys.stderr)):
                stream.flush()
        finally:
            os._exit(status)  # whatever thread still waits for somebody

    def _call(self) -> int:
        """Returns the exit status. Errors are shown where this process prints now."""
        with _copy_of_stderr() as shown:
            try:
                self._print_aside(sys.stdout, STDOUT)
                self._train(self._ray_runs)
                return 0
            except BaseException as error:
                if isinstance(error, SystemExit) and error.code == signal.SIGTERM:  # the parent's, while Ray has it
                    os._exit(1)
                self._report(error, shown)
            return 1

    def _report(self, error: BaseException, shown: TextIO) -> None:
        if not says_all(error, self._plain_errors):
            with suppress(Exception):  # nobody reads it
                show_traceback(error, shown)
        cause = cause_of(error, self._plain_errors)
        with suppress(OSError):
            self._tell.send(cause)
        with suppress(OSError):
            if not self._cause.is_file():
                self._cause.write_text(cause, encoding="utf-8", errors="backslashreplace")

    def _ray_runs(self, trainer_here: bool) -> None:
        _leave_signals_to_the_parent()  # Ray has taken SIGTERM for itself
        if trainer_here:
            setproctitle(TRAINER)
            self._print_aside(sys.stderr, STDERR)

    def _print_aside(self, stream: TextIO | None, number: int) -> None:
        if self._log is None or stream is None:
            return
        stream.flush()
        with self._log.open("a") as log:
            os.dup2(log.fileno(), number)
        if isinstance(stream, io.TextIOWrapper):  # the last lines before a sudden end are those that people ask for
            stream.reconfigure(line_buffering=True)


def _copy_of_stderr() -> TextIO:
    """Where errors are shown now, whatever becomes of stderr; nowhere if it is closed."""
    number = os.open(os.devnull, os.O_WRONLY) if sys.stderr is None else os.dup(STDERR)
    return os.fdopen(number, "w", encoding="utf-8", errors="backslashreplace")


def _leave_signals_to_the_parent() -> None:
    """SIGTERM comes from the parent, and ends this process at once."""
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _shut_ray_down() -> None:
    import ray

    thread = threading.Thread(target=ray.shutdown, daemon=True)
    thread.start()
    thread.join(PATIENCE)
