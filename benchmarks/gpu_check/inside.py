"""A stage's own process: ``python -m benchmarks.gpu_check.inside MODULE:FUNCTION DEVICE WORK``.

The exit status is 0, 1 (it could not go on), 3 (skipped), 4 (checks failed, and it went to its end) or 130
(interrupted).
"""

from __future__ import annotations

import importlib
import subprocess
import sys
import time
import traceback
from pathlib import Path

from recipe.spiral import __version__
from recipe.spiral.processes.interrupts import INTERRUPTED, interrupted
from recipe.spiral.processes.launch import clean_run
from recipe.spiral.storage.disk import is_full

from .probe import FAILED, SKIPPED, Probe, SkipStage, StageFailed

TO_ITS_END = 4


def current_commit() -> str:
    """The commit of the project; "unknown" where git does not say."""
    command = ["git", "-C", str(Path(__file__).parent), "rev-parse", "--short=12", "HEAD"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=20).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return "unknown"


def main(stage: str, device: str, work: str) -> int:
    probe = Probe(device, Path(work), Path(work, "noted.json"))
    module, function = stage.split(":")
    try:
        # it takes signals; and if the check itself is killed, this process ends what it started
        with clean_run(probe.work):
            # of each stage, as one that is kept may be of an earlier commit
            now = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime())
            probe.figure("project", f"{__version__}, commit {current_commit()}, {now}")
            getattr(importlib.import_module(module), function)(probe)
    except SkipStage as reason:
        probe.skip("the stage", str(reason))
        return 3
    except StageFailed as error:
        print(f"failed: {error}", flush=True)
        return 1
    except BaseException as error:
        if interrupted() or isinstance(error, KeyboardInterrupt):
            print("interrupted", flush=True)
            return INTERRUPTED
        traceback.print_exc()
        if is_full(error):
            print("the disk is full: free some space and start again", flush=True)
        else:
            print(f"{type(error).__name__}: {' '.join(str(error).split())}", flush=True)
        return 1
    ends = {check.status for check in probe.checks}
    return TO_ITS_END if FAILED in ends else 3 if ends == {SKIPPED} else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
