"""From a checkpoint to a Hugging Face folder.

The shards of all ranks are joined, as by ``verl.model_merger``. That merger is not used, because it turns every weight
into bfloat16 and unpickles the shards, which runs any code in them. Here weights keep their type, and only tensors are
read. The export needs neither verl nor a process group, only memory for the weights.
"""

from __future__ import annotations

from pathlib import Path

from safetensors import SafetensorError

from ..storage.cache import whole_folder
from ..storage.manifest import WEIGHTS
from .lora import Adapter
from .source import ExportError, Source
from .weights import read_weights, whole_model
from .writing import Different, check_target, copy_texts, write_adapter, write_model, write_settings

__all__ = ["Different", "ExportError", "export"]

#: What decides what a model or an adapter answers: its weights, and how they are taken.
_MODEL = (WEIGHTS, "config.json", "adapter_config.json")


def export(
    checkpoint: Path,
    target: Path,
    step: int | None = None,
    dtype: str | None = None,
    merge: bool = False,
    force: bool = False,
    verify: bool = False,
    reference: bool = False,
) -> str:
    """Make the folder ``target``, completely or not at all; returns in a line what was done.

    Args:
        checkpoint: a folder ``global_step_N``, or a run's folder, whose latest checkpoint is taken.
        step: the step of the run's checkpoint to take.
        dtype: one of ``DTYPES``; None: the checkpoint's.
        merge: merge a LoRA adapter into its model.
        force: replace ``target`` if it exists.
        verify: load the result and compare every tensor.
        reference: take the checkpoint's reference policy instead of its policy.

    Raises:
        BrokenCheckpoint: parts of the checkpoint are missing or damaged; the message names them.
        ExportError: it cannot be exported as asked.
        Different: with ``verify``: the result is not what the checkpoint holds.
        OSError: it cannot be written, as on a full disk.
    """
    source = Source.find(checkpoint, step, reference)
    target = target.expanduser().resolve()
    check_target(target, source.folder, force)
    source.check_files()
    weights = read_weights(source)
    adapter = Adapter.of(weights, source)
    if merge and adapter is None:
        raise ExportError(f"--merge: {source.folder} holds no LoRA weights; leave it out")
    try:
        with whole_folder(target, *_MODEL) as new:
            copy_texts(source.huggingface, new)
            write_settings(new, source)
            if adapter is not None and not merge:
                what = write_adapter(new, source, adapter, dtype, verify)
            else:
                model = whole_model(source.huggingface, weights) if adapter is None else adapter.merged(source, weights)
                what = write_model(new, source, model, dtype, verify)
            if target.exists() and not force:
                target.rmdir()  # fails if something was put there meanwhile
    except SafetensorError as error:  # its own, where a disk is full
        raise OSError(f"{target}: {error}") from error
    of = "the reference policy of " * reference
    return f"exported {of}step {source.step}{', verified' * verify}: {what}: {target}"
