"""verl's FSDP engines on a CPU: the same classes under the device name "cpu".

Imported with the module that they derive from, see ``cpu_patches.register_engines``.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from verl.workers.engine import EngineRegistry
from verl.workers.engine.fsdp.transformer_impl import FSDPEngineWithLMHead, FSDPEngineWithValueHead


class _InPlace:
    """Keeps models where they are: verl offloads a reference model to pinned memory, which exists beside a GPU only."""

    def _build_fsdp_module(self, module: Any) -> Any:
        config = self.engine_config  # type: ignore[has-type]
        self.engine_config = dataclasses.replace(config, forward_only=False, offload_policy=False)
        try:
            return super()._build_fsdp_module(module)  # type: ignore[misc]
        finally:
            self.engine_config = config


@EngineRegistry.register(model_type="language_model", backend="fsdp2", device="cpu")
class CpuEngineWithLMHead(_InPlace, FSDPEngineWithLMHead):
    """Policy and reference."""


@EngineRegistry.register(model_type="value_model", backend="fsdp2", device="cpu")
class CpuEngineWithValueHead(_InPlace, FSDPEngineWithValueHead):
    """Critic."""
