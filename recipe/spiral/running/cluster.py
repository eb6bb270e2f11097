"""Which Ray a run uses: the cluster that it is told of, and otherwise one of its own."""

from __future__ import annotations

import os

from omegaconf import DictConfig, open_dict

#: Settings of ``ray.init`` for a Ray of one's own. For a cluster that is there already Ray refuses them.
_OF_ITS_OWN = ("num_cpus", "num_gpus", "object_store_memory")


def cluster_address(config: DictConfig) -> str | None:
    """The cluster to join, by ``ray_kwargs.ray_init.address`` or RAY_ADDRESS; None: a Ray of the run's own."""
    address = config.ray_kwargs.ray_init.get("address") or os.environ.get("RAY_ADDRESS")
    return str(address) if address and address != "local" else None


def choose_ray(config: DictConfig) -> None:
    """Say in ``ray_kwargs.ray_init`` which Ray it is.

    Unless it is told, Ray joins what the last ``ray start`` noted in the temporary folder, dead or alive.
    """
    address, settings = cluster_address(config), config.ray_kwargs.ray_init
    with open_dict(settings):
        settings.address = address or "local"
        if address is not None:
            for name in _OF_ITS_OWN:
                settings.pop(name, None)
