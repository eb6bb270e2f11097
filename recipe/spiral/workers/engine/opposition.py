"""Where opponents that are models are served: in engines of their own, or as adapters on the policy's.

With full weights each of them needs an engine; with LoRA all of them are answered by the policy's own, beside it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, open_dict

from .adapters import BASE, PolicyAdapters
from .client import TableClient
from .opponents import OpponentServers, Settings


class SlotEngine:
    """Opponents with full weights. A model that is in a slot already stays there.

    Args:
        servers: the slots.
    """

    def __init__(self, servers: OpponentServers) -> None:
        self.servers = servers

    def hold(self, models: Mapping[str, Path]) -> dict[str, int | None]:
        """Wake up and hold exactly these models; returns the slot of each."""
        self.servers.wake()
        slots: dict[str, int | None] = {
            name: slot for slot, name in enumerate(self.servers.names) if name is not None and name in models
        }
        free = [slot for slot in range(len(self.servers.names)) if slot not in slots.values()]
        coming = dict(zip(free, (name for name in models if name not in slots), strict=False))
        if coming:
            self.servers.load_all({slot: (name, models[name]) for slot, name in coming.items()})
        return slots | {name: slot for slot, name in coming.items()}

    def sleep(self) -> None:
        """Give the devices' memory back; what was held is forgotten, and loaded again when it is played."""
        self.servers.sleep()

    def client(self, policy: Any) -> TableClient:
        return TableClient(policy, self.servers.handles)

    def actors(self) -> Iterator[tuple[str, Any]]:
        return self.servers.actors()


class AdapterEngine:
    """Opponents that are LoRA adapters; ``BASE`` is the model without one.

    They are held during a step's games only: after these, a member may leave the pool and its folder be removed, which
    an engine that wakes would look for.

    Args:
        adapters: those of the policy's servers.
    """

    def __init__(self, adapters: PolicyAdapters) -> None:
        self.adapters = adapters

    def hold(self, models: Mapping[str, Path]) -> dict[str, int | None]:
        """Have exactly these loaded; none of them has a slot."""
        self.adapters.keep({name: str(path) for name, path in models.items() if name != BASE})
        return dict.fromkeys(models)

    def sleep(self) -> None:
        """Have none loaded; the memory that they took sleeps with the policy's engine."""
        self.adapters.keep({})

    def client(self, policy: Any) -> TableClient:
        return TableClient(policy)

    def actors(self) -> Iterator[tuple[str, Any]]:
        return iter(())


def start(config: DictConfig, trainer: Any, slots: int, lora: bool) -> SlotEngine | AdapterEngine:
    """Serve so many models at once beside the policy, whose engines have been started and sleep.

    Args:
        config: the run's.
        trainer: verl's.
        slots: how many models play in a step at most.
        lora: whether the policy is an adapter.
    """
    if lora:
        return AdapterEngine(PolicyAdapters(trainer.llm_server_manager.get_replicas()))
    settings = Settings.from_config(slots, config.opponent_engine)
    return SlotEngine(OpponentServers.start(config, settings, trainer.actor_rollout_wg.workers))


def make_room(config: DictConfig, slots: int) -> None:
    """Let the policy's engine hold so many adapters beside the policy's own; to be called before it starts."""
    rollout = config.actor_rollout_ref.rollout
    with open_dict(rollout):
        settings = rollout.engine_kwargs.setdefault("vllm", {})
        for limit in ("max_loras", "max_cpu_loras"):
            settings[limit] = max(int(settings.get(limit) or 0), slots + 1)
