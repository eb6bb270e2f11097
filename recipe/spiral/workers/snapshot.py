"""The policy as it is now, written for vLLM to load: a Hugging Face folder, or with LoRA an adapter of PEFT's.

The ranks gather one weight at a time, and rank 0 writes them in files of a bounded size, so that it never keeps much
more than one file in memory. A folder gets its name when it is whole.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import torch
from torch.distributed.tensor import DTensor
from verl.single_controller.base.decorator import Dispatch, register
from verl.utils.torch_dtypes import PrecisionType
from verl.workers.engine_workers import ActorRolloutRefWorker

from ..storage.disk import flush

#: Bytes of weights in memory at which a file is written.
FILE_SIZE = 2 * 1024**3
HEAD = "lm_head.weight"


class SnapshotWorker(ActorRolloutRefWorker):
    """verl's worker, which can write the policy's weights."""

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def save_snapshot(self, folder: str) -> None:
        """Write the policy, in the type that the rollout computes in; a folder of that name is replaced.

        All weights with a config for full weights and for LoRA that is merged for the rollout (``model.lora.merge``);
        for other LoRA the adapter alone. A tokenizer is not written.

        Args:
            folder: seen by rank 0 and by the engines' machines.

        Raises:
            OSError: rank 0 could not write; no folder of that name is left half written.
        """
        engine = self.actor.engine
        layered = self.config.rollout.get("layered_summon", False)
        weights, adapter = engine.get_per_tensor_param(layered_summon=layered, base_sync_done=True)
        writer = _Writer(Path(folder), PrecisionType.to_dtype(self.config.rollout.dtype)) if self.rank == 0 else None
        config = engine.model_config.hf_config
        tied = bool(getattr(config.get_text_config(), "tie_word_embeddings", False))
        try:
            # Every rank goes through all weights, also when rank 0 cannot write: the others wait for it in each gather.
            for name, weight in weights:
                if writer is not None and not (tied and name == HEAD):
                    writer.add(name, weight)
        finally:
            if engine.is_param_offload_enabled:
                engine.to("cpu", model=True, optimizer=False, grad=False)
        if writer is None:
            return
        if adapter is None:
            writer.finish("model", config)
        else:
            writer.finish("adapter_model", engine.module.peft_config["default"])

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def snapshot_size(self) -> int:
        """Bytes that the weights of a snapshot take at most, known without writing one.

        With LoRA that is not merged, the trained weights are written; otherwise all of them (where LoRA is merged, its
        own weights are counted and not written).
        """
        engine = self.actor.engine
        apart = engine.model_config.lora_rank > 0 and not engine.model_config.lora.get("merge", False)
        weights = [weight for weight in engine.module.parameters() if weight.requires_grad or not apart]
        # FSDP shows a rank its shard, and shards have one size; FSDP2 shows the whole.
        shards = engine.device_mesh.size(-1)
        count = sum(weight.numel() * (1 if isinstance(weight, DTensor) else shards) for weight in weights)
        return count * PrecisionType.to_dtype(self.config.rollout.dtype).itemsize


class _Writer:
    """Writes weights into files of safetensors beside ``folder``, and puts them in its place when all are there."""

    def __init__(self, folder: Path, dtype: torch.dtype) -> None:
        self._folder = folder
        self._unfinished = folder.with_name(f"{folder.name}.unfinished")
        self._dtype = dtype
        self._held: dict[str, torch.Tensor] = {}
        self._bytes = 0
        self._files: list[list[str]] = []
        self._failed: Exception | None = None
        self._trying(self._begin)

    def add(self, name: str, weight: torch.Tensor) -> None:
        """Take a weight, and write a file when there is enough; an error is kept for ``finish``."""
        if self._failed is not None:
            return
        copied = weight.detach().to("cpu", self._dtype, copy=True).contiguous()
        self._held[name] = copied
        self._bytes += copied.numel() * copied.element_size()
        if self._bytes >= FILE_SIZE:
            self._trying(self._write)

    def finish(self, stem: str, config: Any) -> None:
        """Write the rest and the config, and give the folder its name.

        Raises:
            Exception: what went wrong first, here or before.
        """
        if self._held:
            self._trying(self._write)
        self._trying(lambda: self._publish(stem, config))
        if self._failed is not None:
            shutil.rmtree(self._unfinished, ignore_errors=True)
            raise self._failed

    def _trying(self, action: Any) -> None:
        if self._failed is None:
            try:
                action()
            except Exception as error:
                self._failed, self._held = error, {}

    def _begin(self) -> None:
        shutil.rmtree(self._unfinished, ignore_errors=True)
        self._unfinished.mkdir(parents=True)

    def _write(self) -> None:
        from safetensors.torch import save_file

        save_file(self._held, self._unfinished / f"part-{len(self._files)}", metadata={"format": "pt"})
        self._files.append(list(self._held))
        self._held, self._bytes = {}, 0

    def _publish(self, stem: str, config: Any) -> None:
        if not self._files:
            raise ValueError(f"{self._folder}: the policy has no weights to write")
        config.save_pretrained(self._unfinished)
        names = file_names(stem, len(self._files))
        for i, name in enumerate(names):
            (self._unfinished / f"part-{i}").rename(self._unfinished / name)
        if len(names) > 1:
            weight_map = {weight: name for name, held in zip(names, self._files, strict=True) for weight in held}
            index = {"metadata": {}, "weight_map": weight_map}
            (self._unfinished / f"{stem}.safetensors.index.json").write_text(json.dumps(index), encoding="utf-8")
        flush(self._unfinished)
        if self._folder.exists():
            shutil.rmtree(self._folder)
        self._unfinished.rename(self._folder)


def file_names(stem: str, count: int) -> list[str]:
    """Hugging Face's names of the files of a model in so many parts."""
    if count == 1:
        return [f"{stem}.safetensors"]
    return [f"{stem}-{i + 1:05d}-of-{count:05d}.safetensors" for i in range(count)]
