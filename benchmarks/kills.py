"""Kills a run at random moments, starts it again each time, and checks that it lost nothing.

    python benchmarks/kills.py [--mode colocate_async] [--kills 10] [--steps 40] [--folder DIR] [HYDRA OVERRIDE ...]

A quarter of the kills fall into the start-up, the others into the steps after it, so that some meet the start-up, some
a step and some a checkpoint. After each kill the run's folder is audited, and so it is at the end. In sync mode its
games, baselines, advantages and weights are then compared with those of an uninterrupted run. In the asynchronous modes
it depends on the machine's pace which games a step trains; there each game that was launched must be trained once,
dropped once, or in flight in the last checkpoint. Takes about a minute for each kill, besides the training.
"""

from __future__ import annotations

import random
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import torch

from benchmarks.options import new_folder, parse_with_overrides
from benchmarks.processes import end_with_run
from recipe.spiral.players.records import GameRecord
from recipe.spiral.processes.arguments import Arguments, within
from recipe.spiral.processes.launch import end_with_parent
from recipe.spiral.storage import checkpoints
from recipe.spiral.storage.checkpoints import folder_of
from recipe.spiral.storage.record_folder import RecordFolder

LIMIT = 1800.0
SYNC, *ASYNCHRONOUS = MODES = ("sync", "colocate_async", "separate_async")


@dataclass(frozen=True)
class Kill:
    """A moment: ``wait`` seconds after the start; or, after the line of a step, so many times as a step takes."""

    wait: float
    step: int | None = None

    def due(self, seconds: float, lines: dict[int, float]) -> bool:
        """Whether it is now, so many seconds after the start, at which the lines of steps came."""
        if self.step is None:
            return seconds > self.wait
        pace = (max(lines.values()) - min(lines.values())) / (len(lines) - 1) if len(lines) > 1 else 1.0
        return self.step in lines and seconds - lines[self.step] > self.wait * pace

    def __str__(self) -> str:
        if self.step is None:
            return f"{self.wait:.1f} s after the start"
        return f"{self.wait:.2f} of a step after the line of step {self.step}"


def main() -> int:
    """Returns 0 if nothing was lost: in sync mode, if the killed run equals the uninterrupted run, bit for bit."""
    parser = Arguments(description=__doc__.split("\n\n")[0])
    parser.add_argument("--mode", choices=MODES, default=SYNC)
    parser.add_argument("--kills", type=within(int, 0), default=10)
    parser.add_argument("--steps", type=within(int, 1), default=40)
    parser.add_argument("--folder", type=new_folder, help="where the runs are kept; default: a temporary folder")
    arguments, overrides = parse_with_overrides(parser)
    folder = arguments.folder or Path(tempfile.mkdtemp(prefix="kills-"))
    overrides = [
        "seed=5",
        f"determinism={str(arguments.mode == SYNC).lower()}",
        f"trainer.v1.trainer_mode={arguments.mode}",
        f"trainer.total_training_steps={arguments.steps}",
        "data.train_batch_size=32",
        "trainer.save_freq=2",
        "trainer.val_before_train=false",
        "trainer.test_freq=-1",
        "trainer.logger=[]",
        *overrides,
    ]
    whole, killed = folder / "uninterrupted", folder / "killed"
    ok, start_up = True, 0.0
    if arguments.mode == SYNC:
        status, start_up = run(whole, overrides)
        print(f"uninterrupted: exit {status}, first step after {start_up:.0f} s", flush=True)
        if status:
            end_with_run(whole.with_suffix(".txt"))
    for number in range(1, arguments.kills + 1):
        kill = moment(last_step(killed), arguments.steps, arguments.kills - number, start_up)
        status, first_step = run(killed, overrides, kill)
        start_up = first_step or start_up
        audited = audit(killed)
        ok &= audited in ("ok", "nothing to audit")
        print(f"kill {number}: {kill}: exit {status}, step {last_step(killed)}, audit: {audited}", flush=True)
    status, _ = run(killed, overrides)
    audited = audit(killed)
    print(f"last start: exit {status}, audit: {audited}")
    if arguments.mode == SYNC:
        same = compare(whole, killed, arguments.steps)
        print(f"against the uninterrupted run: {same}")
    else:
        same = count(killed)
        print(f"games: {same}")
    return 0 if ok and status == 0 and audited == "ok" and same in ("equal", "each once") else 1


def moment(done: int, steps: int, others: int, start_up: float) -> Kill:
    """A random one; a few steps on at most, so that some are left for the other kills.

    Args:
        done: steps that are there.
        steps: of the whole run.
        others: how many kills there are besides.
        start_up: seconds until a first step; 0: not known.
    """
    rng = random.Random()
    if start_up and rng.random() < 0.25:
        return Kill(rng.uniform(0.0, start_up))
    few = max(2, 2 * (steps - done) // (others + 2))
    return Kill(rng.uniform(0.0, 1.0), min(done + rng.randint(1, few), steps - 1))


def run(folder: Path, overrides: list[str], kill: Kill | None = None) -> tuple[int, float]:
    """Start a run and wait for its end or kill it; returns the exit status and the seconds until its first step.

    Args:
        folder: the run's folder.
        overrides: Hydra's overrides.
        kill: when; None: the run is not killed.
    """
    output = folder.with_suffix(".txt")
    output.parent.mkdir(parents=True, exist_ok=True)
    begin, lines = time.monotonic(), dict[int, float]()
    with output.open("w") as out:
        command = [sys.executable, "-m", "recipe.spiral.main_spiral", f"run_dir={folder}", *overrides]
        process = subprocess.Popen(
            command, stdout=out, stderr=subprocess.STDOUT, start_new_session=True, preexec_fn=end_with_parent
        )
    while process.poll() is None:
        now = time.monotonic() - begin
        for step in re.findall(r"^step +(\d+)/", output.read_text(), re.MULTILINE):
            lines.setdefault(int(step), now)
        if now > LIMIT or (kill is not None and kill.due(now, lines)):
            process.send_signal(signal.SIGKILL)
            process.wait()
            break
        time.sleep(0.05)
    return process.returncode, min(lines.values(), default=0.0)


def last_step(folder: Path) -> int:
    return max(RecordFolder(folder / "games").steps("train"), default=0)


def count(folder: Path) -> str:
    """Where each game of an asynchronous run is, by its number alone; returns "each once", or what is wrong."""
    saved = folder_of(folder)
    step = checkpoints.latest(saved)
    if step != last_step(folder):
        return f"the last checkpoint is of step {step}, and the last games are of step {last_step(folder)}"
    state = checkpoints.read_state(saved / f"global_step_{step}")
    batch = int(state["settings"]["data.train_batch_size"])
    places = Counter((block - 1) * batch + index for block, index, _ in state["in_flight"])
    in_flight = len(places)
    for record in RecordFolder(folder / "games").read("train"):
        if record.discarded in (None, "stale"):  # others are played again, under the same number
            places[(record.key.step - 1) * batch + record.key.index] += 1
    lost, twice = set(range(max(places) + 1)) - places.keys(), [place for place, times in places.items() if times > 1]
    print(f"{len(places) - in_flight} games trained or dropped, {in_flight} in flight")
    return f"{len(lost)} are lost, and {len(twice)} there more than once" if lost or twice else "each once"


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
