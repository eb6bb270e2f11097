"""Measures what the processes beside the model cost on this machine: the rollout worker, TransferQueue, the driver.

CPU seconds of each process are counted, not the time that passes, so that other work on the machine matters little. It
starts a Ray of its own.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil

#: Responses asked for, tokens of their prompts, and how many are asked for at one moment.
RESPONSES, PROMPT, AT_ONCE = 1024, 136, (1, 8, 64)
#: Rows that go into TransferQueue at once, and tokens of each, to tell what a row costs from what a byte does.
ROWS, FEW, MANY = 256, 16, 2048
#: The columns of a turn's row with a number for each token: five of eight bytes, and two of four.
LONG = ("prompts", "responses", "response_mask", "input_ids", "position_ids")
SHORT = ("rollout_log_probs", "rm_scores")
TOKEN_BYTES = 8 * len(LONG) + 4 * len(SHORT)
#: A turn's tokens, for what its response and handing it over cost the worker.
TURN = 1000
ROLLOUT = Path(__file__).resolve().parents[1] / "rollout.py"


def measure() -> dict[str, Any]:
    """``figures.Host``'s fields, but for the driver's step and row."""
    worker = _rollout()
    with _ray():
        asking = _asking()
        few, many, key = _queue(FEW), _queue(MANY), _look()
    byte = (many[1] - few[1]) / ((MANY - FEW) * TOKEN_BYTES)
    client = few[0] + (many[0] - few[0]) * (TURN - FEW) / (MANY - FEW)
    # where responses take long, they end one by one, and so each is asked for alone
    parts = {"benchmarks/rollout.py": worker, "asking an engine's server": asking[1], "handing over": client}
    return {
        "worker_turn": sum(parts.values()),
        "worker_parts": parts,
        "asking": asking,
        "queue_row": max(few[1] - FEW * TOKEN_BYTES * byte, 0.0),
        "queue_byte": byte,
        "token_bytes": TOKEN_BYTES,
        "driver_key": key,
    }


def _rollout() -> float:
    """CPU seconds of a turn in the rollout worker without Ray and TransferQueue, as benchmarks/rollout.py has it."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "figures.json"
        subprocess.run([sys.executable, str(ROLLOUT), "--json", str(file)], check=True, timeout=300)
        return float(json.loads(file.read_text())["milliseconds_a_turn"]["median"]) / 1000


@contextmanager
def _ray() -> Iterator[None]:
    import ray
    import transfer_queue as tq
    from omegaconf import OmegaConf

    os.environ.setdefault("RAY_worker_niceness", "0")  # by default everything else on the machine comes first
    ray.init(address="local", num_cpus=16, include_dashboard=False, object_store_memory=500_000_000)
    try:
        tq.init(OmegaConf.create({"backend": {"SimpleStorage": {"num_data_storage_units": 1}}}))
        yield
    finally:
        tq.close()
        ray.shutdown()


def _cpu(*names: str) -> float:
    """CPU seconds of this Ray's actors of these classes."""
    children = psutil.Process().children(recursive=True)
    found = [child for child in children if any(f"ray::{name}" in " ".join(child.cmdline()) for name in names)]
    assert found, f"no process of {' or '.join(names)}"
    return sum(sum(child.cpu_times()[:2]) for child in found)


class Server:
    """An engine's server without an engine: each response is there at once. An actor of Ray's."""

    def __init__(self) -> None:
        from verl.workers.rollout.replica import TokenOutput

        versions = {"global_steps": 1, "engine_seconds": 1.0}
        self._made = lambda: TokenOutput(token_ids=[7] * TURN, log_probs=[-0.5] * TURN, extra_fields=dict(versions))

    async def generate(self, **request: Any) -> Any:
        return self._made()

    async def generate_many(self, requests: Any) -> AsyncIterator[Any]:
        from recipe.spiral.runtime.direct_client import answer_many

        async for ended in answer_many(self.generate, requests):
            yield ended


def _asking(repeats: int = 3) -> dict[int, float]:
    """CPU seconds of a response, of who asks for it, by the number that are asked for at one moment, in one call.

    By the client of the asynchronous modes, which does a bit more than that of sync mode.
    """
    import ray
    from omegaconf import OmegaConf

    from recipe.spiral.runtime.direct_client import DirectResumingClient

    server = ray.remote(num_cpus=0)(Server).remote()
    rollout = {"name": "vllm", "full_determinism": False, "response_length": TURN}
    config = OmegaConf.create({"actor_rollout_ref": {"rollout": rollout}})
    client = DirectResumingClient(config, servers=[server])
    sampling = {"temperature": 1.0, "logprobs": True, "max_tokens": TURN, "seed": 5}

    async def ask(number: int) -> None:
        for _ in range(RESPONSES // number):
            await client.generate("turn", prompt_ids=[7] * PROMPT, sampling_params=sampling)

    async def ask_all(number: int) -> float:
        begin = time.process_time()
        await asyncio.gather(*(ask(number) for _ in range(number)))
        return (time.process_time() - begin) / RESPONSES

    asyncio.run(ask_all(max(AT_ONCE)))  # connections and imports
    return {number: min(asyncio.run(ask_all(number)) for _ in range(repeats)) for number in AT_ONCE}


def _queue(tokens: int, repeats: int = 8) -> tuple[float, float]:
    """CPU seconds of a row: of who puts it, and of TransferQueue's processes for putting it and reading it once."""
    import torch
    import transfer_queue as tq
    from verl.utils.tensordict_utils import list_of_dict_to_tensordict

    row = {name: torch.ones(tokens, dtype=torch.long) for name in LONG}
    row |= {name: torch.ones(tokens) for name in SHORT}
    keys = [f"row{i}" for i in range(ROWS)]
    before, mine = _cpu("TransferQueueController", "SimpleStorageUnit"), 0.0
    for _ in range(repeats):
        begin = time.process_time()
        fields = list_of_dict_to_tensordict([row] * ROWS)
        tq.kv_batch_put(keys=keys, partition_id="train", fields=fields, tags=[{"status": "success"}] * ROWS)
        mine += time.process_time() - begin
        tq.kv_batch_get(keys=keys, partition_id="train")
        tq.kv_clear(keys=keys, partition_id="train")
    number = ROWS * repeats
    return mine / number, (_cpu("TransferQueueController", "SimpleStorageUnit") - before) / number


def _look(keys: int = 5000, repeats: int = 10) -> float:
    """CPU seconds for each key of a look at all of them: the driver's and the controller's, who waits for whom."""
    import transfer_queue as tq

    names = [f"game{i}" for i in range(keys)]
    tags = [{"is_prompt": True, "status": "running", "global_steps": 1, "seq_len": 100} for _ in names]
    tq.kv_batch_put(keys=names, partition_id="train", tags=tags)
    before, mine = _cpu("TransferQueueController"), time.process_time()
    for _ in range(repeats):
        assert len(tq.kv_list()["train"]) == keys
    seconds = _cpu("TransferQueueController") - before + time.process_time() - mine
    tq.kv_clear(keys=names, partition_id="train")
    return seconds / keys / repeats
