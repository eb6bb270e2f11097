"""Devices for engines apart from the policy's: an actor reserves each of them, and does nothing else."""

from __future__ import annotations

from typing import Any

import ray
from ray.util.placement_group import placement_group, remove_placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy
from verl.utils.device import get_resource_name

#: Seconds in which the cluster must have them.
LIMIT = 120.0


class DeviceHolder:
    """Has one device, so that Ray gives it to nobody else, and verl can ask where it is."""


def own_devices(engines: int, ranks: int) -> list[list[Any]]:
    """Devices for some engines, as actors by engine; those of one engine lie on one node.

    They are given back when the run ends.

    Args:
        engines: how many.
        ranks: devices of each.

    Raises:
        RuntimeError: the cluster has not so many that are free.
    """
    resource = get_resource_name()
    groups = [placement_group([{resource: 1, "CPU": 1}] * ranks, strategy="STRICT_PACK") for _ in range(engines)]
    try:
        ray.get([group.ready() for group in groups], timeout=LIMIT)
    except ray.exceptions.GetTimeoutError as error:
        for group in groups:
            remove_placement_group(group)
        raise RuntimeError(
            f"opponent_engine.devices=own: the cluster has no {engines} times {ranks} free devices besides the "
            "policy's; take opponent_engine.devices=shared, or give it more"
        ) from error
    device = {"num_gpus": 1} if resource == "GPU" else {"resources": {resource: 1}}
    return [
        [
            ray.remote(DeviceHolder)
            .options(
                num_cpus=0,
                **device,
                scheduling_strategy=PlacementGroupSchedulingStrategy(group, placement_group_bundle_index=rank),
            )
            .remote()
            for rank in range(ranks)
        ]
        for group in groups
    ]
