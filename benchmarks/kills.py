"""Kills a run at random moments, starts it again each time, and compares it with a run that was never interrupted.

    python benchmarks/kills.py [--kills 10] [--steps 40] [--folder DIR] [HYDRA OVERRIDE ...]

A quarter of the kills fall into the start-up, the others into the steps after it, so that some meet the start-up, some
a step and some a checkpoint. After each kill the run's folder is audited. At the end the run is audited too, and its
games, baselines, advantages and weights are compared with those of the uninterrupted run. The benchmark takes about a
minute for each kill, and the time of two whole runs.
"""

from __future__ import annotations

import argparse
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch

from recipe.spiral.play.records import GameRecord
from recipe.spiral.storage.record_folder import RecordFolder

LIMIT = 1800.0


def main() -> int:
    """Returns 0 if the killed run equals the uninterrupted run, bit for bit."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--folder", type=Path, help="where the runs are kept; default: a temporary folder")
    arguments, overrides = parser.parse_known_args()
    folder = arguments.folder or Path(tempfile.mkdtemp(prefix="kills-"))
    overrides = [
        "seed=5",
        "determinism=true",
        f"trainer.total_training_steps={arguments.steps}",
        "data.train_batch_size=32",
        "trainer.save_freq=2",
        "trainer.val_before_train=false",
        "trainer.test_freq=-1",
        "trainer.logger=[]",
        *overrides,
    ]
    whole, killed = folder / "uninterrupted", folder / "killed"
    begin = time.monotonic()
    status, first_step = run(whole, overrides, None)
    took = time.monotonic() - begin
    print(f"uninterrupted: exit {status}, {took:.0f} s, first step after {first_step:.0f} s", flush=True)
    rng, ok = random.Random(), status == 0
    a_step = (took - first_step) / arguments.steps
    for number in range(1, arguments.kills + 1):
        left = arguments.steps - last_step(killed)
        # a few steps at most, so that some are left for the next kills
        few = a_step * max(2.0, 2 * left / (arguments.kills - number + 2))
        starting = rng.random() < 0.25
        moment = rng.uniform(0.0, first_step) if starting else rng.uniform(0.0, few)
        status, _ = run(killed, overrides, moment, after_first_step=not starting)
        audited = audit(killed)
        ok &= audited in ("ok", "nothing to audit")
        where = "after the start" if starting else "after its first step"
        print(f"kill {number}: {moment:.1f} s {where}, exit {status}, step {last_step(killed)}, {audited}", flush=True)
    status, _ = run(killed, overrides, None)
    audited = audit(killed)
    same = compare(whole, killed, arguments.steps)
    print(f"last start: exit {status}, audit: {audited}; against the uninterrupted run: {same}")
    return 0 if ok and status == 0 and audited == "ok" and same == "equal" else 1


def run(
    folder: Path, overrides: list[str], kill_after: float | None, after_first_step: bool = False
) -> tuple[int, float]:
    """Start a run and wait for its end or kill it; returns the exit status and the seconds until its first step.

    Args:
        folder: the run's folder.
        overrides: Hydra's overrides.
        kill_after: seconds until the SIGKILL; None: the run is not killed.
        after_first_step: whether these seconds count from the first step, or from the start.
    """
    output = folder.with_suffix(".txt")
    output.parent.mkdir(parents=True, exist_ok=True)
    begin, first_step = time.monotonic(), 0.0
    with output.open("w") as out:
        command = [sys.executable, "-m", "recipe.spiral.main_spiral", f"run_dir={folder}", *overrides]
        process = subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT, start_new_session=True)
    while process.poll() is None:
        now = time.monotonic() - begin
        if not first_step and re.search(r"^step +\d+/", output.read_text(), re.MULTILINE):
            first_step = now
        since = now - first_step if first_step else 0.0
        due = kill_after is not None and (since if after_first_step else now) > kill_after
        if due or now > LIMIT:
            process.send_signal(signal.SIGKILL)
            process.wait()
            break
        time.sleep(0.05)
    return process.returncode, first_step


def last_step(folder: Path) -> int:
    return max(RecordFolder(folder / "games").steps("train"), default=0)


def audit(folder: Path) -> str:
    """Audit a run's folder; returns "ok", "nothing to audit", or the last line of the audit."""
    if not last_step(folder):
        return "nothing to audit"
    command = [sys.executable, "-m", "recipe.spiral.audit", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT)
    lines = (done.stdout + done.stderr).strip().splitlines()
    return "ok" if done.returncode == 0 else f"exit {done.returncode}: {lines[-1] if lines else ''}"


def compare(whole: Path, killed: Path, steps: int) -> str:
    """Returns "equal", "games differ" or "weights differ"."""
    first, second = (list(RecordFolder(run / "games").read("train")) for run in (whole, killed))
    if [content(record) for record in first] != [content(record) for record in second]:
        return "games differ"
    file = f"checkpoints/global_step_{steps}/actor/model_world_size_1_rank_0.pt"
    mine, others = (torch.load(run / file, weights_only=False) for run in (whole, killed))
    local = [[getattr(shard, "_local_tensor", shard) for shard in shards.values()] for shards in (mine, others)]
    return "equal" if all(map(torch.equal, *local)) else "weights differ"


def content(record: GameRecord) -> object:
    """What must be equal: everything but the log-probabilities, whose last bits may differ."""
    turns = [(turn.tokens.response_ids if turn.tokens else None, turn.verdict, turn.advantage) for turn in record.turns]
    return record.key, record.game, record.rewards, record.baselines, record.termination, turns


if __name__ == "__main__":
    sys.exit(main())
