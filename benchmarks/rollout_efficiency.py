"""Measures rollout efficiency: the engine alone, over the time in which a run played the same games.

    python benchmarks/rollout_efficiency.py RUN_DIR [--steps 5] [--repeats 5] [--json FILE]
    python benchmarks/rollout_efficiency.py --run [OVERRIDE ...] [--answers 32] [--json FILE]

The engine alone is vLLM in one process, with the settings of the run and nothing of verl's, Ray's or the recipe's: it
gets the prompts of the run's records, answers with as many tokens, and gets a game's next prompt when the answer
before it has ended. Nothing is computed from the answers. The run's own time is verl's timer `gen` of each step. Both
are seconds of the clock, so that nothing else may run meanwhile.
`--run` first makes a short run by itself, on the machine as it is now.

A tiny model's answers hardly differ in length. With `--answers 32` the run is made with a model whose answers have 32
tokens in the mean and end with the same chance at each (`long_answers.py`).
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from benchmarks import long_answers  # noqa: E402

#: Of the tiny model with 128 games a step, on two cores.
TARGET = 0.5
RUN = (
    "+experiment=quickstart",
    "trainer.total_training_steps=8",
    "trainer.val_before_train=false",
    "trainer.test_freq=-1",
    "trainer.save_freq=-1",
    "trainer.logger=[file]",
)
#: A game: its turns, each a prompt and the number of tokens of the answer.
Game = list[tuple[list[int], int]]


def games_of(run_dir: Path, step: int) -> list[Game]:
    """The games of a step, discarded ones too, with the turns that a model played."""
    from recipe.spiral.lab.record_folder import RecordFolder

    records = RecordFolder(run_dir / "games").read("train", step, step)
    played = [[turn.tokens for turn in record.turns if turn.tokens is not None] for record in records]
    return [[(tokens.prompt_ids, len(tokens.response_ids)) for tokens in turns] for turns in played]


class Alone:
    """vLLM in this process, with a run's settings, and ``more`` of vLLM's own."""

    def __init__(self, config: Any, **more: Any) -> None:
        from omegaconf import OmegaConf

        os.environ |= {"VLLM_ENABLE_V1_MULTIPROCESSING": "0", "VLLM_LOGGING_LEVEL": "ERROR"}
        if os.environ.get("VERL_PLATFORM") == "cpu":
            from recipe.spiral.workers.platforms import cpu_vllm  # noqa: F401  (vLLM's build for CPUs is found)
        from vllm import EngineArgs
        from vllm.v1.engine.llm_engine import LLMEngine

        rollout = config.actor_rollout_ref.rollout
        positions = int(rollout.max_model_len or rollout.prompt_length + rollout.response_length)
        settings: dict[str, Any] = OmegaConf.to_container(rollout.engine_kwargs.get("vllm") or {}, resolve=True)
        settings |= {
            name: rollout[name]
            for name in (
                *("dtype", "enforce_eager", "max_num_seqs", "max_num_batched_tokens", "enable_prefix_caching"),
                "gpu_memory_utilization",
            )
        }
        self.temperature = float(rollout.temperature)
        self.engine = LLMEngine.from_engine_args(
            EngineArgs(
                model=str(config.actor_rollout_ref.model.path),
                max_model_len=positions,
                enable_chunked_prefill=rollout.enable_chunked_prefill,
                disable_log_stats=True,
                **{name: value for name, value in (settings | more).items() if value is not None},
            )
        )

    def seconds(self, games: list[Game], play: Callable[[Alone, list[Game]], None]) -> float:
        """Seconds from nothing known of any prompt."""
        self.engine.reset_prefix_cache()
        begin = time.perf_counter()
        play(self, games)
        return time.perf_counter() - begin

    def ask(self, name: str, prompt: list[int], length: int, seed: int) -> None:
        from vllm import SamplingParams
        from vllm.sampling_params import RequestOutputKind

        sampling = SamplingParams(
            temperature=self.temperature,
            seed=seed,
            max_tokens=length,
            ignore_eos=True,
            logprobs=0,
            detokenize=False,
            output_kind=RequestOutputKind.FINAL_ONLY,
        )
        self.engine.add_request(name, {"prompt_token_ids": prompt}, sampling)

    def answered(self) -> Iterator[str]:
        """The requests that ended, until there are none."""
        while self.engine.has_unfinished_requests():
            for output in self.engine.step():
                if output.finished:
                    yield output.request_id


def at_once(alone: Alone, games: list[Game]) -> None:
    """Each game goes on as soon as its turn has ended."""

    def ask(game: int, turn: int) -> None:
        if turn < len(games[game]):
            alone.ask(f"{game}-{turn}", *games[game][turn], seed=1000 * game + turn)

    for game in range(len(games)):
        ask(game, 0)
    for name in alone.answered():
        game, turn = map(int, name.split("-")[:2])
        ask(game, turn + 1)


def timer(run_dir: Path, name: str) -> dict[int, float]:
    """A timer of verl's, in each step."""
    from recipe.spiral.storage.run_files import METRICS, read_metrics

    logged = (line for line, _ in read_metrics(run_dir / METRICS))
    return {line.step: value for line in logged if (value := line.metrics.get(name)) is not None}


