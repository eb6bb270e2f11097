"""Which processes play games follows from the config, in one place for all who count on it."""

from __future__ import annotations

from typing import Any

import pytest
from omegaconf import OmegaConf

from recipe.spiral.processes.runtime import MANAGER, NO_ROUTER, rollout_processes, servers_play


def config(own: int = 0, devices: int = 8, of_their_own: int = 0, ranks: int = 1, **settings: Any) -> Any:
    rollout = {
        "agent": {"num_workers": own, "agent_loop_manager_class": settings.get("manager", MANAGER)},
        "tensor_model_parallel_size": ranks,
        "data_parallel_size": 1,
        "pipeline_model_parallel_size": 1,
        "nnodes": int(of_their_own > 0),
        "n_gpus_per_node": of_their_own,
        "router_config_path": settings.get("router", str(NO_ROUTER)),
    }
    made = {"actor_rollout_ref": {"rollout": rollout}, "trainer": {"n_gpus_per_node": devices, "nnodes": 2}}
    return OmegaConf.create({**made, "batch_requests": settings.get("batch_requests", True)})


@pytest.mark.parametrize(
    ("settings", "expected"),
    [({}, 16), ({"ranks": 4}, 4), ({"of_their_own": 6, "ranks": 2}, 3), ({"own": 5}, 5), ({"own": 5, "ranks": 4}, 5)],
)
def test_it_is_so_many_processes(settings: dict[str, Any], expected: int) -> None:
    assert rollout_processes(config(**settings)) == expected


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, True),
        ({"router": None}, True),
        ({"router": "mine.yaml"}, False),
        ({"batch_requests": False}, False),
        ({"manager": None}, False),
        ({"manager": "mine.Manager"}, False),
    ],
)
def test_servers_play_where_requests_go_to_them(settings: dict[str, Any], expected: bool) -> None:
    assert servers_play(config(**settings)) is expected


def test_the_router_that_starts_nothing_is_there() -> None:
    assert NO_ROUTER.is_file()
