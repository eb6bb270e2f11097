"""Stages for tests: they end in every way in which a stage may end."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

from benchmarks.gpu_check.__main__ import main
from benchmarks.gpu_check.probe import Probe, SkipStage
from benchmarks.gpu_check.stages import Stage


def passes(probe: Probe) -> None:
    print("\x1b[36mcoloured\x1b[0m")
    probe.figure("answer", {"of life": 42, "of a third": 1 / 3})
    probe.check("a check", True, f"in {probe.work}")
    probe.skip("another one", "not here")
    (probe.work / "large").write_bytes(bytes(1000))


def fails(probe: Probe) -> None:
    print("a line of the log with api_key=abcdefgh12345678")
    probe.check("a check", True)
    probe.check("the other one", False, "it is wrong")


def needs(probe: Probe) -> None:
    probe.need("a need", False, "it is missing")
    raise AssertionError("a need that failed ends the stage")


def raises(probe: Probe) -> None:
    raise ValueError("wrong")


def skips(probe: Probe) -> None:
    raise SkipStage("one card only")


def hangs(probe: Probe) -> None:
    """With a process of its own, in a session of its own, as Ray has."""
    probe.check("a check", True)
    sleeper = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
    Path(os.environ["SLEEPER"]).write_text(str(sleeper.pid))
    time.sleep(600)


def hangs_once(probe: Probe) -> None:
    if not Path(os.environ["SLEEPER"]).exists():
        hangs(probe)
    probe.check("a check", True)


def fills_the_disk(probe: Probe) -> None:
    with open("/dev/full", "w") as full:
        full.write("x")


def stage(name: str, vital: bool = False, disk: float = 0.0, limit: float = 60.0) -> Stage:
    both = {"cuda": limit, "cpu": limit}
    return Stage(name, f"it {name}", f"{Path(__file__).stem}:{name}", both, {"cuda": disk, "cpu": disk}, vital)


if __name__ == "__main__":
    sys.exit(main(sys.argv[2:], [stage(name) for name in sys.argv[1].split(",")]))