def measure(run_dir: Path, steps: int, repeats: int) -> dict[str, Any]:
    """The figures of a run's last steps."""
    from omegaconf import OmegaConf

    config = OmegaConf.load(run_dir / "config.yaml")
    for name, value in config.environment.items():  # first of all: OpenMP reads its own once, when torch is imported
        os.environ.setdefault(name, str(value))
    play = timer(run_dir, "timing_s/gen")
    alone = Alone(config)
    chosen = sorted(play)[-steps:]
    alone.seconds(games_of(run_dir, chosen[0]), at_once)  # warm
    rows: list[dict[str, Any]] = []
    for step in chosen:
        games = games_of(run_dir, step)
        seconds = sorted(alone.seconds(games, at_once) for _ in range(repeats))
        turns = sum(map(len, games))
        rows.append({"step": step, "games": len(games), "turns": turns, "play": play[step], "alone": seconds})
    return {"steps": rows, "efficiency": median(median(row["alone"]) / row["play"] for row in rows)}


def show(figures: dict[str, Any]) -> None:
    print(f"{'step':>5}{'games':>7}{'turns':>7}{'play s':>9}{'alone s':>9}{'spread':>14}{'efficiency':>12}")
    for row in figures["steps"]:
        alone, spread = median(row["alone"]), f"{row['alone'][0]:.2f}-{row['alone'][-1]:.2f}"
        cells = f"{row['step']:>5}{row['games']:>7}{row['turns']:>7}{row['play']:>9.2f}{alone:>9.2f}"
        print(f"{cells}{spread:>14}{alone / row['play']:>12.2f}")
    print(f"rollout efficiency: {figures['efficiency']:.2f} (median; target: {TARGET})")
    last = figures["steps"][-1]
    print(f"{last['turns'] / last['play']:,.0f} turns per second of play")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run_dir", nargs="?", type=Path, help="a run with records of training games")
    parser.add_argument("--run", nargs="*", metavar="OVERRIDE", help="make a run first, with these overrides")
    parser.add_argument("--steps", type=int, default=5, help="the run's last steps; the median counts (5)")
    parser.add_argument("--repeats", type=int, default=5, help="of each step by the engine alone (5)")
    parser.add_argument("--answers", type=int, help="of --run: so many tokens in the mean, ending anywhere")
    parser.add_argument("--json", type=Path, help="a file for the figures")
    given = parser.parse_args()
    if (given.run_dir is None) == (given.run is None):
        parser.error("name a run's folder, or --run")
    with tempfile.TemporaryDirectory(prefix="efficiency-") as folder:
        run_dir, overrides = given.run_dir or Path(folder) / "run", []
        if given.run is not None:
            if given.answers is not None:
                long_answers.make(Path(folder) / "model", given.answers)
                overrides = long_answers.overrides(Path(folder) / "model", given.answers)
            own = [f"run_dir={run_dir}", *RUN, *overrides, *given.run]
            subprocess.run(
                [sys.executable, "-m", "recipe.spiral.main_spiral", *own], cwd=ROOT, timeout=1800, check=True
            )
        figures = measure(run_dir, given.steps, given.repeats)
    show(figures)
    if given.json:
        given.json.write_text(json.dumps(figures, indent=2) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
