"""The trainer's side of the slots: their settings, their devices, and which model is in which."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest
from omegaconf import DictConfig, OmegaConf

from recipe.spiral.workers.engine import opponent_engines
from recipe.spiral.workers.engine.opponent_engines import SlotEngine, model_config, rollout_config


@pytest.fixture(autouse=True)
def no_ray(monkeypatch: pytest.MonkeyPatch) -> None:
    """A call's reference is the call itself."""
    ray = SimpleNamespace(get=lambda calls: [call() for call in calls], available_resources=lambda: {"GPU": 2.0})
    monkeypatch.setattr(opponent_engines, "ray", ray)


class Server:
    """A server behind Ray, on a GPU: methods by name, called when their references are asked for."""

    def __init__(self) -> None:
        self.model: str | None = None
        self.called: list[str] = []

    def __getattr__(self, name: str) -> Any:
        def remote(*args: Any, **kwargs: Any) -> Callable[[], Any]:
            self.called.append(" ".join([name, *map(str, args), *kwargs]))
            does = getattr(type(self), f"_{name}", lambda *args: None)
            return lambda: does(self, *args)

        return SimpleNamespace(remote=remote)

    def _load(self, name: str, path: str) -> None:
        self.model = name

    def _loaded(self) -> str | None:
        return self.model

    def _sleep(self) -> None:
        self.model = None


def engine(count: int, models: int, overlapping: bool = False) -> tuple[SlotEngine, list[Server]]:
    servers = [Server() for _ in range(count)]
    return SlotEngine([SimpleNamespace(servers=[server]) for server in servers], models, overlapping), servers


def paths(*names: str) -> dict[str, Path]:
    return {name: Path(f"/{name}") for name in names}


def test_a_model_keeps_its_place_and_is_loaded_again_after_a_sleep() -> None:
    served, servers = engine(5, 2)
    assert served.load(paths("a", "b")) == {"a": (0, 2, 4), "b": (1, 3)}
    assert [server.model for server in servers] == ["a", "b", "a", "b", "a"]
    served.load(paths("b", "a"))
    assert [server.called.count("load a /a") + server.called.count("load b /b") for server in servers] == [1] * 5
    served.sleep()
    assert served.load(paths("c", "b")) == {"b": (1, 3), "c": (0, 2, 4)}
    assert [server.model for server in servers] == ["c", "b", "c", "b", "c"]
    assert not any("abort_all_requests" in call for server in servers for call in server.called)


def test_where_games_go_on_answers_are_broken_off_until_the_models_are_loaded_again() -> None:
    served, (server,) = engine(1, 1, overlapping=True)
    served.load(paths("a"))
    served.sleep()
    served.load(paths("a"))
    again = ["wake_up", "loaded", "load a /a", "resume_generation"]
    assert server.called == [*again[:3], "abort_all_requests reject_request", "sleep", *again]


class Replica:
    """A replica that notes on what it starts, and starts on no device where another does."""

    made: ClassVar[list[Replica]] = []
    busy: ClassVar[set[str]] = set()

    def __init__(self, **settings: Any) -> None:
        self.servers = [Server()]
        Replica.made.append(self)

    async def launch_on(self, workers: list[str]) -> None:
        self.devices = workers
        assert not set(workers) & Replica.busy, "vLLM measures the memory of its device"
        Replica.busy |= set(workers)
        await asyncio.sleep(0.01)
        Replica.busy -= set(workers)

    async def init_standalone(self) -> None:
        self.devices = ["own"]


def config(ranks: int = 1, devices: str = "shared") -> DictConfig:
    rollout = {
        "dtype": "float32",
        "load_format": "dummy",
        "gpu_memory_utilization": 0.6,
        "n_gpus_per_node": 8,
        "tensor_model_parallel_size": ranks,
        "data_parallel_size": 1,
        "pipeline_model_parallel_size": 1,
        "prometheus": {"enable": True, "port": 1},
        "engine_kwargs": {"vllm": {"kv_cache_memory_bytes": 100}},
    }
    model = {"path": "/m", "lora_rank": 8, "lora_adapter_path": "/l", "lora": {"rank": 8, "merge": True}}
    return OmegaConf.create(
        {
            "opponent_engine": {"devices": devices, "gpu_memory_utilization": 0.2},
            "actor_rollout_ref": {"rollout": rollout, "model": model},
            "trainer": {"v1": {"trainer_mode": "sync"}},
        }
    )


@pytest.mark.parametrize(
    ("ranks", "models", "devices"),
    [
        (1, 1, ["w0", "w1", "w2", "w3"]),
        (1, 6, ["w0", "w1", "w2", "w3", "w0", "w1"]),
        (2, 2, ["w0w1", "w2w3"]),
        (4, 2, ["w0w1w2w3"] * 2),
    ],
)
def test_slots_take_the_policys_devices_in_turn(ranks: int, models: int, devices: list[str]) -> None:
    Replica.made.clear()
    SlotEngine.start(config(ranks), models, ["w0", "w1", "w2", "w3"], Replica)
    assert ["".join(replica.devices) for replica in Replica.made] == devices


def test_devices_of_their_own_must_be_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(opponent_engines, "get_platform", lambda: SimpleNamespace(ray_resource_name=lambda: "GPU"))
    Replica.made.clear()
    SlotEngine.start(config(devices="own"), 2, ["w0"], Replica)
    assert [replica.devices for replica in Replica.made] == [["own"]] * 2
    with pytest.raises(RuntimeError, match=r"opponent_engine\.devices"):
        SlotEngine.start(config(devices="own"), 3, ["w0"], Replica)


def test_the_engines_settings_are_the_policys_but_for_what_must_differ() -> None:
    rollout, model = rollout_config(config()), model_config(config())
    assert (rollout.dtype, rollout.gpu_memory_utilization, rollout.load_format) == ("float32", 0.2, "auto")
    assert rollout.engine_kwargs.vllm.kv_cache_memory_bytes == 100 and not rollout.prometheus.enable
    assert (model.path, model.lora_rank, model.lora_adapter_path, model.lora.rank) == ("/m", 0, None, 0)
