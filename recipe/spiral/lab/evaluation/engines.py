"""vLLM engines in processes of their own, without Ray and without verl: token ids in, token ids out.

An engine serves one model, with any LoRA adapters of it, and can become another model of the same architecture. At most
two models are needed at a time, those of a match-up's two players.
"""

from __future__ import annotations

import asyncio
import importlib
import itertools
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from ...opponents.model_files import unfit
from ...players.player import Generate, Generation
from ...players.records import Tokens
from ...processes.launch import set_environment
from ...rollouts.end_tokens import end_tokens
from ...storage.disk import read_json
from .policies import Policy
from .policy_weights import computed_in
from .settings import EngineSettings, Refused

Models = frozenset[Path]
#: Seconds for loading other weights.
RELOAD_LIMIT = 600.0


class EngineFailure(RuntimeError):
    """An engine does not start, does not answer, or cannot load what it should."""


class Served(NamedTuple):
    """What an engine serves: a Hugging Face folder, LoRA adapters of that model (none: it can become another model),
    and the folder of the tokenizer and the end tokens, where they are not with the model."""

    model: Path
    adapters: tuple[Path, ...] = ()
    texts: Path | None = None


class VLLMEngine:
    """One vLLM engine, started when this is made. What its processes print, the cause of a failure too, is on stderr.

    Args:
        max_model_len: of prompt and response together, in tokens.
        engines: the number of engines that run at a time, and share the memory of the GPUs.

    Raises:
        ImportError: vLLM is not installed.
        EngineFailure: the engine does not start; Refused: with these settings it never will.
    """

    def __init__(self, served: Served, max_model_len: int, settings: EngineSettings, engines: int = 1) -> None:
        set_environment({"VLLM_LOGGING_STREAM": "ext://sys.stderr"})
        for module in settings.modules:
            importlib.import_module(module)
        from vllm import AsyncEngineArgs
        from vllm.v1.engine.async_llm import AsyncLLM

        self.model, self._adapters = served.model, served.adapters
        self._seconds, self._requests = settings.seconds, itertools.count()
        try:
            chosen = AsyncEngineArgs(**arguments(served, max_model_len, settings, engines))
            self._engine = AsyncLLM.from_engine_args(chosen)
        except Exception as error:
            # what its processes raise comes here as a RuntimeError
            kind = Refused if isinstance(error, TypeError | ValueError) else EngineFailure
            raise kind(f"{served.model}: vLLM does not start: {error}") from error
        self._ends = end_tokens(served.texts or served.model)

    def generate_as(self, name: str, adapter: Path | None = None) -> Generate:
        """The ``generate`` of a policy of that name: the model itself, or one of its adapters."""
        from vllm import SamplingParams
        from vllm.lora.request import LoRARequest
        from vllm.sampling_params import RequestOutputKind
        from vllm.v1.engine.exceptions import EngineDeadError, EngineGenerateError

        lora = adapter and LoRARequest(str(adapter), 1 + self._adapters.index(adapter), str(adapter))

        async def generate(prompt_ids: list[int], sampling: Mapping[str, Any]) -> Generation:
            parameters = SamplingParams(
                **sampling,
                # vLLM itself uses the end tokens of the model that it was started with
                stop_token_ids=sorted(self._ends),
                ignore_eos=True,
                output_kind=RequestOutputKind.FINAL_ONLY,
            )
            answer, request = None, str(next(self._requests))
            try:
                async with asyncio.timeout(self._seconds):
                    async for output in self._engine.generate(
                        {"prompt_token_ids": prompt_ids}, parameters, request, lora_request=lora
                    ):
                        answer = output.outputs[0]
            except TimeoutError as error:
                raise EngineFailure(
                    f"{name}: no response within engine.seconds={self._seconds:g}; raise it, or lower concurrency or "
                    "engine.max_num_seqs"
                ) from error
            except (EngineDeadError, EngineGenerateError) as error:
                raise EngineFailure(f"{name}: vLLM failed: {error.__cause__ or error}") from error
            if answer is None or not answer.token_ids:
                raise EngineFailure(f"{name}: vLLM returned no tokens for a prompt of {len(prompt_ids)} tokens")
            token_ids = list(answer.token_ids)
            truncated = answer.finish_reason == "length" and token_ids[-1] not in self._ends
            return Generation(Tokens(prompt_ids, token_ids, None, None, name), truncated)

        return generate

    def fits(self, other: Served) -> bool:
        """Whether the engine can serve that: a model of the same architecture, and no adapters on either side."""
        return not (self._adapters or other.adapters or unfit(other.model, self.model))

    async def become(self, other: Served) -> None:
        """Load the weights of another model that ``fits``; no response may be under way meanwhile.

        vLLM keeps its tokenizer, which it does not use: prompts and responses are tokens.

        Raises:
            EngineFailure: vLLM cannot load them; the engine cannot be used any more.
        """
        try:
            await self._engine.collective_rpc(
                "reload_weights", timeout=RELOAD_LIMIT, kwargs={"weights_path": str(other.model)}
            )
            dropped = await self._engine.reset_prefix_cache(reset_connector=True)
        except Exception as error:
            raise EngineFailure(f"{other.model}: vLLM cannot load its weights: {error}") from error
        if not dropped:
            raise EngineFailure(f"{other.model}: vLLM still has its prefix cache of the earlier weights")
        self.model, self._ends = other.model, end_tokens(other.texts or other.model)

    def close(self) -> None:
        """End its processes."""
        self._engine.shutdown()


