"""How many devices an engine has, and all of them. It needs neither torch nor verl."""

from __future__ import annotations

import math
from typing import Any


def engine_ranks(rollout: Any) -> int:
    """Devices of one engine with these settings of a rollout."""
    return math.prod(int(rollout[f"{kind}_parallel_size"]) for kind in ("tensor_model", "data", "pipeline_model"))


def engine_devices(config: Any) -> tuple[int, int]:
    """How many devices the policy's engines have, and how many of them one engine takes."""
    rollout, trainer = config.actor_rollout_ref.rollout, config.trainer
    # with separate_async the engines have devices of their own
    devices = int(rollout.nnodes) * int(rollout.n_gpus_per_node) or int(trainer.n_gpus_per_node) * int(trainer.nnodes)
    return devices, engine_ranks(rollout)
