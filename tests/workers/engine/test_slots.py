"""The trainer's side of the slots: their settings, their devices, and what it knows of them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest
from omegaconf import DictConfig, OmegaConf
from verl.workers.rollout.replica import RolloutMode

from recipe.spiral.opponents.engine import EngineSettings
from recipe.spiral.play.seats import BASE
from recipe.spiral.workers.engine import opposition, slot_server, slots
from recipe.spiral.workers.engine.opposition import AdapterEngine
from recipe.spiral.workers.engine.slots import SlotEngine, model_config, rollout_config, shared_devices


@pytest.fixture(autouse=True)
def no_ray(monkeypatch: pytest.MonkeyPatch) -> None:
    """A call's reference is the call itself, or None while it has not ended."""

    def get(calls: Any, timeout: float) -> Any:
        if isinstance(calls, list):
            return [call() for call in calls]
        if calls is None:
            raise TimeoutError("not ready")
        return calls()

    ray = SimpleNamespace(get=get, wait=lambda calls, num_returns, timeout: None)
    monkeypatch.setattr(slots, "ray", ray)
    monkeypatch.setattr(opposition, "ray", ray)


class Server:
    """A server behind Ray: methods by name, called when their references are asked for."""

    def __init__(self) -> None:
        self.player: str | None = None
        self.called: list[Any] = []
        self.hangs = False

    def __getattr__(self, name: str) -> Any:
        def remote(*args: Any) -> Callable[[], Any] | None:
            self.called.append((name, *args))
            return None if self.hangs else lambda: getattr(self, f"_{name}")(*args)

        return SimpleNamespace(remote=remote)

    def _load(self, name: str, path: str) -> None:
        self.player = None
        if path == "/broken":
            raise RuntimeError("ray::load()\n  File ...\nUnfitWeights: /broken: w is missing\n")
        self.player = name

    def _loaded(self) -> str | None:
        return self.player

    def _go_to_sleep(self) -> None:
        self.player = None

    def _awake(self) -> None: ...


def engine(count: int) -> tuple[SlotEngine, list[Server]]:
    made = [Server() for _ in range(count)]
    return SlotEngine([SimpleNamespace(servers=[server]) for server in made]), made


def test_models_are_loaded_side_by_side_and_stay_where_they_are() -> None:
    served, (first, second) = engine(2)
    assert served.names == [None, None]
    assert served.load({"a": Path("/a"), "b": Path("/b")}) == {"a": 0, "b": 1}
    assert (first.called, second.called) == ([("awake",), ("load", "a", "/a")], [("awake",), ("load", "b", "/b")])
    assert served.load({"c": Path("/c"), "b": Path("/b")}) == {"b": 1, "c": 0}
    assert served.names == ["c", "b"]
    assert second.called == [("awake",), ("load", "b", "/b"), ("awake",)], "it is there already"


def test_what_could_not_be_loaded_is_nobody() -> None:
    served, (_, _, third) = engine(3)
    served.load_into({slot: ("old", Path("/old")) for slot in range(3)})
    third.hangs = True
    with pytest.raises(RuntimeError) as error:
        served.load_into({0: ("a", Path("/a")), 1: ("b", Path("/broken")), 2: ("c", Path("/c"))})
    assert str(error.value) == (
        "opponents could not be loaded: b into slot 1: UnfitWeights: /broken: w is missing; c into slot 2: not ready"
    )
    assert served.names == ["a", None, None]


def test_after_sleeping_nobody_is_left() -> None:
    served, (server,) = engine(1)
    served.load({"a": Path("/a")})
    served.sleep()
    assert served.names == [None]
    assert ("go_to_sleep",) in server.called
    assert served.load({"a": Path("/a")}) == {"a": 0}
    assert server.called[-1] == ("load", "a", "/a"), "its weights are gone, and are loaded again"


def test_servers_are_named_for_the_watchdog() -> None:
    served, (first, second) = engine(2)
    assert dict(served.actors()) == {
        "opponents' vLLM server 0.0": first,
        "opponents' vLLM server 1.0": second,
    }


