"""The opponents' engines: some vLLM servers ("slots") beside the policy's, each with the weights of one opponent.

They are of the policy's architecture and follow its rollout's settings. They share the policy's devices, and sleep
while it trains, or have devices of their own. A slot is vLLM's processes and one server; nothing else is started.
The opponents of a step share the slots evenly, so that each of them may be on many devices.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import ray
from omegaconf import DictConfig, OmegaConf
from ray.util.placement_group import placement_group, remove_placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy
from verl.plugin.platform import get_platform
from verl.workers.rollout.replica import RolloutMode

from ...opponents.engine_settings import number_of_slots
from ..engine_size import engine_ranks
from .host_memory import HostMemory

#: Ranks of the opponents' replicas count from here. Names, sockets and seeds follow from ranks, and the policy's
#: begin at 0.
FIRST_RANK = 1000
SUFFIX = "opponent"
#: Seconds that one slot may take to start; that all together may take to load, to sleep or to wake; and in which the
#: cluster must have devices of their own.
START_LIMIT, LIMIT, DEVICES_LIMIT = 1800.0, 1200.0, 120.0


class SlotEngine:
    """The trainer's side of the slots. Methods wait for what they do, with a limit of time.

    Args:
        replicas: started ones, see ``start``.
        models: as many can play in one step.
        settings: the config's ``opponent_engine``.
    """

    def __init__(self, replicas: Sequence[Any], models: int, settings: DictConfig) -> None:
        self._replicas = list(replicas)
        #: Whose weights each slot has; None: nobody's.
        self.names: list[str | None] = [None] * len(self._replicas)
        self.loads = self.kept = 0
        self._sleep_level = settings.sleep_level
        self._own = settings.devices == "own"
        #: Slots of a model, where games go on.
        self._most = max(len(self._replicas) // models, 1)
        #: Who is to come back into which slot after a sleep, for games that go on.
        self._places: dict[int, str] = {}

    @classmethod
    def start(cls, config: DictConfig, models: int, workers: Sequence[Any], replica: Callable[..., Any]) -> SlotEngine:
        """Start the engines; the policy's engine must be asleep, as it is after verl's own start.

        Args:
            config: the run's.
            models: as many can play in one step.
            workers: the policy's workers, whose devices are shared: ``actor_rollout_wg.workers``.
            replica: the class of a slot, ``SlotReplica`` or a subclass.

        Raises:
            RuntimeError: there are no devices of their own.
            TimeoutError: they do not start.
        """
        settings, rollout, model = config.opponent_engine, rollout_config(config), model_config(config)
        ranks = engine_ranks(rollout)
        replicas = [
            replica(
                replica_rank=FIRST_RANK + slot,
                config=rollout,
                model_config=model,
                gpus_per_node=int(rollout.n_gpus_per_node),
                name_suffix=SUFFIX,
            )
            for slot in range(number_of_slots(settings, models, len(workers), ranks))
        ]
        if settings.devices == "shared":
            mode, groups = RolloutMode.HYBRID, shared_devices(list(workers), len(replicas), ranks)
        else:
            mode, groups = RolloutMode.STANDALONE, own_devices(len(replicas), ranks)
        asyncio.run(start_engines(replicas, groups, mode))
        return cls(replicas, models, settings)

    @property
    def handles(self) -> list[Any]:
        """The servers by slot."""
        return [replica.servers[0] for replica in self._replicas]

    def load(self, models: Mapping[str, Path], in_play: Collection[str] | None = None) -> dict[str, tuple[int, ...]]:
        """Wake up and have exactly these models loaded, each in as many slots; where one is already, it stays.

        Where games go on, models in play keep their slots, and each of the others gets a model's share of the slots.

        Raises:
            RuntimeError: some could not be loaded; their slots are empty.
        """
        self._on_all("awake")
        if in_play is None:
            wanted = assign(self.names, list(models))
        else:
            before = [self._places.get(slot, name) for slot, name in enumerate(self.names)]
            wanted = assign_beside(before, list(models), in_play, self._most)
        missing = [slot for slot, name in enumerate(wanted) if name in models and self.names[slot] != name]
        new = {slot: (wanted[slot], models[wanted[slot]]) for slot in missing}
        self.loads, self.kept = len(new), sum(name in models for name in wanted) - len(new)
        if new:
            self.load_into(new)
        if self._places:
            self._places = {}
            self._on_all("resume_generation")
        return {name: tuple(slot for slot, other in enumerate(wanted) if other == name) for name in models}

    def load_into(self, models: Mapping[int, tuple[str, Path]]) -> None:
        """Load a model, its name and Hugging Face folder, into each of these slots, at the same time.

        Raises:
            RuntimeError: some could not be loaded; their slots are empty, the others have what they should.
        """
        for slot in models:
            self.names[slot] = None
        calls = {slot: self.handles[slot].load.remote(name, str(path)) for slot, (name, path) in models.items()}
        ray.wait(list(calls.values()), num_returns=len(calls), timeout=LIMIT)
        failures = []
        for slot, call in calls.items():
            try:
                ray.get(call, timeout=0)
                self.names[slot] = models[slot][0]
            except Exception as error:
                lines = [type(error).__name__, *str(error).strip().splitlines()]  # Ray's end with what was raised
                failures.append(f"{models[slot][0]} into slot {slot}: {lines[-1].strip()}")
        if failures:
            raise RuntimeError(f"opponents could not be loaded: {'; '.join(failures)}")

    def sleep(self, again: Collection[str] = (), in_play: Collection[str] | None = None) -> None:
        """Give the devices' memory to the training; nothing happens on a CPU, and on devices of their own.

        Args:
            again: whose weights are kept, on the host where it has the memory; all others are forgotten.
            in_play: as of ``Engine.sleep``: answers are broken off here, and wait for ``load``.
        """
        if self._own:
            return
        if in_play is not None:
            again = {*again, *in_play}
            self._places = {slot: name for slot, name in enumerate(self.names) if name is not None and name in in_play}
            if self._places:
                # whoever asks meanwhile is sent away (reject_request): a slot cannot sleep while somebody waits in it
                self._on_all("abort_all_requests", *[(True, True)] * len(self.names))
        stay = [name is not None and name in again for name in self.names]
        if any(stay) and self._sleep_level is None:
            self._sleep_level = 1 if have_room(self._on_all("host_memory")) else 2
        self._on_all("go_to_sleep", *[(1 if self._sleep_level == 1 and stays else 2,) for stays in stay])
        self.names = self._on_all("loaded")

    def actors(self) -> Iterator[tuple[str, Any]]:
        """For the watchdog: every actor that a game may wait for, by a name for people."""
        for slot, replica in enumerate(self._replicas):
            for node, server in enumerate(replica.servers):
                yield f"opponents' vLLM server {slot}.{node}", server

    def _on_all(self, method: str, *arguments: tuple[Any, ...]) -> list[Any]:
        """Call each server, with the arguments of its slot if there are any."""
        calls = zip(self.handles, arguments or [()] * len(self.handles), strict=True)
        return list(ray.get([getattr(handle, method).remote(*given) for handle, given in calls], timeout=LIMIT))


def assign(names: Sequence[str | None], models: Sequence[str]) -> list[str]:
    """Who gets which slot: all models as many slots, within one, and where one is already, it stays if it can.

    Slots on different devices follow each other, and so do a model's, so that it is on as many devices as can be.

    Args:
        names: who is in each slot now.
        models: who is to be in some; at most as many as there are slots.
    """
    each, more = divmod(len(names), len(models))
    held = Counter(names)
    by_held = sorted(models, key=lambda name: -held[name])  # who has the most gets one more, if anybody does
    due = Counter({name: each + (place < more) for place, name in enumerate(by_held)})
    assigned: list[str | None] = []
    for name in names:
        stays = name if name is not None and due[name] else None
        if stays is not None:
            due[stays] -= 1
        assigned.append(stays)
    rest = (name for name in models for _ in range(due[name]))
    return [name or next(rest) for name in assigned]


def assign_beside(names: Sequence[str | None], models: Sequence[str], in_play: Collection[str], most: int) -> list[str]:
    """Who gets which slot while games go on: models in play keep theirs; of the rest, each other model gets ``most``.

    A slot that is left over keeps what it has; "": nobody.
    """
    assigned = [name or "" for name in names]
    stay = {*in_play} & {*assigned}  # after a restart, those in play are in no slot yet
    free = [slot for slot, name in enumerate(names) if name not in stay]
    others = [name for name in models if name not in stay]
    for name in others:
        held = [slot for slot in free if assigned[slot] == name]
        elsewhere = [slot for slot in free if assigned[slot] not in others]
        taken = [*held, *elsewhere][:most]
        for slot in taken:
            assigned[slot] = name
        free = [slot for slot in free if slot not in taken]
    return assigned


def have_room(memory: Sequence[HostMemory]) -> bool:
    """Whether every host can take the weights of all its slots, in half of the memory that is free there."""
    free = {of_slot.node: of_slot.free for of_slot in memory}
    needed = Counter[str]()
    for of_slot in memory:
        needed[of_slot.node] += of_slot.weights
    return all(needed[node] <= free[node] / 2 for node in needed)


async def start_engines(replicas: Sequence[Any], groups: Sequence[list[Any]], mode: RolloutMode) -> None:
    """Start each engine on its group of actors; those on the same devices one after another.

    vLLM measures at its start how much memory it needs, and takes what others take meanwhile for its own.

    Raises:
        TimeoutError: one does not start.
    """
    queues: dict[tuple[int, ...], list[tuple[Any, list[Any]]]] = {}
    for replica, group in zip(replicas, groups, strict=True):
        queues.setdefault(tuple(map(id, group)), []).append((replica, group))

    async def one_after_another(queue: list[tuple[Any, list[Any]]]) -> None:
        for replica, group in queue:
            async with asyncio.timeout(START_LIMIT):
                await replica.launch_on(group, mode)

    await asyncio.gather(*map(one_after_another, queues.values()))


def rollout_config(config: DictConfig) -> DictConfig:
    """The policy's rollout settings, as they are for the opponents."""
    settings = config.opponent_engine
    of_policy = OmegaConf.to_container(config.actor_rollout_ref.rollout, resolve=True)
    ours: dict[str, Any] = {
        "gpu_memory_utilization": settings.gpu_memory_utilization,
        # the policy's are for its workers' ends of the wire, or for reports of its own
        "prometheus": {"enable": False},
        "disaggregation": {"enabled": False},
        "enable_rollout_routing_replay": False,
    }
    if settings.kv_cache_memory_bytes is not None:
        ours["engine_kwargs"] = {"vllm": {"kv_cache_memory_bytes": settings.kv_cache_memory_bytes}}
    # "auto" reads weights from folders, at the start and for each player after
    return OmegaConf.merge(of_policy, ours, dict(settings.rollout), {"load_format": "auto"})


