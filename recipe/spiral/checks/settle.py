"""Sets what follows from other settings where an interpolation in the YAML cannot, once a config is composed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf, open_dict

from .. import extensions
from ..opponents.engine_settings import has_adapter, models_served
from ..opponents.model_files import whole_path
from ..processes.terminal import note

ENGINE = "recipe.spiral.workers.engine"


def settle(config: DictConfig) -> None:
    """Choose the config's extensions, for this process too, and set what follows, in place.

    Raises:
        ImportError: an extension is not there.
    """
    with open_dict(config):
        extensions.choose(config, note)
        model, rollout, data = config.actor_rollout_ref.model, config.actor_rollout_ref.rollout, config.data
        config.run_dir = str(Path(config.run_dir).resolve())
        model.path = whole_path(model.path)
        libraries = model.external_lib if OmegaConf.is_list(model.external_lib) else [model.external_lib]
        others = [name for name in libraries if name not in (None, ENGINE)]
        model.external_lib = [ENGINE, *others] if others else ENGINE
        if rollout.max_model_len is None:
            rollout.max_model_len = data.max_prompt_length + data.max_response_length
        _correction(config)
        data.gen_batch_size = 1 if config.batch_unit == "turns" else None
        _mode(config, rollout)
        if config.trainer.device == "cpu":
            _on_cpu(config, rollout)


def _correction(config: DictConfig) -> None:
    """Whose log-probabilities are trained with, and how turns of earlier versions are weighted, where that is auto."""
    correction, parts = config.algorithm.rollout_correction, config.actor_rollout_ref
    if correction.bypass_mode == "auto":  # the engine's where they are the trainer's
        trainer = OmegaConf.select(parts.actor.fsdp_config, "mixed_precision.param_dtype", default="bf16")
        whole = {str(parts.rollout.dtype), str(trainer)} <= {"float32", "fp32", "32"}
        # on a GPU they would differ even so: vLLM's attention multiplies float32 in TF32, with 10 bits
        correction.bypass_mode = config.trainer.device == "cpu" and whole
    if correction.rollout_is == "auto":
        alike = config.trainer.v1.trainer_mode == "sync" or correction.bypass_mode
        correction.rollout_is = None if alike else "token"


def _mode(config: DictConfig, rollout: Any) -> None:
    """What follows from ``trainer.v1.trainer_mode``."""
    mode, sampler, age = config.trainer.v1.trainer_mode, config.trainer.v1.sampler, config.asynchronous.max_staleness
    apart = mode == "separate_async"
    config.actor_rollout_ref.hybrid_engine = not apart
    rollout.nnodes = (rollout.nnodes or 1) if apart else 0
    in_turns = "TurnBuffer" if config.batch_unit == "turns" else "RestingBuffer"
    module, buffer = ("sync_buffer", in_turns) if mode == "sync" else ("game_buffer", "GameBuffer")
    sampler.custom_sampler.path, sampler.custom_sampler.name = f"pkg://recipe.spiral.training.{module}", buffer
    sampler.max_off_policy_threshold = None if age is None else age + 1
    if apart and rollout.checkpoint_engine.backend == "naive":
        rollout.checkpoint_engine.backend = "file" if config.trainer.device == "cpu" else "nccl"
    rollout.checkpoint_engine.custom_backend_module = f"{ENGINE}.receiving" if apart else None


def _on_cpu(config: DictConfig, rollout: Any) -> None:
    """Ray only counts devices. In the engine's own process the first rank of several would wait for the others."""
    ray_init, vllm = config.ray_kwargs.ray_init, rollout.engine_kwargs.vllm
    if ray_init.get("num_gpus") is None:
        own = config.opponent_engine.devices == "own" and not has_adapter(config)
        apart = rollout.n_gpus_per_node * rollout.nnodes + (models_served(config) if own else 0)
        ray_init.num_gpus = config.trainer.n_gpus_per_node + apart
    sizes = ("tensor_model_parallel_size", "pipeline_model_parallel_size")
    if any(rollout.get(size, 1) != 1 for size in sizes):
        vllm.distributed_executor_backend = "mp"