def test_slots_take_the_policys_devices_in_turn() -> None:
    workers = ["w0", "w1", "w2", "w3"]
    assert shared_devices(workers, 6, 1) == [["w0"], ["w1"], ["w2"], ["w3"], ["w0"], ["w1"]]
    assert shared_devices(workers, 3, 2) == [["w0", "w1"], ["w2", "w3"], ["w0", "w1"]]
    with pytest.raises(ValueError, match="of 3 ranks do not divide the policy's 4 devices"):
        shared_devices(workers, 1, 3)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"slots": 1, "devices": "cpu"}, "opponent_engine.devices='cpu': unknown; known: shared, own"),
        ({"slots": 1, "gpu_memory_utilization": 1.0}, "must be between 0 and 1"),
        ({"slots": 1, "rollout": {"gpu_memory_utilization": 1.5}}, "utilization=1.5: must be between 0 and 1"),
    ],
)
def test_settings_that_are_none(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        EngineSettings(**settings)


def test_settings_come_from_the_configs_section() -> None:
    section = OmegaConf.create({"devices": "own", "rollout": {"max_num_seqs": 8}})
    assert EngineSettings.from_config(3, section) == EngineSettings(3, "own", rollout={"max_num_seqs": 8})


def test_engines_that_share_a_gpu_share_its_memory() -> None:
    EngineSettings(2, gpu_memory_utilization=0.15).check_memory(0.6, devices=1, ranks=1)
    EngineSettings(8, gpu_memory_utilization=0.3).check_memory(0.6, devices=8, ranks=1)
    EngineSettings(8, devices="own", gpu_memory_utilization=0.9).check_memory(0.6, devices=1, ranks=1)
    for number, ranks in ((9, 1), (5, 2)):  # two on one of the devices
        with pytest.raises(ValueError, match=r"2 opponents on each GPU .* make 1\.20 of its memory"):
            EngineSettings(number, gpu_memory_utilization=0.3).check_memory(0.6, devices=8, ranks=ranks)
    with pytest.raises(ValueError, match=r"utilization=0\.5: 1 opponents .* make 1\.10 of its memory"):
        EngineSettings(1, rollout={"gpu_memory_utilization": 0.5}).check_memory(0.6, devices=1, ranks=1)


class Replica:
    """One slot; starting takes a while, and whose starts overlap with it is noted."""

    made: ClassVar[list[Replica]] = []
    starting: ClassVar[set[Replica]] = set()

    def __init__(self, replica_rank: int, config: DictConfig, **_: Any) -> None:
        self.rank, self.world_size = replica_rank - slots.FIRST_RANK, config.tensor_model_parallel_size
        self.share = config.gpu_memory_utilization
        self.servers = [Server()]
        self.devices: set[str] = set()
        self.met: set[int] = set()
        self.made.append(self)

    async def launch_on(self, workers: list[str], mode: RolloutMode) -> None:
        assert mode == RolloutMode.HYBRID
        self.devices = set(workers)
        for other in self.starting:
            assert not self.devices & other.devices, "vLLM would count the other's memory as its own"
            self.met.add(other.rank)
            other.met.add(self.rank)
        self.starting.add(self)
        await asyncio.sleep(0.01)
        self.starting.remove(self)


@pytest.fixture
def replicas(monkeypatch: pytest.MonkeyPatch) -> list[Replica]:
    monkeypatch.setattr(slot_server, "SlotReplica", Replica)
    Replica.made.clear()
    Replica.starting.clear()
    return Replica.made


def on_gpus(tensor_parallel: int) -> DictConfig:
    rollout = {"tensor_model_parallel_size": tensor_parallel, "n_gpus_per_node": 4}
    return OmegaConf.merge(config(), {"trainer": {"device": "cuda"}, "actor_rollout_ref": {"rollout": rollout}})


@pytest.mark.parametrize(
    ("number", "ranks", "together"),
    [
        (3, 4, [set(), set(), set()]),
        (4, 2, [{1}, {0}, {3}, {2}]),
        (3, 2, [{1}, {0}, set()]),
        (2, 1, [{1}, {0}]),
    ],
)
def test_slots_on_the_same_devices_start_one_after_another(
    replicas: list[Replica], number: int, ranks: int, together: list[set[int]]
) -> None:
    settings = EngineSettings(number, gpu_memory_utilization=0.1)
    served = SlotEngine.start(on_gpus(ranks), settings, ["w0", "w1", "w2", "w3"])
    assert all(others <= replica.met for replica, others in zip(replicas, together, strict=True))
    assert served.handles == [replica.servers[0] for replica in replicas]


def test_a_start_that_does_not_end_is_ended(replicas: list[Replica], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slots, "START_LIMIT", 0.001)
    with pytest.raises(TimeoutError):
        SlotEngine.start(on_gpus(1), EngineSettings(2, gpu_memory_utilization=0.1), ["w0"])


def test_memory_is_counted_with_the_overrides_for_the_opponents(replicas: list[Replica]) -> None:
    workers = ["w0", "w1", "w2", "w3"]
    SlotEngine.start(on_gpus(1), EngineSettings(4, gpu_memory_utilization=0.3), workers)
    wider = EngineSettings(4, gpu_memory_utilization=0.3, rollout={"tensor_model_parallel_size": 2})
    with pytest.raises(ValueError, match=r"2 opponents on each GPU .* make 1\.20 of its memory"):
        SlotEngine.start(on_gpus(1), wider, workers)
    narrower = EngineSettings(4, gpu_memory_utilization=0.3, rollout={"tensor_model_parallel_size": 1})
    SlotEngine.start(on_gpus(4), narrower, workers)
    larger = EngineSettings(4, gpu_memory_utilization=0.1, rollout={"gpu_memory_utilization": 0.5})
    with pytest.raises(ValueError, match=r"=0\.5: 1 opponents on each GPU .* make 1\.10 of its memory"):
        SlotEngine.start(on_gpus(1), larger, workers)
    assert replicas[-1].share == larger.share == 0.5, "what is counted is what the engine gets"


def config() -> DictConfig:
    return OmegaConf.create(
        {
            "actor_rollout_ref": {
                "rollout": {
                    "dtype": "float32",
                    "load_format": "dummy",
                    "enable_chunked_prefill": False,
                    "gpu_memory_utilization": 0.6,
                    "max_num_seqs": 256,
                    "max_model_len": 512,
                    "prometheus": {"enable": True, "port": 1},
                    "disaggregation": {"enabled": False},
                    "engine_kwargs": {"vllm": {"kv_cache_memory_bytes": 100, "max_loras": 3}},
                },
                "model": {"path": "/m", "lora_rank": 8, "lora_adapter_path": "/l", "lora": {"rank": 8, "merge": True}},
            }
        }
    )


def test_the_engines_settings_are_the_policys_but_for_what_must_differ() -> None:
    rollout = rollout_config(config(), EngineSettings(1, kv_cache_memory_bytes=7, rollout={"max_num_seqs": 64}))
    assert (rollout.dtype, rollout.enable_chunked_prefill, rollout.max_model_len) == ("float32", False, 512)
    assert (rollout.gpu_memory_utilization, rollout.max_num_seqs, rollout.load_format) == (0.2, 64, "auto")
    assert rollout.engine_kwargs.vllm.kv_cache_memory_bytes == 7
    assert not rollout.prometheus.enable
    assert rollout_config(config(), EngineSettings(1)).engine_kwargs.vllm.kv_cache_memory_bytes == 100


def test_the_opponents_model_is_the_policys_without_lora() -> None:
    model = model_config(config())
    assert (model.path, model.lora_rank, model.lora_adapter_path, model.lora.rank) == ("/m", 0, None, 0)


def test_every_server_of_the_policy_has_every_adapter() -> None:
    class Holder(Server):
        def __init__(self, *names: str) -> None:
            super().__init__()
            self.held = dict.fromkeys(names, "/old")

        def _load_adapter(self, name: str, path: str) -> None:
            self.held[name] = path

        def _unload_adapter(self, name: str) -> None:
            self.held.pop(name, None)

        def _list_adapters(self) -> list[str]:
            return sorted(self.held)

    first, second = Holder("a", "b", "d"), Holder("b")
    served = AdapterEngine([SimpleNamespace(servers=[first]), SimpleNamespace(servers=[second])])
    assert served.load({"a": Path("/a"), BASE: Path("/model"), "c": Path("/c")}) == dict.fromkeys(("a", BASE, "c"))
    assert first.held == second.held == {"a": "/a", "c": "/c"}
    served.sleep()
    assert first.held == second.held == {}
