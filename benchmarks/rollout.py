"""Measures what a game costs a rollout worker beside the model: an engine without a model answers at once.

    python benchmarks/rollout.py [--games 512] [--tokens 0] [--game TicTacToe --game KuhnPoker] [--profile FILE]
    python benchmarks/rollout.py --table [--json FILE]

Each game is first played by random players, so that the engine knows an answer for every turn: the actions are legal
and games have their usual lengths. Then verl's worker, with the tiny model's tokenizer and prompts, plays all games at
once. What it hands over goes into a queue in this process. Seconds are of this process on one core; what TransferQueue
and Ray cost is not in them. The target is 2,000 turns per second.

`--table` does so in one process each for more and more games at once, and for longer and longer answers: the cost of a
turn and the memory of a game should stay what they are.
"""

from __future__ import annotations

import asyncio
import cProfile
import gc
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from unittest import mock

from omegaconf import OmegaConf

TARGET = 2000.0
ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from recipe.spiral.games import make  # noqa: E402
from recipe.spiral.match import Rules, play  # noqa: E402
from recipe.spiral.opponents.kinds import make_player  # noqa: E402
from recipe.spiral.players.prompts import boxed  # noqa: E402
from recipe.spiral.players.seeds import GameKey  # noqa: E402
from recipe.spiral.processes.arguments import Arguments, new_file, own_game, within  # noqa: E402
from recipe.spiral.processes.garbage import collect_less  # noqa: E402
from recipe.spiral.rollouts.schedule import GameShare, training_row  # noqa: E402

SEED = 7


class KnownAnswers:
    """In the place of verl's client: answers at once with what it was told for a turn's sampling seed."""

    def __init__(self) -> None:
        self.answers: dict[int, list[int]] = {}
        self.tokens = 0

    async def generate(self, request_id: str, *, prompt_ids: list[int], sampling_params: Mapping[str, Any]) -> Any:
        from verl.workers.rollout.replica import TokenOutput

        ids = self.answers[sampling_params["seed"]]
        self.tokens += len(prompt_ids) + len(ids)
        versions = {"min_global_steps": 1, "max_global_steps": 1}
        return TokenOutput(token_ids=ids, log_probs=[-0.1] * len(ids), stop_reason="completed", extra_fields=versions)


class NoQueue:
    """In the place of TransferQueue: counts what is put, and in how many calls."""

    def __init__(self) -> None:
        self.counts: dict[str, int] = defaultdict(int)

    async def async_kv_batch_put(
        self, keys: list[str], partition_id: str, fields: Any = None, tags: Any = None
    ) -> None:
        self.counts["calls"] += 1
        self.counts["rows" if fields is not None and partition_id == "train" else partition_id] += len(keys)


def learn(engine: KnownAnswers, tokenizer: Any, rows: list[dict[str, Any]], tokens: int = 0) -> int:
    """Tell the engine what random players answer in these games, after so many tokens of reasoning; returns the number
    of turns."""
    player, turns = make_player("random", {}, "random"), 0
    reasoning = tokenizer.encode("0", add_special_tokens=False)[-1:] * tokens
    for row in rows:
        key, game = GameKey(**row["key"]), str(row["data_source"])
        record = asyncio.run(play(key, game, make(game, key.game_seed()), (player, player), (0, 1), Rules()))
        for turn in record.turns:
            assert turn.action is not None
            ids = tokenizer.encode(boxed(turn.action), add_special_tokens=False)
            engine.answers[key.seed("sampling", turn.player, turn.turn)] = [*reasoning, *ids, tokenizer.eos_token_id]
        turns += len(record.turns)
    return turns


def worker(engine: KnownAnswers, tokenizer: Any, model: str, longest: int = 32) -> Any:
    """verl's worker as the recipe has it, without Ray."""
    from verl.experimental.agent_loop import agent_loop

    from recipe.spiral.rollouts.dataset import GameDataset
    from recipe.spiral.rollouts.schedule import AGENT
    from recipe.spiral.rollouts.worker import RolloutWorker

    made: Any = object.__new__(RolloutWorker)
    made.config = OmegaConf.create(
        {
            "games": ["TicTacToe", "KuhnPoker"],
            "rules": {"illegal_rewards": "spiral", "truncated": "illegal", "turn_cap": None},
            "prompt": {"template": "chat", "style": "state"},
            "opponents": [],
            "branching": {"states": 0, "continuations": 0},
            "draw_retry": {"enabled": False, "max_retries": 5},
            "data": {},
            "actor_rollout_ref": {
                "model": {"path": model},
                "rollout": {"prompt_length": 1000, "response_length": longest, "n": 1, "val_kwargs": {"n": 1}},
            },
        }
    )
    made.llm_client, made.tokenizer, made.processor, made._loops = engine, tokenizer, None, {}
    made.hf_model_type, made.tools, made.dataset_cls = None, [], GameDataset
    made.reward_loop_worker_handles, made.distillation_enabled = None, False
    agent_loop._agent_loop_registry[AGENT] = {"_target_": "recipe.spiral.rollout.GameAgentLoop"}
    return made


