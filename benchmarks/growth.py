"""What a run costs as its games get many: bytes and seconds, with the limits beside them.

    python benchmarks/growth.py [--games 10000 100000 1000000] [--folder DIR] [--json FILE]

Runs are made by ``synthetic_run.py``, and removed afterwards. For each number of games it prints

- the bytes of a game's record on the disk, and unpacked;
- the seconds of the audit, with a replay of every game, its CPU seconds in all processes, and its largest memory; and
  its seconds without a replay;
- the seconds until all games are counted, and until a resumed run has cut the records back and has its state;
- the bytes of a checkpoint's state after as many past members of the pool as there are steps, and the names of metrics.

On a machine that others use, seconds say little: with C cores the audit takes about 1/C of its CPU seconds.
The exit status is 1 if a limit is exceeded.
"""

from __future__ import annotations

import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.options import new_folder
from benchmarks.synthetic_run import make_run
from recipe.spiral.opponents.matchmaking import Matchmaker
from recipe.spiral.opponents.pool import Pool, snapshot_name
from recipe.spiral.players.seeds import GameKey
from recipe.spiral.processes.arguments import Arguments, new_file, within
from recipe.spiral.storage.checkpoints import read_state
from recipe.spiral.storage.record_folder import RecordFolder

GAMES = (10_000, 100_000, 1_000_000)


@dataclass
class Cost:
    """What a run of so many games costs; limits are of a million."""

    games: int
    bytes_a_game: float
    unpacked_bytes_a_game: float
    audit_seconds: float
    audit_cpu_seconds: float
    audit_megabytes: float
    audit_without_replay_seconds: float
    count_seconds: float
    resume_seconds: float
    resume_cpu_seconds: float
    state_kilobytes: float
    make_cpu_seconds: float


#: CPU seconds of the audit: two minutes on two cores.
LIMITS = {
    "bytes_a_game": 3400,
    "audit_cpu_seconds": 240,
    "audit_megabytes": 1000,
    "resume_cpu_seconds": 5,
    "state_kilobytes": 500,
}


def main() -> int:
    parser = Arguments(description=__doc__.split("\n\n")[0])
    parser.add_argument("--games", type=within(int, 1), nargs="+", default=GAMES)
    parser.add_argument("--folder", type=new_folder, help="where the runs are made; default: a temporary folder")
    parser.add_argument("--json", type=new_file, help="where the figures are written")
    options = parser.parse_args()
    folder = options.folder or Path(tempfile.mkdtemp(prefix="growth-"))
    costs = []
    print(f"{'':<24}" + "".join(f"{games:>14,}" for games in options.games) + f"{'limit':>10}", flush=True)
    for games in options.games:
        try:
            costs.append(measure(folder / str(games), games))
        finally:
            shutil.rmtree(folder / str(games), ignore_errors=True)
        if options.json is not None:
            written = {"cores": len(os.sched_getaffinity(0)), "limits": LIMITS, "runs": list(map(asdict, costs))}
            options.json.write_text(json.dumps(written, indent=1) + "\n", encoding="utf-8")
        print(f"{games:,} games: {json.dumps(asdict(costs[-1]))}", file=sys.stderr, flush=True)
    for name in asdict(costs[0]):
        limit = str(LIMITS.get(name, ""))
        print(f"{name:<24}" + "".join(f"{getattr(cost, name):>14,.4g}" for cost in costs) + f"{limit:>10}")
    return int(any(getattr(cost, name) > limit for cost in costs for name, limit in LIMITS.items()))


def measure(run_dir: Path, games: int) -> Cost:
    """Make a run and take its costs."""
    begin = time.process_time()
    steps = make_run(run_dir, games)
    made = time.process_time() - begin
    folder = RecordFolder(run_dir / "games")
    count_seconds, _, number = timed(lambda: folder.count("train"))
    assert number >= games, number
    packed = sum(file.stat().st_size for file in folder.path.iterdir())
    some = folder.steps("train")[:: max(steps // 100, 1)]
    unpacked = sum(len(line) for step in some for line in folder.lines("train", step)) / folder.count("train", some)
    seconds, cpu, megabytes = audited(run_dir)
    without_replay, _, _ = audited(run_dir, "--no-replay")
    # as a run that was killed some steps after its last checkpoint
    for step in range(steps + 1, steps + 4):
        folder.write("train", step, [])
    checkpoint = run_dir / "checkpoints" / f"global_step_{steps}"

    def resume() -> None:
        read_state(checkpoint)
        folder.cut_back(steps)

    resume_seconds, resume_cpu, _ = timed(resume)
    assert folder.steps("train")[-1] == steps
    return Cost(
        games=number,
        bytes_a_game=packed / number,
        unpacked_bytes_a_game=unpacked,
        audit_seconds=seconds,
        audit_cpu_seconds=cpu,
        audit_megabytes=megabytes,
        audit_without_replay_seconds=without_replay,
        count_seconds=count_seconds,
        resume_seconds=resume_seconds,
        resume_cpu_seconds=resume_cpu,
        state_kilobytes=state_of_a_pool(steps) / 1000,
        make_cpu_seconds=made,
    )


def timed(do: Callable[[], Any]) -> tuple[float, float, Any]:
    """Seconds, CPU seconds, and what came of it."""
    begin, cpu = time.monotonic(), time.process_time()
    result = do()
    return time.monotonic() - begin, time.process_time() - cpu, result


def audited(run_dir: Path, *options: str) -> tuple[float, float, float]:
    """The audit's seconds, the CPU seconds of its processes, and the memory of its largest one in MB."""
    before, begin = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    done = subprocess.run(
        [sys.executable, "-m", "recipe.spiral.audit", str(run_dir), *options],
        capture_output=True,
        text=True,
        timeout=7200,
    )
    seconds, after = time.monotonic() - begin, resource.getrusage(resource.RUSAGE_CHILDREN)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return seconds, cpu, after.ru_maxrss / 1000


def state_of_a_pool(steps: int) -> int:
    """Bytes of the state of a pool of 25 that a new member joins after each step, and of the matchmaker's counts."""
    pool, matchmaker = Pool(size=25, update_interval=1), Matchmaker(ratio=0.5)
    for step in range(steps):
        pool.add(snapshot_name(step), step)
        games = [(GameKey("train", 0, step, index), ("TicTacToe", "KuhnPoker")[index % 2]) for index in range(8)]
        matchmaker.assign(games, pool.choose(step, 2))
    return len(json.dumps([pool.state_dict(), matchmaker.state_dict()]))


if __name__ == "__main__":
    sys.exit(main())
