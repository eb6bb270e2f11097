"""Signals that end a command. SIGTERM and SIGHUP do what Ctrl-C does, and a second signal breaks nothing off.

The programs import this module before all others, and it imports nothing that takes time: a signal while they still
import ends them with one line. Nothing has been started then, so the process ends at once: an import that an exception
interrupts may end in any error. Where one of our programs is only imported, nothing happens.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

#: The signals that end a command.
END_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
PROGRAMS = {"main_spiral", "main_eval", "verl-spiral", "export"}
INTERRUPTED = 130
#: A file in a run's folder that asks the trainer to save a checkpoint after its step, and to end.
STOP = "stop_requested"
#: A file there that says why the trainer has ended before its last step, and not by a signal; and the exit status then.
STOPPED = "stopped.txt"
STOPPED_STATUS = 3
#: Seconds that it has for the rest of its step and a checkpoint after a signal, unless this variable says others.
LIMIT = 120
SAVE_LIMIT = "SPIRAL_SAVE_LIMIT"
#: Seconds after a signal in which further ones change nothing: the command is on its way to its cleaning.
PATIENCE = 3.0

_received: list[str] = []
_last = float("-inf")
_held = False


def _is_program() -> bool:
    """Whether this process runs one of ours, and is no child of one, which has a main module of its own."""
    main = sys.modules["__main__"]
    spec = getattr(main, "__spec__", None)
    name = spec.name if spec else os.path.basename(getattr(main, "__file__", None) or "")
    return name.removesuffix(".__main__").rpartition(".")[2] in PROGRAMS


def _end(number: int, frame: object) -> None:
    name = "Ctrl-C" if number == signal.SIGINT else signal.Signals(number).name
    os.write(2, f"spiral: interrupted by {name} before anything was started\n".encode())
    os._exit(INTERRUPTED)


def end_on_signals() -> None:
    """End this process at each of the signals."""
    _handle_by(_end)


def _handle_by(handler: Callable[[int, object], None]) -> None:
    """One that is ignored, as ``nohup`` has SIGHUP, stays ignored."""
    for number in END_SIGNALS:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, handler)


class Interrupt(KeyboardInterrupt):
    """Not KeyboardInterrupt itself: if that ends a call of ``exec``, as dataclasses make them, Python lets the process
    die of SIGINT in the end, whatever its exit status was to be."""


def interrupt_on_signals() -> None:
    """Let each of the signals raise KeyboardInterrupt. To be called again when somebody else took the handlers, as Ray
    does when it starts."""
    _handle_by(_interrupt)


def hold() -> None:
    """From here on the signals change nothing: this process cleans up."""
    global _held
    _held = True


def release() -> None:
    """The signals count again, unless one came: then the command ends anyway."""
    global _held
    _held = bool(_received)


@contextmanager
def held_back() -> Iterator[None]:
    """Let a signal within the block count at its end: an interrupted import may end in any error, or in none."""
    global _held
    before, _held = len(_received), True
    try:
        yield
    finally:
        _held = False
    if len(_received) > before:
        raise Interrupt(_received[before])


def interrupted() -> bool:
    """Whether a signal came."""
    return bool(_received)


def interrupted_by(error: BaseException | None = None) -> str:
    """What interrupted this command, for people: the first signal, or what the error says."""
    name = _received[0] if _received else str(error or "")
    return "Ctrl-C" if name in ("", "SIGINT") else name


def _interrupt(number: int, frame: object) -> None:
    global _last
    name = signal.Signals(number).name
    _received.append(name)
    now = time.monotonic()
    if not _held and now - _last > PATIENCE:
        _last = now
        raise Interrupt(name)


if _is_program():
    end_on_signals()
