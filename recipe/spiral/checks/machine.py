"""Checks that this machine has what the config asks for."""

from __future__ import annotations

import importlib.util
import socket

from omegaconf import DictConfig

from ..running.cluster import cluster_address
from ..training import traces
from .errors import ConfigError, require


def _engine(config: DictConfig) -> None:
    if importlib.util.find_spec("vllm") is None:
        raise ConfigError(
            "vLLM is not installed: on a machine with GPUs pip install 'verl-spiral[gpu]', on one without run "
            "run_scripts/setup.sh"
        )


def _accelerators(config: DictConfig) -> None:
    if config.trainer.device != "cuda" or cluster_address(config) is not None:
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


def _cluster(config: DictConfig) -> None:
    """Check that somebody is there where a Ray cluster should be."""
    address = cluster_address(config) or ""
    host, _, port = address.rpartition(":")
    if not port.isdecimal() or "://" in address:  # auto, or a proxy's
        return
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=10).close()
    except OSError as error:
        raise ConfigError(
            f"RAY_ADDRESS={address}: no Ray cluster answers there ({error}); start one (docs/cluster.md), or unset it "
            "for a Ray of the run's own"
        ) from error


def _weave(config: DictConfig) -> None:
    traces.check(config.trainer.weave)


PARTS = (_engine, _accelerators, _cluster, _weave)
