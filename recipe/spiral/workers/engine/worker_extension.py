"""verl's extension of vLLM's workers, which also makes vLLM look up the adapters' slots again after an exchange."""

from __future__ import annotations

from typing import Any

from verl.workers.rollout.vllm_rollout.utils import vLLMColocateWorkerExtension


class WorkerExtension(vLLMColocateWorkerExtension):
    """vLLM remembers in which slots a batch's adapters are, by their ids.

    Before 0.25 it does not notice when an adapter of the same id comes to lie in another slot, as the policy's may with
    each sync, and answers by what lies in the old one (vllm-project/vllm#47725).
    """

    model_runner: Any

    def update_weights_from_ipc(self, *args: Any, **kwargs: Any) -> None:
        super().update_weights_from_ipc(*args, **kwargs)
        self.look_for_adapters()

    def look_for_adapters(self) -> None:
        """Have the next batch look up its adapters' slots again."""
        manager = getattr(self.model_runner, "lora_manager", None)
        if manager is not None:
            manager._adapter_manager._last_mapping = None
