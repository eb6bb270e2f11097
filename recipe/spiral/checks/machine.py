"""Checks that this machine has what the config asks for."""

from __future__ import annotations

import importlib.util
import os

from omegaconf import DictConfig

from .errors import ConfigError, require


def _engine(config: DictConfig) -> None:
    if importlib.util.find_spec("vllm") is None:
        raise ConfigError(
            "vLLM is not installed: on a machine with GPUs pip install 'verl-spiral[gpu]', on one without run "
            "run_scripts/setup.sh"
        )


def _accelerators(config: DictConfig) -> None:
    if config.trainer.device != "cuda" or os.environ.get("RAY_ADDRESS") or config.ray_kwargs.ray_init.get("address"):
        return
    import torch

    available, wanted = torch.cuda.device_count(), config.trainer.n_gpus_per_node
    require(
        available > 0,
        f"hardware=gpu: torch {torch.__version__} finds no GPU here; take hardware=cpu, or an environment for GPUs "
        "(run_scripts/setup.sh --gpu), or start this where RAY_ADDRESS names a cluster",
    )
    require(
        available >= wanted,
        f"trainer.n_gpus_per_node={wanted}: this machine has {available}; take trainer.n_gpus_per_node={available}",
    )


PARTS = (_engine, _accelerators)
