"""A vLLM server with an opponent's weights: they are loaded from a folder between steps, and named in each answer."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import ray
from verl.workers.rollout.replica import RolloutMode, TokenOutput

from ...opponents.model_files import local
from ...processes.engine_failure import OPPONENTS
from .fitting import check_fits
from .host_memory import HostMemory, free_memory, weights_size
from .vllm import VLLMReplica, VLLMServer

#: Seconds that the engine may take to load weights, and its last requests to end before.
LIMIT = 600.0


class EmptySlot(RuntimeError):
    """A server was asked for a response while it has nobody's weights."""


class SlotServer(VLLMServer):
    """Has the weights of one opponent at a time, or of none.

    It does not answer from the moment at which a load begins until it has ended well, and a load waits for the answers
    that are under way: an answer is of one opponent's weights from its first token to its last.
    """

    title, settings = "opponent's vLLM server", OPPONENTS
    _name: str | None = None
    _model_folder: Path | None = None
    _half_loaded = False
    _asleep = False
    _level = 2

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._loading = asyncio.Lock()

    async def loaded(self) -> str | None:
        """Whose weights these are; None: nobody's."""
        return self._name

    async def load(self, name: str, weights_path: str) -> None:
        """Become another opponent: the weights of a Hugging Face folder, of the same architecture.

        Raises:
            UnfitWeights: these are not weights of this model; the slot is empty now.
            EmptySlot: the engine sleeps, or failed in the middle of a load before: vLLM keeps what it had read by then,
                and would mix it into the next.
            TimeoutError: answers are under way that do not end.
            ValueError: the policy's model is named by a hub's id, and cannot be had from there.
        """
        async with self._loading:
            self._name = None
            if self._asleep:
                raise EmptySlot(f"{name} cannot be loaded while the engine sleeps: wake it first")
            if self._half_loaded:
                raise EmptySlot(f"{name} cannot be loaded: this engine failed in the middle of a load; start it anew")
            await self._all_answered()
            await asyncio.to_thread(check_fits, Path(weights_path), await self._model())
            self._half_loaded = True
            await self.engine.collective_rpc("reload_weights", timeout=LIMIT, kwargs={"weights_path": weights_path})
            self._half_loaded = False
            if not await self.engine.reset_prefix_cache(reset_connector=True):
                raise RuntimeError(f"{name}: vLLM did not drop what it had computed with the weights before")
            self._name = name

    async def generate(self, *args: Any, **kwargs: Any) -> TokenOutput:
        """verl's, with the opponent's name in the answer as ``answered_by``. While the slot is paused, verl tells who
        asks to come again.

        Raises:
            EmptySlot: nobody's weights are loaded, or the engine sleeps.
        """
        name = self._name
        if (name is None or self._asleep) and not self._submission_paused:
            raise EmptySlot(f"an opponent was asked for a response, and {'sleeps' if name else 'has no weights'}")
        output = await super().generate(*args, **kwargs)
        output.extra_fields["answered_by"] = name
        return output

    async def host_memory(self) -> HostMemory:
        """What this slot's node has, and what it would keep there asleep."""
        weights = await asyncio.to_thread(weights_size, await self._model())
        return HostMemory(ray.get_runtime_context().get_node_id(), free_memory(), weights)

    async def go_to_sleep(self, level: int) -> None:
        """Give the device's memory to the training. Nothing happens where verl's servers would not sleep, as on a CPU.

        Args:
            level: vLLM's. 1: the weights go to the host's memory, and come back with ``awake``. 2: they are discarded,
                and the slot is empty.
        """
        if not self.config.free_cache_engine or self.rollout_mode != RolloutMode.HYBRID or self._asleep:
            return
        async with self._loading:
            await self._all_answered()
            self._asleep, self._level = True, level
            if level == 2:
                self._name = None
            await self.sleep()

    async def awake(self) -> None:
        """Take the device's memory back, before a load."""
        if not self._asleep:
            return
        async with self._loading:
            await self.wake_up()
            self._asleep = False

    def _resolve_sleep_level(self) -> int:
        return self._level

    async def _model(self) -> Path:
        """The policy's model on this node: of a hub's id verl's local path is the id itself."""
        if self._model_folder is None:
            self._model_folder = await asyncio.to_thread(local, self.model_config.local_path)
        return self._model_folder

    async def _all_answered(self) -> None:
        async with asyncio.timeout(LIMIT):
            while self.under_way:
                await asyncio.sleep(0.01)


class SlotReplica(VLLMReplica):
    """One slot: an engine whose server is a ``SlotServer``."""

    actors = ray.remote(SlotServer)

    async def launch_on(self, workers: list[Any], mode: RolloutMode) -> None:
        """Start on the devices of these actors, one for each rank: verl asks them where they are, and no more."""
        self.workers, self.rollout_mode = list(workers), mode
        await self.launch_servers()
