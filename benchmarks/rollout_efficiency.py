"""Measures rollout efficiency: the engine alone, over the time in which a run played the same games.

    python benchmarks/rollout_efficiency.py RUN_DIR [--steps 5] [--repeats 5]
    python benchmarks/rollout_efficiency.py --run [OVERRIDE ...] [--answers 32]

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
import os
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks import long_answers
from benchmarks.runs import quickstart, seconds_of, steps_of
from recipe.spiral.processes.launch import set_environment

#: Of the tiny model with 128 games a step, on two cores.
TARGET = 0.5
#: A game: its turns, each a prompt and the number of tokens of the answer.
Game = list[tuple[list[int], int]]


def games_of(run_dir: Path, step: int) -> list[Game]:
    """The games of a step, discarded ones too, with the turns that a model played."""
    from recipe.spiral.lab.record_folder import RecordFolder

    records = RecordFolder(run_dir / "games").read("train", step, step)
    played = [[turn.tokens for turn in record.turns if turn.tokens is not None] for record in records]
    return [[(tokens.prompt_ids, len(tokens.response_ids)) for tokens in turns] for turns in played]


class Alone:
    """vLLM in this process, with a run's settings."""

    def __init__(self, config: Any) -> None:
        from omegaconf import OmegaConf

        os.environ |= {"VLLM_ENABLE_V1_MULTIPROCESSING": "0", "VLLM_LOGGING_LEVEL": "ERROR"}
        if os.environ.get("VERL_PLATFORM") == "cpu":
            from recipe.spiral.workers.platforms import cpu_vllm  # noqa: F401  (vLLM's build for CPUs is found)
        from vllm import EngineArgs
        from vllm.v1.engine.llm_engine import LLMEngine

        rollout = config.actor_rollout_ref.rollout
        settings: dict[str, Any] = OmegaConf.to_container(rollout.engine_kwargs.get("vllm") or {}, resolve=True)
        names = ("dtype", "enforce_eager", "max_num_seqs", "max_num_batched_tokens", "enable_prefix_caching")
        settings |= {name: rollout[name] for name in (*names, "gpu_memory_utilization", "enable_chunked_prefill")}
        settings["max_model_len"] = int(rollout.max_model_len or rollout.prompt_length + rollout.response_length)
        given = {name: value for name, value in settings.items() if value is not None}
        model = str(config.actor_rollout_ref.model.path)
        self.temperature = float(rollout.temperature)
        self.engine = LLMEngine.from_engine_args(EngineArgs(model=model, disable_log_stats=True, **given))

    def seconds(self, games: list[Game]) -> float:
        """Seconds in which it plays games, from nothing known of any prompt. Each goes on when its turn has ended."""
        self.engine.reset_prefix_cache()
        begin = time.perf_counter()
        for number, game in enumerate(games):
            self._ask(number, 0, game)
        while self.engine.has_unfinished_requests():
            for output in self.engine.step():
                if output.finished:
                    number, turn = map(int, output.request_id.split("-")[:2])
                    self._ask(number, turn + 1, games[number])
        return time.perf_counter() - begin

    def _ask(self, number: int, turn: int, game: Game) -> None:
        from vllm import SamplingParams
        from vllm.sampling_params import RequestOutputKind

        if turn == len(game):
            return
        prompt, length = game[turn]
        sampling = SamplingParams(
            temperature=self.temperature,
            seed=1000 * number + turn,
            max_tokens=length,
            ignore_eos=True,
            logprobs=0,
            detokenize=False,
            output_kind=RequestOutputKind.FINAL_ONLY,
        )
        self.engine.add_request(f"{number}-{turn}", {"prompt_token_ids": prompt}, sampling)


def measure(run_dir: Path, steps: int, repeats: int) -> list[dict[str, Any]]:
    """A run's last steps: their games and turns, the run's seconds of play, and the engine's, sorted."""
    from omegaconf import OmegaConf

    config = OmegaConf.load(run_dir / "config.yaml")
    set_environment(config.environment)  # first of all: OpenMP reads its own once, when torch is imported
    alone, chosen = Alone(config), steps_of(run_dir)[-steps:]
    alone.seconds(games_of(run_dir, chosen[0].step))  # warm
    rows: list[dict[str, Any]] = []
    for step in chosen:
        games, play = games_of(run_dir, step.step), seconds_of(step)["gen"]
        seconds = sorted(alone.seconds(games) for _ in range(repeats))
        turns = sum(map(len, games))
        rows.append({"step": step.step, "games": len(games), "turns": turns, "play": play, "alone": seconds})
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run_dir", nargs="?", type=Path, help="a run with records of training games")
    parser.add_argument("--run", nargs="*", metavar="OVERRIDE", help="make a run first, with these overrides")
    parser.add_argument("--steps", type=int, default=5, help="the run's last steps; the median counts (5)")
    parser.add_argument("--repeats", type=int, default=5, help="of each step by the engine alone (5)")
    parser.add_argument("--answers", type=int, help="of --run: so many tokens in the mean, ending anywhere")
    given = parser.parse_args()
    if (given.run_dir is None) == (given.run is None):
        parser.error("name a run's folder, or --run")
    with tempfile.TemporaryDirectory(prefix="efficiency-") as folder:
        run_dir, overrides = given.run_dir or Path(folder) / "run", []
        if given.run is not None:
            if given.answers is not None:
                long_answers.make(Path(folder) / "model", given.answers)
                overrides = long_answers.overrides(Path(folder) / "model", given.answers)
            quickstart(run_dir, "trainer.total_training_steps=8", *overrides, *given.run)
        rows = measure(run_dir, given.steps, given.repeats)
    print(f"{'step':>5}{'games':>7}{'turns':>7}{'play s':>9}{'alone s':>9}{'spread':>14}{'efficiency':>12}")
    for row in rows:
        alone, spread = median(row["alone"]), f"{row['alone'][0]:.2f}-{row['alone'][-1]:.2f}"
        cells = f"{row['step']:>5}{row['games']:>7}{row['turns']:>7}{row['play']:>9.2f}{alone:>9.2f}"
        print(f"{cells}{spread:>14}{alone / row['play']:>12.2f}")
    efficiency = median(median(row["alone"]) / row["play"] for row in rows)
    print(f"rollout efficiency: {efficiency:.2f} (median; target: {TARGET})")


if __name__ == "__main__":
    main()
