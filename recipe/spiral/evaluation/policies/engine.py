"""A vLLM engine in processes of its own, without Ray and without verl: token ids in, token ids out.

It serves one model, with any LoRA adapters of it, and can become another model of the same architecture.
"""

from __future__ import annotations

import asyncio
import importlib
import itertools
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ...play.players.policy import Generate, Generation
from ...serving.end_tokens import end_tokens
from .weights import positions

#: Seconds for loading other weights.
RELOAD_LIMIT = 600.0
#: What vLLM takes as ``max_lora_rank``.
_RANKS = (8, 16, 32, 64, 128, 256, 320, 512)


class EngineFailure(RuntimeError):
    """The engine does not start, does not answer, or cannot load what it should."""


@dataclass(frozen=True)
class EngineSettings:
    """The config's ``engine``.

    Attributes:
        dtype: of the weights and of what is computed with them.
        tensor_parallel_size: over how many GPUs a model is spread.
        gpu_memory_utilization: of a GPU's memory, for all engines that are there at a time together.
        max_num_seqs: how many responses of a model are written at a time.
        enforce_eager: no CUDA graphs: slower, and starts sooner.
        seconds: how long one response may take. (How long a start may take is vLLM's: VLLM_ENGINE_READY_TIMEOUT_S.)
        modules: what is imported before vLLM.
        vllm: further settings of vLLM's ``AsyncEngineArgs``; they win.
    """

    dtype: str = "auto"
    tensor_parallel_size: int = 1
    gpu_memory_utilization: float = 0.9
    max_num_seqs: int = 256
    enforce_eager: bool = False
    seconds: float = 1800.0
    modules: Sequence[str] = ()
    vllm: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in ("tensor_parallel_size", "max_num_seqs"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise ValueError(f"engine.{name}={value}: must be a whole number from 1 up")
        for name in ("gpu_memory_utilization", "seconds"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int | float):
                raise ValueError(f"engine.{name}={value}: must be a number")
        if not 0 < self.gpu_memory_utilization <= 1:
            raise ValueError(f"engine.gpu_memory_utilization={self.gpu_memory_utilization}: must be from 0 to 1")
        if not self.seconds > 0:
            raise ValueError(f"engine.seconds={self.seconds}: must be above 0")

    @classmethod
    def from_config(cls, section: Mapping[str, Any]) -> EngineSettings:
        """From the config's ``engine``.

        Raises:
            ValueError: an unknown key, or one out of its range.
        """
        if unknown := sorted(section.keys() - cls.__dataclass_fields__.keys()):
            raise ValueError(f"engine: {', '.join(unknown)}: unknown; vLLM's own settings go into engine.vllm")
        return cls(**section)


@dataclass(frozen=True)
class Served:
    """What an engine is started for.

    Attributes:
        model: a Hugging Face folder.
        adapters: the LoRA adapters that it may be asked for, by folder; none: it has no LoRA, and can be reloaded.
        max_model_len: of prompt and response together, in tokens.
        engines: how many are there at a time, to share the memory of GPUs.
    """

    model: Path
    adapters: tuple[Path, ...] = ()
    max_model_len: int = 512
    engines: int = 1


class VLLMEngine:
    """One vLLM engine, started when this is made.

    Raises:
        ImportError: vLLM is not installed.
        EngineFailure: it does not start; why is in what vLLM printed.
    """

    def __init__(self, served: Served, settings: EngineSettings) -> None:
        for module in settings.modules:
            importlib.import_module(module)
        try:
            from vllm import AsyncEngineArgs
            from vllm.v1.engine.async_llm import AsyncLLM
        except ImportError as error:
            raise ImportError(
                "vLLM is not installed: on a machine with GPUs pip install 'verl-spiral[gpu]', on one without run "
                f"run_scripts/setup.sh ({error})"
            ) from error
        self.model, self.adapters = served.model, served.adapters
        self.settings, self._started_with = settings, served.model
        self._broken = False
        self._requests = itertools.count()
        try:
            self._engine = AsyncLLM.from_engine_args(AsyncEngineArgs(**arguments(served, settings)))
        except Exception as error:
            raise EngineFailure(f"{served.model}: vLLM does not start ({_short(error)})") from error
        self._ends = end_tokens(served.model)

    def generate_as(self, name: str, adapter: Path | None = None) -> Generate:
        """``generate`` for a policy of that name: the model, or one of its adapters."""
        lora = self._lora(adapter) if adapter is not None else None

        async def generate(prompt_ids: list[int], sampling: Mapping[str, Any]) -> Generation:
            from vllm import SamplingParams
            from vllm.sampling_params import RequestOutputKind
            from vllm.v1.engine.exceptions import EngineDeadError, EngineGenerateError

            parameters = SamplingParams(
                **sampling,
                # vLLM itself goes by the model that it was started with
                stop_token_ids=sorted(self._ends),
                ignore_eos=True,
                output_kind=RequestOutputKind.FINAL_ONLY,
            )
            request = f"{next(self._requests)}"
            final = None
            try:
                async with asyncio.timeout(self.settings.seconds):
                    async for output in self._engine.generate(
                        {"prompt_token_ids": prompt_ids}, parameters, request, lora_request=lora
                    ):
                        final = output
            except TimeoutError as error:
                raise EngineFailure(
                    f"{name}: no response within engine.seconds={self.settings.seconds:g}; raise it, or lower "
                    "concurrency or engine.max_num_seqs"
                ) from error
            except (EngineDeadError, EngineGenerateError) as error:
                raise EngineFailure(
                    f"{name}: vLLM's processes ended ({_short(error)}); often it is memory: lower "
                    "engine.gpu_memory_utilization (on a CPU engine.vllm.kv_cache_memory_bytes) or engine.max_num_seqs"
                ) from error
            if final is None or not final.outputs or not final.outputs[0].token_ids:
                raise EngineFailure(f"{name}: vLLM gave no tokens for a prompt of {len(prompt_ids)}")
            token_ids = list(final.outputs[0].token_ids)
            truncated = final.outputs[0].finish_reason == "length" and token_ids[-1] not in self._ends
            return Generation(token_ids, None, truncated, None, name)

        return generate

    def _lora(self, adapter: Path) -> Any:
        from vllm.lora.request import LoRARequest

        return LoRARequest(str(adapter), 1 + self.adapters.index(adapter), str(adapter))

    def fits(self, model: Path, adapters: Sequence[Path]) -> bool:
        """Whether it can become that model: the same architecture, and no adapters on either side."""
        if self._broken or self.adapters or adapters:
            return False
        # the package of verl's engines, which takes seconds to import
        from ...workers.engine.fitting import UnfitWeights, check_fits

        try:
            check_fits(model, self._started_with)
        except UnfitWeights:
            return False
        return True

    async def become(self, model: Path) -> None:
        """Load the weights of another model that ``fits``; nobody may be answered meanwhile.

        Raises:
            EngineFailure: vLLM cannot; the engine is of no more use.
        """
        self._broken = True
        try:
            await self._engine.collective_rpc(
                "reload_weights", timeout=RELOAD_LIMIT, kwargs={"weights_path": str(model)}
            )
            dropped = await self._engine.reset_prefix_cache(reset_connector=True)
        except Exception as error:
            raise EngineFailure(f"{model}: vLLM cannot load its weights ({_short(error)})") from error
        if not dropped:
            raise EngineFailure(f"{model}: vLLM did not drop what it had computed with the weights before")
        self._broken, self.model = False, model
        self._ends = end_tokens(model)

    def close(self) -> None:
        """End its processes."""
        self._engine.shutdown()


def arguments(served: Served, settings: EngineSettings) -> dict[str, Any]:
    """vLLM's settings for an engine."""
    chosen: dict[str, Any] = {
        "model": str(served.model),
        "max_model_len": served.max_model_len,
        "dtype": settings.dtype,
        "tensor_parallel_size": settings.tensor_parallel_size,
        "gpu_memory_utilization": settings.gpu_memory_utilization / served.engines,
        "max_num_seqs": settings.max_num_seqs,
        "enforce_eager": settings.enforce_eager,
        "generation_config": "vllm",  # a model's own temperature and top_k are not the evaluation's
        "enable_log_requests": False,
        "disable_log_stats": True,
    }
    if served.adapters:
        rank = max(map(lora_rank, served.adapters))
        chosen |= {
            "enable_lora": True,
            "max_loras": min(len(served.adapters), 8),
            "max_cpu_loras": len(served.adapters),
            "max_lora_rank": next((known for known in _RANKS if known >= rank), rank),
        }
    chosen |= settings.vllm
    if chosen.get("enable_chunked_prefill") is False:  # then a prompt must fit into one batch
        chosen["max_num_batched_tokens"] = max(int(chosen.get("max_num_batched_tokens", 0)), served.max_model_len)
    return chosen


def lora_rank(adapter: Path) -> int:
    """The rank of a PEFT adapter: the largest, where modules have their own.

    Raises:
        ValueError: its config cannot be read.
    """
    file = adapter / "adapter_config.json"
    try:
        config = json.loads(file.read_text(encoding="utf-8"))
        return int(max([config["r"], *(config.get("rank_pattern") or {}).values()]))
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{file}: names no rank of an adapter ({error})") from error


def check_length(model: Path, tokens: int) -> None:
    """That a model has positions for so many tokens.

    Raises:
        ValueError: it has not.
    """
    most = positions(model)
    if most is not None and tokens > most:
        raise ValueError(
            f"{model}: has {most} positions, and {tokens} are asked for by data.max_prompt_length with "
            "data.max_response_length, or by the benchmarks' own: lower them"
        )


def _short(error: BaseException) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
