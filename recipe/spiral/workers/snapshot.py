"""The policy as it is now, written for vLLM to load: a Hugging Face folder, or with LoRA an adapter of PEFT's."""

from __future__ import annotations

from pathlib import Path

from huggingface_hub import save_torch_state_dict
from verl.single_controller.base.decorator import Dispatch, register
from verl.utils.torch_dtypes import PrecisionType
from verl.workers.engine_workers import ActorRolloutRefWorker

from ..storage.disk import flush

#: Of a file of weights.
FILE_SIZE = "2GB"
HEAD = "lm_head.weight"


class SnapshotWorker(ActorRolloutRefWorker):
    """verl's worker, which can write the policy's weights."""

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def save_snapshot(self, folder: str) -> None:
        """Write the policy, in the type that the rollout computes in, into a new or an empty folder.

        All weights with a config for full weights and for LoRA that is merged for the rollout (``model.lora.merge``);
        for other LoRA the adapter alone. A tokenizer is not written.

        Args:
            folder: seen by rank 0 and by the engines' machines. The pool's has its name when it is whole.

        Raises:
            OSError: rank 0 could not write.
        """
        engine = self.actor.engine
        layered = self.config.rollout.get("layered_summon", False)
        weights, adapter = engine.get_per_tensor_param(layered_summon=layered, base_sync_done=True)
        config = engine.model_config.hf_config
        tied = bool(getattr(config.get_text_config(), "tie_word_embeddings", False))
        dtype = PrecisionType.to_dtype(self.config.rollout.dtype)
        gathered = {}
        for name, weight in weights:  # every rank takes part in each gather
            if self.rank == 0 and not (tied and name == HEAD):
                gathered[name] = weight.detach().to("cpu", dtype, copy=True)
        if engine.is_param_offload_enabled:
            engine.to("cpu", model=True, optimizer=False, grad=False)
        if self.rank == 0:
            place, stem = Path(folder), "model" if adapter is None else "adapter_model"
            place.mkdir(parents=True, exist_ok=True)
            pattern, size = f"{stem}{{suffix}}.safetensors", FILE_SIZE if adapter is None else "1000GB"
            save_torch_state_dict(gathered, place, filename_pattern=pattern, max_shard_size=size)
            (config if adapter is None else engine.module.peft_config["default"]).save_pretrained(place)
            flush(place)
