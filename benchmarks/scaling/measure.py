"""Measures what the processes beside the model cost on this machine: verl's load balancer, TransferQueue, the worker.

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
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil

#: Numbers of replicas for which the balancer is measured.
REPLICAS = (1, 8, 64, 512)
#: Responses asked for at once, and in all.
AT_ONCE, RESPONSES = 64, 2000
#: Rows that go into TransferQueue at once, and tokens of each, to tell what a row costs from what a byte does.
ROWS, FEW, MANY = 256, 16, 2048
#: The columns of a turn's row with a number for each token: five of eight bytes, and two of four.
LONG = ("prompts", "responses", "response_mask", "input_ids", "position_ids")
SHORT = ("rollout_log_probs", "rm_scores")
TOKEN_BYTES = 8 * len(LONG) + 4 * len(SHORT)
#: A turn's tokens, for what handing it over costs the worker.
TURN = 1000
ROLLOUT = Path(__file__).resolve().parents[1] / "rollout.py"


def measure() -> dict[str, Any]:
    """``figures.Host``'s fields, but for the driver's step and row."""
    worker = _rollout()
    with _ray():
        route, asking = _balancer()
        few, many, key = _queue(FEW), _queue(MANY), _look()
    byte = (many[1] - few[1]) / ((MANY - FEW) * TOKEN_BYTES)
    client = few[0] + (many[0] - few[0]) * (TURN - FEW) / (MANY - FEW)
    # asking for a server, asking it, and giving it back: three calls where the balancer's measurement has two
    calls = 1.5 * asking
    return {
        "worker_turn": worker + client + calls,
        "worker_parts": {"benchmarks/rollout.py": worker, "handing over": client, "three calls of Ray": calls},
        "route": route,
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


def _balancer() -> tuple[dict[int, float], float]:
    """CPU seconds of a response: the balancer's, by the number of replicas, and those of who asks it."""
    import ray
    from verl.workers.rollout.router import GlobalRequestLoadBalancer

    class Balancer(GlobalRequestLoadBalancer):
        pass

    class Replica:
        pass

    replica = ray.remote(num_cpus=0)(Replica).remote()  # one handle is as good as another
    balancer = ray.remote(num_cpus=0)(Balancer).remote(servers={})
    begin, of_balancer, of_asking = 0, {}, []

    async def ask(first: int) -> None:
        for number in range(first, RESPONSES, AT_ONCE):
            server, _ = await balancer.acquire_server.remote(request_id=f"{begin + number}")
            balancer.release_server.remote(server_id=server)

    async def ask_all() -> None:
        await asyncio.gather(*(ask(first) for first in range(AT_ONCE)))

    for replicas in REPLICAS:
        ray.get(balancer.add_servers.remote({f"replica{number}": replica for number in range(replicas)}))
        for repeat in ("to warm up", "to measure"):
            before, mine = _cpu("Balancer"), time.process_time()
            asyncio.run(ask_all())
            ray.get(balancer.require_acquire_fields.remote())
            begin += RESPONSES
            if repeat == "to measure":
                of_balancer[replicas] = (_cpu("Balancer") - before) / RESPONSES
                of_asking.append((time.process_time() - mine) / RESPONSES)
    return of_balancer, min(of_asking)


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
