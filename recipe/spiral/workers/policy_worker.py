"""The workers of policy and critic, with all that the recipe adds to verl's."""

from __future__ import annotations

import gc
from collections.abc import Callable, MutableMapping
from pathlib import Path
from typing import Any

import ray
from huggingface_hub import save_torch_state_dict
from verl.experimental.separation.engine_workers import DetachActorWorker
from verl.single_controller.base.decorator import Dispatch, register
from verl.trainer.ppo.utils import Role
from verl.utils.torch_dtypes import PrecisionType

from ..rollouts import packed_storage  # noqa: F401  (registers it)
from ..storage.disk import flush
from . import packed_attention, rendezvous  # noqa: F401  (registers it; ranks meet on one address)
from .mini_batch_worker import MiniBatchWorker
from .reference import ReferenceWorker

#: Of a snapshot's file of weights.
FILE_SIZE = "2GB"
HEAD = "lm_head.weight"


class PolicyWorker(ReferenceWorker, DetachActorWorker):
    """A reference policy that can be updated, snapshots of the policy, and what extensions ask of it.

    Weights can be kept on the host and brought back, which ``separate_async`` needs.
    """

    actor_worker_cls = ref_worker_cls = MiniBatchWorker

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        gc.freeze()  # a collection of all that was imported would stop a step for half a second

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def skip_update(self) -> float:
        """As of a ``MiniBatchWorker``."""
        return float(self.actor.skip_update())

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def on_each_rank(self, function: Callable[..., Any], *args: Any) -> Any:
        """Call ``function(worker, *args)`` on each rank; what extensions measure of the policy where it is."""
        return function(self, *args)

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


def use_our_workers(classes: MutableMapping[Role, Any]) -> None:
    """Put our classes in the place of verl's, in the trainer's mapping of roles to Ray actor classes."""
    for role in classes.keys() & {Role.ActorRolloutRef, Role.ActorRollout, Role.Actor, Role.RefPolicy}:
        classes[role] = ray.remote(PolicyWorker)
    if Role.Critic in classes:
        classes[Role.Critic] = ray.remote(MiniBatchWorker)
