"""How the time that something takes grows with its text: the one thing about time that is the same on every machine."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable


def in_linear_time(read: Callable[[str], object], text: str) -> bool:
    """Whether reading a text takes about eight times as long as reading an eighth of it, or no time to speak of.

    Where the time grew with the square of the length, it would be sixty-four times.
    """
    long = _fastest(read, text)
    return long < 0.05 or long < 24 * _fastest(read, text[: len(text) // 8])


def _fastest(read: Callable[[str], object], text: str) -> float:
    """Seconds of this process, the least of three: other programs and the collector of garbage only add to them."""
    took = []
    collecting = gc.isenabled()
    gc.disable()
    try:
        for _ in range(3):
            begin = time.process_time()
            read(text)
            took.append(time.process_time() - begin)
    finally:
        if collecting:
            gc.enable()
    return min(took)
