"""Signals that end a command: SIGTERM and SIGHUP do what Ctrl-C does."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable

#: The signals that end a command.
END_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
INTERRUPTED = 130
#: A file in a run's folder that asks the trainer to save a checkpoint after its step, and to end.
STOP = "stop_requested"
#: A file there that says why the trainer has ended before its last step, and not by a signal; and the exit status then.
STOPPED = "stopped.txt"
STOPPED_STATUS = 3
#: Seconds in which signals are one: ``timeout`` sends its own twice.
TOGETHER = 1.0

_received: list[str] = []
_last = float("-inf")


class Interrupt(KeyboardInterrupt):
    """Not KeyboardInterrupt itself: if that ends a call of ``exec``, as dataclasses make them, Python lets the process
    die of SIGINT in the end, whatever its exit status was to be."""


def end_on_signals() -> None:
    """End this process at each of the signals, as nothing has been started yet."""

    def end(number: int, frame: object) -> None:
        os.write(2, f"spiral: interrupted by {name_of(number)} before anything was started\n".encode())
        os._exit(INTERRUPTED)

    handle_by(end)


def handle_by(handler: Callable[[int, object], None]) -> None:
    """One that is ignored, as ``nohup`` has SIGHUP, stays ignored."""
    for number in END_SIGNALS:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, handler)


def interrupt_on_signals() -> None:
    """Let each of the signals raise KeyboardInterrupt."""
    handle_by(_interrupt)


def interrupted_by(error: BaseException | None = None) -> str:
    """What interrupted this command, for people: the first signal, or what the error says."""
    return _received[0] if _received else str(error or "") or "Ctrl-C"


def name_of(number: int) -> str:
    return "Ctrl-C" if number == signal.SIGINT else signal.Signals(number).name


def note(number: int) -> bool:
    """Note a signal; returns whether it is a new one."""
    global _last
    name, now = name_of(number), time.monotonic()
    _received.append(name)
    new, _last = now - _last > TOGETHER, now
    return new


def _interrupt(number: int, frame: object) -> None:
    if note(number):
        raise Interrupt(name_of(number))
