"""The trainer's side of the slots: their settings, their devices, and what it knows of them."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest
from omegaconf import DictConfig, OmegaConf
from verl.workers.rollout.replica import RolloutMode

from recipe.spiral.opponents.engine_settings import memory_share, number_of_slots
from recipe.spiral.players.seats import BASE
from recipe.spiral.workers.engine import opponent_engines, slots
from recipe.spiral.workers.engine.host_memory import HostMemory, free_memory
from recipe.spiral.workers.engine.opponent_engines import AdapterEngine
from recipe.spiral.workers.engine.slots import SlotEngine, assign, model_config, rollout_config, shared_devices


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
    monkeypatch.setattr(opponent_engines, "ray", ray)


MEMORY = HostMemory("node", free=100, weights=10)


class Server:
    """A server behind Ray: methods by name, called when their references are asked for."""

    def __init__(self, memory: HostMemory = MEMORY) -> None:
        self.player: str | None = None
        self.called: list[Any] = []
        self.hangs = False
        self.memory = memory

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

    def _go_to_sleep(self, level: int) -> None:
        if level == 2:
            self.player = None

    def _host_memory(self) -> HostMemory:
        return self.memory

    def _awake(self) -> None: ...


def served_by(*servers: Server, models: int = 1, sleep_level: int | None = None) -> SlotEngine:
    replicas = [SimpleNamespace(servers=[server]) for server in servers]
    return SlotEngine(replicas, models, section(sleep_level=sleep_level))


def section(**settings: Any) -> DictConfig:
    """``opponent_engine`` with these settings."""
    usual = {"devices": "shared", "replicas": None, "sleep_level": None, "gpu_memory_utilization": 0.2}
    return OmegaConf.create({**usual, "kv_cache_memory_bytes": None, "rollout": {}, **settings})


def engine(count: int) -> tuple[SlotEngine, list[Server]]:
    made = [Server() for _ in range(count)]
    return served_by(*made), made


def test_models_are_loaded_side_by_side_and_stay_where_they_are() -> None:
    served, (first, second) = engine(2)
    assert served.names == [None, None]
    assert served.load({"a": Path("/a"), "b": Path("/b")}) == {"a": (0,), "b": (1,)}
    assert (served.loads, served.kept) == (2, 0)
    assert (first.called, second.called) == ([("awake",), ("load", "a", "/a")], [("awake",), ("load", "b", "/b")])
    assert served.load({"c": Path("/c"), "b": Path("/b")}) == {"b": (1,), "c": (0,)}
    assert (served.loads, served.kept) == (1, 1)
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


@pytest.mark.parametrize(
    ("models", "again"),
    [
        ({"a"}, {"a": (0, 1, 2, 3, 4, 5, 6, 7)}),
        ({"a", "b"}, {"a": (0, 1, 2, 3), "b": (4, 5, 6, 7)}),
        ({"b", "c"}, {"b": (4, 5, 6, 7), "c": (0, 1, 2, 3)}),
        ({"b", "c", "d"}, {"b": (4, 5, 6), "c": (0, 1, 2), "d": (3, 7)}),
        ({"d"}, {"d": (0, 1, 2, 3, 4, 5, 6, 7)}),
    ],
)
def test_opponents_share_the_slots_evenly(models: set[str], again: dict[str, tuple[int, ...]]) -> None:
    """Each case is what was loaded last in the order of the cases before it."""
    served, _ = engine(8)
    for step in ("a", "ab", "bc", "bcd", "d"):
        dealt = served.load({name: Path(f"/{name}") for name in step})
        if set(step) == models:
            assert dealt == again
            return


@pytest.mark.parametrize("seed", range(50))
def test_whoever_plays_on_stays_and_nobody_has_two_more_than_another(seed: int) -> None:
    draw = random.Random(seed)
    slots = draw.randint(1, 12)
    names: list[str | None] = [None] * slots
    for _ in range(20):
        models = draw.sample("abcdefgh", draw.randint(1, min(slots, 8)))
        dealt = assign(names, models)
        counts = Counter(dealt)
        assert set(counts) == set(models) and max(counts.values()) - min(counts.values()) <= 1
        held = Counter(names)
        stayed = Counter(name for name, before in zip(dealt, names, strict=True) if name == before)
        assert all(stayed[name] == min(held[name], counts[name]) for name in models), "nobody is moved for nothing"
        names = list(dealt)


def test_asleep_those_are_kept_that_play_again() -> None:
    served, (first, second) = engine(2)
    served.load({"a": Path("/a"), "b": Path("/b")})
    served.sleep({"a", "somebody else"})
    assert served.names == ["a", None]
    assert (first.called[-2], second.called[-2]) == (("go_to_sleep", 1), ("go_to_sleep", 2))
    assert served.load({"a": Path("/a"), "b": Path("/b")}) == {"a": (0,), "b": (1,)}
    assert first.called[-1] == ("awake",) and second.called[-1] == ("load", "b", "/b")
    assert (served.loads, served.kept) == (1, 1)


@pytest.mark.parametrize(
    ("sleep_level", "free", "kept"),
    [(None, 41, True), (None, 39, False), (1, 0, True), (2, 1000, False)],
)
def test_weights_are_kept_where_the_host_has_the_memory(sleep_level: int | None, free: int, kept: bool) -> None:
    """Two slots on a host that is short of memory, and one on another that is not; 10 bytes of weights each."""
    short = [Server(HostMemory("short", free, 10)) for _ in range(2)]
    served = served_by(*short, Server(HostMemory("other", 1000, 10)), sleep_level=sleep_level)
    served.load({"a": Path("/a")})
    for _ in range(2):
        served.sleep({"a"})
        assert served.names == (["a"] * 3 if kept else [None] * 3)
        served.load({"a": Path("/a")})
        assert served.loads == (0 if kept else 3)
    asked = short[0].called.count(("host_memory",))
    assert asked == (1 if sleep_level is None else 0), "what is kept takes memory, and would count against itself"


def test_the_memory_of_a_container_counts(tmp_path: Path) -> None:
    assert free_memory(tmp_path) > 2**20, "without a container's limits, the system's"
    (tmp_path / "memory.max").write_text("1000")
    (tmp_path / "memory.current").write_text("400")
    assert free_memory(tmp_path) == 600
    (tmp_path / "memory.max").write_text("max")
    assert free_memory(tmp_path) > 2**20


def test_slots_take_the_policys_devices_in_turn() -> None:
    workers = ["w0", "w1", "w2", "w3"]
    assert shared_devices(workers, 6, 1) == [["w0"], ["w1"], ["w2"], ["w3"], ["w0"], ["w1"]]
    assert shared_devices(workers, 3, 2) == [["w0", "w1"], ["w2", "w3"], ["w0", "w1"]]


@pytest.mark.parametrize(
    ("models", "settings", "devices", "ranks", "slots"),
    [
        (1, {}, 8, 1, 8),
        (2, {}, 8, 1, 8),
        (3, {}, 8, 1, 8),
        (9, {}, 8, 1, 9),
        (1, {}, 8, 2, 4),
        (1, {"replicas": 1}, 8, 1, 1),
        (2, {"replicas": 8}, 8, 1, 16),
        (2, {"devices": "own"}, 8, 1, 2),
        (2, {"devices": "own", "replicas": 3}, 8, 1, 6),
    ],
)
def test_how_many_slots_there_are(models: int, settings: dict[str, Any], devices: int, ranks: int, slots: int) -> None:
    assert number_of_slots(section(**settings), models, devices, ranks) == slots


class Replica:
    """One slot; starting takes a while, and whose starts overlap with it is noted."""

    made: ClassVar[list[Replica]] = []
    starting: ClassVar[set[Replica]] = set()

    def __init__(self, replica_rank: int, config: DictConfig, **_: Any) -> None:
        self.rank = replica_rank - slots.FIRST_RANK
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
def replicas() -> list[Replica]:
    Replica.made.clear()
    Replica.starting.clear()
    return Replica.made


def on_gpus(tensor_parallel: int, **settings: Any) -> DictConfig:
    sizes = {"tensor_model_parallel_size": tensor_parallel, "data_parallel_size": 1, "pipeline_model_parallel_size": 1}
    rollout = {**sizes, "n_gpus_per_node": 4}
    on_card = {"trainer": {"device": "cuda"}, "actor_rollout_ref": {"rollout": rollout}}
    return OmegaConf.merge(config(**{"gpu_memory_utilization": 0.1, **settings}), on_card)


@pytest.mark.parametrize(
    ("number", "ranks", "together"),
    [
        (3, 4, [set(), set(), set()]),
        (4, 2, [{1}, {0}, {3}, {2}]),
        (3, 2, [{1}, {0}, set()]),
        (2, 1, [{1, 2, 3}, {0, 2, 3}, {0, 1, 3}, {0, 1, 2}]),
    ],
)
def test_slots_on_the_same_devices_start_one_after_another(
    replicas: list[Replica], number: int, ranks: int, together: list[set[int]]
) -> None:
    served = SlotEngine.start(on_gpus(ranks), number, ["w0", "w1", "w2", "w3"], Replica)
    assert all(others <= replica.met for replica, others in zip(replicas, together, strict=True))
    assert served.handles == [replica.servers[0] for replica in replicas]


def test_a_start_that_does_not_end_is_ended(replicas: list[Replica], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slots, "START_LIMIT", 0.001)
    with pytest.raises(TimeoutError):
        SlotEngine.start(on_gpus(1), 2, ["w0"], Replica)


def test_an_engine_has_the_overrides_for_the_opponents(replicas: list[Replica]) -> None:
    workers = ["w0", "w1", "w2", "w3"]
    narrower = on_gpus(4, gpu_memory_utilization=0.3, rollout={"tensor_model_parallel_size": 1})
    SlotEngine.start(narrower, 4, workers, Replica)
    assert [replica.devices for replica in replicas] == [{"w0"}, {"w1"}, {"w2"}, {"w3"}]
    larger = on_gpus(1, rollout={"gpu_memory_utilization": 0.5})
    SlotEngine.start(larger, 4, workers, Replica)
    assert replicas[-1].share == memory_share(larger.opponent_engine) == 0.5, (
        "what the checks count is what the engine gets"
    )


def config(**settings: Any) -> DictConfig:
    return OmegaConf.create(
        {
            "opponent_engine": section(**settings),
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
            },
        }
    )


def test_the_engines_settings_are_the_policys_but_for_what_must_differ() -> None:
    rollout = rollout_config(config(kv_cache_memory_bytes=7, rollout={"max_num_seqs": 64}))
    assert (rollout.dtype, rollout.enable_chunked_prefill, rollout.max_model_len) == ("float32", False, 512)
    assert (rollout.gpu_memory_utilization, rollout.max_num_seqs, rollout.load_format) == (0.2, 64, "auto")
    assert rollout.engine_kwargs.vllm.kv_cache_memory_bytes == 7
    assert not rollout.prometheus.enable
    assert rollout_config(config()).engine_kwargs.vllm.kv_cache_memory_bytes == 100


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
    assert served.load({"a": Path("/a"), BASE: Path("/model"), "c": Path("/c")}) == dict.fromkeys(("a", BASE, "c"), ())
    assert first.held == second.held == {"a": "/a", "c": "/c"}
    assert (served.loads, served.kept) == (4, 0)
    served.load({"a": Path("/a")})
    assert (served.loads, served.kept) == (0, 2)
    served.sleep({"a"})
    assert first.held == second.held == {}


# -- the asynchronous modes --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("names", "models", "in_play", "most", "dealt"),
    [
        ([None, None], ["a"], [], 1, ["a", ""]),
        (["a", None], ["a", "b"], ["a"], 1, ["a", "b"]),
        (["a", "b"], ["b", "c"], ["b"], 1, ["c", "b"]),
        (["a", "b", "a", "b"], ["c", "b"], ["b"], 2, ["c", "b", "c", "b"]),
        (["a", "b"], ["a", "b"], ["a", "b"], 1, ["a", "b"]),
        ([None, None], ["a", "b"], ["a"], 1, ["a", "b"]),
        (["a", "b"], ["b", "a"], [], 1, ["a", "b"]),
    ],
    ids=str,
)
def test_models_in_play_keep_their_slots(
    names: list[str | None], models: list[str], in_play: list[str], most: int, dealt: list[str]
) -> None:
    assert slots.assign_beside(names, models, in_play, most) == dealt


def test_slots_of_nobody_and_of_models_that_are_not_asked_for_count_as_nothing() -> None:
    served = served_by(*(Server() for _ in range(4)), models=4)
    served.load_into({0: ("a", Path("/a")), 2: ("old", Path("/old"))})
    assert served.load({"a": Path("/a"), "b": Path("/b")}, {"a"}) == {"a": (0,), "b": (1,)}
    assert served.names == ["a", "b", "old", None]
    assert (served.loads, served.kept) == (1, 1)


def test_a_slot_whose_games_go_on_has_its_model_again_after_the_sleep() -> None:
    """Asleep it forgets its weights (level 2), and its answers are broken off before."""
    servers = [Server(), Server()]
    for server in servers:
        server._abort_all_requests = server._resume_generation = lambda *_: None  # type: ignore[attr-defined]
    engine = served_by(*servers, models=2, sleep_level=2)
    paths = {name: Path(f"/{name}") for name in "abc"}
    assert engine.load({"a": paths["a"], "b": paths["b"]}, set()) == {"a": (0,), "b": (1,)}
    engine.sleep({"c"}, {"b"})
    assert [server.called[-3] for server in servers] == [("abort_all_requests", True, True)] * 2
    assert engine.names == [None, None]
    assert engine.load({"b": paths["b"], "c": paths["c"]}, {"b"}) == {"b": (1,), "c": (0,)}
    assert [server.player for server in servers] == ["c", "b"]
    assert all(("resume_generation",) in server.called for server in servers)


def test_adapters_of_games_that_go_on_stay_loaded() -> None:
    loaded = {"a", "b"}
    server = SimpleNamespace(
        list_adapters=SimpleNamespace(remote=lambda: lambda: sorted(loaded)),
        unload_adapter=SimpleNamespace(remote=lambda name: lambda: loaded.discard(name)),
    )
    engine = AdapterEngine([SimpleNamespace(servers=[server])])
    engine.sleep({"c"}, {"b"})
    assert loaded == {"b"}
    engine.sleep()
    assert loaded == set()
