"""The engine's classes, put in the place of verl's own for ``rollout.name=vllm``, and log-probabilities without
flash-attn.

Importing this registers them, in this process; vLLM itself is imported when they are asked for. verl's workers do so
through ``actor_rollout_ref.model.external_lib``.
"""

from __future__ import annotations

from verl.workers.rollout import base
from verl.workers.rollout.replica import RolloutReplica, RolloutReplicaRegistry

from .. import log_probs

_NAME = "vllm"


def _replica() -> type[RolloutReplica]:
    from .vllm import VLLMReplica

    return VLLMReplica


RolloutReplicaRegistry.register(_NAME, _replica)
base._ROLLOUT_REGISTRY[_NAME, "async"] = f"{__name__}.vllm.VLLMAdapter"
log_probs.install()
