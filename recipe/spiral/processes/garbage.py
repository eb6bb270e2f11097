"""When Python looks for garbage."""

from __future__ import annotations

import atexit
import gc

#: So many new objects, in place of 700, and as many younger rounds as with Python's own thresholds.
THRESHOLDS = (20_000, 10, 10)


def collect_less() -> None:
    """Look for garbage less often in this process, and never among what is there by now.

    Python looks at all objects again and again while their number grows. Of many games, which are all alive, that takes
    a third to two thirds of the time, and a look at all that was imported half a second.
    """
    gc.freeze()
    gc.set_threshold(*THRESHOLDS)


def end_at_once() -> None:
    """Do not look for garbage as this process ends: with torch and verl imported that takes more than a second."""
    atexit.register(gc.freeze)
