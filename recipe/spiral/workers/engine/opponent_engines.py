"""Where opponents that are models are served: in engines of their own, or as adapters on the policy's.

With full weights each of them needs an engine; with LoRA all of them are answered by the policy's own, beside it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import ray
from omegaconf import DictConfig, open_dict

from ...players.seats import BASE
from .slots import SlotEngine

#: Seconds that loading adapters may take.
LIMIT = 600.0


class AdapterEngine:
    """Opponents that are LoRA adapters; ``BASE`` is the model without one. Each server of the policy has all of them.

    They are loaded during a step's games only: after these, a member may leave the pool and its folder be removed,
    which an engine that wakes would look for.
    """

    #: None but the policy's servers.
    handles: Sequence[Any] = ()

    def __init__(self, replicas: Sequence[Any]) -> None:
        self._servers = [replica.servers[0] for replica in replicas]
        self.loads = self.kept = 0

    def load(self, models: Mapping[str, Path], in_play: Collection[str] | None = None) -> dict[str, tuple[int, ...]]:
        """Have exactly these loaded; none of them has a slot. AdapterError (Ray's of it): one of the servers cannot."""
        wanted = {name: path for name, path in models.items() if name != BASE}
        loaded = [set(names) for names in self._on_all("list_adapters")]
        for name in sorted(set().union(*loaded) - wanted.keys()):
            self._on_all("unload_adapter", name)
        new = [name for name in wanted if not all(name in names for names in loaded)]
        for name in new:
            self._on_all("load_adapter", name, str(wanted[name]))
        self.loads = len(new) * len(self._servers)
        self.kept = (len(wanted) - len(new)) * len(self._servers)
        return dict.fromkeys(models, ())

    def sleep(self, again: Collection[str] = (), in_play: Collection[str] | None = None) -> None:
        """Have none loaded but those in play; the memory that the others took sleeps with the policy's engine.

        That holds for those that play again, too: an adapter is small, and its folder may go while it sleeps.
        """
        loaded = {name for names in self._on_all("list_adapters") for name in names}
        for name in sorted(loaded - {*(in_play or ())}):
            self._on_all("unload_adapter", name)

    def _on_all(self, method: str, *args: str) -> list[Any]:
        calls = [getattr(server, method).remote(*args) for server in self._servers]
        return list(ray.get(calls, timeout=LIMIT))


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
