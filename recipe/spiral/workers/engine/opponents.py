"""The opponents' engines: some vLLM servers ("slots") beside the policy's, each with the weights of one player.

They are of the policy's architecture and follow its rollout's settings. They share the policy's devices, and sleep
while it trains, or have devices of their own. No processes are started for them besides vLLM's and its server.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import ray
from omegaconf import DictConfig, OmegaConf
from verl.workers.rollout.replica import RolloutMode

DEVICES = ("shared", "own")
#: Ranks of the opponents' replicas count from here. Names, sockets and seeds follow from ranks, and the policy's
#: begin at 0.
FIRST_RANK = 1000
SUFFIX = "opponent"
#: Seconds that one slot may take to start; and that all together may take to load, to sleep or to wake.
START_LIMIT, LIMIT = 1800.0, 1200.0
#: Share of a GPU's memory that all its engines together may plan with.
ALL_SHARES = 0.95


@dataclass(frozen=True)
class Settings:
    """The keys of ``opponent_engine``, and how many engines there are.

    Attributes:
        slots: as many models can play in one step.
        devices: "shared" with the policy, or its "own".
        gpu_memory_utilization: share of a GPU's memory for each server.
        kv_cache_memory_bytes: of each server, on a CPU; None: as the policy's.
        rollout: overrides of ``actor_rollout_ref.rollout`` for these servers.
    """

    slots: int
    devices: str = "shared"
    gpu_memory_utilization: float = 0.2
    kv_cache_memory_bytes: int | None = None
    rollout: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.slots < 1:
            raise ValueError(f"fsp.members_per_step={self.slots}: must be 1 or more")
        if self.devices not in DEVICES:
            raise ValueError(f"opponent_engine.devices={self.devices!r}: unknown; known: {', '.join(DEVICES)}")
        if not 0 < self.share < 1:
            raise ValueError(f"opponent_engine.gpu_memory_utilization={self.share}: must be between 0 and 1")

    @property
    def share(self) -> float:
        """Of a GPU's memory for each server, with ``rollout``'s overrides."""
        return float(self.rollout.get("gpu_memory_utilization", self.gpu_memory_utilization))

    @classmethod
    def from_config(cls, slots: int, section: Mapping[str, Any]) -> Settings:
        """From the config's ``opponent_engine``."""
        return cls(slots, **{str(key): value for key, value in section.items()})

    def check_memory(self, policy: float, devices: int, ranks: int) -> None:
        """That the engines which share a GPU do not plan with more memory than it has, when all of them are awake.

        Args:
            policy: ``actor_rollout_ref.rollout.gpu_memory_utilization``.
            devices: the policy's.
            ranks: devices of one slot, with ``rollout``'s overrides: its replica's ``world_size``.

        Raises:
            ValueError: they do.
        """
        engines = -(-self.slots * ranks // devices)
        if self.devices == "shared" and (total := policy + engines * self.share) > ALL_SHARES:
            raise ValueError(
                f"opponent_engine.gpu_memory_utilization={self.share}: {engines} opponents on each "
                f"GPU and the policy's actor_rollout_ref.rollout.gpu_memory_utilization={policy} make {total:.2f} of "
                f"its memory; lower one of them, or fsp.members_per_step={self.slots}, to {ALL_SHARES} or less"
            )


class OpponentServers:
    """The trainer's hand on the slots. Methods wait for what they do, with a limit of time.

    Args:
        replicas: started ones, see ``start``.
        limit: seconds that a method may take.
        placed: the devices that are given back in the end, where they are their own.
    """

    def __init__(self, replicas: Sequence[Any], limit: float = LIMIT, placed: Any = None) -> None:
        self._replicas = list(replicas)
        self._limit = limit
        self._placed = placed
        self._names: list[str | None] = [None] * len(self._replicas)

    @classmethod
    def start(cls, config: DictConfig, settings: Settings, workers: Sequence[Any]) -> OpponentServers:
        """Start the engines; with the policy's engine asleep, as it is after verl's own start.

        Args:
            config: the run's.
            settings: how many, where.
            workers: the policy's workers, whose devices are shared: ``actor_rollout_wg.workers``.

        Raises:
            ValueError: the devices do not go with the settings.
            RuntimeError: there are no devices of their own.
            TimeoutError: they do not start.
        """
        from .opponent_server import OpponentReplica

        rollout = rollout_config(config, settings)
        model = model_config(config)
        replicas = [
            OpponentReplica(
                replica_rank=FIRST_RANK + slot,
                config=rollout,
                model_config=model,
                gpus_per_node=int(rollout.n_gpus_per_node),
                name_suffix=SUFFIX,
            )
            for slot in range(settings.slots)
        ]
        ranks = replicas[0].world_size
        placed = None
        if settings.devices == "shared":
            mode, groups = RolloutMode.HYBRID, shared_devices(list(workers), settings.slots, ranks)
            if config.trainer.device != "cpu":
                policy = float(config.actor_rollout_ref.rollout.gpu_memory_utilization)
                settings.check_memory(policy, len(workers), ranks)
        else:
            from .devices import OwnDevices

            mode, placed = RolloutMode.STANDALONE, OwnDevices(settings.slots, ranks)
            groups = placed.groups
        asyncio.run(launch(replicas, groups, mode))
        return cls(replicas, placed=placed)

    @property
    def handles(self) -> list[Any]:
        """The servers by slot, for ``TableClient``."""
        return [replica.servers[0] for replica in self._replicas]

    @property
    def names(self) -> tuple[str | None, ...]:
        """Whose weights each slot holds; None: nobody's."""
        return tuple(self._names)

    def load(self, slot: int, name: str, weights_path: str | Path) -> float:
        """Load a player's weights into a slot; see ``load_all``."""
        return self.load_all({slot: (name, weights_path)})[slot]

    def load_all(self, players: Mapping[int, tuple[str, str | Path]]) -> dict[int, float]:
        """Load a player's weights into each of these slots, at the same time.

        Args:
            players: name and Hugging Face folder by slot.

        Returns:
            Seconds by slot.

        Raises:
            RuntimeError: some could not be loaded; their slots are empty, the others hold what they should.
        """
        for slot in players:
            self._names[slot] = None
        calls = {slot: self.handles[slot].load.remote(name, str(path)) for slot, (name, path) in players.items()}
        ray.wait(list(calls.values()), num_returns=len(calls), timeout=self._limit)
        seconds, wrong = {}, []
        for slot, call in calls.items():
            try:
                seconds[slot] = float(ray.get(call, timeout=0))
                self._names[slot] = players[slot][0]
            except Exception as error:
                wrong.append(f"{players[slot][0]} into slot {slot}: {_told(error)}")
        if wrong:
            raise RuntimeError(f"opponents could not be loaded: {'; '.join(wrong)}")
        return seconds

    def sleep(self, discard: bool = True) -> None:
        """Give the devices' memory to the training; nothing happens on a CPU, and on devices of their own.

        Args:
            discard: do not keep the weights; the slots are empty after it, and must be loaded when they are awake.
        """
        self._on_all("go_to_sleep", discard)
        self._names = self._on_all("holds")

    def wake(self) -> None:
        """Take the devices' memory back, before anybody is loaded or plays."""
        self._on_all("awake")

    def actors(self) -> Iterator[tuple[str, Any]]:
        """For the watchdog: every actor that a game may wait for, by a name for people."""
        for slot, replica in enumerate(self._replicas):
            for node, server in enumerate(replica.servers):
                yield f"opponents' vLLM server {slot}.{node}", server

    def stop(self) -> None:
        """End the servers; vLLM's processes end with them."""
        for _, server in self.actors():
            ray.kill(server)
        if self._placed is not None:
            self._placed.release()

    def _on_all(self, method: str, *args: Any) -> list[Any]:
        calls = [getattr(handle, method).remote(*args) for handle in self.handles]
        return list(ray.get(calls, timeout=self._limit))


async def launch(replicas: Sequence[Any], groups: Sequence[list[Any]], mode: RolloutMode) -> None:
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


def rollout_config(config: DictConfig, settings: Settings) -> DictConfig:
    """The policy's rollout settings, as they are for the opponents."""
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
    """Each slot's part of the policy's workers, in turn, so that every device carries as many as the others.

    Raises:
        ValueError: the devices do not divide into parts of that many ranks.
    """
    if ranks < 1 or len(workers) % ranks:
        raise ValueError(f"opponents of {ranks} ranks do not divide the policy's {len(workers)} devices")
    parts = [workers[i : i + ranks] for i in range(0, len(workers), ranks)]
    return [parts[slot % len(parts)] for slot in range(slots)]


def _told(error: Exception) -> str:
    """The last line of an error: Ray's hold the other process's traceback."""
    lines = str(error).strip().splitlines()
    return lines[-1].strip() if lines else type(error).__name__
