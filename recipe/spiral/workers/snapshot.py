"""The policy as it is now, written for vLLM to load: a Hugging Face folder, or with LoRA an adapter of PEFT's.

The ranks gather one weight at a time, and rank 0 writes them in files of a bounded size, so that it never keeps much
more than one file in memory; an adapter, which is small, in one.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator
from pathlib import Path

import torch
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
        gathered, adapter = engine.get_per_tensor_param(layered_summon=layered, base_sync_done=True)
        weights, config = iter(gathered), engine.model_config.hf_config
        tied = bool(getattr(config.get_text_config(), "tie_word_embeddings", False))
        try:
            if self.rank == 0:
                needed = ((name, weight) for name, weight in weights if not (tied and name == HEAD))
                dtype = PrecisionType.to_dtype(self.config.rollout.dtype)
                place = Path(folder)
                place.mkdir(parents=True, exist_ok=True)
                write_weights(needed, place, "model" if adapter is None else "adapter_model", dtype)
                (config if adapter is None else engine.module.peft_config["default"]).save_pretrained(place)
                flush(place)
        finally:
            # Every rank goes through all weights, also when rank 0 cannot write: the others wait for it in each gather.
            for _ in weights:
                pass
            if engine.is_param_offload_enabled:
                engine.to("cpu", model=True, optimizer=False, grad=False)


def write_weights(weights: Iterable[tuple[str, torch.Tensor]], folder: Path, stem: str, dtype: torch.dtype) -> None:
    """Write weights as Hugging Face does: one file of safetensors, or several with an index; an adapter's in one, as
    PEFT and vLLM read no others. ValueError: none."""
    from safetensors.torch import save_file

    files: list[list[str]] = []
    for portion in _portions(weights, dtype, FILE_SIZE if stem == "model" else math.inf):
        save_file(portion, folder / f"part-{len(files)}", metadata={"format": "pt"})
        files.append(list(portion))
    if not files:
        raise ValueError(f"{folder}: the policy has no weights to write")
    count = len(files)
    weight_map: dict[str, str] = {}
    for i, held in enumerate(files):
        name = f"{stem}-{i + 1:05d}-of-{count:05d}.safetensors" if count > 1 else f"{stem}.safetensors"
        (folder / f"part-{i}").rename(folder / name)
        weight_map |= dict.fromkeys(held, name)
    if count > 1:
        index = {"metadata": {}, "weight_map": weight_map}
        (folder / f"{stem}.safetensors.index.json").write_text(json.dumps(index), encoding="utf-8")


def _portions(
    weights: Iterable[tuple[str, torch.Tensor]], dtype: torch.dtype, most: float
) -> Iterator[dict[str, torch.Tensor]]:
    """Weights on the host, as many together as make a file; a portion is emptied before the next."""
    held: dict[str, torch.Tensor] = {}
    size = 0
    for name, weight in weights:
        held[name] = weight.detach().to("cpu", dtype, copy=True).contiguous()
        size += held[name].nbytes
        if size >= most:
            yield held
            held.clear()
            size = 0
    if held:
        yield held
