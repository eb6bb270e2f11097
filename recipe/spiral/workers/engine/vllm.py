"""vLLM under verl: the policy's servers, which have other adapters beside its own, and those of opponents.

verl names the socket that new weights go through after the Ray job. But runs with a Ray of their own are all job 1 of
it, and would send their weights to each other's engines. Ray's address is added here, where it sends and listens.
"""

from __future__ import annotations

import asyncio
import os
import secrets
from argparse import Namespace
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import ray
from verl.workers.rollout.replica import RolloutMode, TokenOutput
from verl.workers.rollout.vllm_rollout.vllm_async_server import vLLMHttpServer, vLLMReplica
from verl.workers.rollout.vllm_rollout.vllm_rollout import ServerAdapter
from vllm.inputs.engine import tokens_input
from vllm.sampling_params import RequestOutputKind

from ...opponents.model_files import local, unfit
from ...processes.launch import end_by_itself, set_environment
from ...processes.run_log import say_now
from .adapters import Asked, ChoosingEngine, WorkerExtension, asked
from .client import Ended, Request

#: vLLM's settings that verl sets itself for LoRA; what the config says of them counts here.
LORA_LIMITS = ("max_loras", "max_lora_rank")
#: Calls that a server takes at a time: more than there ever are. While it takes new weights all requests wait in it,
#: and if these were as many as it takes, the call that lets them go on would wait behind them for ever.
MOST_CALLS = 1_000_000
#: Seconds that an opponent's engine may take to load weights.
LIMIT = 600.0


def run_name() -> str:
    """The Ray job with the port of its cluster: one name for each run on a machine."""
    context = ray.get_runtime_context()
    return f"{context.get_job_id()}-{context.gcs_address.rsplit(':', 1)[-1]}"


class TokenPrompts:
    """vLLM's engine, which gets prompts as vLLM's own renderers make them; one with images, sound or video stays as is.

    verl hands over raw tokens. vLLM 0.27 looks into those in a second thread, where there is nothing to render, and
    each request waits until Python lets that thread run and the event loop again.
    """

    def __init__(self, engine: Any) -> None:
        self._engine = engine

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

    def generate(self, prompt: Any, *args: Any, **kwargs: Any) -> AsyncIterator[Any]:
        if not prompt.get("multi_modal_data"):
            prompt = tokens_input(prompt["prompt_token_ids"])
        answers: AsyncIterator[Any] = self._engine.generate(prompt, *args, **kwargs)
        return answers


class VLLMServer(vLLMHttpServer):
    """The listening side: the engine's processes inherit this one's environment. With LoRA it has adapters by name."""

    #: vLLM's; verl makes it when it launches the server.
    engine: Any

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        say_now("vLLM starts")
        end_by_itself()  # and with it the engine's processes, which nobody else would end
        # nobody has the key: verl reaches servers through Ray
        set_environment({"VLLM_API_KEY": secrets.token_urlsafe(32)})
        super().__init__(*args, **kwargs)
        os.environ["VERL_RAY_JOB_ID"] = run_name()

    async def run_server(self, args: Namespace) -> None:
        settings = self.config.engine_kwargs.get("vllm") or {}
        for limit in LORA_LIMITS:
            if self.lora_as_adapter and settings.get(limit) is not None:
                setattr(args, limit, max(int(settings[limit]), int(getattr(args, limit))))
        await super().run_server(args)
        self.engine = TokenPrompts(self.engine)
        if self.lora_as_adapter:
            self.engine = ChoosingEngine(self.engine)

    async def generate_many(self, requests: Sequence[Request]) -> AsyncIterator[Ended]:
        """The answers to many requests of ``answer``, each as soon as it is there, those of one moment together."""
        ended: asyncio.Queue[asyncio.Task[TokenOutput]] = asyncio.Queue()
        numbers = {asyncio.create_task(self.answer(**request)): number for number, request in enumerate(requests)}
        for task in numbers:
            task.add_done_callback(ended.put_nowait)
        while numbers:
            together = [await ended.get()]
            while not ended.empty():
                together.append(ended.get_nowait())
            yield [(numbers.pop(task), task.exception() or task.result()) for task in together]

    async def answer(self, sampling_params: Mapping[str, Any], whole: bool = True, **request: Any) -> TokenOutput:
        """The answer to a request with the keyword arguments of ``generate``; ``whole``: nothing breaks it off."""
        sampling = {**sampling_params, "skip_clone": True}  # vLLM may write into it
        sampling.setdefault("detokenize", "stop" in sampling)  # only words that end a response are looked for
        if whole:
            # Otherwise vLLM hands over an output for each token. verl needs the first to break it off.
            sampling["output_kind"] = RequestOutputKind.FINAL_ONLY
        return await self.generate(sampling_params=sampling, **request)

    async def generate(
        self,
        prompt_ids: list[int],
        sampling_params: dict[str, Any],
        request_id: str,
        *args: Any,
        adapter: str | None = None,
        **kwargs: Any,
    ) -> TokenOutput:
        """verl's; with ``adapter``, the answer of that adapter (or of ``BASE``), with its name as ``answered_by``.

        Raises:
            AdapterError: it is not loaded.
        """
        request = None if adapter is None else Asked(adapter)
        token = asked.set(request)
        try:
            output = await super().generate(prompt_ids, sampling_params, request_id, *args, **kwargs)
        finally:
            asked.reset(token)
        if request is not None:
            output.extra_fields["answered_by"] = request.answered_by
        return output

    async def wake_up(self, tags: list[str] | None = None) -> None:
        await super().wake_up(tags)
        if self.lora_as_adapter and self.node_rank == 0 and (tags is None or "weights" in tags):
            await self.engine.read_again()

    def _get_worker_extension_cls(self) -> str:
        return f"{WorkerExtension.__module__}.{WorkerExtension.__qualname__}"

    async def engine_answers(self) -> None:
        """Raises vLLM's error: the engine's process has died."""
        if (engine := getattr(self, "engine", None)) is not None and engine.errored:
            raise engine.dead_error

    async def set_adapters(self, folders: Mapping[str, str]) -> None:
        """Have exactly these adapters beside the policy's, by name."""
        await self.engine.set_adapters(folders)


class VLLMReplica(vLLMReplica):
    """An engine with our server."""

    #: Its servers, as Ray makes actors of them.
    actors: Any = ray.remote(VLLMServer)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.server_class = self.actors

    @property
    def max_concurrency(self) -> int:
        return MOST_CALLS


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


class VLLMAdapter(ServerAdapter):
    """The sending side, in the policy's workers."""

    zmq_handle: str

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        job = ray.get_runtime_context().get_job_id()
        self.zmq_handle = self.zmq_handle.replace(f"-{job}-", f"-{run_name()}-")
