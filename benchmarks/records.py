"""Records what a smaller program must not change, and holds another checkout against it.

    python benchmarks/records.py make FOLDER [--tree CHECKOUT] [--cases CASE ...]
    python benchmarks/records.py compare BEFORE AFTER

``make`` trains the cases of a checkout in its own process, one run after the other, and keeps each run's folder.
``compare`` holds the first step's games of each case to the letter (of runs with opponents, whose seats may differ: the
number of games, the roles, and the shares of opponents), then the games that are equal in later steps, and NashConv,
lost games and illegal answers at the end. It exits with 1 if a first step differs. A run's folder is read by this file
alone, so that neither checkout has to read the other's.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

SHORT = ("trainer.total_training_steps=12", "trainer.save_freq=6", "trainer.test_freq=12")
LORA = ("actor_rollout_ref.model.lora_rank=8", "actor_rollout_ref.model.lora_alpha=16")
POOL = ("+experiment=quickstart", "fsp.enabled=true", "fsp.size=4", "fsp.update_interval=3", "fsp.sample=uniform")
CASES: dict[str, tuple[str, ...]] = {
    "quickstart": ("+experiment=quickstart",),
    "quickstart_1": ("+experiment=quickstart", "seed=1"),
    "kuhn": ("+experiment=kuhn", *SHORT),
    "pool": (*POOL, *SHORT),
    "lora_pool": (*POOL, *LORA, "actor_rollout_ref.actor.optim.lr=1e-3", *SHORT),
    "colocate": ("+experiment=asynchronous", *SHORT),
    "separate": ("+experiment=asynchronous", "trainer.v1.trainer_mode=separate_async", *SHORT),
    "equilibrium": ("+experiment=equilibrium", *SHORT),
    "spin": (
        "+experiment=kuhn",
        *("loss=dpo", "ref_update_freq=4", "data.train_batch_size=32", "branching.states=1"),
        *("branching.continuations=3", "actor_rollout_ref.actor.kl_loss_coef=0"),
        *SHORT,
    ),
}
#: Cases in which others play too, or in which the machine's pace decides which games a step trains.
OTHER_SEATS = ("pool", "lora_pool")
PACED = ("colocate", "separate")
MEASURES = ("nash_conv", "lost", "invalid", "optimal")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    making = commands.add_parser("make")
    making.add_argument("folder", type=Path)
    making.add_argument("--tree", type=Path, default=Path(__file__).resolve().parents[1])
    making.add_argument("--cases", nargs="+", choices=CASES, default=list(CASES))
    comparing = commands.add_parser("compare")
    comparing.add_argument("before", type=Path)
    comparing.add_argument("after", type=Path)
    given = parser.parse_args()
    if given.command == "make":
        return make(given.folder, given.tree.resolve(), given.cases)
    return compare(given.before, given.after)


def make(folder: Path, tree: Path, cases: list[str]) -> int:
    """Train each case that is not there yet; the exit status is the number of runs that failed."""
    folder.mkdir(parents=True, exist_ok=True)
    failed = 0
    environment = {**os.environ, "PYTHONPATH": str(tree), "WANDB_MODE": "disabled"}
    for case in cases:
        run_dir = (folder / case).resolve()
        command = [sys.executable, "-m", "recipe.spiral.main_spiral", *CASES[case], "model=tiny", f"run_dir={run_dir}"]
        with (folder / f"{case}.txt").open("a") as output:
            ended = subprocess.run(command, cwd=tree, env=environment, stdout=output, stderr=output, timeout=1800)
        failed += ended.returncode != 0
        print(f"{case}: exit {ended.returncode}", flush=True)
    return failed


def compare(before: Path, after: Path) -> int:
    differing = 0
    for case in CASES:
        if not all((side / case / "games").is_dir() for side in (before, after)):
            print(f"{case}: not recorded")
            continue
        old, new = before / case, after / case
        same = same_seats(old, new) if case in OTHER_SEATS else same_games(old, new, 1)
        differing += not same and case not in PACED
        later = [step for step in range(1, 13) if case not in OTHER_SEATS and same_games(old, new, step)]
        print(f"{case}: first step {'the same' if same else 'DIFFERS'}; equal steps {later}")
        one, other = measures(old), measures(new)
        for name in sorted(one | other):
            print(f"    {name}: {one.get(name)} | {other.get(name)}")
    return int(differing > 0)


def games(run_dir: Path, step: int) -> list[dict[str, Any]]:
    """A step's games; [] if there is no such step."""
    file = run_dir / "games" / f"train_step_{step:06d}.jsonl.gz"
    lines = gzip.decompress(file.read_bytes()).splitlines() if file.is_file() else []
    return list(map(json.loads, lines))


def said(game: dict[str, Any]) -> tuple[Any, ...]:
    """What was played in a game and trained of it, whatever else a record holds and in which order."""
    turns = [
        (turn["player"], turn["response"], turn["verdict"], turn.get("action"), rounded(turn.get("advantage")))
        for turn in game["turns"]
    ]
    key = {name: value for name, value in game["key"].items() if value is not None}
    key["retry"] = key.get("retry", 0) + key.pop("branch", 0)  # a branch is one more try of its game
    key.pop("group", None)
    rewards, baselines = map(rounded, game["rewards"]), map(rounded, game["baselines"])
    named = (json.dumps(key, sort_keys=True), game["game"], game.get("discarded"))
    return (*named, *turns, *rewards, *baselines)


def rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 5)


def same_games(old: Path, new: Path, step: int) -> bool:
    one, other = (sorted(map(repr, map(said, games(run_dir, step)))) for run_dir in (old, new))
    return bool(one) and one == other


def same_seats(old: Path, new: Path) -> bool:
    """Of twelve steps: as many games that count, each as its entry says, and shares of opponents and roles that differ
    by less than four standard deviations."""
    one, other = (seats(run_dir) for run_dir in (old, new))
    total = sum(one.values())
    return total == sum(other.values()) and all(
        abs(one[seat] - other[seat]) <= 4 * max(1.0, (one[seat] + other[seat]) / 2) ** 0.5 for seat in one | other
    )


def seats(run_dir: Path) -> Counter[tuple[str, str, tuple[int, ...]]]:
    played = [game for step in range(1, 13) for game in games(run_dir, step) if game.get("discarded") is None]
    return Counter((game["game"], game["opponent"], tuple(game["trainable"])) for game in played)


def measures(run_dir: Path) -> dict[str, float | None]:
    """The last value of each metric of interest."""
    lines = map(json.loads, (run_dir / "metrics.jsonl").read_text().splitlines())
    logged = [item for line in lines for item in line["metrics"].items()]
    return {name: rounded(value) for name, value in logged if name.startswith("val-core/") and name.endswith(MEASURES)}


if __name__ == "__main__":
    sys.exit(main())
