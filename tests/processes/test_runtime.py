"""What follows from ``runtime``, and which processes play games."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from hydra.utils import get_class
from omegaconf import OmegaConf

from recipe.spiral.checks import ConfigError, check
from recipe.spiral.processes.runtime import RUNTIME, in_a_copy, is_fast, rollout_processes
from tests.made_configs import config

ROLLOUT = "actor_rollout_ref.rollout"
WORKERS = f"{ROLLOUT}.agent.num_workers"


def devices_of(own: int = 0, devices: int = 8, of_their_own: int = 0, ranks: int = 1) -> Any:
    rollout = {
        "agent": {"num_workers": own},
        "tensor_model_parallel_size": ranks,
        "data_parallel_size": 1,
        "pipeline_model_parallel_size": 1,
        "nnodes": int(of_their_own > 0),
        "n_gpus_per_node": of_their_own,
    }
    return OmegaConf.create(
        {"actor_rollout_ref": {"rollout": rollout}, "trainer": {"n_gpus_per_node": devices, "nnodes": 2}}
    )


@pytest.mark.parametrize(
    ("settings", "expected"),
    [({}, 16), ({"ranks": 4}, 4), ({"of_their_own": 6, "ranks": 2}, 3), ({"own": 5}, 5), ({"own": 5, "ranks": 4}, 5)],
)
def test_it_is_so_many_processes(settings: dict[str, Any], expected: int) -> None:
    assert rollout_processes(devices_of(**settings)) == expected


@pytest.mark.parametrize(
    ("runtime", "hardware", "manager", "storage", "workers", "copy"),
    [
        ("fast", "cpu", "RolloutManager", "PackedStorage", 0, True),
        ("fast", "gpu", "RolloutManager", "PackedStorage", 0, True),
        ("stock", "cpu", "GameManager", "SimpleStorage", 1, False),
        ("stock", "gpu", "GameManager", "SimpleStorage", 8, False),
    ],
)
def test_a_path_has_its_parts(
    tmp_path: Path, runtime: str, hardware: str, manager: str, storage: str, workers: int, copy: bool
) -> None:
    made = config(tmp_path, f"runtime={runtime}", hardware=hardware)
    agent = made.actor_rollout_ref.rollout.agent
    assert get_class(agent.agent_loop_manager_class).__name__ == manager
    assert (made.transfer_queue.backend.storage_backend, agent.num_workers) == (storage, workers)
    router = made.actor_rollout_ref.rollout.router_config_path
    assert router is None if runtime == "stock" else Path(router).is_file()
    assert in_a_copy(made) == copy
    assert (is_fast(), os.environ[RUNTIME]) == (runtime == "fast", runtime), "this process and its children know"


@pytest.mark.parametrize("runtime", ["fast", "stock"])
def test_more_processes_may_play(tmp_path: Path, runtime: str) -> None:
    made = config(tmp_path, f"runtime={runtime}", f"{WORKERS}=2")
    check(made)
    assert rollout_processes(made) == 2


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (["runtime=slow"], r"^runtime=slow: must be fast or stock$"),
        ([f"{ROLLOUT}.router_config_path=mine.yaml"], r"router_config_path=mine\.yaml: .* take runtime=stock$"),
        (["runtime=stock", f"{WORKERS}=0"], r"num_workers=0: with runtime=stock take 1 or more$"),
        ([f"{WORKERS}=-1"], r"num_workers=-1: must be "),
    ],
)
def test_what_does_not_go_with_it_is_refused(tmp_path: Path, settings: list[str], message: str) -> None:
    with pytest.raises((ConfigError, ValueError), match=message):
        check(config(tmp_path, *settings))


def test_a_router_of_the_users_is_verls_path(tmp_path: Path) -> None:
    made = config(tmp_path, "runtime=stock", f"{ROLLOUT}.router_config_path=mine.yaml")
    assert made.actor_rollout_ref.rollout.router_config_path == "mine.yaml"
