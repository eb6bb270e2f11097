"""A stage's own process: ``python -m benchmarks.gpu_check.inside MODULE:FUNCTION DEVICE WORK``.

The exit status is 0, 1 (it could not go on), 3 (skipped), 4 (checks failed, and it went to its end) or 130
(interrupted). What it started has ended when it ends.
"""

from __future__ import annotations

import ctypes
import importlib
import subprocess
import sys
import time
import traceback
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path

import psutil

from recipe.spiral import __version__

from .probe import FAILED, SKIPPED, Probe, SkipStage, StageFailed

TO_ITS_END, INTERRUPTED = 4, 130
_SET_CHILD_SUBREAPER = 36


def adopt_orphans() -> None:
    """From now on, what a process below this one leaves becomes a child of this one (Linux's prctl)."""
    ctypes.CDLL(None).prctl(_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def end_children(but: Collection[int] = ()) -> None:
    """Kill what runs below this process, but for these children and what is below them."""
    while children := [child for child in psutil.Process().children() if child.pid not in but and _is_alive(child)]:
        for child in children:
            with suppress(psutil.Error):
                child.kill()
                child.wait(5)


def _is_alive(process: psutil.Process) -> bool:
    with suppress(psutil.Error):
        return process.status() != psutil.STATUS_ZOMBIE
    return False


def main(stage: str, device: str, work: str) -> int:
    probe = Probe(device, Path(work))
    module, function = stage.split(":")
    adopt_orphans()
    try:
        # of each stage, as one that is kept may be of an earlier commit
        now = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime())
        probe.figure("project", f"{__version__}, commit {_commit()}, {now}")
        getattr(importlib.import_module(module), function)(probe)
    except SkipStage as reason:
        probe.skip("the stage", str(reason))
        return 3
    except StageFailed as error:
        print(f"failed: {error}", flush=True)
        return 1
    except KeyboardInterrupt:
        print("interrupted", flush=True)
        return INTERRUPTED
    except Exception as error:
        traceback.print_exc()
        print(f"{type(error).__name__}: {' '.join(str(error).split())}", flush=True)
        return 1
    finally:
        end_children()
    ends = {check["status"] for check in probe.checks}
    return TO_ITS_END if FAILED in ends else 3 if ends == {SKIPPED} else 0


def _commit() -> str:
    command = ["git", "-C", str(Path(__file__).parent), "rev-parse", "--short=12", "HEAD"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=20).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return "unknown"


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
