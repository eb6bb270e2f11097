"""Measures a start: the seconds from the launch to the first step of training.

    python benchmarks/startup.py [--repeats 3] [OVERRIDE ...]

It launches `python -m recipe.spiral.main_spiral +experiment=quickstart OVERRIDE ...` with one step and without a
validation. Nothing else may run meanwhile.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

ROOT = Path(__file__).resolve().parents[1]
#: Seconds until the first step, on two idle cores with warm files; and after which a launch is ended.
TARGET, LIMIT = 50.0, 600.0
LAUNCH = (
    "+experiment=quickstart",
    "trainer.total_training_steps=1",
    "trainer.val_before_train=false",
    "trainer.test_freq=-1",
    "trainer.save_freq=-1",
    "trainer.logger=[file]",
)


def launch(overrides: list[str], folder: Path) -> dict[str, float]:
    """The seconds after which a launch says that it starts Ray, that it trains, and its first step's line."""
    run_dir, marks, begin = folder / "run", dict[str, float](), time.monotonic()
    waited = {"starting Ray": "run folder: ", "first step": "training for", "its end": r"^step +1/"}
    command = [sys.executable, "-m", "recipe.spiral.main_spiral", f"run_dir={run_dir}", *LAUNCH, *overrides]
    with (folder / "output.txt").open("w") as output:
        process = subprocess.Popen(command, cwd=ROOT, stdout=output, stderr=subprocess.STDOUT)
    try:
        while process.poll() is None and time.monotonic() - begin < LIMIT:
            said = (folder / "output.txt").read_text(encoding="utf-8", errors="replace")
            for name, words in waited.items():
                if name not in marks and re.search(words, said, re.MULTILINE):
                    marks[name] = time.monotonic() - begin
            time.sleep(0.05)
    finally:
        process.terminate()
        process.wait(60)
    if process.returncode or len(marks) < len(waited):
        sys.exit(f"the run failed: {(folder / 'output.txt').read_text(encoding='utf-8')[-500:]}")
    return marks


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=3, help="launches; the median counts (3)")
    given, overrides = parser.parse_known_args()
    runs = []
    for number in range(given.repeats):
        with tempfile.TemporaryDirectory(prefix="startup-") as folder:
            runs.append(launch(overrides, Path(folder)))
        marks = ", ".join(f"{name} after {seconds:.1f} s" for name, seconds in runs[-1].items())
        print(f"launch {number + 1}: {marks}", flush=True)
    print(
        f"first step after {median(run['first step'] for run in runs):.1f} s (target: {TARGET:.0f} s, two idle cores)"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