def play_all(made: Any, rows: list[dict[str, Any]]) -> dict[str, int]:
    """All games at once, as in a step; returns what was handed over."""
    queue = NoQueue()
    trajectory = {"step": 1, "sample_index": 0, "rollout_n": 0, "validate": False}

    async def run() -> None:
        prompts = [{**row, "raw_prompt": "", "global_steps": 1, "agent_name": "spiral_game"} for row in rows]
        await asyncio.gather(
            *(made._run_prompt(row, {"temperature": 1.0, "logprobs": True}, trajectory=trajectory) for row in prompts)
        )

    with mock.patch("recipe.spiral.rollouts.channel.tq", queue):
        asyncio.run(run())
    return dict(queue.counts)


def table(largest: int, file: Path | None) -> int:
    """Games at once from 64 to the largest, and answers of 16 to 4,096 tokens; each in a process of its own."""
    games = [64]
    while games[-1] < largest:
        games.append(min(4 * games[-1], largest))
    cells = [(number, 16) for number in games] + [(256, length) for length in (64, 256, 1024, 4096)]
    found = []
    print(
        f"{'games':>7}{'tokens':>8}{'turns':>8}{'ms a turn':>11}{'turns/CPU s':>13}{'kB a game':>11}{'MB in all':>11}"
    )
    for number, length in cells:
        with tempfile.NamedTemporaryFile(suffix=".json") as figures:
            command = [
                sys.executable,
                __file__,
                "--games",
                str(number),
                "--tokens",
                str(length),
                "--json",
                figures.name,
            ]
            subprocess.run(
                [*command, "--repeats", "1"], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
            )
            cell = json.loads(Path(figures.name).read_text(encoding="utf-8"))
        found.append({"tokens": length, **cell})
        print(
            f"{number:>7}{length:>8}{cell['turns']:>8}{cell['milliseconds_a_turn']['median']:>11.3f}"
            f"{cell['turns_per_cpu_second']:>13,.0f}{cell['kilobytes_a_game']:>11.1f}{cell['peak_megabytes']:>11.0f}",
            flush=True,
        )
    if file:
        file.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")
    return 0


def main() -> int:
    parser = Arguments(description=__doc__.split("\n\n")[0])
    parser.add_argument("--games", type=within(int, 1), default=512, help="games at once")
    parser.add_argument("--game", type=own_game, action="append", help="a game's id; several are mixed evenly")
    parser.add_argument(
        "--repeats", type=within(int, 1), default=5, help="how often they are played; the median counts"
    )
    parser.add_argument("--tokens", type=within(int, 0), default=0, help="of reasoning before each answer")
    parser.add_argument("--table", action="store_true", help="many numbers of games, and lengths of answers")
    parser.add_argument("--largest", type=within(int, 1), default=16_384, help="the most games of the table")
    parser.add_argument("--json", type=new_file, help="a file for the figures")
    parser.add_argument("--profile", type=new_file, help="a file for cProfile's statistics of one more repeat")
    arguments = parser.parse_args()
    if arguments.table:
        return table(arguments.largest, arguments.json)
    from transformers import AutoTokenizer

    model = str(next((ROOT / "recipe/spiral/shipped").glob("tiny-*")))
    tokenizer = AutoTokenizer.from_pretrained(model)
    shares = [GameShare(game) for game in arguments.game or ["TicTacToe", "KuhnPoker"]]
    rows = [
        {**training_row(shares, SEED, arguments.games, index), "uid": f"row{index}"} for index in range(arguments.games)
    ]
    for row in rows:
        row["key"] = {**row["key"], "step": 1}
    engine = KnownAnswers()
    turns = learn(engine, tokenizer, rows, arguments.tokens)
    made = worker(engine, tokenizer, model, 32 + arguments.tokens)
    play_all(made, rows[:8])  # imports and caches
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    collect_less()  # as the worker does when it starts
    seconds = []
    for _ in range(arguments.repeats):
        gc.collect()
        begin = time.process_time()
        counts = play_all(made, rows)
        seconds.append(time.process_time() - begin)
        assert counts["rows"] == turns, (counts, turns)
    seconds.sort()
    median = seconds[len(seconds) // 2]
    figures = {
        "games": arguments.games,
        "turns": turns,
        "turns_per_cpu_second": turns / median,
        "target": TARGET,
        "milliseconds_a_turn": {"median": 1e3 * median / turns, "all": [1e3 * second / turns for second in seconds]},
        "calls_to_the_queue": counts["calls"],
        "kilobytes_a_game": (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / arguments.games,
        "peak_megabytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }
    print(f"{arguments.games} games at once, {turns} turns, {counts['calls']} calls to the queue")
    milliseconds, pace = 1e3 * median / turns, turns / median
    print(f"{milliseconds:.3f} ms of CPU a turn: {pace:,.0f} turns per CPU second (target: {TARGET:,.0f})")
    if arguments.json:
        arguments.json.write_text(json.dumps(figures, indent=2) + "\n", encoding="utf-8")
    if arguments.profile:
        profile = cProfile.Profile()
        profile.runcall(play_all, made, rows)
        profile.dump_stats(arguments.profile)
    return 0


if __name__ == "__main__":
    sys.exit(main())
