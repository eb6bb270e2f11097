"""What serves opponents that are models: engines of their own, or with LoRA the policy's engines, as adapters.

The engines themselves are in ``workers.engine``; their settings are here, because they are checked before verl and vLLM
are imported.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from omegaconf import OmegaConf


class Engine(Protocol):
    """Serves some models at a time.

    Attributes:
        loads: how many servers were given a model's weights by the last ``load``.
        kept: how many had theirs still.
    """

    loads: int
    kept: int

    def load(self, models: Mapping[str, Path], in_play: Collection[str] | None = None) -> dict[str, tuple[int, ...]]:
        """Wake up and have exactly these models loaded; returns each one's slots, none where it is an adapter.

        Args:
            in_play: where games go on over several steps: those of them that games under way are played against, which
                stay where they are. None: all games are over.
        """

    def sleep(self, again: Collection[str] = (), in_play: Collection[str] | None = None) -> None:
        """Give the devices' memory back; the models ``again`` are likely to be in the next ``load``, too.

        Args:
            in_play: where games go on afterwards: those that they are played against. Their answers are broken off,
                and asked for again. None: all games are over.
        """


def has_adapter(config: Any) -> bool:
    """Whether the policy is a LoRA adapter for its engine: then its opponents are adapters, too."""
    model = config.actor_rollout_ref.model
    merged = bool(OmegaConf.select(model, "lora.merge", default=False))
    return int(model.lora_rank or 0) > 0 and not merged


@dataclass(frozen=True)
class EngineSettings:
    """The keys of ``opponent_engine``, and how many models there are at a time.

    Attributes:
        models: as many can play in one step.
        devices: "shared" with the policy, or its "own".
        replicas: servers for each model; None: where devices are shared, so many that none is left out, otherwise 1.
        sleep_level: what a sleeping server keeps of a model that plays on: 1: its weights, on the host; 2: nothing;
            None: 1 where the host has the memory.
        gpu_memory_utilization: share of a GPU's memory for each server.
        kv_cache_memory_bytes: of each server, on a CPU; None: as the policy's.
        rollout: overrides of ``actor_rollout_ref.rollout`` for these servers.
    """

    models: int
    devices: str = "shared"
    replicas: int | None = None
    sleep_level: int | None = None
    gpu_memory_utilization: float = 0.2
    kv_cache_memory_bytes: int | None = None
    rollout: Mapping[str, Any] = field(default_factory=dict)

    @property
    def share(self) -> float:
        """Of a GPU's memory for each server, with ``rollout``'s overrides."""
        return float(self.rollout.get("gpu_memory_utilization", self.gpu_memory_utilization))

    def slots(self, devices: int, ranks: int) -> int:
        """How many servers of ``ranks`` devices there are, where the policy has ``devices``; each has one model."""
        if self.replicas is not None:
            return self.models * self.replicas
        return self.models if self.devices == "own" else max(self.models, devices // ranks)
