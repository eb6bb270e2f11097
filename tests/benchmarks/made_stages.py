"""Stages for tests: they end in every way in which a stage may end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import psutil

from benchmarks.gpu_check.__main__ import main
from benchmarks.gpu_check.probe import Probe, SkipStage
from benchmarks.gpu_check.stages import Stage
from recipe.spiral.processes.launch import GUARD


def passes(probe: Probe) -> None:
    print("\x1b[36mcoloured\x1b[0m")
    probe.figure("answer", {"of life": 42, "of a third": 1 / 3})
    probe.figure("ways", {"fast": {"play s": 1.5, "step s": 3}, "alone": {"play s": 0.5}})
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


def fails_and_hangs(probe: Probe) -> None:
    probe.check("a check", False, "it is wrong")
    hangs(probe)


def is_deaf(probe: Probe) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    hangs(probe)


def is_ended(probe: Probe, number: int = signal.SIGTERM) -> None:
    """From outside, as by ``kill`` of its process group, in the middle of a line."""
    probe.check("a check", True)
    print("half a li", end="", flush=True)
    os.killpg(0, number)
    time.sleep(600)


def is_killed(probe: Probe) -> None:
    is_ended(probe, signal.SIGKILL)


def meets_one(probe: Probe) -> None:
    """It is over at once when the other one is there; the other one then needs what it has started itself."""
    Path(os.environ["MEETING"], "one").touch()
    probe.check("the other is there", _comes("other"))


def meets_other(probe: Probe) -> None:
    own = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
    Path(os.environ["MEETING"], "other").touch()
    probe.check("the one is there", _comes("one"))
    time.sleep(4)
    probe.check("its own process is alive", own.poll() is None)
    Path(os.environ["MEETING"], "other").unlink()


def meets_nobody(probe: Probe) -> None:
    probe.check("the other is over", not Path(os.environ["MEETING"], "other").exists())


def _comes(name: str) -> bool:
    end = time.monotonic() + 60
    while not (there := Path(os.environ["MEETING"], name).exists()) and time.monotonic() < end:
        time.sleep(0.05)
    return there


def is_guarded(probe: Probe) -> None:
    """By the check's guard, also after other stages."""
    mine = psutil.Process(os.getppid()).children()
    probe.check("the guard is alive", any(GUARD in child.cmdline() for child in mine if child.pid != os.getpid()))


def hangs_once(probe: Probe) -> None:
    if not Path(os.environ["SLEEPER"]).exists():
        hangs(probe)
    probe.check("a check", True)


def fills_the_disk(probe: Probe) -> None:
    with open("/dev/full", "w") as full:
        full.write("x")


def stage(name: str, vital: bool = False, disk: float = 0.0, least: float = 1.0) -> Stage:
    leasts, limits, needed = [{"cuda": number, "cpu": number} for number in (least, 60.0, disk)]
    return Stage(name, f"it {name}", f"{Path(__file__).stem}:{name}", leasts, limits, needed, 2, vital)


def alone(made: Stage) -> Stage:
    return replace(made, alone=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[2:], [stage(name) for name in sys.argv[1].split(",")]))
