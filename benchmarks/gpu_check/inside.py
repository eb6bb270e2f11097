"""A stage's own process: ``python -m benchmarks.gpu_check.inside MODULE:FUNCTION DEVICE WORK``.

The exit status is 0, 1 (failed), 3 (skipped) or 130 (interrupted).
"""

from __future__ import annotations

import importlib
import sys
import traceback
from pathlib import Path

from recipe.spiral.processes.interrupts import INTERRUPTED, interrupted
from recipe.spiral.processes.launch import clean_run
from recipe.spiral.storage.disk import is_full

from .probe import FAILED, SKIPPED, Probe, SkipStage, StageFailed


def main(stage: str, device: str, work: str) -> int:
    probe = Probe(device, Path(work), Path(work, "noted.json"))
    module, function = stage.split(":")
    try:
        with clean_run(
            probe.work
        ):  # takes signals; and if the check itself is killed, this process ends what it started
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
    return 1 if FAILED in ends else 3 if ends == {SKIPPED} else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
