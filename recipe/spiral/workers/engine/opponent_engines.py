"""Where opponents that are models are served: in engines of their own, or as adapters on the policy's.

With full weights each of them needs an engine; with LoRA all of them are answered by the policy's own, beside it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import ray
from omegaconf import DictConfig, open_dict

from ...players.seats import BASE
from .slots import SlotEngine


class AdapterEngine:
    """Opponents that are LoRA adapters; ``BASE`` is the model without one. Each server of the policy has them all."""

    #: None but the policy's servers.
    handles: Sequence[Any] = ()

    def __init__(self, replicas: Sequence[Any]) -> None:
        self._servers = [replica.servers[0] for replica in replicas]

    def load(self, models: Mapping[str, Path]) -> dict[str, tuple[int, ...]]:
        """Have exactly these; none of them has a slot. vLLM reads each at its first request."""
        folders = {name: str(path) for name, path in models.items() if name != BASE}
        ray.get([server.set_adapters.remote(folders) for server in self._servers])
        return dict.fromkeys(models, ())

    def sleep(self) -> None:
        """They sleep with the policy's engine."""


OpponentEngine = SlotEngine | AdapterEngine


def start(trainer: Any, models: int, lora: bool, slot: Callable[..., Any]) -> OpponentEngine:
    """Serve so many models in a step beside the policy, whose engines have been started and sleep. ``slot`` is the
    class of engines of their own."""
    if lora:
        return AdapterEngine(trainer.llm_server_manager.get_replicas())
    return SlotEngine.start(trainer.config, models, trainer.actor_rollout_wg.workers, slot)


def make_room(config: DictConfig, models: int) -> None:
    """Let the policy's engine take so many adapters beside the policy's own; to be called before it starts."""
    rollout = config.actor_rollout_ref.rollout
    with open_dict(rollout):
        settings = rollout.engine_kwargs.setdefault("vllm", {})
        for limit in ("max_loras", "max_cpu_loras"):
            settings[limit] = max(int(settings.get(limit) or 0), models + 1)
