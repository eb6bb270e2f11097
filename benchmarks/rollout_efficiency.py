"""Measures rollout efficiency: the engine alone, over the time in which a run played the same games.

    python benchmarks/rollout_efficiency.py RUN_DIR [--steps 5] [--repeats 5] [--json FILE]
    python benchmarks/rollout_efficiency.py --run [OVERRIDE ...] [--answers 32] [--json FILE]

The engine alone is vLLM in one process, with the settings of the run and nothing of verl's, Ray's or the recipe's: it
gets the prompts of the run's records, answers with as many tokens, and gets a game's next prompt when the answer
before it has ended. Nothing is computed from the answers. The run's own time is verl's timer `gen` of each step. Both
are seconds of the clock, so that nothing else may run meanwhile; CPU seconds of the engine alone are shown beside them.
`--run` first makes a short run by itself, on the machine as it is now.

Also shown: the same turns by the engine alone in lock step (all games' first turns, then all second turns, ...), and
one game at a time, as earlier implementations play. Lock step waits for the longest answer of each turn, so that it
depends on how answers differ in length, which those of a tiny model hardly do: with `--answers 32` the run is made with
a model whose answers have 32 tokens in the mean and end with the same chance at each (`long_answers.py`). The engine's
steps are counted as well, because a step takes longer with more games on a CPU, and should take hardly longer on a GPU.
"""

from __future__ import annotations

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
from benchmarks.options import run_folder  # noqa: E402
from recipe.spiral.processes.arguments import Arguments, new_file, within  # noqa: E402

#: Of the tiny model with 128 games a step, on two cores.
TARGET = 0.6
#: How many times as fast as in lock step, and as one game at a time, the games should be played on the same engine.
LOCK_STEP_TARGET, ONE_BY_ONE_TARGET = 1.5, 10.0
RUN = (
    "+experiment=quickstart",
    "trainer.total_training_steps=8",
    "trainer.val_before_train=false",
    "trainer.test_freq=-1",
    "trainer.save_freq=-1",
    "trainer.logger=[file]",
)
#: Games whose time one at a time is measured; the others' follows from their number of turns.
ALONE = 16

#: A game: its turns, each a prompt and the number of tokens of the answer.
Game = list[tuple[list[int], int]]


def games_of(run_dir: Path, step: int) -> list[Game]:
    """The games of a step, discarded ones too, with the turns that a model played."""
    from recipe.spiral.storage.record_folder import RecordFolder

    records = RecordFolder(run_dir / "games").read("train", step, step)
    played = [[turn.tokens for turn in record.turns if turn.tokens is not None] for record in records]
    return [[(tokens.prompt_ids, len(tokens.response_ids)) for tokens in turns] for turns in played]


class Alone:
    """vLLM in this process, with a run's settings, and ``more`` of vLLM's own."""

    def __init__(self, config: Any, **more: Any) -> None:
        from omegaconf import OmegaConf

        os.environ |= {"VLLM_ENABLE_V1_MULTIPROCESSING": "0", "VLLM_LOGGING_LEVEL": "ERROR"}
        if os.environ.get("VERL_PLATFORM") == "cpu":
            from recipe.spiral.workers.platforms import cpu_worker  # noqa: F401  (vLLM's build for CPUs is found)
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

    def seconds(self, games: list[Game], play: Callable[[Alone, list[Game]], None]) -> tuple[float, float]:
        """Seconds of the clock, and of the CPU, from nothing known of any prompt; counts the engine's steps."""
        self.engine.reset_prefix_cache()
        self.steps = 0
        clock, cpu = time.perf_counter(), time.process_time()
        play(self, games)
        return time.perf_counter() - clock, time.process_time() - cpu

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
            self.steps += 1
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


def lock_step(alone: Alone, games: list[Game]) -> None:
    """All games wait for the longest answer of a turn."""
    for turn in range(max(map(len, games))):
        at_once(alone, [[game[turn]] for game in games if turn < len(game)])


def one_by_one(alone: Alone, games: list[Game]) -> None:
    for game in games:
        at_once(alone, [game])


def timer(run_dir: Path, name: str) -> dict[int, float]:
    """A timer of verl's, in each step."""
    from recipe.spiral.storage.metrics_file import METRICS, read_metrics

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
    rows = []
    for step in chosen:
        games = games_of(run_dir, step)
        measured = [alone.seconds(games, at_once) for _ in range(repeats)]
        clock, cpu = (sorted(column) for column in zip(*measured, strict=True))
        rows.append(
            {
                "step": step,
                "games": len(games),
                "turns": sum(map(len, games)),
                "play": play[step],
                "alone": median(clock),
                "alone_all": clock,
                "alone_cpu": median(cpu),
                "efficiency": median(clock) / play[step],
            }
        )
    figures = {"steps": rows, "efficiency": median(row["efficiency"] for row in rows)}
    figures |= other_ways(alone, games, repeats, rows[-1]["alone"], alone.steps)
    return figures