def model_config(config: DictConfig) -> DictConfig:
    """The policy's model without LoRA: what is loaded are whole weights."""
    model = OmegaConf.to_container(config.actor_rollout_ref.model, resolve=True)
    merged = OmegaConf.merge(model, {"lora_rank": 0, "lora_adapter_path": None})
    if merged.get("lora"):
        merged.lora.rank = 0
    return merged


def shared_devices(workers: list[Any], slots: int, ranks: int) -> list[list[Any]]:
    """Each slot's part of the policy's workers, in turn, so that every device carries as many as the others; ``ranks``
    divides them."""
    parts = [workers[i : i + ranks] for i in range(0, len(workers), ranks)]
    return [parts[slot % len(parts)] for slot in range(slots)]


class DeviceHolder:
    """Has one device, so that Ray gives it to nobody else, and verl can ask where it is."""


def own_devices(engines: int, ranks: int) -> list[list[Any]]:
    """Devices for some engines apart from the policy's, as actors by engine and rank; an engine's are on one node.

    They are given back when the run ends.

    Raises:
        RuntimeError: the cluster has not so many that are free.
    """
    platform = get_platform()
    groups = [
        placement_group([{platform.ray_resource_name(): 1, "CPU": 1}] * ranks, strategy="STRICT_PACK")
        for _ in range(engines)
    ]
    try:
        ray.get([group.ready() for group in groups], timeout=DEVICES_LIMIT)
    except ray.exceptions.GetTimeoutError as error:
        for group in groups:
            remove_placement_group(group)
        raise RuntimeError(
            f"opponent_engine.devices=own: the cluster has no {engines} times {ranks} free devices besides the "
            "policy's; take opponent_engine.devices=shared, or give it more"
        ) from error

    def holder(group: Any, rank: int) -> Any:
        place = PlacementGroupSchedulingStrategy(group, placement_group_bundle_index=rank)
        options = platform.ray_resource_options(1)
        return ray.remote(DeviceHolder).options(num_cpus=0, scheduling_strategy=place, **options).remote()

    return [[holder(group, rank) for rank in range(ranks)] for group in groups]
