"""What vLLM's engines take on one device: the policy's, and its opponents'. All in bytes."""

from __future__ import annotations

from dataclasses import dataclass

from omegaconf import DictConfig, OmegaConf

from ...opponents.engine_settings import has_adapter, models_served, number_of_slots
from .model_size import ModelSize
from .trainer_memory import FULL, width

#: vLLM's CUDA context and libraries; and its graphs, which stay while it sleeps.
CONTEXT, GRAPHS = 600 * 2**20, 1200 * 2**20


@dataclass(frozen=True)
class Engine:
    """One engine's part on one device."""

    setting: str  # that gives it its share
    share: float | None  # of the device's memory; None: on a CPU
    weights: int  # before any cache, as the workspace
    workspace: int
    cache: int  # of the longest prompt with its response
    asked: int | None  # the cache's size where the settings give it in bytes (on a CPU); None: what the share leaves
    asleep: int  # what it holds while it sleeps

    @property
    def least(self) -> int:
        """Below this it does not start."""
        return self.weights + self.workspace + self.cache

    def taken(self, device: int) -> int:
        """While games are played."""
        if self.share is None:
            return self.weights + self.workspace + (self.asked or self.cache)
        return int(self.share * device)


def of_policy(config: DictConfig, model: ModelSize) -> Engine:
    rollout = config.actor_rollout_ref.rollout
    return _engine(config, model, rollout, "actor_rollout_ref.rollout.gpu_memory_utilization")


def of_opponents(config: DictConfig, model: ModelSize) -> tuple[Engine, int, int]:
    """An opponent's engine; how many there are on each of the policy's devices; and devices of their own, all together.

    With LoRA opponents are adapters on the policy's engine.
    """
    (merged, taken), settings = _served(config), config.opponent_engine
    engine = _engine(config, model, merged, "opponent_engine.gpu_memory_utilization")
    if settings.devices == "own":
        return engine, 0, taken
    return engine, -(-taken // (config.trainer.n_gpus_per_node * config.trainer.nnodes)), 0


def devices(config: DictConfig) -> int:
    """How many devices a run on one machine takes, with those that its engines and its opponents' have of their own."""
    rollout, settings = config.actor_rollout_ref.rollout, config.opponent_engine
    own = _served(config)[1] if settings.devices == "own" else 0
    # the policy's engines have some with separate_async
    return int(config.trainer.n_gpus_per_node) + int(rollout.nnodes) * int(rollout.n_gpus_per_node) + own


def _served(config: DictConfig) -> tuple[DictConfig, int]:
    """The settings of the opponents' engines, and how many devices they take, all together."""
    settings, models = config.opponent_engine, 0 if has_adapter(config) else models_served(config)
    share = {"gpu_memory_utilization": settings.gpu_memory_utilization}
    merged = OmegaConf.merge(config.actor_rollout_ref.rollout, share)
    ranks = int(merged.tensor_model_parallel_size)
    shared = config.trainer.n_gpus_per_node * config.trainer.nnodes
    return merged, number_of_slots(settings, models, shared, ranks) * ranks if models else 0


def _engine(config: DictConfig, model: ModelSize, rollout: DictConfig, setting: str) -> Engine:
    ranks, element = int(rollout.tensor_model_parallel_size), width(rollout.dtype)
    cache = 2 * model.layers * max(model.key_value // ranks, 1) * element * int(rollout.max_model_len)
    weights = model.parameters * element // ranks
    workspace = int(rollout.max_num_batched_tokens) * element * (2 * model.intermediate // ranks + 4 * model.hidden)
    workspace += 2 * int(rollout.max_num_seqs) * model.vocabulary * FULL
    if config.trainer.device == "cpu":  # packed for the CPU, and as they came
        asked = OmegaConf.select(rollout, "engine_kwargs.vllm.kv_cache_memory_bytes", default=None)
        return Engine(setting, None, 2 * weights, workspace, cache, asked and int(asked), 0)
    asleep = CONTEXT + (0 if rollout.enforce_eager else GRAPHS) + (0 if rollout.free_cache_engine else weights + cache)
    return Engine(setting, float(rollout.gpu_memory_utilization), weights, workspace, cache, None, asleep)
