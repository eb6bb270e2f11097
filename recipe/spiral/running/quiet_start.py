"""A signal while a program still imports ends it with one line. The programs import this module before all others.

Nothing has been started then, so the process ends at once: an import that an exception interrupts may end in any error.
The handlers stay until ``interrupt_on_signals``. Where one of our programs is only imported, nothing happens.
"""

from __future__ import annotations

import os
import signal
import sys

#: The signals that end a command. This module imports nothing that takes time.
END_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
PROGRAMS = {"main_spiral", "main_eval", "verl-spiral"}
INTERRUPTED = 130


def _is_program() -> bool:
    """Whether this process runs one of ours, and is no child of one, which has a main module of its own."""
    main = sys.modules["__main__"]
    spec = getattr(main, "__spec__", None)
    name = spec.name.rpartition(".")[2] if spec else os.path.basename(getattr(main, "__file__", None) or "")
    return name in PROGRAMS


def _end(number: int, frame: object) -> None:
    name = "Ctrl-C" if number == signal.SIGINT else signal.Signals(number).name
    os.write(2, f"spiral: interrupted by {name} before anything was started\n".encode())
    os._exit(INTERRUPTED)


def end_on_signals() -> None:
    """End this process at each of the signals. One that is ignored, as ``nohup`` has SIGHUP, stays ignored."""
    for number in END_SIGNALS:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _end)


if _is_program():
    end_on_signals()
