"""Ends a command as a shell expects: with its status, and without a traceback if nobody reads on (``| head``)."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import NoReturn

#: What a shell gives for a process that SIGPIPE ended.
_NOBODY_READS = 141


def run_command(main: Callable[[], int | None]) -> NoReturn:
    """Leave the process with what ``main`` returns."""
    try:
        try:
            status = main()
        finally:
            print(end="", flush=True)  # does nothing where stdout is closed
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # Python flushes once more as it ends
        status = _NOBODY_READS
    sys.exit(status)
