"""Makes a Hugging Face folder of a checkpoint: ``python -m recipe.spiral.export CHECKPOINT TARGET``.

The shards of all ranks are joined, as ``verl.model_merger`` does. Its merger is not used: it turns every weight into
bfloat16, and it unpickles the shards, which runs whatever code is in them. Here weights keep their type, and nothing
but tensors is read. Neither verl nor a process group is needed, only memory for the weights.
"""

from __future__ import annotations

from pathlib import Path

from .errors import Different, ExportError
from .lora import Adapter
from .model import whole_model
from .shards import read_weights
from .source import Source
from .target import check_target, put
from .writing import copy_texts, write_adapter, write_model

__all__ = ["Different", "ExportError", "export"]


def export(
    checkpoint: Path,
    target: Path,
    step: int | None = None,
    dtype: str | None = None,
    merge: bool = False,
    force: bool = False,
    verify: bool = False,
) -> str:
    """Make the folder ``target``, whole or not at all.

    Returns:
        What was done, in a line.

    Raises:
        BrokenCheckpoint: the checkpoint is not whole; the message names what is missing.
        ExportError: it cannot be exported as asked.
        Different: with ``verify``, if the result is not what the checkpoint holds.
    """
    source = Source.find(checkpoint, step)
    target = target.expanduser().resolve()
    check_target(target, source.folder, force)
    weights = read_weights(source.folder / "actor", source.ranks)
    adapter = Adapter.of(weights, source)
    if merge and adapter is None:
        raise ExportError(f"--merge: {source.folder} holds no LoRA weights; leave it out")

    def build(new: Path) -> str:
        copy_texts(source.huggingface, new)
        if adapter is not None and not merge:
            return write_adapter(new, source, weights, adapter, dtype, verify)
        model = whole_model(source.huggingface, weights) if adapter is None else adapter.merged(source, weights)
        return write_model(new, source, model, dtype, verify)

    what = put(target, build, force)
    return f"exported step {source.step}{', verified' * verify}: {what}: {target}"
