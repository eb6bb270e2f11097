"""What a turn costs, counted and not timed: calls to actors and to the queue, uses of the tokenizer, bytes, imports.

The bounds are what the code does now. One that is broken on purpose is raised here, with what it costs
(docs/performance.md).
"""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch
from omegaconf import OmegaConf
from transformers import AutoTokenizer

from benchmarks import rollout
from recipe.spiral.rollouts.schedule import GameShare, training_row
from recipe.spiral.workers.engine.game_client import GameClient
from tests.workers.engine.fakes import Streaming

ROOT = Path(__file__).resolve().parents[2]
MODEL = str(next((ROOT / "recipe/spiral/shipped").glob("tiny-*")))
GAMES = 64


class CountingTokenizer:
    """A tokenizer, and how often each of its methods was called."""

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer, self.calls = tokenizer, Counter[str]()

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._tokenizer, name)
        if not callable(found):
            return found

        def call(*args: Any, **kwargs: Any) -> Any:
            self.calls[name] += 1
            return found(*args, **kwargs)

        return call


class CountingQueue(rollout.NoQueue):
    async def async_kv_batch_put(
        self, keys: list[str], partition_id: str, fields: Any = None, tags: Any = None
    ) -> None:
        await super().async_kv_batch_put(keys, partition_id, fields, tags)
        if fields is not None and partition_id == "train":
            tensors = [field for field in fields.values() if isinstance(field, torch.Tensor)]
            self.counts["bytes"] += sum(field.values().nbytes if field.is_nested else field.nbytes for field in tensors)


@pytest.fixture(scope="module")
def counted() -> dict[str, int]:
    """One step's games, all at once, with an engine that answers at once."""
    tokenizer = CountingTokenizer(AutoTokenizer.from_pretrained(MODEL))
    shares = [GameShare("TicTacToe"), GameShare("KuhnPoker")]
    rows = [{**training_row(shares, 7, GAMES, index), "uid": f"row{index}"} for index in range(GAMES)]
    engine = rollout.KnownAnswers()
    turns = rollout.learn(engine, tokenizer, rows)
    server = Streaming(lambda whole, **request: engine.generate(**request))
    client = GameClient(OmegaConf.create({"actor_rollout_ref": {"rollout": {}}}), servers=[server])
    made = rollout.worker(client, tokenizer, MODEL)
    tokenizer.calls.clear()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rollout, "NoQueue", CountingQueue)
        counts = rollout.play_all(made, rows)
    assert counts["rows"] == turns > 3 * GAMES
    longest = max(len(game) for game in turns_of(engine, rows))
    encoded = tokenizer.calls["apply_chat_template"] + tokenizer.calls["encode"]
    return {**counts, "turns": turns, "tokens": engine.tokens, "servers": len(server.calls), "longest": longest} | {
        "encoded": encoded,
        "decoded": tokenizer.calls["decode"] + tokenizer.calls["batch_decode"],
    }


def turns_of(engine: rollout.KnownAnswers, rows: list[dict[str, Any]]) -> list[list[int]]:
    """The sampling seeds of each game's turns."""
    from recipe.spiral.players.seeds import GameKey

    keys = [GameKey(**row["key"]) for row in rows]
    seeds = [[key.seed("sampling", player, turn) for turn in range(9) for player in (0, 1)] for key in keys]
    return [[seed for seed in game if seed in engine.answers] for game in seeds]


def test_requests_of_a_moment_are_one_call_to_a_server(counted: dict[str, int]) -> None:
    """Games go on together: so many calls as the longest has turns."""
    assert counted["servers"] <= counted["longest"] + 1


def test_all_that_is_ready_is_one_call_to_the_queue(counted: dict[str, int]) -> None:
    """Whatever the number of games: records, rows and statuses of those that end at one moment."""
    assert counted["calls"] <= 3 * counted["longest"]


def test_a_prompt_is_tokenized_once_and_a_response_decoded_once(counted: dict[str, int]) -> None:
    assert counted["encoded"] <= counted["turns"] * 0.8, "games that are played side by side have prompts alike"
    assert counted["decoded"] <= counted["turns"]


def test_a_row_has_its_tokens_and_little_more(counted: dict[str, int]) -> None:
    """Ids, positions and masks are 8 bytes a token each, prompt and response once more by themselves."""
    assert counted["bytes"] <= 32 * counted["tokens"] + 64 * counted["turns"]


#: What a process of a run imports, after what verl's own would: nothing of others' but what is named.
PROCESSES = {
    "rollout worker": ("verl.trainer.ppo.v1", "recipe.spiral.rollouts.worker recipe.spiral.rollout"),
    "policy worker": ("verl.workers.engine_workers", "recipe.spiral.workers.policy_worker"),
    "trainer": ("verl.trainer.main_ppo", "recipe.spiral.trainer recipe.spiral.task_runner"),
    "vLLM server": ("verl.workers.rollout.vllm_rollout.vllm_async_server", "recipe.spiral.workers.engine.vllm"),
}
IMPORTS = """
import atexit, gc, importlib, sys
atexit.register(gc.freeze)  # to look for garbage in all of that takes seconds at the end
for name, verls, ours in {parts!r}:
    for module in verls.split(): importlib.import_module(module)
    before = set(sys.modules)
    for module in ours.split(): importlib.import_module(module)
    new = {{module.split(".")[0] for module in set(sys.modules) - before}} - set(sys.stdlib_module_names)
    print("NEW", name + ":", *sorted(new - {{"recipe", "verl"}}))
"""


@pytest.mark.e2e
def test_no_process_imports_more_than_verls_own_does() -> None:
    parts = [(name, *pair) for name, pair in PROCESSES.items()]
    code = IMPORTS.format(parts=parts)
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=250)
    assert done.returncode == 0, done.stderr[-2000:]
    found = dict(line[4:].split(":") for line in done.stdout.splitlines() if line.startswith("NEW"))
    assert {name: extra.split() for name, extra in found.items()} == {name: [] for name in PROCESSES}


def test_a_config_is_refused_before_anything_heavy_is_imported() -> None:
    code = "import sys, recipe.spiral.main_spiral; print(*(set(sys.argv[1:]) & set(sys.modules)))"
    heavy = ["torch", "verl", "ray", "vllm", "transformers", "pandas", "scipy"]
    done = subprocess.run([sys.executable, "-c", code, *heavy], cwd=ROOT, capture_output=True, text=True, timeout=100)
    assert done.stdout.strip() == "", done.stdout + done.stderr
