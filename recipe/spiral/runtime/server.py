"""vLLM's servers that answer many requests in one call, and that play games in their own process."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import ray
from omegaconf import DictConfig
from verl.plugin.platform import get_platform
from verl.workers.rollout.replica import RolloutReplicaRegistry, TokenOutput
from vllm.inputs.engine import tokens_input
from vllm.sampling_params import RequestOutputKind

from ..processes.runtime import engine_ranks
from ..rollouts.pace import ENGINE_SECONDS
from ..workers.engine.slot_server import SlotReplica, SlotServer
from ..workers.engine.vllm import MOST_CALLS, VLLMReplica, VLLMServer
from .direct_client import Ended, Request, answer_many
from .early import BeginsLater, EarlyActors, on_one_machine
from .engine_times import Ends

if TYPE_CHECKING:
    from .rollout_worker import RolloutWorker


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


class ManyRequests(VLLMServer):
    """Answers requests that come together."""

    ends: Ends

    def wrap_engine(self) -> None:
        self.ends = Ends(self.engine.output_processor)
        self.engine = TokenPrompts(self.engine)
        super().wrap_engine()

    async def generate(
        self, prompt_ids: list[int], sampling_params: dict[str, Any], request_id: str, *args: Any, **kwargs: Any
    ) -> TokenOutput:
        """With how long the engine took."""
        with self.ends.timing(request_id) as seconds:
            output = await super().generate(prompt_ids, sampling_params, request_id, *args, **kwargs)
            output.extra_fields[ENGINE_SECONDS] = seconds()
        return output

    async def answer(self, sampling_params: Mapping[str, Any], whole: bool = True, **request: Any) -> TokenOutput:
        """The answer to a request with the keyword arguments of ``generate``; ``whole``: nothing breaks it off."""
        sampling = {**sampling_params, "skip_clone": True}  # vLLM may write into it
        sampling.setdefault("detokenize", "stop" in sampling)  # only words that end a response are looked for
        if whole:
            # Otherwise vLLM hands over an output for each token. verl needs the first to break it off.
            sampling["output_kind"] = RequestOutputKind.FINAL_ONLY
        return await self.generate(sampling_params=sampling, **request)

    async def generate_many(self, requests: Sequence[Request]) -> AsyncIterator[Ended]:
        """The answers to many requests of ``answer``, each as soon as it is there, those of one moment together."""
        async for ended in answer_many(self.answer, requests):
            yield ended


class FastServer(BeginsLater, ManyRequests):
    """The policy's. It may be a rollout worker as well."""

    #: Plays games in this process, where servers do.
    worker: Any

    def import_worker(self) -> type[RolloutWorker]:
        """Import what plays games: that takes a second, and a server that starts early has time."""
        from .. import rollout  # noqa: F401  (the agent loop)
        from .rollout_worker import RolloutWorker

        return RolloutWorker

    def take_part(self, *args: Any) -> None:
        """Be a rollout worker as well, made with these arguments, and play games in this process."""
        self.worker = self.import_worker()(*args)
        self.worker.llm_client.stay(self)

    async def generate_sequences(self, batch: Any) -> None:
        """Begin to play a batch of games, as a server that takes part."""
        await self.worker.generate_sequences(batch)

    async def games_under_way(self) -> int:
        """How many it is playing."""
        return int(await self.worker.games_under_way())

    async def until_over(self) -> None:
        """Return when it plays none."""
        await self.worker.until_over()


class FastSlotServer(ManyRequests, SlotServer):
    """An opponent's."""


servers = EarlyActors(FastServer)


class FastReplica(VLLMReplica):
    """An engine of the policy's."""

    actors = servers


class FastSlotReplica(SlotReplica):
    """An opponents' engine."""

    actors = ray.remote(FastSlotServer)


def start_servers(config: DictConfig) -> None:
    """Let verl take these, and start the processes of the policy's, where it is known where and how many they are."""
    RolloutReplicaRegistry.register("vllm", lambda: FastReplica)
    rollout, trainer = config.actor_rollout_ref.rollout, config.trainer
    if not config.actor_rollout_ref.hybrid_engine or rollout.get("disaggregation", {}).get("enabled"):
        return
    if trainer.nnodes != 1 or not on_one_machine():
        return
    platform = get_platform()
    variables = {**dict.fromkeys(platform.ray_noset_envvars(), "1"), **platform.rollout_env_vars()}
    for rank in range(trainer.n_gpus_per_node // engine_ranks(rollout)):
        name = f"vllm_server_{rank}_0"
        server = servers.start(name, runtime_env={"env_vars": variables}, max_concurrency=MOST_CALLS)
        if not rollout.agent.num_workers:
            server.import_worker.remote()
