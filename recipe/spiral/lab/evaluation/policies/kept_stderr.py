"""What an engine that this process starts prints when it fails."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


@contextmanager
def stderr_kept(log: Path) -> Iterator[None]:
    """For the block, and for good in processes that it starts, what is printed on stderr goes into a file, too."""
    if sys.stderr is None:
        yield
        return
    log.parent.mkdir(parents=True, exist_ok=True)
    shown = os.dup(2)
    tee = subprocess.Popen(["tee", "-ia", log], stdin=subprocess.PIPE, stdout=shown)
    assert tee.stdin is not None
    os.dup2(tee.stdin.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(shown, 2)
        os.close(shown)
        tee.stdin.close()
        with suppress(subprocess.TimeoutExpired):
            tee.wait(1 if sys.exc_info()[0] else 0)  # only what failed has no process left that prints
