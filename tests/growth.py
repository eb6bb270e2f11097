"""How the time that something takes grows with its text: the one thing about time that is the same on every machine."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable


def in_linear_time(read: Callable[[str], object], text: str) -> bool:
    """Whether reading a text takes about eight times as long as reading an eighth of it, or no time to speak of.

    Where the time grew with the square of the length, it would be sixty-four times.
    """
    short = text[: len(text) // 8]
    # other programs and the collector of garbage only add to a time: one that is short enough is enough
    return any((long := _seconds(read, text)) < 0.05 or long < 24 * _seconds(read, short) for _ in range(3))


def _seconds(read: Callable[[str], object], text: str) -> float:
    """Seconds of this process."""
    collecting = gc.isenabled()
    gc.disable()
    try:
        begin = time.process_time()
        read(text)
        return time.process_time() - begin
    finally:
        if collecting:
            gc.enable()
