"""What serves opponents that are models: engines of their own, or with LoRA the policy's engines, as adapters.

The engines themselves are in ``workers.engine``; their settings are here, because they are checked before verl and vLLM
are imported.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
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


def memory_share(engine: Any) -> float:
    """Each server's share of a GPU's memory, by the config's ``opponent_engine`` with its ``rollout``'s overrides."""
    return float(engine.rollout.get("gpu_memory_utilization", engine.gpu_memory_utilization))


def number_of_slots(engine: Any, models: int, devices: int, ranks: int) -> int:
    """How many servers of ``ranks`` devices there are, by the config's ``opponent_engine``, where so many models can
    play in a step and the policy has ``devices``; each server has one model."""
    if engine.replicas is not None:
        return int(models * engine.replicas)
    return models if engine.devices == "own" else max(models, devices // ranks)
