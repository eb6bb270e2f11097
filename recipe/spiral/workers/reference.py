"""A reference policy that follows the actor: every ``ref_update_freq`` steps its weights become a copy of the actor's,
or go a part of the way there (``ref_update_rate``), which makes them the exponential mean of the actor's.

verl's reference always stays the initial model, and its workers have no method to change that; this subclass has. Each
rank moves, saves and loads its own shards of FSDP2; no rank has the full weights.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch.distributed.tensor import DTensor
from verl.single_controller.base.decorator import Dispatch, make_nd_compute_dataproto_dispatch_fn, register
from verl.utils import tensordict_utils as tu
from verl.utils.device import get_torch_device
from verl.workers.engine_workers import ActorRolloutRefWorker

from ..storage.checkpoints import shard_file

Shards = Mapping[str, torch.Tensor]


class ReferenceWorker(ActorRolloutRefWorker):
    """verl's worker, with a reference policy that can be updated, saved and loaded.

    With LoRA, verl keeps no reference model: it switches the actor's adapter off. Here the adapter holds a frozen copy
    instead while the reference's log-probabilities are computed; before the first update it is off, as in verl.
    """

    #: With LoRA: this rank's shards of the reference's adapter, on the host and in float32, in which a mean moves by
    #: small parts; None: the reference is the base model.
    _adapter: Shards | None = None

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def update_reference(self, rate: float = 1.0) -> None:
        """Reference <- (1 - rate) * reference + rate * actor, weight by weight: with 1 what the actor is now.

        With LoRA these are the weights of A and of B, each by itself. The base model, the first reference, is any A
        with a B of zeros: with the actor's A, the first mean is that of the products as well.
        """
        actor = local_shards(self.actor.engine.module)
        if self.ref is not None:
            copy_shards(actor, local_shards(self.ref.engine.module), rate)
            return
        if self._adapter is None:
            lora = {name: shard.to("cpu", torch.float32, copy=True) for name, shard in actor.items() if "lora_" in name}
            self._adapter = {name: shard.zero_() if "_B." in name else shard for name, shard in lora.items()}
        copy_shards(actor, self._adapter, rate)

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def save_reference(self, folder: str) -> None:
        """Write this rank's shards, one file a rank; an empty one where the reference is the base model of LoRA."""
        shards = (self._adapter or {}) if self.ref is None else local_shards(self.ref.engine.module)
        Path(folder).mkdir(parents=True, exist_ok=True)
        torch.save(dict(shards), shard_file(Path(folder), self.world_size, self.rank))

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def load_reference(self, folder: str) -> None:
        """Read what ``save_reference`` wrote, with the same number of ranks; ValueError: another model's shards."""
        file = shard_file(Path(folder), self.world_size, self.rank)
        saved = torch.load(file, map_location="cpu", weights_only=True)
        if self.ref is None:
            self._adapter = {name: shard.float() for name, shard in saved.items()} or None
        else:
            copy_shards(saved, local_shards(self.ref.engine.module))

    @contextmanager
    def reference_engine(self) -> Iterator[Any]:
        """verl's engine whose model, within this context, is the reference."""
        if self.ref is not None:
            yield self.ref.engine
            return
        engine = self.actor.engine
        with engine.disable_adapter() if self._adapter is None else exchanged(self._adapter, engine.module):
            yield engine

    @register(dispatch_mode=make_nd_compute_dataproto_dispatch_fn(mesh_name="actor"))
    def compute_log_prob(self, data: Any) -> Any:
        """verl asks here for the reference's log-probabilities too, with LoRA, and says so by ``no_lora_adapter``."""
        if self._adapter is None or not tu.pop(data, key="no_lora_adapter", default=False):
            return super().compute_log_prob(data)
        with exchanged(self._adapter, self.actor.engine.module):
            return super().compute_log_prob(data)


def local_shards(module: torch.nn.Module) -> dict[str, torch.Tensor]:
    """This rank's part of each parameter and persistent buffer, by name: no copies, writing to them changes the module.

    Call it again whenever the module has run or has moved. Each call frees what FSDP has gathered for a forward pass
    and still keeps, which would hide a change of the shards.
    """
    # a model that is on its way to the host must have arrived there
    get_torch_device().synchronize()
    with torch.no_grad():
        tensors = module.state_dict().items()
        return {name: tensor.to_local() if isinstance(tensor, DTensor) else tensor for name, tensor in tensors}


def copy_shards(source: Shards, target: Shards, rate: float = 1.0) -> None:
    """Copy into all of ``target``, in place, across devices and dtypes; ``source`` may have more (MTP's layers).

    With a ``rate`` below 1 floating-point shards only go that part of the way. It is computed one shard at a time, on
    the source's device, in the target's dtype.

    Raises:
        ValueError: a shard is missing in ``source``, or is of another shape.
    """
    for name, shard in target.items():
        if name not in source or source[name].shape != shard.shape:
            given = tuple(source[name].shape) if name in source else "missing"
            raise ValueError(f"reference policy: the shard {name} is {given} where {tuple(shard.shape)} is needed")
    written: set[int] = set()
    with torch.no_grad():
        for name, shard in target.items():
            # tied weights have two names; a mean would move twice (empty shards, which share an address, never move)
            if shard.data_ptr() in written:
                continue
            written.add(shard.data_ptr())
            new = source[name]
            if rate < 1 and shard.is_floating_point():
                new = torch.lerp(shard.to(new.device), new.to(shard.dtype), rate)
            shard.copy_(new)


@contextmanager
def exchanged(weights: Shards, module: torch.nn.Module) -> Iterator[None]:
    """Within this context the module's shards of these names are ``weights``; afterwards they are its own again, to
    the bit. ValueError: the module has no such shards."""
    own = _named(module, weights)
    kept = {name: shard.clone() for name, shard in own.items()}
    copy_shards(weights, own)
    try:
        yield
    finally:
        copy_shards(kept, _named(module, weights))


def _named(module: torch.nn.Module, names: Shards) -> dict[str, torch.Tensor]:
    shards = local_shards(module)
    if missing := names.keys() - shards.keys():
        raise ValueError(f"reference policy: the actor has no weights {', '.join(sorted(missing)[:3])}")
    return {name: shards[name] for name in names}
