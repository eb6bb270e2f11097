"""The process that starts Ray: a copy of the one that starts the run, with all that was imported there.

The one that starts the run has no Ray and no trainer in it, and can end both at any moment. With
``trainer_process=copy`` the trainer is here, too, and not in an actor, which would import the same once more.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable
from contextlib import suppress
from multiprocessing import get_context
from pathlib import Path

from setproctitle import setproctitle

from .causes import CAUSE, cause_of
from .launch import end_with_parent
from .terminal import LIBRARIES_LOG

STDOUT, STDERR = 1, 2
#: What ``ps`` shows, in the form of Ray's titles: until Ray runs, and from then on where the trainer is here.
TITLE, TRAINER = "spiral::driver", "spiral::trainer"
#: Seconds in which Ray may end politely.
PATIENCE = 60.0


class TrainerEnded(RuntimeError):
    """The trainer has ended before its work was done. The message says why; a traceback has been printed."""


class TrainerProcess:
    """Calls a function in a copy of this process, which ends at the latest when this process does.

    Args:
        train: the function. It is given another one, which it calls as soon as Ray runs, with whether the trainer is
            here.
        run_dir: the run's folder, where the cause of a failure is written.
        aside: what is printed goes into a file of the folder, and what the trainer writes to stderr.
        clear: errors whose message says everything, so that no traceback is printed.
    """

    def __init__(
        self,
        train: Callable[[Callable[[bool], None]], None],
        run_dir: Path,
        aside: bool,
        clear: tuple[type[Exception], ...] = (),
    ) -> None:
        self._train = train
        self._clear = clear
        self._cause = run_dir / CAUSE
        self._log = run_dir / LIBRARIES_LOG if aside else None
        self._process = get_context("fork").Process(target=self._run, name="trainer")
        self._process.start()

    def wait(self) -> None:
        """Wait for its end. Raises: TrainerEnded: it failed."""
        self._process.join()
        status = self._process.exitcode
        if not status:
            return
        if self._cause.is_file():
            raise TrainerEnded(self._cause.read_text(encoding="utf-8"))
        how = f"killed by {signal.Signals(-status).name}" if status < 0 else f"exit status {status}"
        raise TrainerEnded(f"the trainer died ({how}); start the run again to go on from its last checkpoint")

    def _run(self) -> None:
        """What the copy does."""
        end_with_parent()
        _leave_signals_to_the_parent()
        setproctitle(TITLE)
        status = 1
        with os.fdopen(os.dup(STDERR), "w") as errors:
            try:
                self._print_aside(STDOUT)
                self._train(self._ray_runs)
                status = 0
            except BaseException as error:
                with suppress(OSError):
                    if not self._cause.is_file():
                        self._cause.write_text(cause_of(error, self._clear), encoding="utf-8")
                if not isinstance(error, self._clear):
                    traceback.print_exc(file=errors)
            finally:
                _shut_ray_down()
                for stream in (sys.stdout, sys.stderr, errors):
                    with suppress(OSError):  # nobody reads it any more
                        stream.flush()
                os._exit(status)  # whatever thread still waits for somebody

    def _ray_runs(self, trainer_here: bool) -> None:
        _leave_signals_to_the_parent()  # Ray has taken SIGTERM for itself
        if trainer_here:
            setproctitle(TRAINER)
            sys.stderr.flush()
            self._print_aside(STDERR)

    def _print_aside(self, stream: int) -> None:
        if self._log is not None:
            with self._log.open("a") as log:
                os.dup2(log.fileno(), stream)


def _leave_signals_to_the_parent() -> None:
    """A terminal sends Ctrl-C to this process, too. SIGTERM comes from the parent, and ends it at once."""
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _shut_ray_down() -> None:
    import ray

    thread = threading.Thread(target=ray.shutdown, daemon=True)
    thread.start()
    thread.join(PATIENCE)
