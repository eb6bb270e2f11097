"""Where opponents that are models are served: in engines of their own, or as adapters on the policy's.

With full weights each of them needs an engine ("slot"), vLLM's processes and one server, of the policy's architecture
and with its rollout's settings. Slots share the policy's devices, and sleep while it trains, or have devices of their
own. With LoRA all opponents are answered by the policy's own engine, beside it.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import ray
from omegaconf import DictConfig, OmegaConf, open_dict
from verl.plugin.platform import get_platform

from ...opponents.engine_settings import has_adapter
from ...players.seats import BASE

#: Ranks of the opponents' replicas count from here. Names, sockets and seeds follow from ranks, and the policy's
#: begin at 0.
FIRST_RANK = 1000
SUFFIX = "opponent"


class SlotEngine:
    """The trainer's side of the slots. Place p of n models has the slots p, p + n, p + 2n and so on.

    Args:
        replicas: started ones, see ``start``.
        models: as many can play in one step.
        overlapping: whether there may be answers under way at a ``sleep``, as games go on over several steps.
    """

    def __init__(self, replicas: Sequence[Any], models: int, overlapping: bool) -> None:
        self._replicas, self._models, self._overlapping = list(replicas), models, overlapping
        #: The place of each model that is loaded.
        self._places: dict[str, int] = {}
        self._paused = False

    @classmethod
    def start(cls, config: DictConfig, models: int, workers: Sequence[Any], replica: Callable[..., Any]) -> SlotEngine:
        """Start the engines; the policy's engine must be asleep, as it is after verl's own start.

        Args:
            config: the run's.
            models: as many can play in one step; each server has one.
            workers: the policy's workers, whose devices are shared: ``actor_rollout_wg.workers``.
            replica: the class of a slot, ``SlotReplica`` or a subclass.

        Raises:
            RuntimeError: there are no devices of their own.
        """
        own, rollout = config.opponent_engine.devices == "own", rollout_config(config)
        ranks = math.prod(int(rollout[f"{kind}_parallel_size"]) for kind in ("tensor_model", "data", "pipeline_model"))
        replicas = [
            replica(
                replica_rank=FIRST_RANK + slot,
                config=rollout,
                model_config=model_config(config),
                gpus_per_node=int(rollout.n_gpus_per_node),
                name_suffix=SUFFIX,
            )
            for slot in range(models if own else max(models, len(workers) // ranks))
        ]
        if own:
            asyncio.run(start_on_own(replicas, ranks))
        else:
            asyncio.run(start_on(replicas, [list(workers[i : i + ranks]) for i in range(0, len(workers), ranks)]))
        return cls(replicas, models, config.trainer.v1.trainer_mode != "sync" and not own)

    @property
    def handles(self) -> list[Any]:
        """The servers by slot."""
        return [replica.servers[0] for replica in self._replicas]

    def load(self, models: Mapping[str, Path]) -> dict[str, tuple[int, ...]]:
        """Wake up and have these models loaded, each in all slots of its place; where one is already, it stays."""
        self._on_all("wake_up")
        self._places = places(self._places, models)
        slots = {name: tuple(range(place, len(self._replicas), self._models)) for name, place in self._places.items()}
        held = self._on_all("loaded")
        new = [(slot, name) for name, mine in slots.items() for slot in mine if held[slot] != name]
        ray.get([self.handles[slot].load.remote(name, str(models[name])) for slot, name in new])
        if self._paused:
            self._on_all("resume_generation")
            self._paused = False
        return slots

    def sleep(self) -> None:
        """Give the devices' memory to the training. Answers under way are broken off, and who asks meanwhile is sent
        away until the next ``load``."""
        if self._overlapping:
            self._on_all("abort_all_requests", reject_request=True)
            self._paused = True
        self._on_all("sleep")

    def _on_all(self, method: str, **arguments: Any) -> list[Any]:
        return list(ray.get([getattr(handle, method).remote(**arguments) for handle in self.handles]))


def places(before: Mapping[str, int], models: Collection[str]) -> dict[str, int]:
    """The place of each model: those that had one keep it, as games may be under way against them."""
    kept = {name: place for name, place in before.items() if name in models}
    free = (place for place in range(len(models) + len(before)) if place not in kept.values())
    return kept | {name: next(free) for name in models if name not in kept}


async def start_on_own(replicas: Sequence[Any], ranks: int) -> None:
    """Start the engines on devices of their own. RuntimeError: the cluster has not so many besides the policy's, for
    which verl would wait for ever."""
    needed, free = len(replicas) * ranks, ray.available_resources().get(get_platform().ray_resource_name(), 0)
    if free < needed:
        raise RuntimeError(
            f"opponent_engine.devices=own: needs {needed} devices besides the policy's, and the cluster has {free:g}; "
            "take shared"
        )
    await asyncio.gather(*[replica.init_standalone() for replica in replicas])


async def start_on(replicas: Sequence[Any], parts: Sequence[list[Any]]) -> None:
    """Start the engines on the parts of the policy's devices, in turn. Those on one part start one after another: vLLM
    measures at its start how much memory it needs, and takes what others take meanwhile for its own."""
    for first in range(0, len(replicas), len(parts)):
        together = zip(replicas[first : first + len(parts)], parts, strict=False)
        await asyncio.gather(*[replica.launch_on(part) for replica, part in together])


def rollout_config(config: DictConfig) -> DictConfig:
    """The policy's rollout settings, as they are for the opponents."""
    of_policy = OmegaConf.to_container(config.actor_rollout_ref.rollout, resolve=True)
    ours = {
        "gpu_memory_utilization": config.opponent_engine.gpu_memory_utilization,
        # the policy's are for its workers' ends of the wire, or for reports of its own
        "prometheus": {"enable": False},
        "disaggregation": {"enabled": False},
        "enable_rollout_routing_replay": False,
        # reads weights from folders, at the start and for each player after
        "load_format": "auto",
    }
    return OmegaConf.merge(of_policy, ours)


def model_config(config: DictConfig) -> DictConfig:
    """The policy's model without LoRA: what is loaded are whole weights."""
    model = OmegaConf.to_container(config.actor_rollout_ref.model, resolve=True)
    merged = OmegaConf.merge(model, {"lora_rank": 0, "lora_adapter_path": None})
    if merged.get("lora"):
        merged.lora.rank = 0
    return merged


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


def start(trainer: Any, models: int) -> OpponentEngine:
    """Serve so many models in a step beside the policy, whose engines have been started and sleep."""
    from .vllm import SlotReplica  # imports vLLM

    if has_adapter(trainer.config):
        return AdapterEngine(trainer.llm_server_manager.get_replicas())
    return SlotEngine.start(trainer.config, models, trainer.actor_rollout_wg.workers, SlotReplica)


def make_room(config: DictConfig, models: int) -> None:
    """Let the policy's engine take so many adapters beside the policy's own; to be called before it starts."""
    rollout = config.actor_rollout_ref.rollout
    with open_dict(rollout):
        settings = rollout.engine_kwargs.setdefault("vllm", {})
        for limit in ("max_loras", "max_cpu_loras"):
            settings[limit] = max(int(settings.get(limit) or 0), models + 1)
