"""A CPU as one of verl's platforms, so that the same trainer, workers and engine run on a machine without a GPU.

verl imports this module in each of its processes, because the ``cpu`` hardware config names it in
``VERL_USE_EXTERNAL_MODULES``. Collectives go through gloo, the Ray resource "GPU" is a logical slot for a rank, and
weights travel to vLLM through shared memory. Patches of other packages are in ``cpu_patches``.
"""

from __future__ import annotations

import ctypes
import os
from contextlib import nullcontext
from types import ModuleType
from typing import Any

import torch
from verl.plugin.platform import PlatformBase, PlatformRegistry

from . import cpu_patches

#: Of glibc.
_TRIM = getattr(ctypes.CDLL(None), "malloc_trim", lambda pad: 0)


class _DeviceIndex(str):
    """verl uses a device as ``tensor.to(x)`` and as ``f"cpu:{x}"``: it must be "cpu" in the first, 0 in the second."""

    def __format__(self, spec: str) -> str:
        return "0"


def _always(value: Any) -> Any:
    """A method with this result, whatever its arguments."""
    return lambda self, *args, **kwargs: value


class _DeviceModule(ModuleType):
    """``torch.cpu`` with the functions of ``torch.cuda`` that verl calls; figures of device memory are zero."""

    ipc_collect = reset_peak_memory_stats = _always(None)
    memory_allocated = memory_reserved = max_memory_allocated = max_memory_reserved = _always(0)
    mem_get_info = _always((0, 0))
    current_device = _always(_DeviceIndex("cpu"))
    get_device_name = _always("CPU")
    manual_seed = manual_seed_all = staticmethod(torch.manual_seed)
    get_rng_state = staticmethod(torch.get_rng_state)
    set_rng_state = staticmethod(torch.set_rng_state)

    def __getattr__(self, name: str) -> Any:
        return getattr(torch.cpu, name)

    def empty_cache(self) -> None:
        """Give freed memory back to the system. glibc's allocator keeps it, in pieces that fit less and less: a worker
        of the tiny model grew by 3 GB in 150 steps. verl calls this in each step, before the engine's new weights."""
        _TRIM(0)


@PlatformRegistry.register(platform="cpu")
class PlatformCPU(PlatformBase):
    """verl's platform interface on a CPU; chosen by ``VERL_PLATFORM=cpu`` only."""

    device_name = vendor_name = "cpu"
    device_module = _DeviceModule("torch.cpu")
    is_available = _always(True)
    is_platform_available = _always(False)  # a machine with a GPU must not become one with a CPU by itself
    current_device = _always(_DeviceIndex("cpu"))
    device_count = _always(1)
    set_device = synchronize = empty_cache = set_allocator_settings = _always(None)
    manual_seed = manual_seed_all = staticmethod(torch.manual_seed)
    get_device_capability = _always((None, None))
    communication_backend_name = _always("gloo")
    visible_devices_envvar = _always("CUDA_VISIBLE_DEVICES")
    ray_resource_name = _always("GPU")
    ray_noset_envvars = _always(["RAY_EXPERIMENTAL_NOSET_CUDA_VISIBLE_DEVICES"])
    is_ipc_supported = _always(False)
    nvtx_range = _always(nullcontext())
    profiler_start = profiler_stop = cudart = _always(None)

    def rollout_env_vars(self) -> dict[str, str]:
        """Of engines and their servers, which have the threads that ``SPIRAL_ENGINE_THREADS`` says, if it is set."""
        threads = os.environ.get("SPIRAL_ENGINE_THREADS")
        return {"OMP_NUM_THREADS": threads} if threads else {}


if os.environ.get("VERL_PLATFORM") == "cpu":
    cpu_patches.apply()
