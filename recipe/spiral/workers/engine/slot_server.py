"""A vLLM server with an opponent's weights: they are loaded from a folder between steps, and named in each answer."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import ray
from verl.workers.rollout.replica import RolloutMode, TokenOutput

from ...opponents.model_files import local, unfit
from .vllm import VLLMReplica, VLLMServer

#: Seconds that the engine may take to load weights.
LIMIT = 600.0


class SlotServer(VLLMServer):
    """Has the weights of one opponent at a time, or of none."""

    _name: str | None = None

    async def loaded(self) -> str | None:
        """Whose weights these are; None: nobody's."""
        return self._name

    async def load(self, name: str, weights_path: str) -> None:
        """Become another opponent: the weights of a Hugging Face folder, of the same architecture.

        Raises:
            ValueError: these are not weights of this model, or the policy's model cannot be had from the hub.
        """
        self._name = None
        model = await asyncio.to_thread(local, self.model_config.local_path)  # of a hub's id verl's path is the id
        if fault := await asyncio.to_thread(unfit, Path(weights_path), model):
            raise ValueError(fault)
        await self.engine.collective_rpc("reload_weights", timeout=LIMIT, kwargs={"weights_path": weights_path})
        if not await self.engine.reset_prefix_cache(reset_connector=True):
            raise RuntimeError(f"{name}: vLLM did not drop what it had computed with the weights before")
        self._name = name

    async def generate(self, *args: Any, **kwargs: Any) -> TokenOutput:
        """verl's. ``answered_by`` is whose weights gave the answer, from its first token to its last; None: nobody's
        alone, as they were exchanged meanwhile."""
        name = self._name
        output = await super().generate(*args, **kwargs)
        output.extra_fields["answered_by"] = name if name == self._name else None
        return output

    async def sleep(self) -> None:
        """verl's: the weights are discarded. Nothing happens on a CPU, and on devices of its own."""
        if self.config.free_cache_engine and self.rollout_mode == RolloutMode.HYBRID:
            self._name = None
        await super().sleep()


class SlotReplica(VLLMReplica):
    """One slot: an engine whose server is a ``SlotServer``."""

    actors = ray.remote(SlotServer)

    async def launch_on(self, workers: list[Any]) -> None:
        """Start on the devices of the policy's workers, one for each rank: verl only asks them where they are."""
        self.workers, self.rollout_mode = list(workers), RolloutMode.HYBRID
        await self.launch_servers()
