"""``runtime: fast | stock``: how requests and rows travel, by the room ``runtime`` or as in verl.

The games are the same. With ``fast``, they are played in the processes of the engines' servers, requests and rows of
one moment are one call, and processes start before verl asks for them. ``stock`` is verl's own path for both.
"""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import Any

#: The environment variable that tells a run's processes which it is.
RUNTIME = "SPIRAL_RUNTIME"
FAST, STOCK = "fast", "stock"
#: Each path's agent-loop manager, TransferQueue's storage, and the file that names verl's router of requests.
_MANAGER = {
    FAST: "recipe.spiral.runtime.rollout_worker.RolloutManager",
    STOCK: "recipe.spiral.rollout.GameManager",
}
_STORAGE = {FAST: "PackedStorage", STOCK: "SimpleStorage"}
_ROUTER = {FAST: str(Path(__file__).parents[1] / "runtime" / "no_router.yaml"), STOCK: None}


def is_fast() -> bool:
    """Whether this process is one of a run with ``runtime=fast``."""
    return os.environ.get(RUNTIME, FAST) == FAST


def tell(config: Any) -> None:
    """Let this process and those that it starts know which it is; ValueError: none, or one that does not go with it."""
    runtime, rollout = config.runtime, config.actor_rollout_ref.rollout
    router, workers = rollout.get("router_config_path"), rollout.agent.num_workers
    if runtime not in _MANAGER:
        raise ValueError(f"runtime={runtime}: must be {FAST} or {STOCK}")
    if runtime == FAST and router not in (None, _ROUTER[FAST]):
        raise ValueError(
            f"actor_rollout_ref.rollout.router_config_path={router}: requests go to the servers themselves with "
            "runtime=fast; take runtime=stock"
        )
    if runtime == STOCK and workers == 0:
        raise ValueError("actor_rollout_ref.rollout.agent.num_workers=0: with runtime=stock take 1 or more")
    os.environ[RUNTIME] = runtime


def following(config: Any) -> dict[str, Any]:
    """The settings of verl's that follow from ``runtime``."""
    runtime, rollout = config.runtime, config.actor_rollout_ref.rollout
    own = 0 if runtime == FAST else 1 if config.trainer.device == "cpu" else 8
    agent = "actor_rollout_ref.rollout.agent"
    return {
        "actor_rollout_ref.rollout.router_config_path": rollout.get("router_config_path") or _ROUTER[runtime],
        f"{agent}.agent_loop_manager_class": _MANAGER[runtime],
        f"{agent}.num_workers": own if rollout.agent.num_workers is None else rollout.agent.num_workers,
        "transfer_queue.backend.storage_backend": _STORAGE[runtime],
    }


def in_a_copy(config: Any) -> bool:
    """Whether the trainer is in a copy of the process that starts the run, where all is imported. CUDA does not start
    in a copy, but the trainer does not need it. Nsight Systems profiles an actor."""
    return bool(config.runtime == FAST and config.global_profiler.tool != "nsys")


def engine_ranks(rollout: Any) -> int:
    """Devices of one engine with these settings of a rollout."""
    return math.prod(int(rollout[f"{kind}_parallel_size"]) for kind in ("tensor_model", "data", "pipeline_model"))


def engine_devices(config: Any) -> tuple[int, int]:
    """How many devices the policy's engines have, and how many of them one engine takes."""
    rollout, trainer = config.actor_rollout_ref.rollout, config.trainer
    # with separate_async the engines have devices of their own
    devices = int(rollout.nnodes) * int(rollout.n_gpus_per_node) or int(trainer.n_gpus_per_node) * int(trainer.nnodes)
    return devices, engine_ranks(rollout)


def rollout_processes(config: Any) -> int:
    """How many processes play games."""
    if own := int(config.actor_rollout_ref.rollout.agent.num_workers or 0):
        return own
    devices, each = engine_devices(config)
    return devices // each