def arguments(served: Served, max_model_len: int, settings: EngineSettings, engines: int = 1) -> dict[str, Any]:
    """vLLM's settings for an engine."""
    chosen: dict[str, Any] = {
        "model": str(served.model),
        "tokenizer": str(served.texts or served.model),
        "max_model_len": max_model_len,
        "dtype": computed_in(served.model, settings.dtype),
        "tensor_parallel_size": settings.tensor_parallel_size,
        "gpu_memory_utilization": settings.gpu_memory_utilization / engines,
        "max_num_seqs": settings.max_num_seqs,
        "enforce_eager": settings.enforce_eager,
        "generation_config": "vllm",  # the evaluation's temperature and top_k, not the model's own
        "disable_log_stats": True,
    }
    if served.adapters:
        configs = [read_json(adapter / "adapter_config.json") for adapter in served.adapters]
        rank = max(rank for config in configs for rank in (config["r"], *(config.get("rank_pattern") or {}).values()))
        chosen |= {
            "enable_lora": True,
            "max_loras": min(len(served.adapters), 8),
            "max_cpu_loras": len(served.adapters),
            "max_lora_rank": max(8, 1 << (rank - 1).bit_length()),  # vLLM takes powers of two
        }
    chosen |= settings.vllm
    executor = "distributed_executor_backend"
    if settings.tensor_parallel_size > 1 and str(chosen.get(executor)).endswith("UniProcExecutor"):
        chosen[executor] = "mp"  # in one process the first rank would wait for the others
    return chosen


# -- which engines run, and when ---------------------------------------------------------------------------------------


def models_of(policies: Iterable[Policy]) -> Models:
    """The models that must be loaded so that these policies can answer."""
    return frozenset(policy.model for policy in policies if policy.model is not None)


class Engines:
    """The engines that are running, at a time as many as one piece of work needs models.

    Args:
        start: ``start(served, engines)`` starts an engine, one of so many that run at a time.
        policies: all who may play: they say which adapters each model has.
        work: the models of each piece of work.
    """

    def __init__(
        self,
        start: Callable[[Served, int], VLLMEngine],
        policies: Iterable[Policy],
        work: Iterable[Models],
        show: Callable[[str], None],
    ) -> None:
        self._start, self._policies, self._show = start, list(policies), show
        self._room = max([1, *map(len, work)])
        self._running: list[VLLMEngine] = []

    async def load(self, models: Models) -> None:
        """Load these models, unless they are; others stay as long as nothing needs their place.

        Raises:
            EngineFailure: one does not start, or cannot be loaded.
        """
        for model in sorted(models - {engine.model for engine in self._running}):
            of_it = [policy for policy in self._policies if policy.model == model]
            adapters = dict.fromkeys(policy.adapter for policy in of_it if policy.adapter is not None)
            texts = next((policy.texts for policy in of_it if policy.texts is not None), None)
            served = Served(model, tuple(adapters), texts)
            if len(self._running) >= self._room:
                free = [engine for engine in self._running if engine.model not in models]
                fitting = next((engine for engine in free if engine.fits(served)), None)
                if fitting is not None:
                    self._show(f"loading {model}")
                    await fitting.become(served)
                    continue
                self._running.remove(free[0])
                free[0].close()
            self._show(f"starting vLLM with {model}")
            self._running.append(self._start(served, self._room))

    def generate_as(self, policy: Policy) -> Generate:
        """A policy's engine; its model must be loaded."""
        engine = next(engine for engine in self._running if engine.model == policy.model)
        return engine.generate_as(policy.name, policy.adapter)

    def close(self) -> None:
        """End all engines."""
        while self._running:
            self._running.pop().close()
