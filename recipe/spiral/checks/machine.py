"""Checks that this machine has what the config asks for."""

from __future__ import annotations

import importlib
import importlib.util
import os
import resource
import socket
import warnings
from pathlib import Path

from omegaconf import DictConfig, OmegaConf

from ..processes.attention import FLASH, PACKED
from ..processes.cluster import cluster_address
from ..storage.disk import unwritable
from .errors import ConfigError, require
from .verls import has_critic

#: The usual limit of a Linux system; Ray warns of less than 4,096.
OPEN_FILES = 1024
_ATTENTION = "actor_rollout_ref.model.override_config.attn_implementation"


def check_folders(config: DictConfig, here: bool = True) -> None:
    """Check that what the run writes can be written."""
    for setting, inside in (("run_dir", ""), ("run_dir", "games"), ("trainer.default_local_dir", "")):
        folder = OmegaConf.select(config, setting)
        require(not (why := unwritable(Path(folder, inside), here)), f"{setting}={folder}: {why}; give another folder")
    require(
        not config.fsp.enabled or "[" not in str(Path(config.run_dir).absolute()),
        f"run_dir={config.run_dir}: vLLM takes [ in a path for a pattern, and finds no past selves; give another",
    )


def _open_files(config: DictConfig) -> None:
    """Check that enough files may be open, by the limit to which Ray raises its processes'. Else they die, one after
    the other, for many minutes."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    require(
        most == resource.RLIM_INFINITY or most >= OPEN_FILES or cluster_address(config) is not None,
        f"ulimit -n: a process may have {most} files open here, and Ray's need {OPEN_FILES}; allow more (ulimit -n)",
    )


def _engine(config: DictConfig) -> None:
    if importlib.util.find_spec("vllm") is None:
        raise ConfigError(
            "vLLM is not installed: run run_scripts/setup.sh, with --gpu on a machine with GPUs; in an environment of "
            "your own on such a machine, pip install vllm==0.24.0"
        )


def _accelerators(config: DictConfig) -> None:
    if config.trainer.device != "cuda" or cluster_address(config) is not None:
        return
    import torch

    available, wanted = torch.cuda.device_count(), config.trainer.n_gpus_per_node
    chosen = os.environ.get("CUDA_VISIBLE_DEVICES")
    only = "" if chosen is None else f" with CUDA_VISIBLE_DEVICES={chosen}"
    require(
        available > 0,
        f"hardware=gpu: torch {torch.__version__} finds no GPU here{only}; take hardware=cpu, or an environment for "
        "GPUs (run_scripts/setup.sh --gpu), or start this where RAY_ADDRESS names a cluster",
    )
    require(
        available >= wanted,
        f"trainer.n_gpus_per_node={wanted}: this machine has {available}{only}; take "
        f"trainer.n_gpus_per_node={available}",
    )
    require(
        wanted == 1 or "MIG-" not in only,
        f"trainer.n_gpus_per_node={wanted}:{only} they are slices of cards (MIG), which NCCL does not connect; take "
        "trainer.n_gpus_per_node=1",
    )
    error = _cuda_error()
    require(
        error is None,
        f"hardware=gpu: torch {torch.__version__} counts {available} GPUs here, and cannot use them: {error}; "
        "run_scripts/gpu_check.sh --stage machine tells more",
    )
    rollout = config.actor_rollout_ref.rollout
    apart = int(rollout.nnodes) * int(rollout.n_gpus_per_node)  # with separate_async, otherwise none
    half = max(available // 2, 1)
    require(
        wanted + apart <= available,
        f"trainer.n_gpus_per_node={wanted}: with trainer.v1.trainer_mode=separate_async the engine needs {apart} more "
        f"(actor_rollout_ref.rollout.nnodes x n_gpus_per_node), and this machine has {available}; take "
        f"trainer.n_gpus_per_node={half} actor_rollout_ref.rollout.n_gpus_per_node={available - half}",
    )


def _cuda_error() -> str | None:
    """Why torch cannot use the GPUs that it counts; None: it can. It counts without CUDA, for which a driver may be too
    old."""
    import torch

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        if torch.cuda.is_available():
            return None
    return next((str(warning.message).split(". ")[0] for warning in reversed(caught)), "CUDA does not say why")


def _attention(config: DictConfig) -> None:
    """Check that the attention which is asked for can be had; without flash-attn some things cannot."""
    if config.trainer.device == "cpu":
        return
    asked = config.actor_rollout_ref.model.override_config.get("attn_implementation", FLASH)
    missing = _without("flash_attn", "flash_attn")
    if asked == FLASH:
        require(missing is None, f"{_ATTENTION}={FLASH}: {missing}; take {PACKED}, or install it (docs/gpu.md)")
        return
    require(
        not has_critic(config) or missing is None,
        f"algorithm.adv_estimator={config.algorithm.adv_estimator}: verl loads a critic with flash-attn, and "
        f"{missing}; take algorithm.adv_estimator=rae, which needs no critic, or install it (docs/gpu.md)",
    )
    for part in ("actor_rollout_ref.actor", "actor_rollout_ref.actor.fsdp_config"):
        ranks = OmegaConf.select(config, f"{part}.ulysses_sequence_parallel_size")
        require(
            ranks in (None, 1),
            f"{part}.ulysses_sequence_parallel_size={ranks}: with {_ATTENTION}={asked} tokens on different GPUs would "
            f"not see each other; take 1, or {FLASH}",
        )


def _weights(config: DictConfig) -> None:
    """Check that the way of new weights to engines on devices of their own can be had."""
    backend = config.actor_rollout_ref.rollout.checkpoint_engine.backend
    # CuPy's first module looks for NCCL and loads without it, too; the second does not
    nccl = "cupy.cuda.nccl", "cupy_backends.cuda.libs.nccl"
    missing = _without("cupy", *nccl) if backend == "nccl" else None
    require(
        missing is None,
        f"actor_rollout_ref.rollout.checkpoint_engine.backend={backend}: verl's needs CuPy, and {missing}: "
        "pip install cupy-cuda13x==14.0.1 (for CUDA 13)",
    )


def _without(package: str, *modules: str) -> str | None:
    """Why modules of a package cannot be had in this environment; None: they can."""
    name = package.replace("_", "-")
    if importlib.util.find_spec(package) is None:
        return f"{name} is not installed"
    try:
        for module in modules:
            importlib.import_module(module)
    except (ImportError, OSError) as error:  # built for another torch or CUDA
        return f"{name} cannot be loaded ({str(error).splitlines()[0]})"
    return None


def _cluster(config: DictConfig) -> None:
    """Check that a run on several machines is told of a Ray cluster, and that somebody is there where it should be."""
    address = cluster_address(config) or ""
    nodes = config.trainer.nnodes
    require(
        nodes == 1 or bool(address),
        f"trainer.nnodes={nodes}: several machines need a Ray cluster: start one, and set RAY_ADDRESS to it "
        "(docs/gpu.md), or take trainer.nnodes=1",
    )
    if not address:
        return
    host, _, port = address.rpartition(":")
    require(
        port.isdecimal() and "://" not in host,
        f"RAY_ADDRESS={address}: must be host:port, as `ray start` prints it; unset it for a Ray of the run's own",
    )
    try:
        with socket.create_connection((host.strip("[]"), int(port)), timeout=10) as there:
            there.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0")  # gRPC's hello, which a server returns
            if not os.environ.get("RAY_USE_TLS") and there.recv(9)[3:4] != b"\4":
                raise ConnectionError("what listens there is not Ray's")
    except (OSError, OverflowError) as error:
        raise ConfigError(
            f"RAY_ADDRESS={address}: no Ray cluster answers there ({error}); start one (docs/gpu.md), or unset it "
            "for a Ray of the run's own"
        ) from error


PARTS = (check_folders, _open_files, _engine, _accelerators, _weights, _attention, _cluster)
