"""Signals that end a command. SIGTERM and SIGHUP do what Ctrl-C does, and a second signal breaks nothing off."""

from __future__ import annotations

import signal
import time
from typing import Any

ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
#: Seconds after a signal in which further ones change nothing: the command is on its way to its cleaning.
PATIENCE = 3.0

_received: list[str] = []
_last = float("-inf")
_held = False


def interrupt_on_signals() -> None:
    """Let each of the signals raise KeyboardInterrupt. One that is ignored, as ``nohup`` has SIGHUP, stays ignored.

    To be called again whenever somebody else took the handlers, as Ray does when it starts and when it ends.
    """
    for number in ENDING:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _interrupt)


def hold() -> None:
    """From here on the signals change nothing: this process cleans up."""
    global _held
    _held = True


def release() -> None:
    """The signals count again, unless one came: then the command ends anyway."""
    global _held
    _held = bool(_received)


def interrupted() -> bool:
    """Whether a signal came."""
    return bool(_received)


def interrupted_by(error: BaseException | None = None) -> str:
    """What interrupted this command, for people: the first signal, or what the error says."""
    name = _received[0] if _received else str(error or "")
    return "Ctrl-C" if name in ("", "SIGINT") else name


def _interrupt(number: int, frame: Any) -> None:
    global _last
    name = signal.Signals(number).name
    _received.append(name)
    now = time.monotonic()
    if not _held and now - _last > PATIENCE:
        _last = now
        raise KeyboardInterrupt(name)