def other_ways(alone: Alone, games: list[Game], repeats: int, at_best: float, fewest: int) -> dict[str, float]:
    """How many times as long the engine takes for some games in lock step, and one by one; and as many steps."""
    few = games[:ALONE]
    turns = sum(map(len, games)) / sum(map(len, few))
    in_lock_step = median(alone.seconds(games, lock_step)[0] for _ in range(repeats))
    figures = {"lock_step": in_lock_step / at_best, "lock_step_steps": alone.steps / fewest}
    of_few, _ = alone.seconds(few, one_by_one)
    return {**figures, "one_by_one": turns * of_few / at_best, "one_by_one_steps": turns * alone.steps / fewest}


def show(figures: dict[str, Any]) -> None:
    columns = {"step": 5, "games": 7, "turns": 7, "play s": 9, "alone s": 9, "spread": 14, "CPU s": 8, "efficiency": 12}
    print("".join(f"{name:>{width}}" for name, width in columns.items()))
    for row in figures["steps"]:
        spread = f"{row['alone_all'][0]:.2f}-{row['alone_all'][-1]:.2f}"
        print(
            f"{row['step']:>5}{row['games']:>7}{row['turns']:>7}{row['play']:>9.2f}{row['alone']:>9.2f}{spread:>14}"
            f"{row['alone_cpu']:>8.2f}{row['efficiency']:>12.2f}"
        )
    print(f"rollout efficiency: {figures['efficiency']:.2f} (median; target: {TARGET})")
    turns, play = figures["steps"][-1]["turns"], figures["steps"][-1]["play"]
    for name, target in (("lock_step", LOCK_STEP_TARGET), ("one_by_one", ONE_BY_ONE_TARGET)):
        of_run = figures[name] * figures["efficiency"]
        print(
            f"{name.replace('_', ' ')} takes the engine alone {figures[name]:.1f} times as long (target: {target}), "
            f"in {figures[f'{name}_steps']:.1f} times as many steps, and {of_run:.1f} times as long as the run plays"
        )
    print(f"{turns / play:,.0f} turns per second of play")


def main() -> int:
    parser = Arguments(description=__doc__.split("\n\n")[0])
    parser.add_argument("run_dir", nargs="?", type=run_folder, help="a run with records of training games")
    parser.add_argument("--run", nargs="*", metavar="OVERRIDE", help="make a run first, with these overrides")
    parser.add_argument("--steps", type=within(int, 1), default=5, help="the run's last steps; the median counts")
    parser.add_argument(
        "--repeats", type=within(int, 1), default=5, help="of each step, by the engine alone; the median counts"
    )
    parser.add_argument(
        "--answers", type=within(int, 1), help="the run's answers have so many tokens in the mean, and end anywhere"
    )
    parser.add_argument("--json", type=new_file, help="a file for the figures")
    arguments, overrides = parser.parse_args(), []
    if (arguments.run_dir is None) == (arguments.run is None):
        parser.error("name a run's folder, or --run")
    if arguments.run is None and arguments.answers is not None:
        parser.error("--answers: is only for --run")
    with tempfile.TemporaryDirectory(prefix="efficiency-") as folder:
        run_dir = arguments.run_dir or Path(folder) / "run"
        if arguments.run is not None:
            if arguments.answers is not None:
                try:
                    long_answers.make(Path(folder) / "model", arguments.answers)
                except ValueError as error:
                    parser.error(str(error))
                overrides = long_answers.overrides(Path(folder) / "model", arguments.answers)
            own = [f"run_dir={run_dir}", *RUN, *overrides, *arguments.run]
            command = [sys.executable, "-m", "recipe.spiral.main_spiral", *own]
            if status := subprocess.run(command, cwd=ROOT, timeout=1800).returncode:
                return status
        if not any(games_of(run_dir, max(timer(run_dir, "timing_s/gen"), default=0))):
            parser.error(f"{run_dir}: no tokens of the last step are recorded; the run needs records.tokens=true")
        figures = measure(run_dir, arguments.steps, arguments.repeats)
    show(figures)
    if arguments.json:
        arguments.json.write_text(json.dumps(figures, indent=2) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
