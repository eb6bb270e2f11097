"""How many engines the policy has, and which processes play its games: the engines' servers, or some of their own."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

#: Manages the processes that play games; verl's knows nothing of games in servers.
MANAGER = "recipe.spiral.runtime.rollout_worker.RolloutManager"
#: Names the router that starts nothing, for verl: ``actor_rollout_ref.rollout.router_config_path``.
NO_ROUTER = Path(__file__).resolve().parents[1] / "runtime" / "no_router.yaml"


def engine_devices(config: Any) -> tuple[int, int]:
    """How many devices the policy's engines have, and how many of them one engine takes."""
    rollout, trainer = config.actor_rollout_ref.rollout, config.trainer
    each = math.prod(int(rollout[f"{kind}_parallel_size"]) for kind in ("tensor_model", "data", "pipeline_model"))
    # with separate_async the engines have devices of their own
    devices = int(rollout.nnodes) * int(rollout.n_gpus_per_node) or int(trainer.n_gpus_per_node) * int(trainer.nnodes)
    return devices, each


def rollout_processes(config: Any) -> int:
    """How many processes play games."""
    if own := int(config.actor_rollout_ref.rollout.agent.num_workers):
        return own
    devices, each = engine_devices(config)
    return devices // each


def reaches_servers(config: Any) -> bool:
    """Whether requests go to the servers themselves; not with a router of the user's, or ``batch_requests=false``."""
    router = config.actor_rollout_ref.rollout.get("router_config_path")
    return bool(config.batch_requests) and (not router or Path(router).resolve() == NO_ROUTER)


def servers_play(config: Any) -> bool:
    """Whether games can be played in the servers' processes."""
    manager = config.actor_rollout_ref.rollout.agent.agent_loop_manager_class
    return manager == MANAGER and reaches_servers(config)
