"""What opponents from the pool cost: steps of self-play against steps of which half is played against a past self.

    python benchmarks/opponents.py [--steps 12] [--games 64] [--folder DIR] [HYDRA OVERRIDE ...]

Two runs, one with full weights and one with LoRA. Each first takes so many steps of pure self-play and then as many
with ``fsp.ratio=0.5``, a member being added and loaded at every step. The learning rate is 0, so that every member
holds the policy's own weights and the games of both halves are alike. Medians of the steps are compared, the first two
of each half left out. Where engines share cores or devices, the opponent's engine slows the policy's: what of the play
is longer is that contention (the same tokens by the same weights), and is told apart from what loading and writing
members take.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median

LIMIT = 1800.0
LORA = (
    "actor_rollout_ref.model.lora_rank=8",
    "actor_rollout_ref.model.lora_alpha=16",
    "actor_rollout_ref.model.target_modules=all-linear",
)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--steps", type=int, default=12, help="of each half")
    parser.add_argument("--games", type=int, default=64, help="of a step")
    parser.add_argument("--folder", type=Path, help="where the runs are kept; a temporary folder unless given")
    arguments, overrides = parser.parse_known_args()
    folder = arguments.folder or Path(tempfile.mkdtemp(prefix="opponents-"))
    print(f"{'':14}{'step':>9}{'play':>9}{'update':>9}{'load':>9}{'snapshot':>10}{'tokens/s':>10}")
    for name, more in (("full weights", ()), ("LoRA", LORA)):
        steps = train(folder / name.replace(" ", "_"), arguments.steps, arguments.games, [*more, *overrides])
        report(name, steps, arguments.steps)
    return 0


def train(run_dir: Path, steps: int, games: int, overrides: list[str]) -> list[dict[str, float]]:
    """Run both halves; returns the metrics of each step."""
    command = [
        *(sys.executable, "-m", "recipe.spiral.main_spiral", f"run_dir={run_dir}"),
        "fsp.enabled=true",
        f"fsp.start_from={steps}",
        "fsp.update_interval=1",
        "fsp.sample=recent",
        "actor_rollout_ref.actor.optim.lr=0",
        f"data.train_batch_size={games}",
        f"trainer.total_training_steps={2 * steps}",
        "trainer.save_freq=-1",
        "trainer.test_freq=-1",
        "trainer.val_before_train=false",
        "trainer.logger=[file]",
        "records.every=0",
        *overrides,
    ]
    run_dir.parent.mkdir(parents=True, exist_ok=True)
    with run_dir.with_suffix(".txt").open("w") as out:
        subprocess.run(command, stdout=out, stderr=subprocess.STDOUT, timeout=LIMIT, check=True)
    (log,) = run_dir.glob("metrics-*.jsonl")
    return [json.loads(line)["data"] for line in log.read_text().splitlines()]


def report(name: str, metrics: list[dict[str, float]], steps: int) -> None:
    """A line for each half, and what the second takes in parts of the first."""
    halves = [metrics[2:steps], metrics[steps + 2 :]]
    columns = ("step", "gen", "update_actor", "load_opponents", "snapshot")
    times = [{key: median(step.get(f"timing_s/{key}", 0.0) for step in half) for key in columns} for half in halves]
    for half, taken, what in zip(halves, times, ("self-play", "half the pool"), strict=True):
        rate = median(tokens(step) / step["timing_s/gen"] for step in half)
        cells = "".join(f"{taken[key]:>{10 if key == 'snapshot' else 9}.3f}" for key in columns)
        print(f"{what:14}{cells}{rate:>10.0f}")
    own, with_pool = times
    contention = with_pool["gen"] - own["gen"]
    print(
        f"{name}: a step takes {with_pool['step'] / own['step']:.2f} times as long; without the contention of the "
        f"engines ({contention:+.2f} s of play) {(with_pool['step'] - contention) / own['step']:.2f} times; loading a "
        f"member takes {with_pool['load_opponents'] / max(with_pool['update_actor'], 1e-9):.2f} of the update\n"
    )


def tokens(step: dict[str, float]) -> float:
    """Response tokens of all players in a step."""
    return step["turns/count"] * step["turns/response_tokens"] + step.get("opponents/pool/response_tokens", 0.0)


if __name__ == "__main__":
    sys.exit(main())
