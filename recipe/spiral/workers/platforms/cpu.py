"""A CPU as one of verl's platforms, so that the same trainer, workers and engine run on a machine without a GPU.

verl imports this module in each of its processes, because the ``cpu`` hardware config names it in
``VERL_USE_EXTERNAL_MODULES``. Collectives go through gloo, the Ray resource "GPU" is a logical slot for a rank, and
weights travel to vLLM through shared memory. Patches of other packages are in ``cpu_patches``.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

import psutil
import torch
from verl.plugin.platform import PlatformBase, PlatformRegistry

from . import cpu_patches


class _DeviceIndex(str):
    """verl uses the device x in ``tensor.to(x)`` and in ``f"cpu:{x}"``: it must be "cpu" in the one, 0 in the other."""

    def __format__(self, spec: str) -> str:
        return "0"


class _DeviceModule(ModuleType):
    """``torch.cpu`` with the functions of ``torch.cuda`` that verl calls; figures of device memory are zero."""

    def __init__(self) -> None:
        super().__init__("torch.cpu")

    def __getattr__(self, name: str) -> Any:
        return getattr(torch.cpu, name)

    def __eq__(self, other: object) -> bool:
        return other is torch.cpu or other is self

    def __hash__(self) -> int:
        return hash(torch.cpu)

    def _nothing(self, *args: Any, **kwargs: Any) -> None:
        return None

    def _zero(self, *args: Any, **kwargs: Any) -> int:
        return 0

    empty_cache = ipc_collect = synchronize = set_device = reset_peak_memory_stats = _nothing
    memory_allocated = memory_reserved = max_memory_allocated = max_memory_reserved = _zero

    def is_available(self) -> bool:
        return True

    def current_device(self) -> str:
        return _DeviceIndex("cpu")

    def mem_get_info(self, device: Any = None) -> tuple[int, int]:
        memory = psutil.virtual_memory()
        return memory.available, memory.total

    def get_device_name(self, device: Any = None) -> str:
        return "CPU"

    def manual_seed(self, seed: int) -> None:
        torch.manual_seed(seed)

    manual_seed_all = manual_seed

    def get_rng_state(self, device: Any = None) -> torch.Tensor:
        return torch.get_rng_state()

    def set_rng_state(self, state: torch.Tensor, device: Any = None) -> None:
        torch.set_rng_state(state)


@PlatformRegistry.register(platform="cpu")
class PlatformCPU(PlatformBase):
    """verl's platform interface on a CPU; chosen by ``VERL_PLATFORM=cpu`` only."""

    _device_module = _DeviceModule()

    @property
    def device_name(self) -> str:
        return "cpu"

    @property
    def vendor_name(self) -> str:
        return "cpu"

    @property
    def device_module(self) -> ModuleType:
        return self._device_module

    def is_available(self) -> bool:
        return True

    def is_platform_available(self, use_smi_check: bool = False) -> bool:
        return False  # never chosen by itself: a machine with a GPU must not become one with a CPU

    def current_device(self) -> Any:
        return self._device_module.current_device()

    def device_count(self) -> int:
        return 1

    def set_device(self, device_index: int) -> None:
        return None

    def synchronize(self, device_index: int | None = None) -> None:
        return None

    def manual_seed(self, seed: int) -> None:
        torch.manual_seed(seed)

    def manual_seed_all(self, seed: int) -> None:
        torch.manual_seed(seed)

    def set_allocator_settings(self, settings: str) -> None:
        return None

    def empty_cache(self) -> None:
        return None

    def get_device_capability(self, device_index: int = 0) -> tuple[int | None, int | None]:
        return None, None

    def communication_backend_name(self) -> str:
        return "gloo"

    def visible_devices_envvar(self) -> str:
        return "CUDA_VISIBLE_DEVICES"

    @contextmanager
    def nvtx_range(self, msg: str) -> Iterator[None]:
        yield

    def profiler_start(self) -> None:
        return None

    def profiler_stop(self) -> None:
        return None

    def ray_resource_name(self) -> str:
        return "GPU"

    def ray_noset_envvars(self) -> list[str]:
        return ["RAY_EXPERIMENTAL_NOSET_CUDA_VISIBLE_DEVICES"]

    def is_ipc_supported(self) -> bool:
        return False

    def cudart(self) -> None:
        return None


if os.environ.get("VERL_PLATFORM") == "cpu":
    cpu_patches.apply()
