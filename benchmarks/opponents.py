"""Measures what opponents from the pool cost: steps of self-play, and steps with half of the games against a past self.

    python benchmarks/opponents.py [--steps 12] [--games 64] [--folder DIR] [HYDRA OVERRIDE ...]

There are two runs, one with full weights and one with LoRA. Each takes some steps of pure self-play and then as many
with ``fsp.ratio=0.5``; in these every step adds a member to the pool and loads one. The learning rate is 0, so every
member has the policy's own weights and the games of both halves are alike. The medians of the steps are compared,
without the first two steps of each half. Where engines share cores or devices, the opponent's engine slows the policy's
engine. As the tokens and weights are the same, the longer play is this contention; it is shown apart from loading and
writing.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from benchmarks.options import new_folder, parse_with_overrides  # noqa: E402
from benchmarks.processes import end_with_run  # noqa: E402
from recipe.spiral.processes.arguments import Arguments, within  # noqa: E402

LIMIT = 1800.0
LORA = (
    "actor_rollout_ref.model.lora_rank=8",
    "actor_rollout_ref.model.lora_alpha=16",
    "actor_rollout_ref.model.target_modules=all-linear",
)


def main() -> int:
    parser = Arguments(description=__doc__.split("\n\n")[0])
    parser.add_argument("--steps", type=within(int, 3), default=12, help="number of steps of each half")
    parser.add_argument("--games", type=within(int, 1), default=64, help="number of games of a step")
    parser.add_argument("--folder", type=new_folder, help="where the runs are kept; default: a temporary folder")
    arguments, overrides = parse_with_overrides(parser)
    folder = arguments.folder or Path(tempfile.mkdtemp(prefix="opponents-"))
    print(f"{'':14}{'step':>9}{'play':>9}{'update':>9}{'load':>9}{'snapshot':>10}{'tokens/s':>10}")
    for name, more in (("full weights", ()), ("LoRA", LORA)):
        steps = train(folder / name.replace(" ", "_"), arguments.steps, arguments.games, [*more, *overrides])
        report(name, steps, arguments.steps)
    return 0


def train(run_dir: Path, steps: int, games: int, overrides: list[str]) -> list[dict[str, float]]:
    """Train both halves; returns the metrics of each step."""
    command = [
        *(sys.executable, "-m", "recipe.spiral.main_spiral", f"run_dir={run_dir}"),
        "fsp.enabled=true",
        f"fsp.start_from={steps}",
        "fsp.update_interval=1",
        "fsp.sample=recent",
        "actor_rollout_ref.actor.optim.lr=1e-30",  # nothing is learned
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
    output = run_dir.with_suffix(".txt")
    with output.open("w") as out:
        status = subprocess.run(command, stdout=out, stderr=subprocess.STDOUT, timeout=LIMIT).returncode
    if status:
        end_with_run(output)
    (log,) = run_dir.glob("metrics-*.jsonl")
    return [json.loads(line)["data"] for line in log.read_text().splitlines()]


def report(name: str, metrics: list[dict[str, float]], steps: int) -> None:
    """Print a line for each half, and the time of the second half as a multiple of the first."""
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
